# SPDX-License-Identifier: Apache-2.0
"""What `fairwatt ledger verify` finds wrong: the place, what was expected, what stands there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["MAX_KEPT", "Fault", "Findings", "Span"]

MAX_KEPT = 1000
"""So many faults are shown one by one; all are counted."""


class Fault(NamedTuple):
    """One thing that does not add up; amounts are mJ unless `what` says otherwise.

    `subject` is the device, run, day or month; `where` the table, column and time.
    """

    subject: str
    where: str
    what: str
    expected: int | str | None
    found: int | str | None
    remedy: str


class Span(NamedTuple):
    """The time that is verified: local days from `first` to `last`, as epoch ms [from, until)."""

    first: str
    last: str
    from_ms: int
    until_ms: int


@dataclass
class Findings:
    """Collects faults, notes on what could not be verified, and how many rows were read."""

    faults: list[Fault] = field(default_factory=list)
    count: int = 0
    notes: list[str] = field(default_factory=list)
    rows: int = 0

    def add(self, fault: Fault) -> None:
        """Count a fault, and keep it while there is room."""
        self.count += 1
        if len(self.faults) < MAX_KEPT:
            self.faults.append(fault)
