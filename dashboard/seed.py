# SPDX-License-Identifier: Apache-2.0
"""Writes the invented year into a store, marked `origin = 'seed'` so that pages can say so.

The rows are what live Slurm and live nodes would have left: runs, their GPUs, energy by board
and by hour. Rollups are made from them by the same code as for real data.
"""

from __future__ import annotations

import functools
import itertools
import random
import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import sqlite_utils

from fairwatt.accounting.cells import fill_cells
from fairwatt.accounting.days import cut, day_bounds, days_between, hour_pieces, site_zone
from fairwatt.accounting.decisions import store_decision
from fairwatt.accounting.reports.freshness import INVENTED_KEY
from fairwatt.accounting.runs import insert_runs
from fairwatt.accounting.store import set_meta, transaction
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.errors import StoreError
from fairwatt.core.events import DecisionMade, Flag, encode_event
from fairwatt.core.records import Run
from fairwatt.dashboard.invent import SeedRun, invent_runs
from fairwatt.dashboard.seed_decisions import comment_of, decision_of, refusals
from fairwatt.dashboard.seed_memory import gpu_memory_rows, memory_rows
from fairwatt.dashboard.seed_pace import rank_rows, run_rows
from fairwatt.dashboard.university import Pool, University, load_university

__all__ = ["SEED_DAYS", "seed_year"]

SEED_DAYS = 365
FIRST_JOB_ID = 100_001
_DEVICE = (
    *("device_uuid", "node", "model", "name", "minor", "mig_enabled", "compute_slices"),
    "seen_ms",
)
_ENERGY = (
    *("run_id", "device_uuid", "node", "model", "idle_mj", "active_mj", "util_permille"),
    *("measured_s", "flags", "method"),
)
_WINDOW = (
    *("device_uuid", "t0_ms", "t1_ms", "node", "measured_mj", "unallocated_idle_mj"),
    *("unallocated_active_mj", "flags", "method", "clock_mhz"),
)
_UNMEASURED = 0.025
_UTIL_UNKNOWN = 0.03


def seed_year(
    db: sqlite_utils.Database,
    until: date,
    zone_name: str,
    *,
    days: int = SEED_DAYS,
    seed: int = 1,
) -> int:
    """Add the year before the local day `until` to the store; return the number of runs.

    All days are marked dirty: the caller recomputes the rollups.

    Raises:
        StoreError: the store has invented runs already.
    """
    university = load_university()
    zone = site_zone(zone_name)
    runs = invent_runs(university, until - timedelta(days=days), until, zone, seed)
    with transaction(db) as connection:
        if connection.execute("SELECT 1 FROM run WHERE origin = 'seed' LIMIT 1").fetchone():
            raise StoreError("has an invented year already", remedy="use an empty store")
        first_id = connection.execute("SELECT COALESCE(MAX(run_id), 0) + 1 FROM run").fetchone()[0]
        numbered = list(enumerate(runs, start=first_id))
        _insert(connection, "account", _accounts(university))
        _insert(connection, "membership", _memberships(university))
        _insert(connection, "device", _devices(university, runs), _DEVICE)
        rng = random.Random(seed)  # noqa: S311 - an invented year, not a secret
        jobs = {run_id: FIRST_JOB_ID + run_id - first_id for run_id, _ in numbered}
        decisions = _decisions(rng, university, numbered, jobs)
        # The store numbers them on from first_id.
        made = list(_run_rows(rng, university, numbered, jobs, decisions))
        insert_runs(connection, made, load_catalogue(), seeded=True)
        _insert_decisions(connection, decisions.values())
        _insert_decisions(connection, _refusals(rng, university, numbered, jobs))
        measured = [(run_id, run) for run_id, run in numbered if _is_measured(rng, run)]
        _insert(connection, "run_energy", _energy_rows(rng, university, measured), _ENERGY)
        uuid_of = functools.partial(board_uuid, university)
        _insert(connection, "run_pace", run_rows(measured))
        _insert(connection, "rank_pace", rank_rows(measured, uuid_of))
        memory = gpu_memory_rows(measured, load_catalogue(), uuid_of)
        _insert(connection, "run_gpu_memory", memory)
        _insert(connection, "run_memory", memory_rows(numbered, _mem_mib))
        hours = (row for run_id, run in measured for row in _hour_rows(run_id, run, zone))
        _insert(connection, "run_hour", hours, ("run_id", "hour_ts", "idle_mj", "active_mj"))
        _insert(connection, "window", _idle_windows(university, runs, zone), _WINDOW)
        fill_cells(connection, zone)
        _insert(connection, "dirty_day", _touched_days(runs, zone))
        set_meta(connection, INVENTED_KEY, university.name)
    return len(runs)


def _insert(
    connection: sqlite3.Connection,
    table: str,
    rows: Iterable[Sequence[Any]],
    columns: Sequence[str] = (),
) -> None:
    rows = list(rows)
    if not rows:
        return
    named = f"({', '.join(columns)})" if columns else ""
    marks = ", ".join("?" * len(rows[0]))
    sql = f"INSERT OR IGNORE INTO {table} {named} VALUES ({marks})"  # noqa: S608 - our own names
    connection.executemany(sql, rows)


def _accounts(university: University) -> Iterator[tuple[Any, ...]]:
    for account in university.accounts:
        yield (
            university.cluster, account.name, account.parent, account.shares,
            account.description, 0,
        )  # fmt: skip


def _memberships(university: University) -> Iterator[tuple[Any, ...]]:
    """A coordinator of a department has no shares of her own there."""
    for group in university.users:
        for name in group.names:
            lead = int(group.coordinator)
            yield (university.cluster, name, group.account, 0 if lead else 1, lead, 0)


def _devices(university: University, runs: Sequence[SeedRun]) -> Iterator[tuple[Any, ...]]:
    seen_ms = max((run.end_ts for run in runs), default=0) * 1000
    for pool in university.pools:
        for node in pool.nodes:
            for number in range(pool.boards_per_node):
                board = pool.first_board + number
                yield (
                    board_uuid(university, node, board), node, pool.model,
                    f"invented {pool.model}", board, int(not pool.whole), pool.cut[1], seen_ms,
                )  # fmt: skip


def board_uuid(university: University, node: str, board: int) -> str:
    """Return the invented UUID of a board, the same in every seeded store."""
    name = f"{university.name}/{node}/{board}"
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_URL, name)}"


def _uids(university: University) -> dict[str, int]:
    names = (name for group in university.users for name in group.names)
    return {name: 2001 + number for number, name in enumerate(names)}


def _decisions(
    rng: random.Random,
    university: University,
    numbered: Sequence[tuple[int, SeedRun]],
    jobs: Mapping[int, int],
) -> dict[int, DecisionMade]:
    """The policy's decisions by run id, where it had something to say."""
    uids = _uids(university)
    return {
        run_id: made
        for run_id, run in numbered
        if (made := decision_of(rng, run, university.cluster, jobs[run_id], uids[run.user]))
    }


def _refusals(
    rng: random.Random,
    university: University,
    numbered: Sequence[tuple[int, SeedRun]],
    jobs: Mapping[int, int],
) -> Iterator[DecisionMade]:
    uids = _uids(university)
    tries = [(jobs[run_id], uids[run.user], run) for run_id, run in numbered]
    return refusals(rng, tries, university.cluster)


def _insert_decisions(connection: sqlite3.Connection, made: Iterable[DecisionMade]) -> None:
    """As events and what they say, as they would have come."""
    names = {uid: name for name, uid in _uids(load_university()).items()}
    for event in made:
        row = (event.node, event.boot_id, event.seq, "decision", event.t_ms // 1000)
        _insert(connection, "event", [(*row, encode_event(event).decode())])
        store_decision(connection, event, names)


def _run_rows(
    rng: random.Random,
    university: University,
    numbered: Sequence[tuple[int, SeedRun]],
    jobs: Mapping[int, int],
    decisions: Mapping[int, DecisionMade],
) -> Iterator[Run]:
    uids = _uids(university)
    for run_id, run in numbered:
        ran = run.start_ts is not None
        cpus = _cpus(run)
        nodes = sorted({held.node for held in run.held})
        tres = _tres(run, cpus, max(1, len(nodes)))
        made = decisions.get(run_id)
        yield Run(
            cluster=university.cluster,
            job_id=jobs[run_id],
            submit_ts=run.submit_ts,
            restart_cnt=0,
            user=run.user,
            uid=uids[run.user],
            account=run.account,
            partition=run.pool.partition if run.pool else "gpu",
            qos="normal",
            name=run.name,
            state=run.state,
            exit_code=_exit_code(run),
            exit_signal=9 if run.state == "OUT_OF_MEMORY" else 0,
            eligible_ts=run.eligible_ts,
            start_ts=run.start_ts,
            end_ts=run.end_ts if ran else run.eligible_ts + 60,
            elapsed_s=run.run_s if ran else None,
            suspended_s=0,
            timelimit_s=run.limit_s,
            nnodes=len(nodes) if ran else None,
            ncpus=cpus if ran else None,
            nodelist=",".join(nodes) or None,
            req_tres=tres,
            alloc_tres=tres if ran else None,
            cpu_time_s=int(run.run_s * cpus * rng.uniform(0.05, 0.95)) if ran else None,
            decision=comment_of(made) if made else None,
        )


def _exit_code(run: SeedRun) -> int:
    return 1 if run.state in ("FAILED", "NODE_FAIL") else 0


def _tres(run: SeedRun, cpus: int, nodes: int) -> str:
    gpus = f",gres/gpu={run.count},gres/gpu:{run.pool.type}={run.count}" if run.pool else ""
    return f"billing={_billing(run, cpus)},cpu={cpus}{gpus},mem={8 * cpus}G,node={nodes}"


def _billing(run: SeedRun, cpus: int) -> int:
    """TRESBillingWeights=CPU=1,GRES/gpu=16 and slices by their part, as a site would set them."""
    return cpus + (16 * run.count * run.pool.milli // 1000 if run.pool else 0)


def _cpus(run: SeedRun) -> int:
    return 8 * run.count if run.pool else 4


def _mem_mib(run: SeedRun) -> int:
    return 8 * 1024 * _cpus(run)


def _is_measured(rng: random.Random, run: SeedRun) -> bool:
    return bool(run.pool and run.held and run.run_s > 0) and rng.random() >= _UNMEASURED


def _energy_rows(
    rng: random.Random, university: University, measured: Sequence[tuple[int, SeedRun]]
) -> Iterator[tuple[Any, ...]]:
    """One row a board; slices have no utilisation reading, as on the real board."""
    for run_id, run in measured:
        assert run.pool is not None  # noqa: S101 - _is_measured
        idle_mj, active_mj = _device_energy(run.pool, run)
        boards: dict[tuple[str, int], int] = {}
        for held in run.held:
            boards[held.node, held.board] = boards.get((held.node, held.board), 0) + 1
        known = run.pool.whole and rng.random() >= _UTIL_UNKNOWN
        for (node, board), count in boards.items():
            yield (
                run_id, board_uuid(university, node, board), node, run.pool.model,
                idle_mj * count, active_mj * count,
                round(1000 * run.load[0]) if known else None, run.run_s,
                0 if known else int(Flag.NO_UTIL), "counter",
            )  # fmt: skip


def _device_energy(pool: Pool, run: SeedRun) -> tuple[int, int]:
    """Return (idle, active) mJ of one held device over the run."""
    slices, of = pool.cut
    idle_mw = pool.idle_w * 1000 * slices // of
    active_mw = max(0, int(1000 * run.load[1] * pool.max_w * slices / of) - idle_mw)
    return idle_mw * run.run_s, active_mw * run.run_s


def _hour_rows(run_id: int, run: SeedRun, zone: ZoneInfo) -> Iterator[tuple[Any, ...]]:
    assert run.pool is not None  # noqa: S101 - _is_measured
    assert run.start_ts is not None  # noqa: S101 - _is_measured
    idle_mj, active_mj = (amount * run.count for amount in _device_energy(run.pool, run))
    start_ms, end_ms = run.start_ts * 1000, run.end_ts * 1000
    for hour_ts, from_ms, until_ms in hour_pieces(start_ms, end_ms, zone):
        yield (
            run_id,
            hour_ts,
            cut(idle_mj, start_ms, end_ms, from_ms, until_ms),
            cut(active_mj, start_ms, end_ms, from_ms, until_ms),
        )


def _idle_windows(
    university: University, runs: Sequence[SeedRun], zone: ZoneInfo
) -> Iterator[tuple[Any, ...]]:
    """One window per board and day for what it drew while nobody held it (or a part of it)."""
    pools = {
        (node, pool.first_board + number): pool
        for pool in university.pools
        for node in pool.nodes
        for number in range(pool.boards_per_node)
    }
    held = _held_seconds(runs, zone)
    days = sorted({day for _, _, day in held})
    for day, ((node, board), pool) in itertools.product(days, pools.items()):
        start_ts, end_ts = day_bounds(day, zone)
        slices, of = pool.cut
        free_s = of * (end_ts - start_ts) - slices * held.get((node, board, day), 0)
        idle_mj = max(0, pool.idle_w * 1000 * free_s // of)
        yield (
            board_uuid(university, node, board), start_ts * 1000, end_ts * 1000, node,
            idle_mj, idle_mj, 0, 0, "invented", None,
        )  # fmt: skip


def _held_seconds(runs: Sequence[SeedRun], zone: ZoneInfo) -> dict[tuple[str, int, str], int]:
    """Return for (node, board, day) the seconds that its devices were held, added up."""
    result: dict[tuple[str, int, str], int] = {}
    for run in runs:
        if run.start_ts is None or run.pool is None:
            continue
        for day in days_between(run.start_ts, run.end_ts, zone):
            a_ts, b_ts = day_bounds(day, zone)
            span_s = min(b_ts, run.end_ts) - max(a_ts, run.start_ts)
            for held in run.held:
                key = (held.node, held.board, day)
                result[key] = result.get(key, 0) + span_s
    return result


def _touched_days(runs: Sequence[SeedRun], zone: ZoneInfo) -> Iterator[tuple[str]]:
    days = {
        day
        for run in runs
        for day in days_between(run.start_ts or run.eligible_ts, run.end_ts, zone)
    }
    return ((day,) for day in sorted(days))
