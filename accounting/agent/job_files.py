# SPDX-License-Identifier: Apache-2.0
"""What the agent leaves for the hooks, which must do without it: small files in one folder.

- `<job>`: lines `position<TAB>kind<TAB>name` with the devices of a running job, for TaskProlog
  (`gpu`, `mig`: a UUID), and the job's files of dcgm-exporter's map (`dcgm`: a path), for Epilog.
- `.devices`: the same for every device of the node; a Prolog without the agent takes from it.
- `.hook`: lines `name<TAB>value`: settings for the hooks, which read no fairwatt.toml.
- `.counted-from-0`: a mark: steps count their devices from 0 (ConstrainDevices).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fairwatt.accounting.agent.device_map import Place
from fairwatt.core.files import write_atomically

__all__ = ["JobFiles"]

LOCAL_MARK, DEVICES, HOOK = ".counted-from-0", ".devices", ".hook"
_log = logging.getLogger(__name__)


class JobFiles:
    """Writes and removes the files; a fault is logged, the job goes on."""

    def __init__(self, folder: Path, dcgm_folder: Path | None = None) -> None:
        self._folder = folder
        self._dcgm_folder = dcgm_folder
        self._devices: str | None = None

    def write(self, job_id: int, places: Sequence[Place]) -> None:
        """Write the devices of a job, world-readable; a job without any gets no file."""
        if places:
            self._put(str(job_id), "".join(self._lines(places)))

    def note_devices(self, places: Sequence[Place]) -> None:
        """Leave the node's devices for a Prolog that finds no agent; written when they change."""
        text = "".join(self._lines(places))
        if text != self._devices:
            self._devices = text
            self._put(DEVICES, text)

    def note_settings(self, settings: Mapping[str, str]) -> None:
        """Leave the settings of the hooks."""
        self._put(HOOK, "".join(f"{name}\t{value}\n" for name, value in settings.items()))

    def note_numbering(self, *, local: bool) -> None:
        """Leave the mark that tells TaskProlog that steps count their devices from 0."""
        if local:
            self._put(LOCAL_MARK, "")
        else:
            self._remove(LOCAL_MARK)

    def remove(self, job_id: int) -> None:
        """Remove a job's file if there is one."""
        self._remove(str(job_id))

    def keep_only(self, job_ids: set[int]) -> list[int]:
        """Remove the files of all other jobs: they ended while the agent was away; return them."""
        found = [int(path.name) for path in self._folder.glob("*") if path.name.isdigit()]
        gone = [job_id for job_id in found if job_id not in job_ids]
        for job_id in gone:
            self.remove(job_id)
        return gone

    def _lines(self, places: Iterable[Place]) -> list[str]:
        lines = []
        for place in places:
            position = "-" if place.position is None else str(place.position)
            lines.append(f"{position}\t{place.kind}\t{place.uuid}\n")
            if self._dcgm_folder is not None:
                lines.append(f"-\tdcgm\t{self._dcgm_folder / place.dcgm}\n")
        return lines

    def _put(self, name: str, text: str) -> None:
        """TaskProlog runs as the user: the folder is for all to read, whatever our umask is."""
        try:
            if not self._folder.is_dir():
                self._folder.mkdir(parents=True)
                self._folder.chmod(0o755)
            # No job outlives a power failure, and a prolog waits for this.
            write_atomically(self._folder / name, text.encode(), mode=0o644, durable=False)
        except OSError as error:
            _log.error("%s/%s: not written: %s", self._folder, name, error.strerror)

    def _remove(self, name: str) -> None:
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            _log.error("%s/%s: not removed: %s", self._folder, name, error.strerror)
