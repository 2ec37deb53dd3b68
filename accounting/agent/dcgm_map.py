# SPDX-License-Identifier: Apache-2.0
"""dcgm-exporter's job map: a file per GPU (`<gpu>`) or slice (`<gpu>.<gi>`), a job id a line.

Other programs may write there too, and several jobs may share a file: only lines of jobs that the
agent knows are added or removed. A file without a line is removed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fairwatt.core.files import read_plain

__all__ = ["DcgmMap"]

LOCK_TRIES, LOCK_WAIT_S = 5, 0.005
LONGEST_FILE = 1 << 20
_NAME = re.compile(r"\d+(\.\d+)?")
_log = logging.getLogger(__name__)


class DcgmMap:
    """The files of one folder; `folder` None: there are none. A fault is logged, the job goes on.

    dcgm-exporter reads while we write: files are replaced whole, under a lock on the folder.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._failing: set[str] = set()

    def add(self, job_id: int, names: Collection[str]) -> None:
        """Put the job on the devices with these names; what is there already stays."""
        self._change({name: _with(str(job_id)) for name in names})

    def remove(self, job_ids: Collection[int]) -> None:
        """Take these jobs off all devices."""
        gone = {str(job_id) for job_id in job_ids}
        self._change(dict.fromkeys(self._names(), _without(gone)) if gone else {})

    def _names(self) -> list[str]:
        try:
            found = list(self._folder.iterdir()) if self._folder else []
        except OSError:
            return []
        return [path.name for path in found if _NAME.fullmatch(path.name)]

    def _change(self, changes: Mapping[str, _Change]) -> None:
        if self._folder is None or not changes:
            return
        try:
            with _locked(self._folder):
                for name, change in changes.items():
                    self._tried(self._folder / name, change)
            self._failing.discard(str(self._folder))
        except OSError as error:
            self._fail(self._folder, error)

    def _tried(self, path: Path, change: _Change) -> None:
        """Change one file; the others do not suffer from its fault."""
        try:
            _rewrite(path, change)
            self._failing.discard(str(path))
        except OSError as error:
            self._fail(path, error)

    def _fail(self, path: Path, error: OSError) -> None:
        """Say once what is wrong with a file or the folder."""
        if str(path) not in self._failing:
            _log.error("%s: the job map for dcgm-exporter is wrong: %s", path, error.strerror)
        self._failing.add(str(path))


_Change = Callable[[list[str]], list[str]]


def _with(line: str) -> _Change:
    return lambda lines: lines if line in lines else [*lines, line]


def _without(gone: Collection[str]) -> _Change:
    return lambda lines: [line for line in lines if line not in gone]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    if not folder.is_dir():
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for _ in range(LOCK_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:  # a hook whose agent was away; it takes a millisecond
                time.sleep(LOCK_WAIT_S)
        yield
    finally:
        os.close(descriptor)


def _rewrite(path: Path, change: _Change) -> None:
    before = _lines(path)
    after = change(before)
    if after == before:
        return
    if not after:
        path.unlink(missing_ok=True)
        return
    # dcgm-exporter passes over names that are no number.
    temporary = path.with_name(f".{path.name}.fairwatt")
    content = "".join(f"{line}\n" for line in after).encode("utf-8", "surrogateescape")
    temporary.unlink(missing_ok=True)
    # Never through a link: the folder may be one where others write too.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(descriptor, 0o644)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _lines(path: Path) -> list[str]:
    try:
        text = read_plain(path, LONGEST_FILE).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return []
    return text.removesuffix("\n").split("\n") if text else []
