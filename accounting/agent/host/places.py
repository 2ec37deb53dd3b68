# SPDX-License-Identifier: Apache-2.0
"""Finds the sources that agent.host_sources names, and makes them in the agent's process."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Sequence
from importlib import import_module

from fairwatt.accounting.agent.host.source import HostSource
from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError

__all__ = ["GROUP", "host_places", "made"]

GROUP = "fairwatt.host_sources"
_log = logging.getLogger(__name__)


def host_places(config: Config) -> list[tuple[str, str]]:
    """Return the name and the place (`module:object`) of each source that the setting names.

    Raises:
        ConfigError: no installed package has a source of that name.
    """
    names: list[str] = config["agent.host_sources"]
    if not names:
        return []
    # The agent itself is told the places: it does without this import.
    from importlib.metadata import entry_points

    known = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise ConfigError(
                "no such source",
                place=config.origins.get("agent.host_sources", "agent.host_sources"),
                value=name,
                remedy=f"use {near[0] if near else ', '.join(sorted(known))}",
            )
    return [(name, known[name]) for name in dict.fromkeys(names)]


def made(options: Sequence[str], config: Config) -> list[HostSource]:
    """Return the sources of this host from options `--host=NAME=MODULE:OBJECT`.

    One that cannot be made is logged and left out: the GPUs are measured all the same.
    """
    found = []
    for option in options:
        name, _, place = option.removeprefix("--host=").partition("=")
        module, _, attribute = place.partition(":")
        try:
            source = getattr(import_module(module), attribute)(config)
        except ConfigError:
            raise
        except Exception:
            _log.exception("source %s cannot be used: without it the agent goes on", name)
            continue
        if source is not None:
            found.append(source)
        _log.info("source %s: %s", name, "used" if source else "not on this host")
    return found
