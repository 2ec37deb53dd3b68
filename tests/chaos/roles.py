# SPDX-License-Identifier: Apache-2.0
"""The parts that are killed, each a process of its own around the real code.

Agent: keeper, journal and delivery. Collector: the WSGI application over the store. Sync: import,
settling and rollups. A pipe to the driver stands for hooks, network and timers; time is the
script's. Files are real, and so is SIGKILL.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fairwatt.accounting import collector, store
from fairwatt.accounting.agent import journal as journal_module
from fairwatt.accounting.agent import spool_room
from fairwatt.accounting.agent.daemon import observe
from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.keeper import Keeper
from fairwatt.accounting.agent.records import Origin
from fairwatt.accounting.agent.settings import AgentSettings
from fairwatt.accounting.carbon.factors import load_factors
from fairwatt.accounting.carbon.site import CarbonSite
from fairwatt.accounting.cycle import Site, import_and_refresh, prepare_store, refresh
from fairwatt.core import munge
from fairwatt.core.delivery import Delivery
from fairwatt.core.errors import FairwattError
from fairwatt.core.post import Answer
from tests.chaos.world import BEGIN_S, Boards, Slurm, Step, World, catalogue
from tests.unit.accounting.samples import BERLIN

CLUSTER = "campus"
SEGMENT_BYTES = 20_000
"""Small, so that segments are closed and removed as in weeks of life."""
BUSY_MS = 20
"""How long a process waits for a locked store here; in life it is 5 s."""

CATALOGUE = catalogue()
FACTORS = load_factors()
_steps = ctypes.CDLL(None)


@dataclass(frozen=True)
class Arms:
    """When the process dies (0: never), and in which of its steps the disk is full."""

    kill_at: int = 0
    full_from: int = 0
    full_steps: int = 0
    seed: int = 1
    spool_bytes: int = 0
    """Beyond so much windows are merged; 0: never."""
    diary: str = ""
    """Where it is noted what a power cut would take back; "": nowhere."""


class Clock:
    """Takes the place of the host's clock in this process."""

    def __init__(self) -> None:
        self.at_s = BEGIN_S
        time.time = lambda: float(self.at_s)  # type: ignore[assignment]
        time.time_ns = lambda: self.at_s * 1_000_000_000  # type: ignore[assignment]


def serve(role: str, folder: Path, world: World, pipe: Connection, arms: Arms, at_s: int) -> None:
    """Be one part until the pipe closes or the step comes at which to die."""
    logging.disable(logging.CRITICAL)
    clock = Clock()
    clock.at_s = at_s
    store.BUSY_TIMEOUT_MS = BUSY_MS
    journal_module.SEGMENT_BYTES = SEGMENT_BYTES
    # Merged over hours, windows could not be compared by hour.
    spool_room.STEPS, spool_room.RESERVE_BYTES = (spool_room.HOUR_MS,), 4096
    if arms.diary:
        _steps.chaos_diary(arms.diary.encode())
    _steps.chaos_arm(*map(ctypes.c_long, (arms.kill_at, arms.full_from, arms.full_steps)),
                     ctypes.c_ulong(arms.seed))  # fmt: skip
    try:
        if role == "collector":
            act = _collector(folder)
        elif role == "sync":
            act = _sync(folder, world, clock)
        else:
            act = _agent(role, folder, world, clock, pipe, arms)
    except (FairwattError, OSError):
        # As a unit of systemd that fails is started again later.
        pipe.send(("failed", _steps.chaos_steps()))
        return
    pipe.send(("ready", _steps.chaos_steps()))
    while True:
        step, payload = pipe.recv()
        clock.at_s = step.at_s
        result = act(step, payload)
        pipe.send(("done", _steps.chaos_steps(), result))


def site_of(folder: Path) -> Site:
    """The settings of the campus."""
    return Site(
        database=folder / "store.db", cluster=CLUSTER, zone=BERLIN, catalogue=CATALOGUE,
        carbon=CarbonSite("DEU", FACTORS, 1.2), slurm_conf="", overlap_s=7200,
    )  # fmt: skip


def _agent(
    node: str, folder: Path, world: World, clock: Clock, pipe: Connection, arms: Arms
) -> Callable[[Step, Any], Any]:
    here = folder / node
    for name in ("inbox", "jobs"):
        (here / name).mkdir(parents=True, exist_ok=True)
    settings = AgentSettings(
        node=node, socket=here / "sock", job_dir=here / "jobs", inbox_dir=here / "inbox",
        spool_dir=here / "spool", proc_root=here, slurm_conf=here / "slurm.conf",
        gres_conf=here / "gres.conf", collector_url="", munge_socket=None, catalogue_dir=None,
        sample_s=10.0, window_ms=1_800_000, ship_s=3600.0,
    )  # fmt: skip
    boards = Boards(world, node)
    boards.at_s = clock.at_s
    spool = here / "spool" / "journal"
    journal = Journal(spool, first_seq=1, max_bytes=arms.spool_bytes)
    keeper = Keeper(settings, journal, Origin(node, "boot-1"), CATALOGUE, version="1")
    keeper.resume((BEGIN_S - 3600) * 1000)
    delivery = Delivery(journal, here / "spool" / "refused")
    keeper.begin(observe(boards, keeper.watched, True, False))

    def act(step: Step, _payload: object) -> object:
        boards.at_s = step.at_s
        journal.retry()
        journal.keep_room()
        if step.kind == "ship":
            return _ship(delivery, pipe)
        seen = observe(boards, keeper.watched, False, True)
        if step.kind == "border":
            return keeper.border(seen, step.at_s * 1000)
        if step.kind == "sample":
            return keeper.sample(seen)
        with journal.synced_at_end():
            return keeper.hook(world.request(step), seen)

    return act


def _ship(delivery: Delivery, pipe: Connection) -> int:
    """Deliver until nothing is left or the collector is away; returns what is left."""
    while batch := delivery.next_batch():
        pipe.send(("post", _steps.chaos_steps(), batch.body))
        answer: Answer = pipe.recv()
        if delivery.answered(batch, answer) != 0.0:
            break
    left = delivery.next_batch()
    return left.count if left else 0


def _collector(folder: Path) -> Callable[[Step, Any], Any]:
    site = site_of(folder)
    db = prepare_store(site)
    munge.decode = lambda cred, socket: munge.Credential(cred.encode(), 0, 0)  # type: ignore[assignment]
    settings = collector.CollectorSettings(
        node_uids={0}, policyd_uids=set(), max_body_bytes=1 << 24, zone=BERLIN
    )
    client = collector.create_app(db, settings).test_client()

    def act(_step: Step, body: bytes) -> Answer:
        sign = "Munge " + hashlib.sha256(body).hexdigest()
        done = client.post("/v1/events", data=body, headers={"Authorization": sign})
        return Answer(done.status_code, done.text)

    return act


def _sync(folder: Path, world: World, clock: Clock) -> Callable[[Step, Any], Any]:
    site = site_of(folder)
    db = prepare_store(site)
    slurm = Slurm(world)

    def act(step: Step, _payload: object) -> str:
        slurm.at_s = clock.at_s
        try:
            import_and_refresh(db, site, source=slurm)
            refresh(db, site)
        except (FairwattError, sqlite3.Error) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    return act
