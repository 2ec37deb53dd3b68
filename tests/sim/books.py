# SPDX-License-Identifier: Apache-2.0
"""What the collector's store says of the simulated runs: events taken in and settled for real."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.runs import insert_runs
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import open_store, transaction
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.events import Event
from fairwatt.core.records import Run
from tests.sim.load import Job

__all__ = ["Booked", "booked"]

CLUSTER = "sim"
BATCH = 5_000


class Booked(NamedTuple):
    """A run's energy on one device as a report would find it; None: unknown."""

    energy_mj: int | None
    flags: int
    method: str


def booked(
    events: Sequence[Event], jobs: Iterable[Job], folder: Path
) -> dict[tuple[int, str], Booked]:
    """Return what the store has of each (job, device) after all events arrived."""
    db = open_store(folder / "store.db")
    with transaction(db) as connection:
        insert_runs(connection, [_run(job) for job in jobs], load_catalogue(), seeded=False)
    for first in range(0, len(events), BATCH):
        ingest(db, events[first : first + BATCH])
    settle(db, CLUSTER, ZoneInfo("UTC"))
    rows = db.execute(
        "SELECT r.job_id, e.device_uuid, e.idle_mj + e.active_mj, e.flags, e.method"
        " FROM run_energy e JOIN run r USING (run_id)"
    ).fetchall()
    db.close()
    return {(row[0], row[1]): Booked(*row[2:]) for row in rows}


def _run(job: Job) -> Run:
    start_ts, end_ts = job.start_ms // 1000, job.end_ms // 1000
    return Run(
        cluster=CLUSTER, job_id=job.job_id, submit_ts=start_ts - 5, restart_cnt=0,
        state="COMPLETED", user="ada", account="sim", eligible_ts=start_ts - 5,
        start_ts=start_ts, end_ts=end_ts, elapsed_s=end_ts - start_ts, nnodes=1, ncpus=1,
    )  # fmt: skip
