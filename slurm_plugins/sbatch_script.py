# SPDX-License-Identifier: Apache-2.0
"""The flags in a batch script's #SBATCH lines, read as sbatch reads them.

>>> script_flags('''#!/bin/sh
... #SBATCH --gres=gpu:20gb:1 -n 1  # a comment
... train
... #SBATCH --time=5''')
['--gres=gpu:20gb:1', '-n', '1']
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from fairwatt.core.errors import GrammarError

__all__ = ["MAX_SCRIPT_BYTES", "is_script", "script_flags"]

MAX_SCRIPT_BYTES = 4 << 20
"""As Slurm's own limit (max_script_size)."""

_DIRECTIVE = re.compile(r"#SBATCH(?:\s+(.*))?$")


def is_script(word: str) -> bool:
    """Whether a command line's word is a batch script: a file whose first line is `#!`."""
    path = Path(word)
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def script_flags(text: str) -> list[str]:
    """Return the flags of the #SBATCH lines before the first command, in order.

    Those of a heterogeneous job's later parts (after `#SBATCH hetjob`) are left out.

    Raises:
        GrammarError: a line has an open quote.
    """
    flags: list[str] = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        match = _DIRECTIVE.match(line)
        if match is None:
            continue
        words = _words(match[1] or "")
        if words in (["hetjob"], ["packjob"]):
            break
        flags += words
    return flags


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise GrammarError(
            f"cannot be read: {error}", text=text, part=text, remedy="close the quote"
        ) from error
