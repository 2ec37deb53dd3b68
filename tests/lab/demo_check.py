# SPDX-License-Identifier: Apache-2.0
"""Compares the store with Slurm's accounting and with the fake devices, after the demo's jobs."""

from __future__ import annotations

import itertools
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import ZoneInfo

from fairwatt.accounting.verify import span_of, verify
from tests.lab.job_mix import Spec
from tests.lab.truth import Counter, Hold, edge_tolerance_mj, expected_mj


@dataclass
class Verdict:
    """What was compared: printed lines, and what did not hold."""

    lines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def claim(self, holds: bool, fault: str) -> bool:
        """Note `fault` unless it holds."""
        if not holds:
            self.faults.append(fault)
        return holds


def check_runs(
    db: sqlite3.Connection, jobs: Mapping[str, list[int]], mix: Sequence[Spec]
) -> Verdict:
    """Each submission left exactly the runs it must, in the right states, with the right GPUs."""
    verdict = Verdict()
    for spec in mix:
        rows = [row for job_id in jobs[spec.label] for row in _runs(db, job_id)]
        states = sorted(row["state"] for row in rows)
        verdict.claim(len(rows) == spec.runs, f"{spec.label}: {len(rows)} runs, not {spec.runs}")
        verdict.claim(
            states == _states(spec), f"{spec.label}: states {states}, not {_states(spec)}"
        )
        for row in rows:
            _check_gpus(db, spec, row, verdict)
        told = " ".join(spec.args)
        verdict.lines.append(
            f"  {spec.label:<24} {told:<34} {len(rows)} run(s)  {' '.join(states)}"
        )
    total = db.execute("SELECT COUNT(*) FROM run WHERE origin = 'slurm'").fetchone()[0]
    wanted = sum(spec.runs for spec in mix)
    verdict.claim(total == wanted, f"{total} live runs in the store, not {wanted}")
    verdict.lines.append(f"  {total} runs in the store")
    return verdict


def _runs(db: sqlite3.Connection, job_id: int) -> list[sqlite3.Row]:
    return db.execute(
        "SELECT * FROM run WHERE job_id = ? AND origin = 'slurm' ORDER BY submit_ts", (job_id,)
    ).fetchall()


def _states(spec: Spec) -> list[str]:
    known = {
        "done": ["COMPLETED"] * spec.tasks,
        "rejected": [],
        "cancelled": ["CANCELLED"],
        "requeued": ["COMPLETED", "REQUEUED"],
    }
    return known[spec.fate]


def _check_gpus(db: sqlite3.Connection, spec: Spec, row: sqlite3.Row, verdict: Verdict) -> None:
    if spec.fate == "cancelled":
        verdict.claim(
            row["start_ts"] is None, f"{spec.label}: cancelled while pending, yet started"
        )
        return
    gpus = db.execute(
        "SELECT gpu_type, count FROM run_gpu WHERE run_id = ?", (row["run_id"],)
    ).fetchall()
    count = sum(gpu["count"] for gpu in gpus)
    verdict.claim(count == spec.gpus, f"{spec.label}: {count} GPUs, not {spec.gpus}")
    if spec.given:
        types = [gpu["gpu_type"] for gpu in gpus]
        verdict.claim(types == [spec.given], f"{spec.label}: given {types}, not {spec.given}")


def check_energy(
    db: sqlite3.Connection,
    fakes: Mapping[str, Counter],
    idle_mw: Mapping[str, int],
    labels: Mapping[int, str],
) -> Verdict:
    """Each run's energy on each device equals the truth within one counter step at either end.

    Args:
        db: the store, with Row factory.
        fakes: the fake device library of each node.
        idle_mw: idle board power by device UUID.
        labels: what to call each job id; others are left out.
    """
    verdict = Verdict()
    by_device = _holds(db)
    for device, holds in by_device.items():
        fake = fakes[holds[0].run[0]]
        truth = expected_mj(fake, holds, idle_mw[device])
        for hold in holds:
            if hold.run[1] in labels:
                _compare(db, fake, hold, truth[hold.run], labels, verdict)
    return verdict


def _holds(db: sqlite3.Connection) -> dict[str, list[Hold]]:
    rows = db.execute(
        """SELECT node, job_id, start_ms, end_ms, device_uuid,
                  SUM(CAST(numerator AS REAL) / denominator) AS fraction
             FROM hold JOIN node_run USING (node, job_id, start_ms)
            GROUP BY node, job_id, start_ms, device_uuid ORDER BY start_ms"""
    )
    found: dict[str, list[Hold]] = defaultdict(list)
    for row in rows:
        run = (row["node"], row["job_id"], row["start_ms"])
        found[row["device_uuid"]].append(
            Hold(run, row["device_uuid"], row["fraction"], row["start_ms"], row["end_ms"])
        )
    return found


def _compare(
    db: sqlite3.Connection,
    fake: Counter,
    hold: Hold,
    truth_mj: float,
    labels: Mapping[int, str],
    verdict: Verdict,
) -> None:
    measured = db.execute(
        """SELECT SUM(idle_mj + active_mj) FROM window_share
            WHERE device_uuid = ? AND node = ? AND job_id = ? AND run_start_ms = ?""",
        (hold.device, *hold.run),
    ).fetchone()[0]
    node, job_id, _ = hold.run
    name = labels[job_id]
    if not verdict.claim(measured is not None, f"{name}: no energy on {hold.device}"):
        return
    off = measured - truth_mj
    allowed = edge_tolerance_mj(fake, hold)
    verdict.claim(
        abs(off) <= allowed, f"{name} on {hold.device}: off by {off:.0f} mJ, allowed {allowed:.0f}"
    )
    verdict.lines.append(
        f"  {job_id:>5}  {name:<24} {node:<6} {(hold.end_ms - hold.start_ms) / 1000:>6.2f} s "
        f"{measured / 1000:>10.3f} J {truth_mj / 1000:>10.3f} J {off / 1000:>+8.3f} J"
    )


def check_settled(db: sqlite3.Connection) -> Verdict:
    """What runs carry equals what the windows gave them: nothing lost, nothing doubled."""
    verdict = Verdict()
    strays = db.execute("SELECT COUNT(*) FROM node_run WHERE run_id IS NULL").fetchone()[0]
    verdict.claim(strays == 0, f"{strays} node runs belong to no run of sacct")
    shares = db.execute(
        "SELECT SUM(idle_mj + active_mj) FROM window_share"
        " JOIN node_run ON node_run.node = window_share.node"
        " AND node_run.job_id = window_share.job_id AND start_ms = run_start_ms"
        " LEFT JOIN device USING (device_uuid) WHERE COALESCE(kind, 'gpu') = 'gpu'"
    ).fetchone()[0]
    totals = {
        table: db.execute(
            f"SELECT SUM(idle_mj + active_mj) FROM {table} JOIN run USING (run_id)"
            f" WHERE origin = 'slurm' AND {gpus}"
        ).fetchone()[0]
        for table, gpus in (
            (
                "run_energy",
                "device_uuid NOT IN (SELECT device_uuid FROM device WHERE kind <> 'gpu')",
            ),
            ("run_hour", "true"),
        )
    }
    for table, total in totals.items():
        verdict.claim(total == shares, f"{table} sums to {total} mJ, the windows to {shares} mJ")
    runs, hours = totals["run_energy"], totals["run_hour"]
    verdict.lines.append(f"  windows {shares} mJ = runs {runs} mJ = hours {hours} mJ")
    return verdict


def check_verified(database: Path) -> Verdict:
    """`fairwatt ledger verify`: every sum in the store is what its windows add up to."""
    verdict, zone = Verdict(), ZoneInfo("Europe/Berlin")
    done = verify(
        database, cluster="campus", zone=zone, carbon_zone="DEU", span=span_of(None, None, zone)
    )
    verdict.faults += [str(fault) for fault in done.findings.faults]
    verdict.lines += [f"  {note}" for note in done.findings.notes]
    verdict.lines.append(
        f"  {done.findings.rows} rows of {len(done.balances)} devices, {done.runs} runs and"
        f" {done.days} days: {done.findings.count} faults"
    )
    return verdict


def check_conservation(
    db: sqlite3.Connection, fakes: Mapping[str, Counter], devices: Mapping[str, str]
) -> Verdict:
    """For each device: windows without gap or overlap; Σ runs + unallocated = counter delta.

    `devices` gives the node of each device by UUID.
    """
    verdict = Verdict()
    for device, node in devices.items():
        _conserves(db, fakes[node], device, node, verdict)
    return verdict


def _conserves(
    db: sqlite3.Connection, fake: Counter, device: str, node: str, verdict: Verdict
) -> None:
    windows = db.execute(
        "SELECT * FROM window WHERE device_uuid = ? ORDER BY t0_ms", (device,)
    ).fetchall()
    if not verdict.claim(bool(windows), f"{device} on {node}: no window"):
        return
    for before, after in itertools.pairwise(windows):
        verdict.claim(before["t1_ms"] == after["t0_ms"], f"{device}: gap at {before['t1_ms']} ms")
    runs = db.execute(
        "SELECT COALESCE(SUM(idle_mj + active_mj), 0) FROM window_share WHERE device_uuid = ?",
        (device,),
    ).fetchone()[0]
    rest = sum(w["unallocated_idle_mj"] + w["unallocated_active_mj"] for w in windows)
    first, last = windows[0]["t0_ms"], windows[-1]["t1_ms"]
    delta = fake.energy_mj(device, last) - fake.energy_mj(device, first)
    measured = sum(window["measured_mj"] for window in windows)
    verdict.claim(runs + rest == measured, f"{device}: {runs} + {rest} != {measured} mJ")
    slack = 2 * _step(fake, device, first, last)
    verdict.claim(
        abs(measured - delta) <= slack, f"{device}: measured {measured}, truth {delta} mJ"
    )
    verdict.lines.append(
        f"  {node:<6} {device[:16]}…  "
        f"runs {runs:>9} + unallocated {rest:>9} = counter {measured:>9} mJ"
    )


def _step(fake: Counter, device: str, *times_ms: int) -> int:
    return max(
        fake.energy_mj(device, t_ms + 100) - fake.energy_mj(device, t_ms - 100)
        for t_ms in times_ms
    )
