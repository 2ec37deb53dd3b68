# SPDX-License-Identifier: Apache-2.0
"""Runs one check on one reading. A check that breaks, or misses its reading, is unknown.

Codes of the checking itself: FWH901 a check broke, FWH902 not offered by device or driver (no
alert), FWH903 an error instead of an answer, FWH904 no answer in time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from fairwatt.core.verdict import CheckState, Finding, one_line
from fairwatt.prolog.health.reading import GPU_PARTS, Gap, Reading
from fairwatt.prolog.health.spec import CheckSpec

__all__ = ["CODES", "Check", "Outcome", "Params", "Problem", "judge"]

Params = Mapping[str, Any]
CODES: Mapping[str, str] = {
    "broke": "FWH901",
    "not-offered": "FWH902",
    "fault": "FWH903",
    "timeout": "FWH904",
}
_log = logging.getLogger(__name__)


class Problem(NamedTuple):
    """What a check found on one device (None: the node): the value read, and a sentence."""

    device: str | None
    value: str
    text: str


Check = Callable[[Reading, Params], Iterator[Problem]]
"""Pure: judges only the parts that are there; raises nothing that is expected."""


class Outcome(NamedTuple):
    """One check's result of one round.

    Attributes:
        problems: what it found.
        gaps: what it could not look at, by device ("": all of them).
        answering: the boards that could be spoken to; only these can pass.
        baseline: the boards of the recorded baseline; None where there is none.
    """

    spec: CheckSpec
    t_ms: int
    problems: tuple[Problem, ...]
    gaps: Mapping[str, Gap | str]
    answering: frozenset[str]
    baseline: frozenset[str] | None

    def passes(self, device: str | None) -> bool:
        """Whether this round shows that the trouble of this device is over.

        A board that does not answer, or is not there although the baseline has it, or of which
        nothing was read, proves nothing.
        """
        if "" in self.gaps or any(problem.device == device for problem in self.problems):
            return False
        if device is None:
            return True
        gone = self.baseline is not None and device not in self.baseline
        return device not in self.gaps and (device in self.answering or gone)

    def state(self) -> CheckState:
        """How the check stands after this round."""
        word: Literal["ok", "warn", "bad", "unknown"] = "ok"
        if self.problems:
            word = self.spec.severity
        elif self.gaps:
            word = "unknown"
        return CheckState(
            code=self.spec.code,
            name=self.spec.name,
            state=word,
            t_ms=self.t_ms,
            note="; ".join(sorted({_note(gap) for gap in self.gaps.values()})),
        )

    def unknowns(self) -> Iterator[tuple[str, str | None, str]]:
        """Code, device and reason of each gap that an admin should hear of."""
        for device, gap in self.gaps.items():
            if isinstance(gap, str):
                yield CODES["broke"], device or None, f"{self.spec.name}: {gap}"
            elif gap.kind != "not-offered":
                yield CODES[gap.kind], device or None, gap.why

    def findings(self) -> Iterator[Finding]:
        """The problems as findings, without history."""
        for problem in self.problems:
            yield Finding(
                code=self.spec.code,
                severity=self.spec.severity,
                action=self.spec.action,
                device=problem.device,
                value=one_line(problem.value, 60),
                text=one_line(problem.text),
            )


def judge(spec: CheckSpec, check: Check, reading: Reading) -> Outcome:
    """Run one check; whatever it raises makes it unknown."""
    gaps: dict[str, Gap | str] = dict(_gaps(spec, reading))
    problems: tuple[Problem, ...] = ()
    if "" not in gaps:
        try:
            problems = tuple(check(reading, spec.parameters))
        except Exception as error:
            _log.exception("check %s", spec.name)
            gaps[""] = one_line(f"{type(error).__name__}: {error}")
    boards = reading.expected.boards if reading.expected else None
    return Outcome(
        spec,
        reading.t_ms,
        problems,
        gaps,
        frozenset(gpu.uuid for gpu in reading.answering()),
        None if boards is None else frozenset(boards),
    )


def _gaps(spec: CheckSpec, reading: Reading) -> Iterator[tuple[str, Gap]]:
    for part in (*spec.reads, *_implied(spec.reads)):
        if ("", part) in reading.gaps:
            yield "", reading.gaps["", part]
        for gpu in reading.gpus or () if part == "devices" else ():
            if (gpu.uuid, part) in reading.gaps:
                yield gpu.uuid, reading.gaps[gpu.uuid, part]
        for gpu in reading.answering() if part in GPU_PARTS else ():
            if (gpu.uuid, part) in reading.gaps:
                yield gpu.uuid, reading.gaps[gpu.uuid, part]


def _implied(parts: Collection[str]) -> tuple[str, ...]:
    """Parts of a board can only be read where the boards were found."""
    return ("devices",) if any(part in GPU_PARTS for part in parts) else ()


def _note(gap: Gap | str) -> str:
    if isinstance(gap, str):
        return f"{CODES['broke']}: {gap}"
    return f"{CODES[gap.kind]}: {gap.why}"
