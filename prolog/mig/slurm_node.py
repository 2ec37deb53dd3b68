# SPDX-License-Identifier: Apache-2.0
"""One node as slurmctld has it, and what apply asks of slurmctld for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fairwatt.core.call import Completed, call
from fairwatt.core.errors import CommandError, GrammarError, SlurmError
from fairwatt.core.gres import parse_node_gres
from fairwatt.prolog.mig.cluster import DRAIN_REASON

__all__ = ["NodeState", "SlurmNode", "parse_node"]

TIMEOUT_S = 30.0
_FIELD = re.compile(r"(?<!\S)(\w+)=(\S*)")
_REASON = re.compile(r"(?<!\S)Reason=(.*?)(?: \[[^\[\]]*@[^\[\]]*\])?\s*$")
_WELL = {"IDLE", "MIXED", "ALLOCATED"}
_ILL = {"INVALID_REG", "NOT_RESPONDING", "DOWN", "FAIL", "ERROR", "UNKNOWN", "FUTURE"}


@dataclass(frozen=True)
class NodeState:
    """A node: the words of its state, its reason, its GPUs by type, when its slurmd started.

    `flags` has NOT_RESPONDING for Slurm's `*`. `cores_in_use` counts those of completing jobs too.
    """

    name: str
    flags: frozenset[str]
    reason: str = ""
    gpus: Mapping[str | None, int] | None = None
    cores_in_use: int = 0
    slurmd_start_ts: int | None = None
    version: str = ""

    @property
    def is_dynamic(self) -> bool:
        """Whether it registered itself (`slurmd -Z`) and stands in no file."""
        return any(flag.startswith("DYNAMIC") for flag in self.flags)

    @property
    def is_drained(self) -> bool:
        """Whether no job may start on it until somebody resumes it."""
        return bool(self.flags & {"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"})

    @property
    def is_well(self) -> bool:
        """Whether its slurmd registered and slurmctld agrees with it; drained or not."""
        return bool(self.flags & _WELL) and not self.flags & _ILL

    @property
    def is_busy(self) -> bool:
        """Whether jobs hold it, or their end is not finished."""
        return bool(self.cores_in_use or self.flags & {"COMPLETING", "MIXED", "ALLOCATED"})

    @property
    def foreign_reason(self) -> str | None:
        """Why somebody else drained it; None when it is not drained, or by us."""
        if not self.is_drained or self.reason.startswith(DRAIN_REASON):
            return None
        return self.reason


def parse_node(text: str) -> NodeState:
    """Read one line of `scontrol --oneliner show node`, with times in epoch seconds.

    Raises:
        SlurmError: the line has no known shape.
    """
    fields = dict(_FIELD.findall(text))
    try:
        gres = fields["Gres"]
        entries = parse_node_gres("" if gres in ("(null)", "") else gres)
        state = fields["State"]
        flags = {re.sub(r"[^A-Z_]", "", word) for word in state.upper().split("+")}
        used = int(fields["CPUAlloc"])
        name = fields["NodeName"]
    except (KeyError, ValueError, GrammarError) as error:
        raise SlurmError(
            f"no known shape ({error})",
            place="scontrol show node",
            value=text,
            remedy="report it; known are Slurm 22.05 to 26.05",
        ) from error
    gpus: dict[str | None, int] = {}
    for each in entries:
        if each.is_gpu:
            gpus[each.type] = gpus.get(each.type, 0) + each.count
    reason = _REASON.search(text)
    started = fields.get("SlurmdStartTime", "")
    return NodeState(
        name=name,
        flags=frozenset(flags | ({"NOT_RESPONDING"} if "*" in state else set())),
        reason=reason[1].strip() if reason else "",
        gpus=gpus,
        cores_in_use=used,
        slurmd_start_ts=int(started) if started.isdigit() else None,
        version=fields.get("Version", ""),
    )


class SlurmNode:
    """Asks slurmctld about one node; every method may raise CommandError (no answer).

    `slurm_conf` None means SLURM_CONF or Slurm's own default.
    """

    def __init__(self, name: str, slurm_conf: str | None = None) -> None:
        self.name = name
        self._env = {"SLURM_TIME_FORMAT": "%s"} | (
            {"SLURM_CONF": slurm_conf} if slurm_conf else {}
        )

    def show(self) -> NodeState | None:
        """Return the node; None when slurmctld knows none of that name."""
        argv = ["scontrol", "--oneliner", "show", "node", self.name]
        done = call(argv, timeout_s=TIMEOUT_S, env=self._env, check=False)
        if "not found" in done.stdout + done.stderr:  # on stdout, with status 0 or 1
            return None
        if done.returncode != 0:
            raise CommandError(argv, done.returncode, done.stderr or done.stdout)
        return parse_node(done.stdout.strip())

    def jobs(self) -> list[str]:
        """Return the jobs that hold the node, also suspended and completing ones."""
        argv = ["squeue", "--noheader", "--all", f"--nodelist={self.name}", "--format=%i %T"]
        try:
            rows = call(argv, timeout_s=TIMEOUT_S, env=self._env).stdout.splitlines()
        except CommandError as error:
            if "Invalid node name" in error.stderr:
                return []
            raise
        found = [row.split() for row in rows if row.strip()]
        return [job for job, *state in found if state != ["PENDING"]]

    def drain(self, reason: str) -> None:
        """Let no job start on the node any more."""
        self._update("state=drain", f"reason={reason}")

    def resume(self) -> None:
        """Let jobs start on the node again, as soon as slurmctld has heard of its slurmd."""
        self._update("state=undrain")

    def delete(self) -> None:
        """Delete a dynamic node; slurmctld refuses while jobs hold it."""
        self._scontrol("delete", f"nodename={self.name}")

    def _update(self, *words: str) -> None:
        self._scontrol("update", f"nodename={self.name}", *words)

    def _scontrol(self, *args: str) -> Completed:
        return call(["scontrol", *args], timeout_s=TIMEOUT_S, env=self._env)
