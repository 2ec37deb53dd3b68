# SPDX-License-Identifier: Apache-2.0
"""Adds each run's shares of windows up again and compares them with what the run carries."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from zoneinfo import ZoneInfo

from fairwatt.accounting.pieces import NodeRun
from fairwatt.accounting.run_rows import SEED_BIT
from fairwatt.accounting.settle import EDGE_S
from fairwatt.accounting.verify_days import hours_of, portion
from fairwatt.accounting.verify_fault import Fault, Findings, Span
from fairwatt.accounting.verify_shares import Reaches, shares_of
from fairwatt.accounting.windows import WindowSources

__all__ = ["check_runs"]

BATCH = 500
DAY_MS = 86_400_000
FOREVER_MS = 1 << 62

SETTLE = (
    "stop the collector, mark the run (INSERT INTO unsettled (node, job_id, start_ms)"
    " SELECT node, job_id, start_ms FROM node_run WHERE run_id = …) and start it again;"
    " if it stays, restore the newest backup that verifies"
)

_Amounts = tuple[int | None, int | None]
"""Idle and active energy in mJ; None: unknown."""

_Sums = dict[tuple[str | int, ...], _Amounts]
_ByRun = dict[int, _Sums]

_RUNS = (
    "SELECT run_id, flags & ? FROM job_run WHERE end_ts >= ? AND submit_ts < ?"
    " UNION ALL SELECT run_id, flags & ? FROM job_run WHERE end_ts IS NULL AND submit_ts < ?"
)
_OF = "WHERE run_id IN (SELECT value FROM json_each(?))"
_WAITING = (
    "SELECT DISTINCT r.run_id FROM unsettled JOIN node_run r USING (node, job_id, start_ms)"
    " WHERE r.run_id IS NOT NULL"
)
_CELLS = (
    "SELECT device_uuid, hour_ts, sum(idle_mj), sum(active_mj) FROM run_cell"
    " WHERE node = ? AND job_id = ? AND run_start_ms = ? GROUP BY device_uuid, hour_ts"
)


class _OnNode(NamedTuple):
    run_id: int
    node_run: NodeRun
    end_ms: int | None


@dataclass
class _Expected:
    """What the windows give a run: by device, by hour, and by hour and kind of host part."""

    devices: _Sums = field(default_factory=dict)
    hours: _Sums = field(default_factory=dict)
    host_hours: _Sums = field(default_factory=dict)


def check_runs(
    store: sqlite3.Connection,
    sources: WindowSources,
    zone: ZoneInfo,
    span: Span,
    kinds: Mapping[str, str],
    reaches: Reaches,
    found: Findings,
) -> int:
    """Compare run_cell, run_energy, run_hour and run_host_hour of all runs in the span.

    Args:
        store: read-only, in a transaction.
        sources: where the windows are.
        zone: in which hours begin.
        span: runs that ended in it or later and were submitted before its end are verified.
        kinds: each host part's kind by device; others are GPUs.
        reaches: where the runs' shares are looked for.
        found: what differs is added here.

    Returns:
        How many runs were verified.
    """
    waiting = {run_id for (run_id,) in store.execute(_WAITING)}
    checker = _Checker(store, sources, zone, kinds, reaches, found)
    done = skipped = 0
    for batch in _batches(store, span):
        wanted = {run_id: seeded for run_id, seeded in batch if run_id not in waiting}
        skipped += len(batch) - len(wanted)
        done += checker.check(wanted)
    if skipped:
        found.notes.append(f"{skipped} runs have news that are still to be settled: left out")
    if checker.dropped:
        found.notes.append(f"{checker.dropped} runs have windows of removed months: left out")
    return done


def _batches(store: sqlite3.Connection, span: Span) -> Iterator[list[tuple[int, int]]]:
    first_ts, last_ts = span.from_ms // 1000 - EDGE_S, span.until_ms // 1000 + EDGE_S
    cursor = store.execute(_RUNS, (SEED_BIT, first_ts, last_ts, SEED_BIT, last_ts))
    while batch := cursor.fetchmany(BATCH):
        yield batch


class _Checker:
    """Checks batches of runs; `dropped` counts those whose windows are gone."""

    def __init__(
        self,
        store: sqlite3.Connection,
        sources: WindowSources,
        zone: ZoneInfo,
        kinds: Mapping[str, str],
        reaches: Reaches,
        found: Findings,
    ) -> None:
        self.dropped = 0
        self._store = store
        self._sources = sources
        self._zone = zone
        self._kinds = kinds
        self._reaches = reaches
        self._found = found

    def check(self, runs: Mapping[int, int]) -> int:
        """Check runs by id, each with whether it is invented; return how many."""
        ids = json.dumps(list(runs))
        expected: dict[int, _Expected] = defaultdict(_Expected)
        gone: set[int] = set()
        for one in self._on_nodes(ids):
            if self._sources.are_dropped(*_span_of(one)):
                gone.add(one.run_id)
            else:
                self._add(one, expected[one.run_id])
        energy = self._stored("run_id, device_uuid, idle_mj, active_mj FROM run_energy", ids)
        hours = self._stored("run_id, hour_ts, idle_mj, active_mj FROM run_hour", ids)
        host = self._stored("run_id, hour_ts, kind, idle_mj, active_mj FROM run_host_hour", ids)
        for run_id in sorted(runs.keys() - gone):
            mine = expected[run_id]
            # An invented run has no windows: its hours have to add up to its devices.
            if runs[run_id]:
                mine.hours = {("all",): _total(energy.get(run_id, {}))}
                hours[run_id] = {("all",): _total(hours.get(run_id, {}))}
                mine.devices = energy.get(run_id, {})
            self._compare(run_id, "run_energy", mine.devices, energy.get(run_id, {}))
            self._compare(run_id, "run_hour", mine.hours, hours.get(run_id, {}))
            self._compare(run_id, "run_host_hour", mine.host_hours, host.get(run_id, {}))
        self.dropped += len(gone)
        return len(runs) - len(gone)

    def _on_nodes(self, ids: str) -> list[_OnNode]:
        rows = self._store.execute(
            f"SELECT run_id, node, job_id, start_ms, end_ms FROM node_run {_OF}",  # noqa: S608
            (ids,),
        )
        return [_OnNode(row[0], row[1:4], row[4]) for row in rows.fetchall()]

    def _add(self, one: _OnNode, expected: _Expected) -> None:
        """Add a run's windows on one node, and compare them with its cells."""
        cells: _Sums = {}
        reaches = self._reaches.of(*one.node_run)
        shares = self._sources.rows(
            *_span_of(one), lambda db: shares_of(db, one.node_run, reaches)
        )
        self._found.rows += len(shares)
        for device, t0_ms, t1_ms, _, idle_mj, active_mj in shares:
            _more(expected.devices, (device,), idle_mj, active_mj)
            kind = self._kinds.get(device)
            for hour_ts, _, a_ms, b_ms in hours_of(t0_ms, t1_ms, self._zone):
                idle = portion(idle_mj, t0_ms, t1_ms, a_ms, b_ms)
                active = portion(active_mj, t0_ms, t1_ms, a_ms, b_ms)
                _more(cells, (device, hour_ts), idle, active)
                if kind is None:
                    _more(expected.hours, (hour_ts,), idle, active)
                else:
                    _more(expected.host_hours, (hour_ts, kind), idle, active)
        stored: _Sums = {row[:2]: row[2:] for row in self._store.execute(_CELLS, one.node_run)}
        self._compare(one.run_id, f"run_cell of {one.node_run[0]}", cells, stored)

    def _stored(self, columns_from_table: str, ids: str) -> _ByRun:
        found: _ByRun = {}
        rows = self._store.execute(f"SELECT {columns_from_table} {_OF}", (ids,))
        for row in rows:
            found.setdefault(row[0], {})[row[1:-2]] = row[-2:]
            self._found.rows += 1
        return found

    def _compare(self, run_id: int, table: str, expected: _Sums, stored: _Sums) -> None:
        """Note what differs; a row that is not there and one of unknown energy are the same."""
        if expected == stored:
            return
        for key in sorted({*expected, *stored}, key=str):
            wanted, is_there = expected.get(key, _UNKNOWN), stored.get(key, _UNKNOWN)
            for name, one, other in zip(("idle_mj", "active_mj"), wanted, is_there, strict=True):
                if one != other:
                    where = f"{table} {' '.join(map(str, key))}"
                    what = f"{name} as the windows add up"
                    self._found.add(Fault(self._name(run_id), where, what, one, other, SETTLE))

    def _name(self, run_id: int) -> str:
        job_id, restart_cnt = self._store.execute(
            "SELECT job_id, restart_cnt FROM job_run WHERE run_id = ?", (run_id,)
        ).fetchone()
        return f"run {run_id} (job {job_id}, restart {restart_cnt})"


_UNKNOWN: _Amounts = (None, None)


def _span_of(one: _OnNode) -> tuple[int, int]:
    """When a run's windows may have been: what it held is read a little before and after."""
    until_ms = FOREVER_MS if one.end_ms is None else one.end_ms + DAY_MS
    return one.node_run[2] - DAY_MS, until_ms


def _more(sums: _Sums, key: tuple[str | int, ...], idle_mj: int, active_mj: int) -> None:
    known_idle, known_active = sums.get(key, (0, 0))
    sums[key] = ((known_idle or 0) + idle_mj, (known_active or 0) + active_mj)


def _total(sums: _Sums) -> _Amounts:
    return sum(idle or 0 for idle, _ in sums.values()), sum(act or 0 for _, act in sums.values())
