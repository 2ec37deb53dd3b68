# SPDX-License-Identifier: Apache-2.0
"""`fairwatt import` brings runs from files, `fairwatt audit` compares the store with Slurm."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from fairwatt.accounting.audit import audit_days
from fairwatt.accounting.cycle import prepare_store, refresh, site_of
from fairwatt.accounting.import_file import FileImport, import_file
from fairwatt.accounting.import_reader import EXPORT_COMMAND
from fairwatt.accounting.render import as_json, as_text
from fairwatt.accounting.slurmdb import SlurmDb
from fairwatt.accounting.store import open_reader
from fairwatt.core import config as config_module
from fairwatt.core.logs import setup

__all__ = ["audit", "import_"]


def _tell_how(context: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        click.echo(EXPORT_COMMAND)
        context.exit()


@click.group("import")
def import_() -> None:
    """Bring runs from files into the store."""


@import_.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--cluster", default=None, help="Of rows without a Cluster; default: site.cluster.")
@click.option("--json", "json_", is_flag=True, help="Print the result as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Log every step.")
@click.option(
    "--how",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tell_how,
    help="Print the command that makes such a file, and end.",
)
def sacct(file: str, cluster: str | None, json_: bool, verbose: bool) -> None:
    """Import an export of sacct: FILE, plain or gzip, or - for standard input.

    It needs its header, the column JobIDRaw, and times as epoch seconds or with their zone;
    --how prints the command that makes such a file. Importing it twice changes nothing; an import
    that was interrupted goes on where it stopped.
    """
    setup(verbose)
    site = site_of(config_module.load(config_module.find()))
    db = prepare_store(site)
    began = time.monotonic()
    with _progress(file) as tell:
        done = import_file(
            db,
            file,
            cluster=cluster or site.cluster,
            catalogue=site.catalogue,
            zone=site.zone,
            now_ts=int(time.time()),
            on_progress=tell,
        )
    took_s = time.monotonic() - began
    refresh(db, site)
    db.close()
    click.echo(json.dumps(done._asdict()) if json_ else _words(done, took_s))


def _words(done: FileImport, took_s: float) -> str:
    rate = round((done.seen + done.rejected) / max(took_s, 0.001))
    parts = [
        f"{done.seen} runs read, {done.changed} new or changed, {done.rejected} left out"
        f" ({rate} rows/s)"
    ]
    if done.resumed_at:
        parts.append("went on where an earlier import of this file was interrupted")
    if done.open:
        parts.append(f"{done.open} had not ended: `fairwatt sync` has them from Slurm")
    if done.peaks:
        parts.append(f"{done.peaks} job steps told the memory of their run")
    if done.steps > done.peaks:
        left = done.steps - done.peaks
        parts.append(f"{left} rows of job steps passed over: export with --allocations")
    return "; ".join(parts)


@contextmanager
def _progress(file: str) -> Iterator[Callable[[int], object]]:
    """A bar on a terminal; else nothing."""
    if not Path(file).is_file() or not sys.stderr.isatty():
        yield lambda _place: None
        return
    size = Path(file).stat().st_size
    with click.progressbar(length=size, label="importing", file=sys.stderr) as bar:
        yield lambda place: bar.update(place - bar.pos)


@click.command()
@click.option(
    "--days", type=click.IntRange(1, 3660), default=7, show_default=True, help="Past days."
)
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of a table.")
def audit(days: int, json_: bool) -> None:
    """Compare the store with slurmdbd: runs, CPU and GPU hours of each past day. Changes nothing.

    Exit status 1 if something differs. Run it as a user who may see all jobs in sacct.
    """
    setup(verbose=False)
    site = site_of(config_module.load(config_module.find()))
    db = open_reader(site.database)
    try:
        table = audit_days(
            db,
            SlurmDb(site.slurm_conf),
            cluster=site.cluster,
            count=days,
            zone=site.zone,
            now_ts=int(time.time()),
        )
    finally:
        db.close()
    click.echo(as_json([table]) if json_ else as_text([table]))
    sys.exit(1 if table.rows else 0)
