# SPDX-License-Identifier: Apache-2.0
"""Starts, asks and buries the parts; every death is a process that was really killed."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from tests.chaos.roles import Arms, serve
from tests.chaos.world import Step, World

CRASHED = 70


class Died(Exception):
    """The part was killed, or could not begin: what it was doing is not done."""


@dataclass
class Wounds:
    """What befalls one part, by its own steps counted over all its lives."""

    kills: list[int] = field(default_factory=list)
    full_from: int = 0
    full_steps: int = 0


class Part:
    """One part over its lives; `steps` are those of the lives that are over.

    Args:
        role: a node's name, `collector` or `sync`.
        folder: where its files are.
        world: the script.
        wounds: what befalls it.
        seed: of how it dies.
        spool_bytes: an agent's room; 0: no bound.
        diary: where it notes what a power cut would take back; "": nowhere.
    """

    def __init__(
        self,
        role: str,
        folder: Path,
        world: World,
        wounds: Wounds,
        seed: int,
        spool_bytes: int = 0,
        diary: str = "",
    ) -> None:
        self.role = role
        self.deaths = 0
        self.steps = 0
        self._folder = folder
        self._world = world
        self._wounds = wounds
        self._seed = seed
        self._spool_bytes = spool_bytes
        self._diary = diary
        self._pid = 0
        self._pipe: Connection | None = None
        self._life = 0

    def ask(self, step: Step, payload: object, on_post: Callable[[bytes], Any]) -> Any:
        """Let the part act at a step; it is started first if it is not alive.

        Raises:
            Died: it was killed meanwhile.
        """
        if self._pipe is None:
            self._start(step.at_s)
        self._send((step, payload))
        while True:
            kind, self._life, *rest = self._receive()
            if kind == "done":
                return rest[0]
            self._send(on_post(rest[0]))

    def heal(self) -> None:
        """From now on nothing befalls it; it begins anew at the next step."""
        self._wounds = Wounds()
        self.end()

    def end(self) -> None:
        """Kill it as it waits for its next step."""
        if self._pipe is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._bury()

    def _start(self, at_s: int) -> None:
        mine, theirs = Pipe()
        arms = self._arms()
        self._pid = os.fork()
        if self._pid == 0:
            mine.close()
            _live(self.role, self._folder, self._world, theirs, arms, at_s)
        theirs.close()
        self._pipe = mine
        kind, self._life, *_ = self._receive()
        if kind == "failed":
            self._bury()
            raise Died

    def _arms(self) -> Arms:
        """What is left of its wounds, counted from the first step of the next life."""
        left = [kill - self.steps for kill in self._wounds.kills if kill > self.steps]
        full_until = self._wounds.full_from + self._wounds.full_steps - self.steps
        full_from = max(1, self._wounds.full_from - self.steps)
        return Arms(
            kill_at=min(left, default=0),
            full_from=full_from if full_until > 0 else 0,
            full_steps=max(0, full_until - full_from),
            seed=self._seed + self.steps,
            spool_bytes=self._spool_bytes,
            diary=self._diary,
        )

    def _send(self, what: object) -> None:
        assert self._pipe is not None
        try:
            self._pipe.send(what)
        except OSError:
            self._killed()

    def _receive(self) -> Any:
        assert self._pipe is not None
        try:
            return self._pipe.recv()
        except (EOFError, OSError):
            self._killed()

    def _killed(self) -> NoReturn:
        """It is at the step at which it was to die: nobody could tell us of that one."""
        arms = self._arms()
        status = self._bury()
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            raise RuntimeError(f"{self.role} ended by itself: {self._obituary()}")
        self.deaths += 1
        self.steps += arms.kill_at - self._life
        raise Died

    def _obituary(self) -> str:
        path = self._folder / f"{self.role}.crash"
        return path.read_text() if path.exists() else "no word"

    def _bury(self) -> int:
        assert self._pipe is not None
        self._pipe.close()
        self._pipe = None
        self.steps += self._life
        return os.waitpid(self._pid, 0)[1]


def _live(
    role: str, folder: Path, world: World, pipe: Connection, arms: Arms, at_s: int
) -> NoReturn:
    try:
        serve(role, folder, world, pipe, arms, at_s)
    except (EOFError, BrokenPipeError):
        os._exit(0)
    except BaseException:
        (folder / f"{role}.crash").write_text(traceback.format_exc())
    os._exit(CRASHED)
