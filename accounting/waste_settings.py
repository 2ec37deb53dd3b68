# SPDX-License-Identifier: Apache-2.0
"""What a site sets of waste: the settings `waste.*`."""

from __future__ import annotations

from fairwatt.accounting.waste import Limits
from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError

__all__ = ["limits_of"]

PERCENTS = ("idle", "busy", "cpu_full", "low", "low_memory")


def limits_of(config: Config) -> Limits:
    """Return the limits as the site sets them.

    Raises:
        ConfigError: a part that is none, or idle GPUs that would count as busy.
    """
    parts = {name: _permille(config, name) for name in PERCENTS}
    if parts["idle"] >= parts["busy"]:
        raise ConfigError(
            "a GPU would be idle and busy at once",
            place="waste.idle_percent",
            value=config["waste.idle_percent"],
            remedy="set it below waste.busy_percent",
        )
    return Limits(
        shortest_s=config["waste.shortest_s"],
        idle_permille=parts["idle"],
        busy_permille=parts["busy"],
        cpu_full_permille=parts["cpu_full"],
        low_permille=parts["low"],
        low_memory_permille=parts["low_memory"],
        slowdown_permille=round(1000 * config["waste.largest_slowdown"]),
    )


def _permille(config: Config, name: str) -> int:
    percent = config[f"waste.{name}_percent"]
    if not 0 <= percent <= 100:
        raise ConfigError(
            "not a part in per cent",
            place=f"waste.{name}_percent",
            value=percent,
            remedy="write a number from 0 to 100",
        )
    return int(10 * percent)
