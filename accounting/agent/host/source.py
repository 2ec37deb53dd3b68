# SPDX-License-Identifier: Apache-2.0
"""What the agent needs of something that measures a host's CPUs, DRAM or the whole node.

A source is named in the entry-point group `fairwatt.host_sources`: a factory that takes the
whole configuration and returns the source, or None where this host has nothing of the kind.
The setting agent.host_sources lists those to use; each part is taken from the first that has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fairwatt.core.config import Config

__all__ = ["HostSource", "Reading", "SourceFactory"]


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at one part of the host at `t_ms` (UTC epoch milliseconds); None: not offered.

    `part` is "cpu0" or "dram0" with the number of the package, "cpu0d1" for one die of it,
    "cpu" or "dram" for all packages together, or "node" for all that the host draws.
    `energy_uj` counts up and begins again at `wrap_uj` (None: not known where). Where there is
    no counter, `power_mw` is integrated. `max_mw` is the most that the part can draw.
    `fault` says in one sentence why the part could not be read.
    """

    part: str
    t_ms: int
    energy_uj: int | None = None
    wrap_uj: int | None = None
    power_mw: int | None = None
    fault: str | None = None
    max_mw: int | None = None


class HostSource(Protocol):
    """Reads some parts of this host; `name` becomes the method of their windows.

    A `slow` source (more than a millisecond) is asked only with the samples, in a thread of its
    own, and its last power holds until the next; the others are read at every cut.
    """

    @property
    def name(self) -> str:
        """Return the source's name as in agent.host_sources."""

    @property
    def slow(self) -> bool:
        """Return whether reading takes more than a millisecond."""

    def read(self) -> list[Reading]:
        """Return a reading of each part that this source has. Never raises."""


SourceFactory = Callable[[Config], HostSource | None]
