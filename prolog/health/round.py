# SPDX-License-Identifier: Apache-2.0
"""One round of checks, and all that is read besides NVML.

NVML fills a draft in a thread; the checks are judged when it is ready or when their deadline
comes, whichever is first.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from fairwatt.core.boot import read_boot_id, read_boot_ms
from fairwatt.core.errors import FairwattError
from fairwatt.core.verdict import Holder, one_line
from fairwatt.prolog.health.draft import Draft
from fairwatt.prolog.health.expected import read_expected
from fairwatt.prolog.health.judge import Outcome, judge
from fairwatt.prolog.health.read_kernel import KernelLog, Position
from fairwatt.prolog.health.reading import Disk, Expected, Gap, Gpu, Reading, Xid
from fairwatt.prolog.health.registry import CHECKS
from fairwatt.prolog.health.settings import HealthSettings
from fairwatt.prolog.health.spec import CheckSpec

__all__ = ["HostReader", "Round", "read_disk"]

EXPECTED_S = 300.0
MIB = 1 << 20
MAX_XIDS = 200
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Round:
    """The checks of one round and the draft they wait for; `now` is monotonic seconds."""

    def __init__(self, specs: Iterable[CheckSpec], now: float) -> None:
        self._pending = {spec.name: (spec, now + spec.deadline_s) for spec in specs}
        parts = {part for spec, _ in self._pending.values() for part in spec.reads}
        if "xids" in parts:
            parts.add("counter")  # tells a reset; where it is not offered nothing is lost
        self.draft = Draft({"devices", *parts})
        self.began = now

    @property
    def is_over(self) -> bool:
        """Whether all checks were judged."""
        return not self._pending

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next deadline."""
        return max(0.0, min((due for _, due in self._pending.values()), default=now + 60) - now)

    def judge(
        self, now: float, complete: Callable[[Draft, str], Reading], *, ready: bool
    ) -> list[Outcome]:
        """Judge all checks if the draft is `ready`, else those whose deadline has come."""
        due = [spec for spec, until in self._pending.values() if ready or until <= now]
        if not due:
            return []
        why_not = f"the driver did not answer within {now - self.began:.0f} s"
        reading = complete(self.draft, why_not)
        for spec in due:
            del self._pending[spec.name]
        return [judge(spec, CHECKS[spec.name], reading) for spec in due]


class HostReader:
    """Reads all that is not NVML's: kernel log, disk, what is expected, who holds what."""

    def __init__(
        self,
        settings: HealthSettings,
        position: Position,
        xids: Iterable[Xid],
        known: Iterable[Gpu] = (),
    ) -> None:
        boot_id = read_boot_id(settings.proc_root)
        self._settings = settings
        boot_ms = read_boot_ms(settings.proc_root) or 0
        self._log = KernelLog(settings.kmsg, boot_id, boot_ms, position)
        self.xids: tuple[Xid, ...] = tuple(xids) if position.boot_id == boot_id else ()
        self._names = {gpu.pci: gpu.uuid for gpu in known}
        self._counters: dict[str, int] = {}
        self.holders: tuple[Holder, ...] | None = None
        self._expected: Expected | None = None
        self._expected_key: object = None

    @property
    def position(self) -> Position:
        """How far the kernel log was read."""
        return self._log.position

    def complete(self, draft: Draft, why_not: str) -> Reading:
        """Return the whole reading of this moment."""
        gaps: dict[tuple[str, str], Gap] = {}
        gpus = draft.reading(Reading(t_ms=0), why_not).gpus or ()
        expected = _tried("expected", gaps, lambda: self._expect(gpus))
        boards = expected.boards if expected else None
        xids = _tried("xids", gaps, lambda: self._read_log(gpus, boards or {}))
        disks = _tried("disks", gaps, lambda: (read_disk(self._settings.spool_dir),))
        if self.holders is None:
            gaps["", "holders"] = Gap("not-offered", "the agent has not told who holds what")
        base = Reading(
            t_ms=time.time_ns() // 1_000_000,
            xids=xids,
            disks=disks,
            expected=expected,
            holders=self.holders,
            gaps=gaps,
        )
        return draft.reading(base, why_not)

    def _read_log(self, gpus: Iterable[Gpu], boards: Mapping[str, str]) -> tuple[Xid, ...]:
        self._names |= {pci: uuid for uuid, pci in boards.items()}
        self._names |= {gpu.pci: gpu.uuid for gpu in gpus if gpu.minor >= 0}
        now = {gpu.uuid: gpu.counter for gpu in gpus if gpu.counter is not None}
        fresh = map(self._named, self._log.read())
        kept = [xid for xid in (*self.xids, *fresh) if not _is_over(xid, now)]
        self.xids = tuple(_with_counter(xid, now) for xid in kept[-MAX_XIDS:])
        self._counters |= now
        return self.xids

    def _named(self, xid: Xid) -> Xid:
        device = self._names.get(xid.pci)
        return replace(xid, device=device, counter_mj=self._counters.get(device or ""))

    def _expect(self, gpus: tuple[Gpu, ...]) -> Expected:
        key = (
            tuple((gpu.uuid, gpu.minor) for gpu in gpus),
            tuple(map(_stamp, self._files())),
            int(time.monotonic() / EXPECTED_S),  # files that these include may have changed too
        )
        if self._expected is None or key != self._expected_key:
            self._expected = read_expected(self._settings, gpus)
            self._expected_key = key
        return self._expected

    def _files(self) -> tuple[Path, ...]:
        settings = self._settings
        baseline = settings.folder / "baseline.json"
        return (settings.gres_conf, settings.slurm_conf, settings.mig_file, baseline)


def _with_counter(xid: Xid, counters: Mapping[str, int]) -> Xid:
    """Of one that was there before us the first counter seen will tell a reset."""
    if xid.counter_mj is not None:
        return xid
    return replace(xid, counter_mj=counters.get(xid.device or ""))


def _is_over(xid: Xid, counters: Mapping[str, int]) -> bool:
    """Whether the board was reset since: its energy counter began anew."""
    now_mj = counters.get(xid.device or "")
    return now_mj is not None and xid.counter_mj is not None and now_mj < xid.counter_mj


def _tried(part: str, gaps: dict[tuple[str, str], Gap], read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except (FairwattError, OSError, ValueError) as error:
        gaps["", part] = Gap("fault", one_line(f"{part}: {error}"))
    except Exception as error:  # a fault of ours must not end the other checks
        _log.exception("%s", part)
        gaps["", part] = Gap("fault", one_line(f"{part}: {type(error).__name__}: {error}"))
    return None


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def read_disk(folder: Path) -> Disk:
    """Return the room in the file system of a folder, which may not be made yet.

    Raises:
        OSError: it cannot be asked.
    """
    there = next(path for path in (folder, *folder.parents) if path.exists())
    room = os.statvfs(there)
    inodes = room.f_favail if room.f_files else None
    return Disk(str(folder), room.f_bavail * room.f_frsize // MIB, inodes)
