# SPDX-License-Identifier: Apache-2.0
"""The accounting room's commands: `fairwatt collector`, `sync`, `job` and others."""

from __future__ import annotations

import json
import logging
import os
import pwd
import signal
import threading
import time
from typing import TYPE_CHECKING

import click

from fairwatt.accounting.cycle import Repeater, import_and_refresh, prepare_store, site_of
from fairwatt.accounting.render import as_json, as_text
from fairwatt.accounting.store import open_reader
from fairwatt.core import config as config_module
from fairwatt.core.config import Config
from fairwatt.core.logs import setup
from fairwatt.core.settings import IDLE_POLICIES

if TYPE_CHECKING:
    from fairwatt.accounting.reports.idle import IdlePolicy

__all__ = ["collector", "decisions", "job", "real_user", "slow", "sync"]


@click.command()
@click.option("-v", "--verbose", is_flag=True, help="Log every step.")
def collector(verbose: bool) -> None:
    """Take the nodes' events, import from Slurm, keep the ledger. Runs until SIGTERM."""
    setup(verbose)
    # Flask and gunicorn come with the extra `dashboard`; the other commands do without.
    from fairwatt.accounting.collector import serve

    serve(_config())


@click.command()
@click.option("--once", is_flag=True, help="Import once, print what was found and end.")
@click.option("--json", "json_", is_flag=True, help="Print the result as JSON (with --once).")
@click.option("-v", "--verbose", is_flag=True, help="Log every step.")
def sync(once: bool, json_: bool, verbose: bool) -> None:
    """Import runs and accounts from Slurm; without --once, every collector.sync_s seconds."""
    setup(verbose)
    config = _config()
    site = site_of(config)
    db = prepare_store(site)
    if once:
        done = import_and_refresh(db, site)
        result = {"seen": done.seen, "changed": done.changed, "rejected": done.rejected}
        words = f"{done.seen} runs read, {done.changed} new or changed, {done.rejected} left out"
        click.echo(json.dumps(result) if json_ else words)
        return
    interval_s = config["collector.sync_s"] or 300.0
    repeater = Repeater(lambda: import_and_refresh(db, site), lambda: None, interval_s)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ended.set())
    repeater.start()
    ended.wait()
    repeater.stop()


@click.command()
@click.argument("job_id", type=click.IntRange(min=1))
@click.option("--cluster", default=None, help="Cluster name; default: site.cluster.")
@click.option(
    "--factors-version",
    type=click.IntRange(min=1),
    default=None,
    help="Carbon under this version of the factors; default: the newest.",
)
@click.option(
    "--idle-policy",
    type=click.Choice(IDLE_POLICIES),
    default=None,
    help="Who gets what GPUs draw without work; default: report.idle_policy.",
)
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of tables.")
def job(
    job_id: int,
    cluster: str | None,
    factors_version: int | None,
    idle_policy: IdlePolicy | None,
    json_: bool,
) -> None:
    """Show a job: what it asked, got and used, how its GPUs kept pace, its energy, its policy.

    Root sees every job; everybody else what they see on the web page.
    """
    logging.basicConfig(level=logging.WARNING)
    # The reports are needed by this command only.
    from fairwatt.accounting.reports.carbon_basis import CarbonAsk
    from fairwatt.accounting.reports.job import job_report
    from fairwatt.accounting.reports.scope import scope_of
    from fairwatt.accounting.reports.use import yardstick_of

    config = _config()
    db = open_reader(config["collector.database"])
    try:
        scope = scope_of(db, real_user(), admin=os.geteuid() == 0)
        cluster = cluster or config["site.cluster"]
        ask = CarbonAsk(factors_version, config["carbon.zone"], config["site.catalogue_dir"])
        tables = job_report(
            db, scope, cluster, job_id, carbon=ask,
            idle_policy=idle_policy or config["report.idle_policy"],
            yardstick=yardstick_of(config),
        )  # fmt: skip
    finally:
        db.close()
    click.echo(as_json(tables) if json_ else as_text(tables))


@click.command()
@click.option("--user", default=None, help="Only this user's.")
@click.option("--refused", is_flag=True, help="Only what was refused.")
@click.option(
    "--since",
    default="7d",
    show_default=True,
    metavar="DAYS|DATE",
    help="From when on: so many days with today (7d), or a day (2026-03-01).",
)
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of a table.")
def decisions(user: str | None, refused: bool, since: str, json_: bool) -> None:
    """Show what the submit policy decided of late: each request, its outcome and why.

    Root sees all; everybody else what they see on the web page.
    """
    logging.basicConfig(level=logging.WARNING)
    from fairwatt.accounting.reports.decisions import latest_decisions
    from fairwatt.accounting.reports.period import parse_since, today_in
    from fairwatt.accounting.reports.scope import scope_of

    config = _config()
    zone = config["site.timezone"]
    period = parse_since(since, today_in(zone, time.time()), zone)
    db = open_reader(config["collector.database"])
    try:
        scope = scope_of(db, real_user(), admin=os.geteuid() == 0)
        table = latest_decisions(db, scope, period, user=user, refused=refused)
    finally:
        db.close()
    click.echo(as_json([table]) if json_ else as_text([table]))


@click.command()
@click.option(
    "--since",
    default="30d",
    show_default=True,
    metavar="DAYS|DATE",
    help="From when on: so many days with today (30d), or a day (2026-03-01).",
)
@click.option("--alerts", "as_alerts", is_flag=True, help="Repeat offenders, a JSON line each.")
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of tables.")
def slow(since: str, as_alerts: bool, json_: bool) -> None:
    """Show GPUs that were slower than their peers, and those that are so again and again.

    Root sees all; everybody else what their own view of the runs tells.
    """
    logging.basicConfig(level=logging.WARNING)
    from fairwatt.accounting.reports.failslow import alerts, slow_devices_report
    from fairwatt.accounting.reports.period import parse_since, today_in
    from fairwatt.accounting.reports.scope import scope_of

    config = _config()
    zone = config["site.timezone"]
    period = parse_since(since, today_in(zone, time.time()), zone)
    db = open_reader(config["collector.database"])
    try:
        scope = scope_of(db, real_user(), admin=os.geteuid() == 0)
        if as_alerts:
            for alert in alerts(db, scope, period):
                click.echo(json.dumps(alert))
            return
        tables = slow_devices_report(db, scope, period)
    finally:
        db.close()
    click.echo(as_json(tables) if json_ else as_text(tables))


def _config() -> Config:
    return config_module.load(config_module.find())


def real_user() -> str:
    """Return the name of the real user: the scope must not depend on an environment variable."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""
