# SPDX-License-Identifier: Apache-2.0
"""The Slurm client against a live cluster, the same assertions through each backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairwatt.core import checks, config, doctor
from fairwatt.core.gres import Gres, format_node_gres
from fairwatt.core.slurm import NodeFacts, PartitionFacts, SlurmClient
from fairwatt.core.slurm_pyslurm import why_unusable
from tests.lab.cluster import OneHostCluster
from tests.lab.waiting import await_value

pytestmark = pytest.mark.lab

CREATED = (
    "create PartitionName=narrow Nodes=h01,mig01 MaxTime=02:00:00 DefaultTime=30 MaxNodes=1"
    " MaxCPUsPerNode=16 AllowAccounts=physics,chemistry AllowQos=normal State=DRAIN",
    "create PartitionName=barred Nodes=gpu01 MaxTime=UNLIMITED DenyAccounts=chemistry"
    " DenyQos=normal Hidden=YES",
    "create PartitionName=empty RootOnly=YES AllowGroups=root",
    "create ReservationName=course Partition=mig Nodes=mig01 Users=root StartTime=now+1hour"
    " Duration=60",
    "create ReservationName=upkeep Nodes=gpu02 Users=root StartTime=now+2hours Duration=60",
    "update NodeName=h01 State=DRAIN Reason=fan",
    "update NodeName=gpu02 Features=a100,ib",
)
REMOVED = (
    "update NodeName=gpu02 Features=a100",
    "update NodeName=h01 State=RESUME",
    "delete ReservationName=upkeep",
    "delete ReservationName=course",
    "delete PartitionName=empty",
    "delete PartitionName=barred",
    "delete PartitionName=narrow",
)


@pytest.fixture(scope="module")
def altered(plain: OneHostCluster) -> Iterator[OneHostCluster]:
    """The cluster with partitions that limit, reservations and a drained node."""
    try:
        for line in CREATED:
            plain.run(["scontrol", *line.split()], check=True)
        yield plain
    finally:
        for line in REMOVED:
            plain.run(["scontrol", *line.split()])


@pytest.fixture(params=["cli", "pyslurm"])
def client(request: pytest.FixtureRequest, altered: OneHostCluster) -> SlurmClient:
    conf = str(altered.paths.slurm_conf)
    if request.param == "pyslurm" and (reason := why_unusable(conf)):
        pytest.skip(f"pyslurm backend: {reason}")
    return SlurmClient(conf, request.param)


def nodes_of(client: SlurmClient) -> dict[str, NodeFacts]:
    return {node.name: node for node in client.nodes()}


def partitions_of(client: SlurmClient) -> dict[str, PartitionFacts]:
    return {part.name: part for part in client.partitions()}


def test_nodes_with_their_gpus_and_slices(client: SlurmClient) -> None:
    nodes = nodes_of(client)
    assert {name: format_node_gres(node.gres) for name, node in nodes.items()} == {
        "gpu01": "gpu:a100:4",
        "gpu02": "gpu:a100:4",
        "h01": "gpu:h100:8",
        "mig01": "gpu:a100_1g.5gb:7,gpu:a100_3g.20gb:2",
    }
    assert nodes["mig01"].gres[1] == Gres("gpu", "a100_3g.20gb", 2)
    mig01 = nodes["mig01"]
    assert (mig01.cpus, mig01.mem_mib, mig01.sockets) == (32, 256_000, 2)
    assert (mig01.state, mig01.flags) == ("IDLE", ())


def test_features_of_nodes(client: SlurmClient) -> None:
    nodes = nodes_of(client)
    assert nodes["gpu02"].features == nodes["gpu02"].active_features == ("a100", "ib")
    assert nodes["h01"].features == ("h100",)


def test_a_drained_node(client: SlurmClient) -> None:
    assert (nodes_of(client)["h01"].state, nodes_of(client)["h01"].flags) == ("IDLE", ("DRAIN",))


def test_nodes_name_their_partitions_hidden_ones_too(client: SlurmClient) -> None:
    nodes = nodes_of(client)
    assert nodes["h01"].partitions == ("gpu", "all", "narrow")
    assert nodes["gpu01"].partitions == ("gpu", "all", "barred")


def test_partitions_of_slurm_conf(client: SlurmClient) -> None:
    partitions = partitions_of(client)
    assert list(partitions) == ["gpu", "mig", "all", "narrow", "barred", "empty"]
    assert [name for name, part in partitions.items() if part.default] == ["gpu"]
    gpu = partitions["gpu"]
    assert (gpu.nodes, gpu.state, gpu.open_to_all) == ("gpu[01-02],h01", "UP", True)
    assert (gpu.max_time_s, gpu.default_time_s) == (86_400, 600)
    assert (gpu.max_nodes, gpu.max_cpus_per_node) == (None, None)
    assert (gpu.allow_accounts, gpu.allow_qos, gpu.allow_groups) == (None, None, None)
    assert (gpu.deny_accounts, gpu.deny_qos) == ((), ())


def test_a_partition_with_limits_and_lists(client: SlurmClient) -> None:
    part = partitions_of(client)["narrow"]
    assert (part.nodes, part.state, part.default) == ("h01,mig01", "DRAIN", False)
    assert (part.max_time_s, part.default_time_s) == (7_200, 1_800)
    assert (part.max_nodes, part.max_cpus_per_node) == (1, 16)
    assert (part.allow_accounts, part.allow_qos) == (("physics", "chemistry"), ("normal",))
    assert (part.deny_accounts, part.deny_qos, part.open_to_all) == ((), (), False)


def test_a_partition_that_denies_and_has_no_limit(client: SlurmClient) -> None:
    part = partitions_of(client)["barred"]
    assert (part.max_time_s, part.default_time_s) == (None, None)
    assert (part.max_nodes, part.max_cpus_per_node) == (None, None)
    assert (part.deny_accounts, part.deny_qos) == (("chemistry",), ("normal",))
    assert (part.allow_accounts, part.allow_qos, part.open_to_all) == (None, None, False)


def test_a_partition_without_nodes_for_root_only(client: SlurmClient) -> None:
    part = partitions_of(client)["empty"]
    assert (part.nodes, part.allow_groups, part.open_to_all) == ("", ("root",), False)


def test_reservations_with_and_without_a_partition(client: SlurmClient) -> None:
    assert client.reservations() == {"course": "mig", "upkeep": ""}


def test_a_snapshot_holds_what_is_read_one_by_one(client: SlurmClient) -> None:
    snapshot = client.snapshot()
    assert list(snapshot.nodes) == client.nodes()
    assert list(snapshot.partitions) == client.partitions()
    assert snapshot.reservations == client.reservations()


def test_a_change_is_seen_at_the_next_reading(
    client: SlurmClient, altered: OneHostCluster
) -> None:
    def flags() -> tuple[str, ...]:
        return nodes_of(client)["gpu01"].flags

    altered.run(["scontrol", "update", "NodeName=gpu01", "State=DRAIN", "Reason=x"], check=True)
    assert flags() == ("DRAIN",)
    altered.run(["scontrol", "update", "NodeName=gpu01", "State=RESUME"], check=True)
    await_value(lambda: flags() == (), what="gpu01 resumed", timeout_s=10)


def test_settings_and_version(client: SlurmClient) -> None:
    assert client.config()["ClusterName"] == "campus"
    assert client.version()[0] >= 22
    assert client.is_up()


def test_doctor_finds_no_fault_of_slurm(plain: OneHostCluster) -> None:
    defaults = config.load(None)
    values = {**defaults.values, "site.slurm_conf": str(plain.paths.slurm_conf)}
    wanted = {"core.slurm", "core.gpu_accounting", "core.gres_types"}
    mine = [check for check in checks.checks if check.name in wanted]
    assert len(mine) == len(wanted)
    assert doctor.run_checks(mine, config.Config(values, {})) == []
