# SPDX-License-Identifier: Apache-2.0
"""Memory and processor time of a process, from /proc."""

from __future__ import annotations

from pathlib import Path

__all__ = ["children", "cpu_s", "memory_kib"]


def memory_kib(pid: int | str) -> dict[str, int]:
    """Resident memory in KiB: all (`rss`), and the part that is the process's own (`anon`)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {
        "rss": int(fields["VmRSS"].split()[0]),
        "anon": int(fields["RssAnon"].split()[0]),
    }


def cpu_s(pid: int | str) -> float:
    """Seconds on a core so far, of all its threads, exact to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def children(pid: int) -> list[int]:
    """The processes that it started and that still run."""
    lists = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for text in lists for child in text.split()]
