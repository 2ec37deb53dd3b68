# SPDX-License-Identifier: Apache-2.0
"""This node in slurmctld's eyes: one bounded look, one bounded update."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from fairwatt.core.call import call
from fairwatt.core.errors import SlurmError
from fairwatt.prolog.health.drain import NodeView

__all__ = ["SlurmNode", "views_of_text"]

TIMEOUT_S = 10.0
_FORMAT = "%N|%T|%H|%E"  # the reason is last: it may hold anything


class SlurmNode:
    """Asks about nodes and changes one; every method may raise CommandError or SlurmError.

    Args:
        name: the node's name in Slurm.
        slurm_conf: None or "" means SLURM_CONF or Slurm's own default.
    """

    def __init__(self, name: str, slurm_conf: str | None = None) -> None:
        self._name = name
        # Times without a zone are the reader's: read them as UTC.
        self._env = {"TZ": "UTC", **({"SLURM_CONF": slurm_conf} if slurm_conf else {})}

    def look(self, *, everywhere: bool) -> tuple[NodeView, list[NodeView]]:
        """Return this node and, if `everywhere`, all others of the cluster."""
        which = [] if everywhere else ["-n", self._name]
        argv = ["sinfo", "--noheader", "--all", "--Node", *which, "-o", _FORMAT]
        views = views_of_text(call(argv, timeout_s=TIMEOUT_S, env=self._env).stdout)
        mine = views.pop(self._name, None)
        if mine is None:
            raise SlurmError(
                "Slurm has no such node",
                place="agent.node",
                value=self._name,
                remedy="set agent.node to this host's NodeName",
            )
        return mine, list(views.values())

    def drain(self, reason: str) -> None:
        """Drain this node with that reason."""
        self._update("state=drain", f"reason={reason}")

    def undrain(self) -> None:
        """Take a drain back; a node that is down for another reason stays so."""
        self._update("state=undrain")

    def _update(self, *assignments: str) -> None:
        argv = ["scontrol", "update", f"nodename={self._name}", *assignments]
        call(argv, timeout_s=TIMEOUT_S, env=self._env)


def views_of_text(text: str) -> dict[str, NodeView]:
    """Return nodes by name; sinfo has a line per node and partition."""
    return {view.name: view for line in text.splitlines() for view in _view(line)}


def _view(line: str) -> Iterator[NodeView]:
    parts = line.split("|", 3)
    if len(parts) == 4:
        name, state, since, reason = parts
        reason = "" if reason == "none" else reason
        yield NodeView(
            name=name, state=state, reason=reason.rstrip(" "), since_ms=_epoch_ms(since)
        )


def _epoch_ms(text: str) -> int | None:
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:  # "Unknown" where no reason was ever set
        return None
