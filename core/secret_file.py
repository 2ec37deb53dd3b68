# SPDX-License-Identifier: Apache-2.0
"""Keys and passwords: from files that nobody else can read, never from settings or arguments."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fairwatt.core.errors import ConfigError
from fairwatt.core.files import read_plain

__all__ = ["read_secret"]

LONGEST = 4_096


def read_secret(path: Path) -> list[str]:
    """Return the lines of a file that only its owner, root or we, may read.

    Raises:
        ConfigError: it is missing, empty, a link, no text, or others may read or write it.
    """
    try:
        there = os.lstat(path)
        text = read_plain(path, LONGEST).decode("utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}",
            place=str(path),
            remedy="make it a plain file of the user that runs this program, with mode 0600",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError("is no text", place=str(path), remedy="write it as UTF-8") from error
    mode = stat.S_IMODE(there.st_mode)
    if mode & 0o077 or there.st_uid not in (0, os.geteuid()):
        raise ConfigError(
            "others may read it or own it",
            place=str(path),
            value=f"mode {mode:04o}, uid {there.st_uid}",
            remedy=f"chown root {path}; chmod 600 {path}; then change what it holds",
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise ConfigError("is empty", place=str(path), remedy="write the secret into it")
    return lines
