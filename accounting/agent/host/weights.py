# SPDX-License-Identifier: Apache-2.0
"""What each run held and used of a part of the host: cores, memory, its share of the node. Pure.

Where a job's group does not say which cores or how much memory it may use, it is taken to hold
as large a part of them as of the CPUs: the amounts are then flagged SPREAD.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairwatt.accounting.agent.host.topology import Topology
from fairwatt.accounting.agent.host.uses import Present, RunUse, SystemUse
from fairwatt.accounting.ledger_host import HostUse

__all__ = ["Weights", "cpu_weights", "dram_weights", "node_weights"]

MILLI = 1000
PPM = 1_000_000


@dataclass(frozen=True, slots=True)
class Weights:
    """What can be held of a part, by whom it was, and what the system used; `spread`: assumed.

    `nobody_used` is what jobs used that no run is known of.
    """

    whole: int
    uses: list[HostUse]
    system_used: int
    spread: bool
    nobody_used: int = 0


def cpu_weights(
    part: str,
    topology: Topology,
    present: Sequence[Present],
    used: Sequence[RunUse],
    system: SystemUse,
) -> Weights:
    """Return thousandths of CPUs held of a package, and CPU time in µs used on it.

    A run's time goes to the packages by its CPUs there, the system's by all CPUs there.
    """
    here, everywhere = topology.cpus_of(part), max(1, len(topology.all_cpus))
    whole = MILLI * max(1, len(here))
    uses, spread = [], False
    for one, use in zip(present, used, strict=True):
        cpus = _bound(topology, one, use)
        if cpus:
            held, of, among = MILLI * len(cpus & here), len(cpus & here), len(cpus)
        else:
            spread = True
            held, of, among = _assumed(whole, one, topology, len(present)), len(here), everywhere
        time_us = None if use.cpu_us is None else use.cpu_us * of // max(1, among)
        uses.append(_use(one, held, time_us, held * one.ms))
    system_us = system.cpu_us * len(here) // everywhere
    return Weights(whole, uses, system_us, spread, _strangers_us(topology, here, system))


def dram_weights(
    topology: Topology, present: Sequence[Present], used: Sequence[RunUse], system: SystemUse
) -> Weights:
    """Return bytes held and used on average; which package they lie at is not known."""
    whole = topology.memory_bytes or PPM
    uses, spread = [], False
    for one, use in zip(present, used, strict=True):
        held = use.memory_limit
        if held is None or topology.memory_bytes is None:
            spread = True
            held = _assumed(whole, one, topology, len(present))
        held = min(whole, held)
        uses.append(_use(one, held, use.memory_bytes, held))
    nobody = sum(one.memory_bytes or 0 for one in system.strangers)
    return Weights(whole, uses, system.memory_bytes, spread, nobody)


def node_weights(
    topology: Topology,
    present: Sequence[Present],
    used: Sequence[RunUse],
    gpus: Mapping[tuple[int, int], int],
) -> Weights:
    """Return millionths of the node: the largest of a run's shares of CPUs, memory and GPUs.

    `gpus` are the shares of GPUs in millionths by (job, run start).
    """
    uses, spread = [], False
    for one, use in zip(present, used, strict=True):
        cpus = _bound(topology, one, use)
        spread |= not cpus
        share = PPM * len(cpus) // max(1, len(topology.all_cpus))
        if not cpus:
            share = _assumed(PPM, one, topology, len(present))
        if use.memory_limit is not None and topology.memory_bytes:
            share = max(share, min(PPM, PPM * use.memory_limit // topology.memory_bytes))
        share = max(share, gpus.get((one.run.job_id, one.run.t_ms), 0))
        uses.append(HostUse(one.run.job_id, one.run.t_ms, share, 0))
    return Weights(PPM, uses, 0, spread)


def _strangers_us(topology: Topology, here: frozenset[int], system: SystemUse) -> int:
    """Return what unknown jobs used here, each by the CPUs that its group names."""
    used_us = 0
    for one in system.strangers:
        cpus = one.cpus & topology.all_cpus or topology.all_cpus
        used_us += (one.cpu_us or 0) * len(cpus & here) // max(1, len(cpus))
    return used_us


def _use(one: Present, held: int, used: int | None, full: int) -> HostUse:
    """`full` is what it would have used of what it held, being busy all the time."""
    util = None if used is None or full <= 0 else MILLI * used // full
    return HostUse(one.run.job_id, one.run.t_ms, held, used, util)


def _bound(topology: Topology, one: Present, use: RunUse) -> frozenset[int]:
    """Return the CPUs that the run is bound to, none where it is not.

    Without ConstrainCores a job's group shows all CPUs, whatever the job was given.
    """
    cpus = use.cpus & topology.all_cpus
    free = cpus == topology.all_cpus and one.run.ncpus is not None
    return frozenset() if free and (one.run.ncpus or 0) < topology.cores else cpus


def _assumed(whole: int, one: Present, topology: Topology, runs: int) -> int:
    """Return the part of `whole` by the run's CPUs; without them, an equal part for each run."""
    if one.run.ncpus is None:
        return whole // max(1, runs)
    return min(whole, whole * one.run.ncpus // max(1, len(topology.all_cpus)))
