# SPDX-License-Identifier: Apache-2.0
"""`fairwatt carbon`: factors of the store, where more come from, and what they change."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
from sqlite_utils import Database

from fairwatt.accounting.carbon.factors import parse_factors, parse_time
from fairwatt.accounting.carbon.fetch import Fetched, fetch
from fairwatt.accounting.carbon.grid_store import IMPORTED, add_factors
from fairwatt.accounting.carbon.pue import set_pue
from fairwatt.accounting.carbon.restate import mark_every_day, restate
from fairwatt.accounting.carbon.site import source_of
from fairwatt.accounting.commands import real_user
from fairwatt.accounting.cycle import Site, prepare_store, site_of
from fairwatt.accounting.render import as_json, as_text
from fairwatt.accounting.reports.carbon_basis import CarbonAsk
from fairwatt.accounting.reports.carbon_versions import versions_report
from fairwatt.accounting.reports.dept import dept_report
from fairwatt.accounting.reports.period import parse_period, today_in
from fairwatt.accounting.reports.scope import scope_of
from fairwatt.accounting.store import open_reader, transaction
from fairwatt.core import config as config_module
from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError
from fairwatt.core.logs import setup

__all__ = ["carbon"]

LONGEST_FILE = 67_108_864


@click.group()
def carbon() -> None:
    """Grid factors: fetch them, import them, see their versions, restate past days."""


@carbon.command("fetch")
@click.option("--from", "from_", metavar="DATE", help="From when on; default: 3 days ago.")
@click.option("--until", metavar="DATE", help="Until when, not included; default: now.")
@click.option("--source", default=None, help="Which service; default: carbon.source.")
@click.option("--again", is_flag=True, help="Ask also for what the store has already.")
@click.option("--json", "json_", is_flag=True, help="Print the result as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Log every step.")
def fetch_command(
    from_: str | None,
    until: str | None,
    source: str | None,
    again: bool,
    json_: bool,
    verbose: bool,
) -> None:
    """Ask the configured service for factors, and restate the days that they change.

    A long history is asked slice by slice; after an interruption the same command goes on.
    """
    setup(verbose)
    config, site = _site()
    service = source_of(config, source)
    if service is None:
        raise ConfigError(
            "no service of grid data", place="carbon.source", remedy="name one, or use --source"
        )
    now_ts = int(time.time())
    from_ts = parse_time(from_, "--from") if from_ else now_ts - 3 * 86_400
    until_ts = parse_time(until, "--until") if until else now_ts
    with _store(site) as db:
        try:
            done = fetch(db, service, from_ts, until_ts, again=again, on_slice=_tell)
        finally:
            days = restate(db, site.zone, site.carbon.zone)
    click.echo(json.dumps({**done._asdict(), "days": days}) if json_ else _words(done, days))


@carbon.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "json_", is_flag=True, help="Print the result as JSON.")
def import_command(file: Path, json_: bool) -> None:
    """Add the factors of a CSV FILE to the store; importing it twice changes nothing.

    Its columns are zone,from,until,g_per_kwh, its first lines `# source:`, `# licence:`,
    `# method:` and `# retrieved:`. Rows of the same time replace earlier imported ones.
    """
    setup(verbose=False)
    factors = parse_factors(_text_of(file), str(file))
    _, site = _site()
    with _store(site) as db:
        with transaction(db) as connection:
            reason = f"import of {file.name}"
            changed, version = add_factors(connection, factors, IMPORTED, reason, int(time.time()))
        days = restate(db, site.zone, site.carbon.zone)
    done = Fetched(len(factors.factors), changed, 0, version)
    click.echo(json.dumps({**done._asdict(), "days": days}) if json_ else _words(done, days))


@carbon.command("pue")
@click.argument("from_", metavar="DATE")
@click.argument("value", type=float)
def pue_command(from_: str, value: float) -> None:
    """Set the PUE from DATE on to VALUE, until the next one that is known.

    From then on the store's history counts and no longer the setting carbon.pue.
    """
    setup(verbose=False)
    _, site = _site()
    if site.carbon.pue_file:
        raise ConfigError(
            "the history is in a file", place="carbon.pue_file", value=site.carbon.pue_file,
            remedy="add a line there",
        )  # fmt: skip
    with _store(site) as db:
        with transaction(db) as connection:
            version = set_pue(connection, parse_time(from_, "DATE"), value, int(time.time()))
        days = restate(db, site.zone, site.carbon.zone)
    click.echo(_words(Fetched(1, int(version is not None), 0, version), days))


@carbon.command("restate")
def restate_command() -> None:
    """Recompute the carbon of all days with the newest factors; it changes what is not so yet."""
    setup(verbose=False)
    _, site = _site()
    with _store(site) as db:
        with transaction(db) as connection:
            mark_every_day(connection)
        days = restate(db, site.zone, site.carbon.zone)
    click.echo(f"{days} days recomputed")


@carbon.command("report")
@click.argument("account", default="root")
@click.option(
    "--period",
    default="last-month",
    show_default=True,
    help="Such as last-month, 2026-02, 90d, 2026-01-01..2026-04-01.",
)
@click.option(
    "--factors-version",
    type=click.IntRange(min=1),
    default=None,
    help="Made with this version of the factors; default: the newest.",
)
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of tables.")
def report_command(account: str, period: str, factors_version: int | None, json_: bool) -> None:
    """Print the carbon of ACCOUNT and all below it: by owner and by month.

    An older version of the factors gives the old figures again. Root sees every account;
    everybody else what they see on the web page.
    """
    config = config_module.load(config_module.find())
    zone = config["site.timezone"]
    ask = CarbonAsk(factors_version, config["carbon.zone"], config["site.catalogue_dir"])
    days = parse_period(period, today_in(zone, time.time()), zone)
    db = open_reader(config["collector.database"])
    try:
        scope = scope_of(db, real_user(), admin=os.geteuid() == 0)
        policy = config["report.idle_policy"]
        tables = dept_report(db, scope, config["site.cluster"], account, days, ask, policy)
    finally:
        db.close()
    shown = [table for table in tables if table.name in ("carbon", "months")]
    click.echo(as_json(shown) if json_ else as_text(shown))


@carbon.command("list")
@click.option(
    "--version", "version", type=int, default=None, help="That one; default: the newest."
)
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of tables.")
def list_command(version: int | None, json_: bool) -> None:
    """Show the versions of the factors, what each changed, and what is in one of them."""
    config = config_module.load(config_module.find())
    db = open_reader(config["collector.database"])
    try:
        tables = versions_report(db, version)
    finally:
        db.close()
    click.echo(as_json(tables) if json_ else as_text(tables))


def _site() -> tuple[Config, Site]:
    config = config_module.load(config_module.find())
    return config, site_of(config)


@contextmanager
def _store(site: Site) -> Iterator[Database]:
    db = prepare_store(site)
    try:
        yield db
    finally:
        db.close()


def _text_of(file: Path) -> str:
    try:
        if file.stat().st_size > LONGEST_FILE:
            raise ConfigError("too large for factors", place=str(file))
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", place=str(file)) from error


def _words(done: Fetched, days: int) -> str:
    if done.version is None:
        return f"{done.read} factors read, nothing new"
    return (
        f"{done.read} factors read, {done.changed} new or changed: version {done.version}; "
        f"{days} days recomputed"
    )


def _tell(until_ts: int) -> None:
    if sys.stderr.isatty():
        day = datetime.fromtimestamp(until_ts, UTC).strftime("%Y-%m-%d")
        click.echo(f"\r{day}", nl=False, err=True)
