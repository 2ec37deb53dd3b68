# SPDX-License-Identifier: Apache-2.0
"""The Slurm client: nodes, partitions, reservations and settings of a cluster.

What a cluster is made of comes from a backend: pyslurm (slurm_pyslurm.py) or Slurm's command line
(slurm_cli.py). Both give the same facts. Settings and ping are the command line's in any case:
pyslurm names settings otherwise than slurm.conf does.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import msgspec

from fairwatt.core.errors import CommandError, GrammarError, SlurmError
from fairwatt.core.gres import Spelling
from fairwatt.core.slurm_cli import CliBackend
from fairwatt.core.slurm_facts import NodeFacts, PartitionFacts, Snapshot
from fairwatt.core.slurm_parse import config_of_text
from fairwatt.core.slurm_pyslurm import PyslurmBackend, why_unusable

__all__ = [
    "ChosenBackend",
    "NodeFacts",
    "PartitionFacts",
    "SlurmBackend",
    "SlurmClient",
    "Snapshot",
    "spelling_of_version",
]

SNAPSHOT_TRIES = 3
_SHAPE_ERRORS = (
    *(msgspec.DecodeError, GrammarError),
    *(AttributeError, KeyError, TypeError, ValueError),
)
_Fact = TypeVar("_Fact")
_log = logging.getLogger(__name__)


class SlurmBackend(Protocol):
    """What reads a cluster: CommandError for no answer, any error for an unknown shape."""

    def nodes(self) -> list[NodeFacts]:
        """Return all nodes."""

    def partitions(self) -> list[PartitionFacts]:
        """Return all partitions that this user may see."""

    def reservations(self) -> dict[str, str]:
        """Return the partition of each reservation by its name; "" where it has none."""


@dataclass(frozen=True)
class ChosenBackend:
    """The backend in use, its name in site.slurm_backend and why it is this one."""

    name: str
    reason: str
    backend: SlurmBackend


class SlurmClient:
    """Asks one cluster.

    Every method may raise CommandError (no answer) or SlurmError (an answer in no known shape, or
    a backend that cannot be used here).

    Args:
        slurm_conf: None or "" means SLURM_CONF or Slurm's own default.
        backend: site.slurm_backend: "cli", "pyslurm", or "auto" for pyslurm where it is usable.
    """

    def __init__(self, slurm_conf: str | None = None, backend: str = "auto") -> None:
        self._cli = CliBackend(slurm_conf)
        self._slurm_conf = slurm_conf
        self._wanted = backend

    @cached_property
    def chosen(self) -> ChosenBackend:
        """The backend in use; chosen when it is first needed, for this client's life."""
        if self._wanted == "cli":
            return ChosenBackend("cli", "site.slurm_backend says so", self._cli)
        unusable = why_unusable(self._slurm_conf)
        if unusable is None:
            reason = "it imports and slurmctld answers it"
            return ChosenBackend("pyslurm", reason, PyslurmBackend(self._slurm_conf))
        if self._wanted == "auto":
            return ChosenBackend("cli", unusable, self._cli)
        raise SlurmError(
            unusable,
            place="site.slurm_backend",
            value=self._wanted,
            remedy='install a pyslurm of the controller\'s Slurm release, or set "auto"',
        )

    def nodes(self) -> list[NodeFacts]:
        """Return all nodes."""
        return self._ask("nodes", lambda backend: backend.nodes())

    def partitions(self) -> list[PartitionFacts]:
        """Return all partitions that this user may see."""
        return self._ask("partitions", lambda backend: backend.partitions())

    def reservations(self) -> dict[str, str]:
        """Return the partition of each reservation by its name; "" where it has none."""
        return self._ask("reservations", lambda backend: backend.reservations())

    def snapshot(self) -> Snapshot:
        """Return nodes, partitions and reservations that fit together.

        The partitions are read before and after the others until both readings agree, so every
        node and reservation was read while `partitions` held. Two changes that undo each other
        in between go unseen; nodes may change state at any time.

        Raises:
            SlurmError: the partitions changed during each of three readings.
        """
        before = self.partitions()
        for _ in range(SNAPSHOT_TRIES):
            nodes, reservations = self.nodes(), self.reservations()
            after = self.partitions()
            if after == before:
                return Snapshot(tuple(nodes), tuple(after), reservations)
            before = after
        raise SlurmError(
            f"they changed during each of {SNAPSHOT_TRIES} readings",
            place="Slurm's partitions",
            remedy="read again when slurmctld has settled; see its log for what updates them",
        )

    def _ask(self, what: str, ask: Callable[[SlurmBackend], _Fact]) -> _Fact:
        """Ask the backend; with "auto" the command line reads what pyslurm cannot."""
        try:
            return _read(what, lambda: ask(self.chosen.backend))
        except SlurmError as error:
            if self._wanted != "auto" or self.chosen.backend is self._cli:
                raise
            _log.warning("pyslurm is not used any more: %s", error)
            self.chosen = ChosenBackend("cli", f"pyslurm cannot read {error.place}", self._cli)
        return _read(what, lambda: ask(self._cli))

    def qos_flags(self) -> dict[str, tuple[str, ...]]:
        """Return the flags of each QOS by its name; none on a cluster without accounting."""
        return _read("QOS", self._cli.qos_flags)

    def config(self) -> dict[str, str]:
        """Return the controller's settings by the names of slurm.conf, as texts."""
        return config_of_text(self._cli.scontrol("show", "config").stdout)

    def version(self) -> tuple[int, int, int]:
        """Return the controller's version, (22, 5, 8)."""
        text = self.config().get("SLURM_VERSION", "")
        match = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
        if match is None:
            raise SlurmError("no version", place="scontrol show config", value=text)
        return int(match[1]), int(match[2]), int(match[3])

    def is_up(self) -> bool:
        """Tell whether a controller answers; never raises CommandError."""
        try:
            return " is UP" in self._cli.scontrol("ping").stdout
        except CommandError:
            return False


def spelling_of_version(version: tuple[int, int, int]) -> Spelling:
    """Return how a server of this version spells GRES in requests."""
    if version[:2] < (21, 8):
        return Spelling.BARE
    return Spelling.COLON if version[:2] < (23, 11) else Spelling.SLASH


def _read(what: str, ask: Callable[[], _Fact]) -> _Fact:
    try:
        return ask()
    except _SHAPE_ERRORS as error:
        raise SlurmError(
            f"an answer in no known shape ({type(error).__name__}: {error})",
            place=f"Slurm's {what}",
            remedy="report the output of scontrol and sinfo; known are Slurm 22.05 to 26.05",
        ) from error
