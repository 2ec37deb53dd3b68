# SPDX-License-Identifier: Apache-2.0
"""A small file per running job for TaskProlog: lines `position<TAB>kind<TAB>uuid`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from fairwatt.accounting.agent.device_map import Place
from fairwatt.core.files import write_atomically

__all__ = ["JobFiles"]

LOCAL_MARK = ".counted-from-0"
_log = logging.getLogger(__name__)


class JobFiles:
    """Writes and removes the files; a fault is logged, the job goes on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, job_id: int, places: Sequence[Place]) -> None:
        """Write the devices of a job, world-readable; a job without any gets no file."""
        if not places:
            return
        lines = [
            f"{'-' if place.position is None else place.position}\t{place.kind}\t{place.uuid}\n"
            for place in places
        ]
        try:
            self._make_folder()
            write_atomically(self._folder / str(job_id), "".join(lines).encode(), mode=0o644)
        except OSError as error:
            _log.error("%s/%d: not written: %s", self._folder, job_id, error.strerror)

    def note_numbering(self, *, local: bool) -> None:
        """Leave the mark that tells TaskProlog that steps count their devices from 0."""
        mark = self._folder / LOCAL_MARK
        try:
            self._make_folder()
            if local:
                mark.touch(mode=0o644)
            else:
                mark.unlink(missing_ok=True)
        except OSError as error:
            _log.error("%s: not written: %s", mark, error.strerror)

    def _make_folder(self) -> None:
        """TaskProlog runs as the user: the folder is for all to read, whatever our umask is."""
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True)
            self._folder.chmod(0o755)

    def remove(self, job_id: int) -> None:
        """Remove a job's file if there is one."""
        try:
            (self._folder / str(job_id)).unlink(missing_ok=True)
        except OSError as error:
            _log.error("%s/%d: not removed: %s", self._folder, job_id, error.strerror)

    def keep_only(self, job_ids: set[int]) -> None:
        """Remove the files of all other jobs: they ended while the agent was away."""
        for path in self._folder.glob("*"):
            if path.name.isdigit() and int(path.name) not in job_ids:
                self.remove(int(path.name))
