# SPDX-License-Identifier: Apache-2.0
"""The invented university of the demonstration, read from northfield.toml."""

from __future__ import annotations

from pathlib import Path

import msgspec

__all__ = ["Account", "Group", "Pool", "University", "load_university"]


class Account(msgspec.Struct, frozen=True):
    """An account of the tree with its raw shares."""

    name: str
    parent: str | None = None
    shares: int = 1
    description: str = ""


class Group(msgspec.Struct, frozen=True):
    """Users of one account who work alike; the file explains each factor."""

    account: str
    names: tuple[str, ...]
    weights: tuple[float, ...]
    busy: float
    wide: float
    length: float
    pools: tuple[float, ...]
    coordinator: bool = False


class Pool(msgspec.Struct, frozen=True):
    """Devices of one type behind one queue; watts are per board."""

    type: str
    model: str
    partition: str
    nodes: tuple[str, ...]
    boards_per_node: int
    devices_per_board: int
    cut: tuple[int, int]
    idle_w: int
    max_w: int
    first_board: int = 0

    @property
    def whole(self) -> bool:
        """Whether a device is a whole board."""
        return self.cut[0] == self.cut[1]

    @property
    def milli(self) -> int:
        """Thousandths of a full GPU that one device is."""
        return round(1000 * self.cut[0] / self.cut[1])


class University(msgspec.Struct, frozen=True):
    """Everything the seeded year is drawn from."""

    name: str
    cluster: str
    runs_per_day: float
    hours: tuple[float, ...]
    weekdays: tuple[float, ...]
    months: tuple[float, ...]
    load: tuple[tuple[float, float], ...]
    names: tuple[str, ...]
    accounts: tuple[Account, ...]
    users: tuple[Group, ...]
    pools: tuple[Pool, ...]


def load_university() -> University:
    """Read the file that comes with the package."""
    text = Path(__file__).with_name("northfield.toml").read_text(encoding="utf-8")
    return msgspec.toml.decode(text, type=University)
