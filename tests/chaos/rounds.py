# SPDX-License-Identifier: Apache-2.0
"""Plays rounds until as many deaths have happened as are wanted, and judges each store."""

from __future__ import annotations

import difflib
import itertools
import os
import shutil
from pathlib import Path

from fairwatt.accounting.verify import span_of, verify
from tests.chaos.compare import facts
from tests.chaos.drive import Round, play
from tests.chaos.plan import Plan, draw
from tests.chaos.roles import CLUSTER
from tests.chaos.run import KILLS, SCRIPTS, Result
from tests.chaos.world import World
from tests.unit.accounting.samples import BERLIN

SHOWN = 6
MOST_FAULTS = 5


def worker(points: int, seed: int) -> Result:
    """Play rounds with this seed until `points` deaths, or enough faults."""
    result, folder = Result(seed), Path(os.environ["CHAOS_WORKER"]) / str(seed)
    for number in itertools.count():
        if result.deaths >= points or len(result.faults) >= MOST_FAULTS:
            return result
        if number % SCRIPTS == 0:
            world = World(seed * 1000 + number)
            calm = _played(world, Plan(0), folder / "calm")
            wanted = {exact: facts(calm.database, exact=exact) for exact in (True, False)}
            result.faults += _unsound(calm, "undisturbed")
        plan = draw(seed * 1000 + number, calm.steps, KILLS)
        result.rounds += 1
        try:
            done = _played(world, plan, folder / "round")
        except (AssertionError, RuntimeError) as error:
            result.faults.append(f"{plan.words()}: {error}")
            continue
        result.deaths += done.deaths
        exact = not plan.cuts_windows
        result.faults += _differences(wanted[exact], facts(done.database, exact=exact), plan)
        result.faults += _unsound(done, plan.words())
    raise AssertionError


def _played(world: World, plan: Plan, folder: Path) -> Round:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return play(world, plan, folder)


def _differences(wanted: list[str], found: list[str], plan: Plan) -> list[str]:
    if wanted == found:
        return []
    lines = [line for line in difflib.unified_diff(wanted, found, lineterm="", n=0)
             if line[0] in "+-" and line[:3] not in ("+++", "---")]  # fmt: skip
    shown = "\n  ".join(lines[:SHOWN])
    return [f"{plan.words()}: {len(lines)} facts differ:\n  {shown}"]


def _unsound(done: Round, words: str) -> list[str]:
    """What `fairwatt ledger verify` says of the store."""
    found = verify(
        done.database, cluster=CLUSTER, zone=BERLIN, carbon_zone="DEU",
        span=span_of(None, None, BERLIN),
    ).findings  # fmt: skip
    left = [note for note in found.notes if "left out" in note]
    return [f"{words}: ledger verify: {fault}" for fault in (*found.faults[:SHOWN], *left)]
