# SPDX-License-Identifier: Apache-2.0
"""What the numbered messages of all rooms mean.

Rooms register mappings by code under the entry-point group `fairwatt.messages`, so that a page
can explain a code without importing the room that says it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Protocol

__all__ = ["Coded", "coded_messages"]

MESSAGE_GROUP = "fairwatt.messages"
_log = logging.getLogger(__name__)


class Coded(Protocol):
    """One numbered message: when it appears, its text, and what the reader can do."""

    @property
    def code(self) -> str:
        """The number, which never changes its meaning."""
        ...

    @property
    def title(self) -> str:
        """When it appears, in a few words."""
        ...

    @property
    def text(self) -> str:
        """Its text, with names in braces for what is filled in."""
        ...

    @property
    def remedy(self) -> str:
        """What the reader can do."""
        ...


@functools.cache
def coded_messages() -> Mapping[str, Coded]:
    """Return the messages of all rooms by code; a room that cannot be loaded is left out."""
    found: dict[str, Coded] = {}
    for entry in entry_points(group=MESSAGE_GROUP):
        try:
            found |= entry.load()
        except Exception as error:
            _log.warning("messages of %s: %s", entry.name, error)
    return dict(sorted(found.items()))
