# SPDX-License-Identifier: Apache-2.0
"""Where the change of a node's layout stands, read from its journal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairwatt.core.files import locked
from fairwatt.prolog.mig.apply import outage_s
from fairwatt.prolog.mig.journal import Begun, Ended, Journal, Mark, Record, last_change

__all__ = ["as_text", "read_status"]


def read_status(folder: Path) -> dict[str, Any]:
    """Return what `fairwatt mig status --json` prints; `state` is none, running, open or an end.

    Raises:
        SpoolError: the journal cannot be read.
    """
    journal = Journal.peek(folder)
    if journal is not None:
        at_work = _is_held(folder)
        return _report(journal.records, "running" if at_work else "open", journal.way)
    records = last_change(folder)
    return _report(records, "ended", "forward") if records else {"state": "none"}


def as_text(report: dict[str, Any]) -> str:
    """Return the report for people."""
    if report["state"] == "none":
        return "no layout was changed here"
    lines = [f"{report['node']}: {report['old']} -> {report['new']}, begun {_when(report)}"]
    lines += [f"  {row['way']:7} {row['step']:11} {_step_text(row)}" for row in report["steps"]]
    lines.append(_ending(report))
    return "\n".join(lines)


def _is_held(folder: Path) -> bool:
    try:
        lock = locked(folder / "lock")
    except OSError:
        return False
    if lock is None:
        return True
    lock.close()
    return False


def _report(records: Sequence[Record], state: str, way: str) -> dict[str, Any]:
    begun, last = records[0], records[-1]
    assert isinstance(begun, Begun), "a journal begins so"  # noqa: S101
    ended = last if isinstance(last, Ended) else None
    return {
        "state": ended.result if ended else state,
        "way": way,
        "node": begun.node,
        "old": begun.old.gres,
        "new": begun.new.gres,
        "layout": begun.new.name,
        "dynamic": begun.dynamic,
        "begun_ms": begun.t_ms,
        "text": ended.text if ended else "",
        "outage_s": outage_s(records),
        "steps": [
            {"way": mark.way, "step": mark.step, "phase": mark.phase, "text": mark.text}
            for mark in _newest(records)
        ],
    }


def _newest(records: Sequence[Record]) -> list[Mark]:
    """The last mark of each step on each way, in the order in which they began."""
    marks = [each for each in records if isinstance(each, Mark)]
    newest = {(mark.way, mark.step): mark for mark in marks}
    return list(newest.values())


def _step_text(row: dict[str, Any]) -> str:
    words = {"begin": "begun, not done", "done": "done", "failed": f"failed: {row['text']}"}
    return words[row["phase"]]


def _when(report: dict[str, Any]) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(report["begun_ms"] / 1000))


def _ending(report: dict[str, Any]) -> str:
    state = report["state"]
    why = f": {report['text']}" if report["text"] else ""
    if state == "running":
        return "it is at work"
    if state == "open":
        return "not finished: run fairwatt mig apply again, or with --rollback"
    if state == "stuck":
        return f"stuck, drained{why}; run fairwatt mig apply --rollback, or --abandon"
    away = report["outage_s"]
    return f"{state}{why}" + (f"; out of service for {away:.2f} s" if away is not None else "")
