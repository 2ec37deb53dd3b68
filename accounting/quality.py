# SPDX-License-Identifier: Apache-2.0
"""What a reader must know about a run's own figures; energies carry `core.events.Flag`."""

from __future__ import annotations

import enum

__all__ = ["RunFlag"]


class RunFlag(enum.IntFlag):
    """Bits of `run.flags`."""

    RUNAWAY = 1
    """Slurm's accounting says running, the controller does not know it: nothing is counted
    past the last evidence from a node."""
    SLURM_ENERGY_UNKNOWN = 2
    """Slurm wrote its "no value" as energy; kept as unknown."""
    CPU_TIME_IMPLAUSIBLE = 4
    """More CPU time than CPUs and time allow; kept as unknown."""
    TRES_UNREADABLE = 8
    """AllocTRES or ReqTRES could not be read: GPUs and memory are unknown."""
    GPU_TYPE_UNKNOWN = 16
    """A GPU type that the catalogue does not name: its part of a board is unknown."""
    GPU_TYPE_ASSUMED = 32
    """An untyped GPU in Slurm's accounting, counted as a whole board."""
    DECISION_UNREADABLE = 64
    """The admin comment begins like fairwatt's, but what follows is not JSON."""
