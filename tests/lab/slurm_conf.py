# SPDX-License-Identifier: Apache-2.0
"""The text of slurm.conf, gres.conf, cgroup.conf and slurmdbd.conf; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.fakes.machines import FakeGpu, FakeInstance
from tests.lab.layout import NODES, PARTITIONS, NodeLayout, cap_minor
from tests.lab.paths import Paths

__all__ = [
    "ON_ONE_HOST",
    "TYPED_TRES",
    "SlurmSettings",
    "cgroup_conf",
    "gres_conf",
    "slurm_conf",
    "slurmdbd_conf",
]

TYPED_TRES = (
    "gres/gpu",
    "gres/gpu:a100",
    "gres/gpu:h100",
    "gres/gpu:a100_1g.5gb",
    "gres/gpu:a100_3g.20gb",
)


ON_ONE_HOST: dict[str, object] = {
    "MpiDefault": "none",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core_Memory",
    "DefMemPerCPU": 1000,
    "GresTypes": "gpu",
    "SlurmdParameters": "config_overrides",  # the nodes claim more than the host has
    "SchedulerParameters": "batch_sched_delay=0,sched_interval=1,bf_interval=1",
}
"""Jobs of many nodes that are one host, scheduled at once."""


@dataclass(frozen=True)
class SlurmSettings:
    """What differs from cluster to cluster: folders, host, ports, and which hooks are on.

    `changes` are keys of slurm.conf that a test sets otherwise; a tuple is one line per value.
    """

    paths: Paths
    hostname: str
    dbd_port: int
    ctld_port: int
    node_ports: Mapping[str, int]
    submit_plugin: bool
    node_hooks: bool
    changes: Mapping[str, object]


def slurm_conf(settings: SlurmSettings) -> str:
    """slurm.conf: quick to schedule, GPUs as typed TRES, all files below the root folder."""
    keys = {**_places(settings), **_behaviour(), **_accounting(settings), **_hooks(settings)}
    keys.update(settings.changes)
    lines = [f"{key}={value}" for key, values in keys.items() for value in _each(values)]
    return "\n".join([*lines, *_nodes(settings), *_partitions(), ""])


def _each(values: object) -> tuple[object, ...]:
    return values if isinstance(values, tuple) else (values,)


def _places(settings: SlurmSettings) -> dict[str, object]:
    paths = settings.paths
    return {
        "ClusterName": "campus",
        "SlurmctldHost": f"{settings.hostname}(127.0.0.1)",
        "SlurmctldPort": settings.ctld_port,
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "StateSaveLocation": paths.state,
        "SlurmdSpoolDir": f"{paths.root}/nodes/%n/slurmd",
        "SlurmctldPidFile": paths.run / "slurmctld.pid",
        "SlurmdPidFile": f"{paths.run}/slurmd-%n.pid",
        "MailProg": "/bin/true",
        "SlurmctldDebug": "info",
        "SlurmdDebug": "info",
        "PlugStackConfig": paths.etc / "plugstack.conf",
        # cred_expire is also how long a requeued job waits before it may start again.
        "AuthInfo": f"socket={paths.munge_socket},cred_expire=10",
    }


def _behaviour() -> dict[str, object]:
    return {
        **ON_ONE_HOST,
        "PriorityType": "priority/multifactor",
        "PriorityDecayHalfLife": "1-0",
        "PriorityCalcPeriod": "00:01:00",
        "PriorityWeightFairshare": 10_000,
        "PriorityWeightAge": 1_000,
        "JobRequeue": 1,
        "ReturnToService": 2,
        "KillWait": 2,
        "InactiveLimit": 0,
        "MinJobAge": 600,
        "MessageTimeout": 20,
        "SlurmdTimeout": 300,
        "TreeWidth": 16,
    }


def _accounting(settings: SlurmSettings) -> dict[str, object]:
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "127.0.0.1",
        "AccountingStoragePort": settings.dbd_port,
        "AccountingStoragePass": settings.paths.munge_socket,
        "AccountingStorageEnforce": "associations",
        "AccountingStorageTRES": ",".join(TYPED_TRES),
        "AccountingStoreFlags": "job_comment,job_env",
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": "task=10",
    }


def _hooks(settings: SlurmSettings) -> dict[str, object]:
    keys: dict[str, object] = {"PrologFlags": "Alloc"}
    if settings.submit_plugin:
        keys["JobSubmitPlugins"] = "lua"
    if settings.node_hooks:
        etc = settings.paths.etc
        keys |= {
            "Prolog": etc / "prolog",
            "Epilog": etc / "epilog",
            "TaskProlog": etc / "task-prolog",
            "PrologEpilogTimeout": 30,
        }
    return keys


def _nodes(settings: SlurmSettings) -> list[str]:
    return [
        f"NodeName={node.name} NodeHostname={settings.hostname} NodeAddr=127.0.0.1"
        f" Port={settings.node_ports[node.name]} Sockets={node.sockets}"
        f" CoresPerSocket={node.cores_per_socket} ThreadsPerCore=1"
        f" RealMemory={node.memory_mib} Gres={node.gres} Feature={node.gres_type} State=UNKNOWN"
        for node in NODES
    ]


def _partitions() -> list[str]:
    return [
        f"PartitionName={name} Nodes={','.join(nodes)} Default={'YES' if name == 'gpu' else 'NO'}"
        ' MaxTime=1-0 DefaultTime=10 State=UP TRESBillingWeights="CPU=1,GRES/gpu=10"'
        for name, nodes in PARTITIONS.items()
    ]


def gres_conf(paths: Paths) -> str:
    """gres.conf: one line per board or slice, with device files below the root folder."""
    return "\n".join([line for node in NODES for line in _gres_lines(paths, node)] + [""])


def _gres_lines(paths: Paths, node: NodeLayout) -> Iterator[str]:
    dev = paths.dev(node.name)
    head = f"NodeName={node.name} Name=gpu Type={node.gres_type}"
    for gpu in sorted(node.gpus, key=lambda gpu: gpu.minor):
        if not gpu.instances:
            yield f"{head} File={dev}/nvidia{gpu.minor}"
        for instance in gpu.instances:
            files = ",".join(str(dev / name) for name in _slice_files(gpu, instance))
            yield f"{head}_{instance.profile} MultipleFiles={files}"


def _slice_files(gpu: FakeGpu, instance: FakeInstance) -> tuple[str, str, str]:
    gi = cap_minor(gpu.minor, instance.gi)
    ci = cap_minor(gpu.minor, instance.gi, instance.ci)
    return (f"nvidia{gpu.minor}", f"nvidia-caps/nvidia-cap{gi}", f"nvidia-caps/nvidia-cap{ci}")


def cgroup_conf(*, with_plugin: bool) -> str:
    """cgroup.conf: nothing is constrained. Newer releases insist on control groups unless told."""
    return "ConstrainCores=no\nConstrainDevices=no\nConstrainRAMSpace=no\n" + (
        "" if with_plugin else "CgroupPlugin=disabled\n"
    )


def slurmdbd_conf(settings: SlurmSettings) -> str:
    """slurmdbd.conf; MariaDB's socket comes by the variable MYSQL_UNIX_PORT."""
    paths = settings.paths
    keys = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={paths.munge_socket}",
        "DbdHost": settings.hostname,
        "DbdAddr": "127.0.0.1",
        "DbdPort": settings.dbd_port,
        "SlurmUser": "root",
        "DebugLevel": "info",
        "PidFile": paths.run / "slurmdbd.pid",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": "root",
        "StorageLoc": "slurm_acct_db",
        "CommitDelay": 1,
    }
    return "\n".join([f"{key}={value}" for key, value in keys.items()] + [""])
