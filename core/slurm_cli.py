# SPDX-License-Identifier: Apache-2.0
"""Slurm's command line as a backend of the Slurm client: works with every release."""

from __future__ import annotations

from fairwatt.core.call import Completed, call
from fairwatt.core.errors import CommandError
from fairwatt.core.slurm_facts import NodeFacts, PartitionFacts
from fairwatt.core.slurm_parse import (
    nodes_of_json,
    partitions_of_text,
    qos_flags_of_text,
    reservations_of_text,
)

__all__ = ["CliBackend"]

TIMEOUT_S = 20.0


class CliBackend:
    """Asks one cluster; every method starts one process and raises CommandError for no answer.

    `slurm_conf` None or "" means SLURM_CONF or Slurm's own default.
    """

    def __init__(self, slurm_conf: str | None = None) -> None:
        self._env = {"SLURM_CONF": slurm_conf} if slurm_conf else {}

    def nodes(self) -> list[NodeFacts]:
        """Return all nodes."""
        return nodes_of_json(self.nodes_json())

    def nodes_json(self) -> str:
        """Return all nodes by `scontrol show nodes --json` from 23.02, `sinfo --json` before."""
        try:
            return self.scontrol("show", "nodes", "--json").stdout
        except CommandError as error:
            if "unrecognized option" not in error.stderr:
                raise
            return call(["sinfo", "--json"], timeout_s=TIMEOUT_S, env=self._env).stdout

    def pending_json(self) -> str:
        """Return what `squeue --json` says of waiting jobs; some releases say more."""
        argv = ["squeue", "--json", "--states=PENDING"]
        return call(argv, timeout_s=TIMEOUT_S, env=self._env).stdout

    def partitions(self) -> list[PartitionFacts]:
        """Return all partitions that this user may see, hidden ones too."""
        return partitions_of_text(
            self.scontrol("--oneliner", "--all", "show", "partitions").stdout
        )

    def reservations(self) -> dict[str, str]:
        """Return the partition of each reservation by its name; "" where it has none."""
        return reservations_of_text(self.scontrol("--oneliner", "show", "reservations").stdout)

    def qos_flags(self) -> dict[str, tuple[str, ...]]:
        """Return the flags of each QOS by its name; none on a cluster without accounting."""
        argv = ["sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name,flags"]
        try:
            text = call(argv, timeout_s=TIMEOUT_S, env=self._env).stdout
        except CommandError as error:
            if "supported accounting_storage plugin" in error.stderr:
                return {}
            raise
        return qos_flags_of_text(text)

    def scontrol(self, *args: str) -> Completed:
        """Run scontrol on this cluster."""
        return call(["scontrol", *args], timeout_s=TIMEOUT_S, env=self._env)
