# SPDX-License-Identifier: Apache-2.0
"""Logging of all daemons and commands: to stderr, with journald's level prefix under systemd."""

from __future__ import annotations

import logging
import os
import sys

from fairwatt.core.log_limit import LimitRepeats

__all__ = ["setup"]

_PRIORITY = {
    logging.DEBUG: "<7>",
    logging.INFO: "<6>",
    logging.WARNING: "<4>",
    logging.ERROR: "<3>",
    logging.CRITICAL: "<2>",
}
_MARK = "_fairwatt"


class _JournalFormatter(logging.Formatter):
    """Puts `<n>` before every line, so that journald keeps the level of a multi-line message."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = _PRIORITY.get(record.levelno, "<5>")
        return "\n".join(prefix + line for line in super().format(record).splitlines())


def setup(verbose: bool = False, *, limited: bool = False) -> None:
    """Send log records of level INFO (DEBUG if `verbose`) and above to stderr.

    Calling it again replaces the earlier set-up. JOURNAL_STREAM in the environment switches to
    level prefixes without a time, which journald adds itself. With `limited`, one line of code
    that logs again and again is held up (see log_limit.py), but for a `verbose` set-up.
    """
    handler = logging.StreamHandler(sys.stderr)
    if os.environ.get("JOURNAL_STREAM"):
        handler.setFormatter(_JournalFormatter("%(name)s: %(message)s"))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    if limited and not verbose:
        handler.addFilter(LimitRepeats())
    setattr(handler, _MARK, True)
    root = logging.getLogger()
    for old in [item for item in root.handlers if getattr(item, _MARK, False)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
