# SPDX-License-Identifier: Apache-2.0
"""Messages that hooks left as files while the agent was away or slow."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from pathlib import Path

from fairwatt.accounting.agent.requests import HookRequest, parse_request
from fairwatt.core.errors import SpoolError
from fairwatt.core.files import read_plain

__all__ = ["Inbox"]

LONGEST = 4 << 20
"""No hook writes more: Linux gives no program a larger environment by default."""
_log = logging.getLogger(__name__)


class Inbox:
    """The folder of waiting messages; created with mode 0700: hooks run as root."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reported: set[Path] = set()

    @property
    def has_mail(self) -> bool:
        """Whether a message waits."""
        return any(self._folder.glob("[!.]*.json"))

    def prepare(self) -> None:
        """Create the folder.

        Raises:
            OSError: it cannot be created.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def waiting(self) -> Iterator[tuple[Path, HookRequest]]:
        """Yield the messages, oldest first; what is none is set aside as `.bad`, with a log line.

        Remove each file (`done`) once it is in the journal.
        """
        for path in sorted(self._folder.glob("[!.]*.json")):
            try:
                yield path, parse_request(read_plain(path, LONGEST))
            except SpoolError as error:
                _log.error("%s set aside: %s", path, error)
                self.set_aside(path)
            except OSError as error:
                self._unreadable(path, error)

    def _unreadable(self, path: Path, error: OSError) -> None:
        """Say so once: the inbox is looked at every second."""
        if path not in self._reported:
            _log.error("%s: cannot be read: %s", path, error.strerror)
            self._reported.add(path)
        if error.errno in (errno.EINVAL, errno.ELOOP):
            self.set_aside(path)

    def set_aside(self, path: Path) -> None:
        """Rename a message to `.bad`, so that it is tried no more; a refusal is logged."""
        try:
            path.rename(path.with_suffix(".bad"))
        except OSError as error:
            _log.error("%s: cannot be set aside: %s", path, error.strerror)

    def done(self, path: Path) -> None:
        """Remove a message that is in the journal."""
        path.unlink(missing_ok=True)
