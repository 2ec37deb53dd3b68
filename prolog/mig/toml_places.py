# SPDX-License-Identifier: Apache-2.0
r"""Where in a TOML file's text a key stands, for messages: tomllib does not tell; pure.

>>> Places("[a]\nx = 1\n", "f.toml").of("a", "x")
'f.toml:2'
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

__all__ = ["Places"]

_HEADER = re.compile(r"\s*\[([^\[\]].*)\]\s*(?:#.*)?")
_WORD = r"""(?:"[^"]*"|'[^']*'|[\w-]+)"""
_KEY = re.compile(rf"\s*({_WORD}(?:\s*\.\s*{_WORD})*)\s*=")


class Places:
    """The lines of one file's tables and keys."""

    def __init__(self, text: str, place: str) -> None:
        self._place = place
        self._lines: dict[tuple[str, ...], int] = {}
        for path, number in _paths(text):
            for length in range(1, len(path) + 1):
                self._lines.setdefault(path[:length], number)

    def of(self, *path: str) -> str:
        """Return `file:line` of a key, or of the nearest table or key that holds it."""
        for length in range(len(path), 0, -1):
            line = self._lines.get(path[:length])
            if line is not None:
                return f"{self._place}:{line}"
        return self._place


def _paths(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header, key = _HEADER.fullmatch(line), _KEY.match(line)
        if header is not None:
            table = _path(f"[{header[1]}]")
            yield table, number
        elif key is not None:
            yield (*table, *_path(f"{key[1]} = 0")), number


def _path(line: str) -> tuple[str, ...]:
    """The keys that one line of TOML leads through; () for a line that is none."""
    try:
        node: Any = tomllib.loads(line)
    except (tomllib.TOMLDecodeError, RecursionError):
        return ()
    path: list[str] = []
    while isinstance(node, dict) and node:
        key = next(iter(node))
        path.append(key)
        node = node[key]
    return tuple(path)
