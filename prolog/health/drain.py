# SPDX-License-Identifier: Apache-2.0
"""Decides whether this node is to be drained or undrained; pure.

Only a confirmed finding with action drain drains. Only the very reason that we wrote is ever
undrained: one that an admin changed or added to is his, and so is a node that he resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from fairwatt.core.verdict import OWN_PREFIX, Drain, Finding

__all__ = ["HOUR_MS", "NodeView", "Record", "Step", "decide", "is_beyond_limit", "stamped"]

HOUR_MS = 3_600_000
SLURMS_OWN = "Prolog error"
"""The reason with which Slurm drains a node after our prolog stopped a job."""
PROLOG_PATIENCE_MS = 600_000

Deed = Literal["none", "drain", "undrain"]


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node as slurmctld shows it; `since_ms` is when its reason was set (None: not told)."""

    name: str
    state: str
    reason: str = ""
    since_ms: int | None = None

    @property
    def is_drained(self) -> bool:
        """Whether it takes no new jobs because of a drain."""
        return "drain" in self.state.lower()


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What we did to this node, kept over restarts.

    Attributes:
        reason: the very text that we wrote and that lies on the node as far as we know.
        code, device: what it is about.
        sure: it did reach the node; else it was about to be written when this was kept.
        yielded: keys of troubles for which an admin decided otherwise, in this boot.
        boot_id: the boot of all this.
    """

    reason: str = ""
    code: str = ""
    device: str | None = None
    sure: bool = False
    yielded: tuple[str, ...] = ()
    boot_id: str = ""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now, what becomes of the record, what is said of the findings, and why."""

    deed: Deed = "none"
    record: Record
    drain: Drain = ""
    why: str = ""


def decide(
    wanted: Sequence[Finding],
    record: Record,
    view: NodeView,
    others: Iterable[NodeView],
    *,
    healed: bool,
    limit: int,
    now_ms: int,
    boot_id: str = "",
    prolog_failed_ms: int | None = None,
) -> Step:
    """Return the next step.

    A node that takes jobs again after a reboot (`scontrol reboot nextstate=resume`) was resumed in
    the hope that the reboot helped: nobody decided to live with the trouble.

    Args:
        wanted: the confirmed findings whose action is drain, the oldest first.
        record: what we did before.
        view: this node now.
        others: the cluster's other nodes now.
        healed: what the record is about has passed often enough.
        limit: so many nodes may have our reason within an hour, this one among them.
        now_ms: UTC epoch milliseconds.
        boot_id: this boot's.
        prolog_failed_ms: when our prolog last stopped a job here.
    """
    same_boot = record.boot_id == boot_id
    record = _pruned(record, wanted if same_boot else (), boot_id)
    if record.reason and view.is_drained and view.reason == record.reason:
        record = replace(record, sure=True)
        if wanted or not healed:
            return Step(record=record, drain="drained")
        return Step(deed="undrain", record=record, why=f"{record.code} passes again")
    if record.sure and same_boot:
        yielded = (*record.yielded, *(finding.key for finding in wanted))
        why = f"the node is {view.state} with reason {view.reason!r}: an admin decided"
        fresh = Record(yielded=_unique(yielded), boot_id=boot_id)
        return Step(record=fresh, drain="yielded", why=why)
    record = Record(yielded=record.yielded, boot_id=boot_id)
    for finding in wanted:
        if finding.key not in record.yielded:
            slurms = view.reason == SLURMS_OWN and _is_recent(prolog_failed_ms, now_ms)
            return _begin(finding, record, view, others, limit, now_ms, slurms=slurms)
    return Step(record=record, drain="yielded" if wanted else "")


def _is_recent(failed_ms: int | None, now_ms: int) -> bool:
    return failed_ms is not None and now_ms - failed_ms < PROLOG_PATIENCE_MS


def _begin(
    finding: Finding,
    record: Record,
    view: NodeView,
    others: Iterable[NodeView],
    limit: int,
    now_ms: int,
    *,
    slurms: bool,
) -> Step:
    fresh = Record(
        reason=finding.reason,
        code=finding.code,
        device=finding.device,
        yielded=record.yielded,
        boot_id=record.boot_id,
    )
    if view.is_drained and view.reason == finding.reason:  # our memory was lost
        return Step(record=replace(fresh, sure=True), drain="drained")
    if view.is_drained and not slurms:
        return Step(record=record, drain="foreign", why=f"drained already: {view.reason!r}")
    if len(_ours(others, now_ms)) >= limit:
        return Step(record=record, drain="limit", why=f"{limit} nodes within an hour")
    return Step(deed="drain", record=fresh, drain="permitted", why=finding.reason)


def is_beyond_limit(name: str, views: Iterable[NodeView], *, limit: int, now_ms: int) -> bool:
    """Whether this node came too late among those that drained at the same time.

    Ask a moment after the drain: then all nodes of the same second are seen, and of any number
    that drain at once the first `limit` by time and name stay.
    """
    order = sorted((view.since_ms or 0, view.name) for view in _ours(views, now_ms))
    return name in [each for _, each in order[limit:]]


def stamped(findings: Iterable[Finding], step: Step | None, *, enabled: bool) -> list[Finding]:
    """Return the findings with what becomes of each."""
    return [
        replace(finding, drain=_drain_of(finding, step, enabled=enabled)) for finding in findings
    ]


def _drain_of(finding: Finding, step: Step | None, *, enabled: bool) -> Drain:
    if finding.action != "drain" or finding.severity == "unknown":
        return ""
    if not finding.confirmed:
        return "confirming"
    if not enabled:
        return "off"
    if step is None:
        return "waiting"
    return "yielded" if finding.key in step.record.yielded else step.drain or "waiting"


def _ours(views: Iterable[NodeView], now_ms: int) -> list[NodeView]:
    return [
        view
        for view in views
        if view.reason.startswith(OWN_PREFIX)
        and (view.since_ms is None or now_ms - view.since_ms < HOUR_MS)
    ]


def _pruned(record: Record, wanted: Sequence[Finding], boot_id: str) -> Record:
    """Forget decisions about troubles that are over."""
    keys = {finding.key for finding in wanted}
    yielded = tuple(key for key in record.yielded if key in keys)
    return replace(record, yielded=yielded, boot_id=boot_id)


def _unique(keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(keys))
