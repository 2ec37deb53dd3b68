# SPDX-License-Identifier: Apache-2.0
"""The services that a site can choose in carbon.source: fairwatt's own, and any by entry point."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from fairwatt.accounting.carbon.sources.electricitymaps import ElectricityMapsSource
from fairwatt.accounting.carbon.sources.entsoe import EntsoeSource
from fairwatt.accounting.carbon.sources.france import FranceSource
from fairwatt.accounting.carbon.sources.source import Access, GridSource
from fairwatt.accounting.carbon.sources.uk import UkSource
from fairwatt.core.errors import ConfigError

__all__ = ["GROUP", "make_source"]

GROUP = "fairwatt.grid_sources"
"""Entry points of this group are called with an `Access` and return a `GridSource`."""

_OWN: dict[str, Callable[[Access], GridSource]] = {
    "uk": UkSource,
    "france": FranceSource,
    "entsoe": EntsoeSource,
    "electricitymaps": ElectricityMapsSource,
}


def make_source(name: str, access: Access) -> GridSource:
    """Return the service of that name.

    Raises:
        ConfigError: there is none, or it does not know the zone.
    """
    if name in _OWN:
        return _OWN[name](access)
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        raise ConfigError(
            "no such service of grid data", place="carbon.source", value=name,
            remedy=f"known: {', '.join([*_OWN, *sorted(found)])}; empty: none",
        )  # fmt: skip
    source: GridSource = found[name].load()(access)
    return source
