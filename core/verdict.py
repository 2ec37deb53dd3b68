# SPDX-License-Identifier: Apache-2.0
"""A node's health verdict: what the health worker says, the agent keeps and the prolog is told.

One JSON line per verdict, ASCII only. "unknown" is a fault of the checking, never of the node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Literal

import msgspec

from fairwatt.core.errors import DeviceError

__all__ = [
    "OWN_PREFIX",
    "Action",
    "AgentNotice",
    "CheckState",
    "Finding",
    "Holder",
    "Severity",
    "State",
    "Verdict",
    "decode_verdict",
    "encode_verdict",
    "one_line",
    "state_of",
    "verdict_unknown",
]

OWN_PREFIX = "fairwatt FWH"
"""How every drain reason of ours begins; no other is ever touched."""

_STOPPING = ("permitted", "drained", "foreign", "off")
Severity = Literal["warn", "bad", "unknown"]
Action = Literal["alert", "drain"]
State = Literal["ok", "warn", "bad", "unknown"]
Drain = Literal[
    "",
    "confirming",
    "permitted",
    "drained",
    "foreign",
    "limit",
    "yielded",
    "off",
    "waiting",
]
"""What becomes of a finding whose action is drain; "" where the action is alert.

confirming: not seen often enough yet; permitted: the drain is on its way; drained: the node is
drained with our reason; foreign: with another reason; limit: too many nodes are already; yielded:
an admin decided otherwise; off: health.drain is false; waiting: slurmctld does not answer.
"""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a check found; `since_ms` is UTC epoch milliseconds, 0 if not set yet.

    Attributes:
        device: UUID of the GPU, None where it is about the whole node.
        value: what was read; `text` says it in one ASCII line.
        confirmed: seen in as many rounds as a drain needs.
        drain: see Drain.
    """

    code: str
    severity: Severity
    action: Action = "alert"
    device: str | None = None
    value: str = ""
    text: str = ""
    since_ms: int = 0
    confirmed: bool = False
    drain: Drain = ""

    @property
    def key(self) -> str:
        """Code and device: what tells one trouble from another."""
        return f"{self.code} {self.device}" if self.device else self.code

    @property
    def reason(self) -> str:
        """The drain reason that Slurm is given."""
        return f"fairwatt {self.key}: {self.text}"


class CheckState(msgspec.Struct, frozen=True, kw_only=True):
    """How one check stands: its state, when it was last judged, why it is unknown or off."""

    code: str
    name: str
    state: Literal["ok", "warn", "bad", "unknown", "off"]
    t_ms: int = 0
    note: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a node's health at `t_ms` (UTC epoch milliseconds).

    `stuck_s` is for how long a call into the driver has not returned; 0: none hangs.
    """

    v: Literal[1] = 1
    t_ms: int
    node: str
    state: State
    findings: tuple[Finding, ...] = ()
    checks: tuple[CheckState, ...] = ()
    stuck_s: float = 0.0
    rounds: int = 0

    def fault_of(self, devices: Collection[str]) -> Finding | None:
        """Return the proven hardware fault of one of these devices that may stop a job, or None.

        Only a finding that is confirmed and for which the node is drained, or would be if
        health.drain were on, is one: beyond the limit, or after an admin decided otherwise,
        jobs run.
        """
        for finding in self.findings:
            if finding.device in devices and finding.drain in _STOPPING:
                return finding
        return None


class Holder(msgspec.Struct, frozen=True):
    """A running job's hold: the board's UUID, and the MIG device's or ""."""

    device: str
    instance: str = ""


class AgentNotice(msgspec.Struct, frozen=True, kw_only=True):
    """One JSON line from the agent to the worker.

    Attributes:
        holders: what the running jobs hold now.
        job_ended: whether a job has just ended here: checks of the context epilog are due.
        prolog_failed_ms: when our prolog stopped a job; Slurm then drains the node itself.
    """

    holders: tuple[Holder, ...]
    job_ended: bool = False
    prolog_failed_ms: int | None = None


_decoder = msgspec.json.Decoder(Verdict)


def encode_verdict(verdict: Verdict) -> bytes:
    """Return one JSON line, newline included."""
    return msgspec.json.encode(verdict) + b"\n"


def decode_verdict(line: bytes) -> Verdict:
    """Read one JSON line.

    Raises:
        DeviceError: it is no verdict.
    """
    try:
        return _decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise DeviceError(
            f"not a health verdict: {error}",
            value=line[:80],
            remedy="use worker and agent of the same fairwatt release",
        ) from error


def state_of(findings: Iterable[Finding]) -> State:
    """Return the worst of these: bad, then warn, then unknown; ok where there is none."""
    severities = {finding.severity for finding in findings}
    order: tuple[State, ...] = ("bad", "warn", "unknown")
    return next((state for state in order if state in severities), "ok")


def verdict_unknown(node: str, t_ms: int, code: str, text: str) -> Verdict:
    """Return the verdict of a node whose checker itself does not work."""
    finding = Finding(code=code, severity="unknown", text=one_line(text), since_ms=t_ms)
    return Verdict(t_ms=t_ms, node=node, state="unknown", findings=(finding,))


def one_line(text: Any, limit: int = 160) -> str:  # noqa: ANN401 -- whatever is to be shown
    """Return printable ASCII in one line of at most `limit` characters; the rest becomes "?"."""
    flat = " ".join(str(text).split())
    plain = "".join(char if " " <= char <= "~" else "?" for char in flat)
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."
