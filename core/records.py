# SPDX-License-Identifier: Apache-2.0
"""The records that rooms hand to each other: Device, Run, Request, Table.

All are immutable; unknown values are None. Times are UTC epoch seconds (`_ts`) or
milliseconds (`_ms`), energies integer mJ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

__all__ = [
    "Column",
    "ColumnKind",
    "Device",
    "Flavour",
    "GpuAsk",
    "GpuInstance",
    "Int64",
    "JobRequest",
    "Run",
    "Table",
    "UNLIMITED_MIN",
]


Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""An integer that SQLite can hold; a larger one in a JSON body is refused when it is read."""


class GpuInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One MIG device: a GPU instance (GI) with its compute instance (CI).

    `profile` is the MIG profile without the model (`3g.20gb`); `compute_slices` of the
    board's total is its reserved fraction (3 of 7).
    """

    uuid: str
    gi: Int64
    ci: Int64
    profile: str
    compute_slices: Int64
    memory_mib: Int64


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One physical GPU of a node, identified by its UUID; index and minor are hints only.

    `module_energy`: its counter covers a whole module, the CPU and its memory too (GH200); else
    it is UNSET, which is false and not written: an event of an older agent stays as it was.
    """

    node: str
    uuid: str
    name: str
    model: str | None
    minor: Int64
    nvml_index: Int64
    memory_mib: Int64
    mig_enabled: bool
    compute_slices: Int64
    instances: tuple[GpuInstance, ...] = ()
    module_energy: bool | msgspec.UnsetType = msgspec.UNSET


class Run(NamedTuple):
    """One run of a job as Slurm's accounting tells it; what Slurm does not tell is None.

    (cluster, job_id, submit_ts, restart_cnt) names it: requeues and reused job ids are other
    runs. `restart_cnt` is None where sacct does not offer the count. `record_id` is Slurm's own
    number of the record: the database index as a signed integer, of which the SLUID is another
    spelling. `flags` are the bits of what is doubtful about the row. A tuple, since an import
    makes a million of them.
    """

    cluster: str
    job_id: int
    submit_ts: int
    restart_cnt: int | None
    state: str
    record_id: int | None = None
    array_job_id: int | None = None
    array_task_id: int | None = None
    het_job_id: int | None = None
    het_offset: int | None = None
    user: str | None = None
    uid: int | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    name: str | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    eligible_ts: int | None = None
    start_ts: int | None = None
    end_ts: int | None = None
    elapsed_s: int | None = None
    suspended_s: int | None = None
    timelimit_s: int | None = None
    nnodes: int | None = None
    ncpus: int | None = None
    nodelist: str | None = None
    req_tres: str | None = None
    alloc_tres: str | None = None
    cpu_time_s: int | None = None
    slurm_energy_j: int | None = None
    decision: str | None = None
    flags: int = 0


UNLIMITED_MIN = 2**32 - 1
"""What Slurm holds for `--time=UNLIMITED`."""


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a job asks for, in normal form; rules see this and never a Slurm string.

    `gpus` are the GPU entries with the level they were written at. Numbers that the job left
    open are None; memory is in MiB, times in minutes; Slurm may cut `time_limit_min` down to
    `least_time_min`. `exc_known` is False in a change of a job
    that does not set the excluded nodes: Slurm does not show which a pending job has. `kind` is
    None where the client does not tell; a time limit of UNLIMITED_MIN is none. `account` is the
    one that the job will belong to, named or not; `part` its place in a heterogeneous job.
    `inherited` names the variables of the surrounding job that sbatch took over. Rules write
    `flavours`, what the job may fall back to, and `barred_types` (None: GPUs without one), which
    no other rule may then choose.
    """

    gpus: tuple[GpuAsk, ...] = ()
    job_id: int | None = None
    uid: int | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    features: str | None = None
    req_nodes: str | None = None
    exc_nodes: str | None = None
    exc_known: bool = True
    reservation: str | None = None
    num_tasks: int | None = None
    ntasks_per_node: int | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None
    min_cpus: int | None = None
    min_cpus_per_node: int | None = None
    cpus_per_task: int | None = None
    cpus_per_gpu: int | None = None
    mem_per_node_mib: int | None = None
    mem_per_cpu_mib: int | None = None
    mem_per_gpu_mib: int | None = None
    time_limit_min: int | None = None
    least_time_min: int | None = None
    begin_ts: int | None = None
    exclusive: bool = False
    kind: Literal["batch", "interactive"] | None = None
    cron: bool = False
    array: str | None = None
    part: int | None = None
    inherited: tuple[str, ...] = ()
    flavours: tuple[Flavour, ...] = ()
    barred_types: frozenset[str | None] = frozenset()


class Flavour(msgspec.Struct, frozen=True):
    """A GRES type that would do as well; `partition` None: where the job is."""

    type: str
    partition: str | None = None


class GpuAsk(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU entry of a request: `type` as the user wrote it (None: untyped), count ≥ 0."""

    level: Literal["node", "job", "task", "socket"]
    type: str | None
    count: int


ColumnKind = Literal[
    "text",
    "integer",
    "ratio",
    "ts",
    "duration_s",
    "energy_mj",
    "carbon_mg",
    "gpu_hours",
    "json",
]


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a Table: stable key, title for people, kind of value, definition in a sentence.

    `kind` decides how a value is shown: text, integer, ratio (0–1), ts (epoch seconds),
    duration_s, energy_mj, carbon_mg, gpu_hours, json.
    """

    key: str
    title: str
    kind: ColumnKind
    definition: str


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """What every report returns; pages, CSV, JSON, mail and CLI render it and add nothing."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    data_version: int
    notes: Sequence[str] = ()

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries keyed by column key."""
        keys = [column.key for column in self.columns]
        return [dict(zip(keys, row, strict=True)) for row in self.rows]
