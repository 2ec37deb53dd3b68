# SPDX-License-Identifier: Apache-2.0
"""One round: the script from begin to end, with a plan's faults, until all is delivered."""

from __future__ import annotations

import fcntl
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairwatt.core.post import Answer
from tests.chaos.parts import Died, Part, Wounds
from tests.chaos.plan import ROLES, Plan
from tests.chaos.power import cut_power
from tests.chaos.world import BEGIN_S, BOARDS, LAST_S, Step, World

TRIES = 500
"""A disk that is full for long makes many beginnings fail."""
WRITE_LOCK = 120
"""Of the WAL's index, the byte of the lock that a writer holds (SQLite's UNIX_SHM_BASE)."""
AWAY = Answer(0, "connection refused")


@dataclass(frozen=True)
class Round:
    """How a round went: the store, deaths, and the steps of each part."""

    database: Path
    deaths: int
    steps: dict[str, int]


def play(world: World, plan: Plan, folder: Path) -> Round:
    """Play the script with a plan's faults and return when the store has all.

    Raises:
        AssertionError: a part did not come to its end though nothing befell it any more.
    """
    return _Stage(world, plan, folder).play()


class _Stage:
    def __init__(self, world: World, plan: Plan, folder: Path) -> None:
        self._world = world
        self._plan = plan
        self._folder = folder
        self._rng = random.Random(plan.seed)
        self._late: list[bytes] = []
        self._parts = {
            role: Part(
                role,
                folder,
                world,
                plan.wounds.get(role, Wounds()),
                plan.seed,
                plan.spool_bytes,
                str(self._diary(role)) if plan.power else "",
            )
            for role in ROLES
        }
        self._now = Step(0, 0, "")

    def play(self) -> Round:
        try:
            # What was drawn before an agent's first reading nobody can know.
            for node in BOARDS:
                self._until(node, Step(BEGIN_S, 0, "sample", node), lambda said: said is None)
            for step in self._world.steps:
                self._now = step
                self._one(step)
            self._finish()
            return Round(
                self._folder / "store.db",
                sum(part.deaths for part in self._parts.values()),
                {role: part.steps for role, part in self._parts.items()},
            )
        finally:
            for part in self._parts.values():
                part.end()

    def _one(self, step: Step) -> None:
        if step.kind == "sync":
            self._ask("sync", step, locked=True)
            return
        begin_s, end_s = self._plan.outages.get(step.node, (0, 0))
        if begin_s <= step.at_s < end_s:
            self._parts[step.node].end()
            done: Any = False
        else:
            done = self._ask(step.node, step)
        if step.kind in ("prolog", "epilog") and not done:
            self._leave(step)

    def _ask(self, role: str, step: Step, payload: object = None, *, locked: bool = False) -> Any:
        """What the part says, False if it died over it; it begins anew with its next step."""
        try:
            with self._maybe_locked() if locked else nullcontext():
                return self._parts[role].ask(step, payload, self._deliver)
        except Died:
            # Not while we hold the store ourselves: a power cut ends us too.
            self._darken(role)
            return False

    def _diary(self, role: str) -> Path:
        """One a host: collector and sync share theirs."""
        return self._folder / f"{role if role in BOARDS else 'accounting'}.diary"

    def _darken(self, role: str) -> None:
        """Where deaths are power cuts: end what else runs on the host, take back what is lost."""
        if not self._diary(role).exists():
            return
        on_node = role in BOARDS
        for other in [] if on_node else ["collector", "sync"]:
            self._parts[other].end()
        files = (self._folder / role).rglob("*") if on_node else self._folder.glob("store.db*")
        plain = [path for path in files if path.is_file()]
        cut_power(self._diary(role), plain, self._rng)

    def _leave(self, step: Step) -> None:
        """Do what a hook does that the agent did not answer."""
        request = self._world.request(step)
        text = {"v": 1, "verb": request.verb, "t_ms": request.t_ms, "env": request.env}
        inbox = self._folder / step.node / "inbox"
        inbox.mkdir(parents=True, exist_ok=True)
        path = inbox / f"{request.t_ms:014d}-{step.job_id}-{step.kind}.json"
        path.write_text(json.dumps(text))

    # -- the network -----------------------------------------------------------------------------

    def _deliver(self, body: bytes) -> Answer:
        """Carry a body to the collector as the plan's network does."""
        plan, begin_s = self._plan, self._plan.away[0]
        if begin_s <= self._now.at_s < plan.away[1]:
            return AWAY
        if self._rng.random() < plan.late:
            self._late.append(body)
            return Answer(200, "in good time")
        answer = self._post(body)
        if self._rng.random() < plan.twice:
            self._post(body)
        while self._late and self._rng.random() < 0.5:
            self._post_late(self._rng.randrange(len(self._late)))
        return AWAY if self._rng.random() < plan.unheard else answer

    def _post(self, body: bytes) -> Answer:
        answer = self._ask("collector", self._now, body, locked=True) or AWAY
        assert answer.status in (0, 200, 429, 503), f"{answer.status}: {answer.text}"
        return answer

    def _post_late(self, place: int) -> None:
        if self._post(self._late[place]).status == 200:
            del self._late[place]

    @contextmanager
    def _maybe_locked(self) -> Iterator[None]:
        """Another process may hold the store meanwhile, longer than ours waits.

        By the byte that SQLite locks to write: a connection of ours would write at its end, and
        that would be in no diary.
        """
        index = self._folder / "store.db-shm"
        if self._rng.random() >= self._plan.locked or not index.exists():
            yield
            return
        with index.open("rb+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, WRITE_LOCK)
            yield

    # -- the end ---------------------------------------------------------------------------------

    def _finish(self) -> None:
        """All is well again: everything arrives and is settled."""
        for part in self._parts.values():
            part.heal()
        self._plan = Plan(self._plan.seed)
        last_s = LAST_S + 900
        for node in BOARDS:
            self._until(node, Step(last_s, 0, "border", node), lambda said: said is None)
            self._until(node, Step(last_s + 1, 0, "ship", node), lambda said: said == 0)
        while self._late:
            self._post_late(0)
        self._until("sync", Step(last_s + 2, 0, "sync"), lambda said: said == "")

    def _until(self, role: str, step: Step, done: Any) -> None:
        self._now = step
        for _ in range(TRIES):
            said = self._ask(role, step)
            if done(said):
                return
        raise AssertionError(f"{role} does not come to its end: {said}")
