# SPDX-License-Identifier: Apache-2.0
"""`fairwatt store`: backup, restore, check, upkeep and export of the store."""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from pathlib import Path

import click

from fairwatt.accounting.backup import back_up
from fairwatt.accounting.days import site_zone
from fairwatt.accounting.integrity import check_store
from fairwatt.accounting.restore import restore as restore_backup
from fairwatt.accounting.store import open_reader, open_store
from fairwatt.accounting.upkeep import keeping_of, last_result, tend
from fairwatt.core import config as config_module
from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError
from fairwatt.core.logs import setup

__all__ = ["store"]


@click.group()
def store() -> None:
    """Keep the store: back it up, put a backup in its place, check and thin it, export months."""


@store.command()
@click.argument("dest", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option("--json", "json_", is_flag=True, help="Print the result as JSON.")
def backup(dest: Path | None, json_: bool) -> None:
    """Copy the store, while it is in use, to the folder DEST (default: store.backup_dir).

    The copy is checked before it gets its name. Backups there that are older than
    store.backup_keep_days are removed.
    """
    setup(verbose=False)
    config = _config()
    keeping = keeping_of(config)
    folder = dest or keeping.backup_dir
    if folder is None:
        raise ConfigError(
            "no folder for backups", place="store.backup_dir", remedy="set it, or name a folder"
        )
    done = back_up(_file(config), folder, keep_days=keeping.backup_keep_days, now_ts=time.time())
    result = {
        "file": str(done.path),
        "bytes": done.size,
        "took_s": round(done.took_s, 2),
        "month_files": list(done.months),
        "removed": list(done.removed),
    }
    months = f", {len(done.months)} month files" if done.months else ""
    gone = f"; {len(done.removed)} old backups removed" if done.removed else ""
    words = f"{done.path}: {done.size / 1e6:,.1f} MB in {done.took_s:.1f} s{months}{gone}"
    click.echo(json.dumps(result) if json_ else words)


@store.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def restore(file: Path) -> None:
    """Put the backup FILE in the store's place; the collector and the dashboard must be stopped.

    The old store stays beside it under another name. What nodes delivered after the backup is
    lost; what Slurm knows is imported again.
    """
    setup(verbose=False)
    path = _file(_config())
    aside, months = restore_backup(path, file, time.time())
    click.echo(f"{path} is now {file}" + (f"; the old one is {aside}" if aside else ""))
    for name in months:
        click.echo(f"brought back: {name}")
    click.echo("start fairwatt-collector: it imports what came since from Slurm")


@store.command()
@click.option("--quick", is_flag=True, help="Do not compare each index with its table.")
@click.option("--json", "json_", is_flag=True, help="Print the result as JSON.")
def check(quick: bool, json_: bool) -> None:
    """Check that the store is whole; it may be in use. Exit status 1 if it is not.

    SQLite's own checks, rows that belong to nothing, the schema, sums of months against days, and
    the month files. The balance of every device is `fairwatt ledger verify`.
    """
    setup(verbose=False)
    faults = check_store(_file(_config()), quick=quick)
    words = "\n".join(faults) or "the store is whole"
    click.echo(json.dumps({"ok": not faults, "faults": faults}) if json_ else words)
    sys.exit(1 if faults else 0)


@store.command()
def upkeep() -> None:
    """Do now what the collector does every night: check, move old windows, prune, back up.

    Exit status 1 if a step failed. It may run beside the collector.
    """
    setup(verbose=False)
    config = _config()
    keeping = keeping_of(config)
    # Not made if it is missing, nor brought up to date beside an older collector.
    open_reader(_file(config)).close()
    with closing(open_store(_file(config))) as db:
        tend(db, keeping, time.time())
        results = {step: last_result(db.conn, step) for step in ("check", "thin", "backup")}
    click.echo(json.dumps(results, indent=2))
    bad = [one for one in results.values() if one and (one.get("error") or one.get("faults"))]
    sys.exit(1 if bad else 0)


@store.command()
@click.option("--month", required=True, metavar="YYYY-MM", help="A month that is over.")
@click.option("--windows", is_flag=True, help="Also what each device used, by window.")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def export(month: str, windows: bool, folder: Path) -> None:
    """Write a closed month as Parquet to FOLDER, for DuckDB, Spark and others.

    It needs the extra fairwatt[parquet]. FOLDER/views.sql makes the tables in DuckDB, so that the
    same questions give the same answers there. Exporting a month again replaces its files.
    """
    setup(verbose=False)
    # DuckDB comes with the extra; the other commands do without.
    from fairwatt.accounting.parquet import export_month

    config = _config()
    with closing(open_reader(_file(config))) as db:
        files = export_month(
            db, month, folder, zone=site_zone(config["site.timezone"]), with_windows=windows
        )
    size = sum(path.stat().st_size for path in files)
    click.echo(f"{month}: {len(files)} files, {size / 1e6:,.2f} MB in {folder}")


def _config() -> Config:
    return config_module.load(config_module.find())


def _file(config: Config) -> Path:
    return Path(config["collector.database"])
