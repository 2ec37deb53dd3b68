# SPDX-License-Identifier: Apache-2.0
"""What a site says of its carbon: read and checked once, then brought into the store."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from fairwatt.accounting.carbon.contracts import Bought, load_contracts, stage_contracts
from fairwatt.accounting.carbon.embodied import Hardware, load_hardware, stage_hardware
from fairwatt.accounting.carbon.factors import MARGINAL, FactorFile, check_zone, load_factors
from fairwatt.accounting.carbon.grid_store import file_words, stage_file
from fairwatt.accounting.carbon.pue import load_pue_history, stage_pue, stage_pue_history
from fairwatt.accounting.carbon.sources.registry import make_source
from fairwatt.accounting.carbon.sources.source import Access, GridSource
from fairwatt.accounting.carbon.versions import choice_words, name_zone, publish
from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError

__all__ = ["CarbonSite", "carbon_site", "prepare_carbon", "source_of"]


@dataclass(frozen=True)
class CarbonSite:
    """The settings of section carbon with the files they name, and the service if there is one."""

    zone: str
    factors: FactorFile
    pue: float
    grid_zone: str = ""
    method: str = ""
    pue_file: str = ""
    pue_history: tuple[tuple[int, int], ...] = ()
    contracts_file: str = ""
    contracts: tuple[Bought, ...] = ()
    hardware: tuple[Hardware, ...] = ()
    source: GridSource | None = None
    fetch_s: float = 0.0

    @property
    def interval_s(self) -> float:
        """Seconds between two questions to the service; 0: it is never asked."""
        return self.fetch_s if self.source else 0.0


def carbon_site(config: Config) -> CarbonSite:
    """Read what carbon needs from the configuration and the files it names.

    Raises:
        ConfigError: a bad file, a zone without factors, a service that is unknown.
    """
    factors = load_factors(config["carbon.factors_file"] or None)
    check_zone(factors, config["carbon.zone"])
    source = source_of(config)
    method = config["carbon.method"] or (source.method if source else "")
    if method == MARGINAL:
        raise ConfigError(
            "marginal factors tell what a change would do, not what was emitted",
            place="carbon.method", value=method, remedy="leave it empty, or name an average",
        )  # fmt: skip
    pue_file = config["carbon.pue_file"]
    contracts_file = config["carbon.contracts_file"]
    return CarbonSite(
        zone=config["carbon.zone"],
        factors=factors,
        pue=config["carbon.pue"],
        grid_zone=source.zone if source else config["carbon.grid_zone"],
        method=method,
        pue_file=pue_file,
        pue_history=tuple(load_pue_history(pue_file)) if pue_file else (),
        contracts_file=contracts_file,
        contracts=tuple(load_contracts(contracts_file)) if contracts_file else (),
        hardware=tuple(load_hardware(config["carbon.embodied_file"] or None).values()),
        source=source,
        fetch_s=config["carbon.fetch_s"],
    )


def source_of(config: Config, name: str | None = None) -> GridSource | None:
    """Return the service that is configured, or the one of that name; None: none is.

    Raises:
        ConfigError: there is no such service, or it does not know the zone.
    """
    wanted = name or config["carbon.source"]
    if not wanted:
        return None
    access = Access(
        zone=config["carbon.grid_zone"],
        url=config["carbon.source_url"],
        key_file=config["carbon.source_key_file"],
    )
    return make_source(wanted, access)


def prepare_carbon(connection: sqlite3.Connection, site: CarbonSite, now_ts: int) -> None:
    """Bring what the store knows of carbon up to date; what has changed is one new version.

    Runs in the caller's transaction.

    Raises:
        ConfigError: the PUE is not possible.
    """
    name_zone(connection, site.zone)
    changed = {
        file_words(site.factors): stage_file(connection, site.factors),
        f"PUE from {site.pue_file}"
        if site.pue_history
        else f"carbon.pue is {site.pue:g}": _stage_pue(connection, site, now_ts),
        "embodied carbon of hardware": stage_hardware(connection, site.hardware),
    }
    if site.contracts_file:
        reason = f"electricity contracts from {site.contracts_file}"
        changed[reason] = stage_contracts(connection, site.contracts)
    choice = (site.zone, site.grid_zone, site.method)
    words = [reason for reason, count in changed.items() if count]
    publish(connection, "; ".join(words) or choice_words(*choice), now_ts, choice)


def _stage_pue(connection: sqlite3.Connection, site: CarbonSite, now_ts: int) -> int:
    if site.pue_history:
        return stage_pue_history(connection, site.pue_history, site.pue_file)
    return stage_pue(connection, site.pue, now_ts)
