# SPDX-License-Identifier: Apache-2.0
"""What `fairwatt doctor` asks of the accounting host."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from fairwatt.accounting.carbon.fetch import last_known_ts
from fairwatt.accounting.carbon.site import carbon_site
from fairwatt.accounting.carbon.sources.source import GridSource
from fairwatt.accounting.days import site_zone
from fairwatt.accounting.store import open_reader
from fairwatt.accounting.store_checks import store_checks
from fairwatt.accounting.sync import last_import_ts
from fairwatt.core.config import Config
from fairwatt.core.doctor import Check, Finding
from fairwatt.core.healthz import local_url, what_is_wrong
from fairwatt.core.host import is_expected

__all__ = ["checks"]

SILENT_S = 3600
STALE_FACTORS_S = 3 * 86_400
LATE_ROUNDS = 3
UNJOINED_MS = 3_600_000


def _database(config: Config) -> list[Finding]:
    path = Path(config["collector.database"])
    if not path.exists():
        return [
            Finding(
                f"no store at {path}: this is no accounting host, or the collector never ran",
                "on the accounting host start `fairwatt collector`",
                "error" if config["host.collector"] == "yes" else "info",
            )
        ]
    open_reader(path).close()
    return []


def _collector(config: Config) -> list[Finding]:
    if not is_expected(config, "collector", lambda: Path(config["collector.database"]).exists()):
        return []
    fault = what_is_wrong(local_url(config["collector.listen"], "collector.listen"))
    remedy = "start `fairwatt collector`; nodes keep their events meanwhile"
    return [Finding(f"the collector: {fault}", remedy)] if fault else []


def _import(config: Config) -> list[Finding]:
    with closing(_reader(config)) as db:
        last_ts = last_import_ts(db, config["site.cluster"])
        rejected = db.execute("SELECT count(*) FROM rejected_row").fetchone()[0]
    findings = []
    limit_s = LATE_ROUNDS * max(config["collector.sync_s"], 60.0)
    if last_ts is None:
        findings.append(
            Finding(
                f"nothing was ever imported for cluster {config['site.cluster']}",
                "run `fairwatt sync --once` and see site.cluster",
            )
        )
    elif config["collector.sync_s"] and time.time() - last_ts > limit_s:
        findings.append(
            Finding(
                f"the last import from Slurm is {round((time.time() - last_ts) / 60)} min old",
                "see the collector's log; is slurmdbd up?",
            )
        )
    if rejected:
        findings.append(
            Finding(
                f"{rejected} sacct rows could not be read",
                "see table rejected_row of the store",
                "warn",
            )
        )
    return findings


def _factors(config: Config) -> list[Finding]:
    site = carbon_site(config)
    site_zone(config["site.timezone"])
    if site.source is not None:
        return _service(config, site.source)
    until_ts = max(f.until_ts for f in site.factors.factors if f.zone == site.zone)
    if until_ts > time.time():
        return []
    last_day = time.strftime("%Y-%m-%d", time.gmtime(until_ts - 1))
    return [
        Finding(
            f"carbon factors of {site.zone} end on {last_day}; the last one goes on",
            "put a newer file in carbon.factors_file",
            "warn",
        )
    ]


def _service(config: Config, source: GridSource) -> list[Finding]:
    """The collector asks it; here only how old the newest of its factors is."""
    if not Path(config["collector.database"]).exists():
        return []
    with closing(_reader(config)) as db:
        last_ts = last_known_ts(db, source)
    if last_ts is not None and time.time() - last_ts < STALE_FACTORS_S:
        return []
    day = "" if last_ts is None else time.strftime("%Y-%m-%d", time.gmtime(last_ts))
    what = f"the factors of {source.zone} end on {day}" if day else f"no factors of {source.zone}"
    return [
        Finding(
            f"{what}, says the service {source.name}",
            "run `fairwatt carbon fetch`, and see the collector's log",
            "warn",
        )
    ]


# A controller has something to tell only when somebody submits.
_LAST_HEARD = "SELECT node, max(received_ts) FROM event WHERE kind <> 'decision' GROUP BY node"


def _nodes(config: Config) -> list[Finding]:
    with closing(_reader(config)) as db:
        last_ts = dict(db.execute(_LAST_HEARD))
        waiting = db.execute(
            "SELECT count(*) FROM node_run WHERE run_id IS NULL AND start_ms < ?",
            (int(time.time() * 1000) - UNJOINED_MS,),
        ).fetchone()[0]
    findings = [
        Finding(
            f"node {node} was last heard {round((time.time() - seen_ts) / 60)} min ago",
            "see the agent's log there and its way to agent.collector_url",
            "warn",
        )
        for node, seen_ts in sorted(last_ts.items())
        if time.time() - seen_ts > SILENT_S
    ]
    if waiting:
        findings.append(
            Finding(
                f"{waiting} runs measured on nodes match no run of Slurm",
                "see site.cluster, and the clocks of nodes and controller",
                "warn",
            )
        )
    return findings


def _reader(config: Config) -> sqlite3.Connection:
    return open_reader(config["collector.database"])


def _where_there_is_a_store(check: Check) -> Check:
    """Only the accounting host has one; `accounting.database` says so elsewhere."""
    return Check(
        check.name,
        lambda config: check.run(config) if Path(config["collector.database"]).exists() else [],
    )


checks: list[Check] = [
    Check("accounting.database", _database),
    Check("accounting.collector", _collector),
    _where_there_is_a_store(Check("accounting.import", _import)),
    Check("accounting.factors", _factors),
    _where_there_is_a_store(Check("accounting.nodes", _nodes)),
    *map(_where_there_is_a_store, store_checks),
]
