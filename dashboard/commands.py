# SPDX-License-Identifier: Apache-2.0
"""`fairwatt dashboard` serves the site's store, `fairwatt demo` an invented one."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any

import click

from fairwatt.core.config import Config, find, load
from fairwatt.core.errors import ConfigError
from fairwatt.core.logs import setup

__all__ = ["dashboard", "demo"]

SESSION_KEY = "session-key"
MIN_KEY_BYTES = 32


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line when ready.")
@click.option("-v", "--verbose", is_flag=True, help="Log what happens.")
def dashboard(as_json: bool, verbose: bool) -> None:
    """Serve the dashboard at dashboard.listen from collector.database until Ctrl-C."""
    setup(verbose)
    _serve(load(find()), as_json, {})


@click.command()
@click.option("--seed-only", is_flag=True, help="Write the invented year into --database and end.")
@click.option(
    "--database",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Store to use and keep; without it a temporary one.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port on loopback; 0 takes a free one.",
)
@click.option("--until", type=click.DateTime(["%Y-%m-%d"]), help="Day after the year [today].")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line when ready.")
def demo(
    seed_only: bool, database: Path | None, port: int, until: datetime | None, as_json: bool
) -> None:
    """Serve a year of an invented university on this host alone, without Slurm.

    Stop it with Ctrl-C.
    """
    if seed_only and database is None:
        raise click.UsageError("--seed-only needs --database")
    with _temporary_folder() as folder:
        _demo(database or folder / "fairwatt.db", seed_only, port, until, as_json)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Give a folder that goes away with this process, not with a worker forked from it."""
    owner = os.getpid()
    folder = Path(tempfile.mkdtemp(prefix="fairwatt-demo-"))
    try:
        yield folder
    finally:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)


def _demo(
    database: Path, seed_only: bool, port: int, until: datetime | None, as_json: bool
) -> None:
    from fairwatt.dashboard.demo import demo_config, fill_store

    config = demo_config(f"127.0.0.1:{port}", database)
    started = time.monotonic()
    runs = fill_store(config, until.date() if until else _today(config))
    facts = {
        "database": str(database),
        "runs": runs,
        "seconds": round(time.monotonic() - started, 1),
    }
    if seed_only:
        click.echo(json.dumps(facts) if as_json else f"{runs} invented runs in {database}")
    else:
        _serve(config, as_json, facts)


def _today(config: Config) -> date:
    from fairwatt.accounting.reports.period import today_in

    return today_in(config["site.timezone"], time.time())


def _serve(config: Config, as_json: bool, facts: dict[str, Any]) -> None:
    from fairwatt.accounting.store import open_reader
    from fairwatt.dashboard.app import create_app
    from fairwatt.dashboard.identity import check_listen
    from fairwatt.dashboard.server import serve

    host, port = check_listen(config)
    database = config["collector.database"]
    app = create_app(config, database, secret=_session_key())

    def ready(url: str) -> None:
        line = json.dumps({"url": url, **facts})
        click.echo(line if as_json else f"dashboard: {url} (Ctrl-C ends it)")

    serve(app, host, port, when_ready=ready, hold=lambda: open_reader(database))


def _session_key() -> bytes | None:
    """Return the key that systemd hands over (LoadCredential=session-key:…); None without one.

    Raises:
        ConfigError: it is there but cannot be used.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    path = Path(folder) / SESSION_KEY if folder else None
    if path is None or not path.exists():
        return None
    key = path.read_bytes().strip()
    if len(key) < MIN_KEY_BYTES:
        raise ConfigError(
            f"shorter than {MIN_KEY_BYTES} bytes",
            place=f"credential {SESSION_KEY}",
            remedy="write a random key into the file that the unit's LoadCredential names",
        )
    return key
