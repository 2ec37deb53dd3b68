# SPDX-License-Identifier: Apache-2.0
"""`fairwatt ledger`: can the numbers be trusted?"""

from __future__ import annotations

import sys
from datetime import datetime

import click

from fairwatt.accounting.days import site_zone
from fairwatt.accounting.render import as_json, as_text
from fairwatt.accounting.verify import span_of, verify
from fairwatt.accounting.verify_tables import verify_tables
from fairwatt.core import config as config_module
from fairwatt.core.logs import setup

__all__ = ["ledger"]

_DAY = click.DateTime(["%Y-%m-%d"])


@click.group()
def ledger() -> None:
    """The ledger of energy: who used every joule."""


@ledger.command("verify")
@click.option("--from", "first", type=_DAY, metavar="DAY", help="First local day; default: all.")
@click.option("--to", "last", type=_DAY, metavar="DAY", help="Last local day; default: all.")
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of tables.")
def verify_command(first: datetime | None, last: datetime | None, json_: bool) -> None:
    """Recompute the ledger from its windows and compare every sum in the store with it.

    Prints each device's balance. Exit status 1, with the place, what was expected and what stands
    there, if one mJ is wrong. Reads only; the collector goes on meanwhile.
    """
    setup(verbose=False)
    config = config_module.load(config_module.find())
    zone = site_zone(config["site.timezone"])
    done = verify(
        config["collector.database"],
        cluster=config["site.cluster"],
        zone=zone,
        carbon_zone=config["carbon.zone"],
        span=span_of(first.date() if first else None, last.date() if last else None, zone),
    )
    tables = verify_tables(done)
    click.echo(as_json(tables) if json_ else as_text(tables))
    if not done.ok:
        sys.exit(1)
