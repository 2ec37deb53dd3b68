# SPDX-License-Identifier: Apache-2.0
"""A numbered message: its code never changes its meaning.

>>> Message("FW302", "Unknown", "no GPU type {asked}", "Use another.").note(asked="tesla").text
'no GPU type tesla'
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

__all__ = ["Message", "Note", "counted", "shown"]

MAX_SHOWN_CHARS = 80


class Note(msgspec.Struct, frozen=True, gc=False):
    """A message with its values filled in: one printable ASCII line."""

    code: str
    text: str


@dataclass(frozen=True)
class Message:
    """`title`: when it appears; `text`: a format string; `remedy`: what the reader can do."""

    code: str
    title: str
    text: str
    remedy: str

    def note(self, **values: object) -> Note:
        """Fill in the values; hostile text is made printable and cut.

        Raises:
            KeyError: a value that the text names is missing.
        """
        safe = {name: shown(str(value)) for name, value in values.items()}
        return Note(self.code, self.text.format(**safe))


def shown(text: str, limit: int = MAX_SHOWN_CHARS) -> str:
    """Return user-controlled text as printable ASCII of at most `limit` characters."""
    clean = text
    if not (text.isascii() and text.isprintable()):
        clean = "".join(char if " " <= char <= "~" else "?" for char in text)
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


def counted(count: int, noun: str) -> str:
    """Write a number of things for people.

    >>> counted(1, "node"), counted(2, "node")
    ('1 node', '2 nodes')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
