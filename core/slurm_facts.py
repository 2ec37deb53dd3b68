# SPDX-License-Identifier: Apache-2.0
"""What the Slurm client tells of a cluster: its nodes, partitions and reservations, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fairwatt.core.gres import Gres

__all__ = ["NodeFacts", "PartitionFacts", "Snapshot"]


@dataclass(frozen=True)
class NodeFacts:
    """A node as the controller sees it; `state` is upper case, its flags apart.

    `features` are the available ones, `active_features` those in effect. A number that the
    controller does not know is None.
    """

    name: str
    state: str
    flags: tuple[str, ...]
    gres: tuple[Gres, ...]
    cpus: int | None
    mem_mib: int | None
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    active_features: tuple[str, ...] = ()
    sockets: int | None = None


@dataclass(frozen=True)
class PartitionFacts:
    """A partition: its hostlist, its state in upper case, its limits and who may use it.

    A limit is None where there is none; `default_time_s` None: `max_time_s` holds. A list of who
    is allowed is None where all are, and is () where nobody is; nobody is denied by ().
    """

    name: str
    nodes: str
    state: str
    default: bool
    max_time_s: int | None
    billing_weights: str | None = None
    """As in slurm.conf, "" for none; None where the backend cannot tell (pyslurm)."""
    open_to_all: bool = True
    """No list of accounts, groups or QOS limits who may use it, and it is not for root only."""
    default_time_s: int | None = None
    max_nodes: int | None = None
    max_cpus_per_node: int | None = None
    allow_accounts: tuple[str, ...] | None = None
    deny_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] | None = None
    deny_qos: tuple[str, ...] = ()
    allow_groups: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Snapshot:
    """A cluster at one time; `reservations`: the partition of each by its name, "" for none.

    The partitions were the same before and after nodes and reservations were read: what a node
    or a reservation says of its partition is true of `partitions`.
    """

    nodes: tuple[NodeFacts, ...]
    partitions: tuple[PartitionFacts, ...]
    reservations: Mapping[str, str]
