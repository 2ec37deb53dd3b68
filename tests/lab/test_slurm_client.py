# SPDX-License-Identifier: Apache-2.0
"""The Slurm client and doctor's Slurm checks against a live 22.05."""

from __future__ import annotations

import pytest

from fairwatt.core import checks, config, doctor
from fairwatt.core.gres import Gres, format_node_gres
from fairwatt.core.slurm import SlurmClient
from tests.lab.cluster import OneHostCluster

pytestmark = pytest.mark.lab


def client(cluster: OneHostCluster) -> SlurmClient:
    return SlurmClient(str(cluster.paths.slurm_conf))


def test_nodes_partitions_and_version(plain: OneHostCluster) -> None:
    nodes = {node.name: node for node in client(plain).nodes()}
    assert {name: format_node_gres(node.gres) for name, node in nodes.items()} == {
        "gpu01": "gpu:a100:4",
        "gpu02": "gpu:a100:4",
        "h01": "gpu:h100:8",
        "mig01": "gpu:a100_1g.5gb:7,gpu:a100_3g.20gb:2",
    }
    assert nodes["mig01"].gres[1] == Gres("gpu", "a100_3g.20gb", 2)
    assert nodes["h01"].partitions == ("gpu", "all")
    partitions = {part.name: part for part in client(plain).partitions()}
    assert [name for name, part in partitions.items() if part.default] == ["gpu"]
    assert partitions["mig"].nodes == "mig01"
    assert client(plain).version()[0] >= 22
    assert client(plain).is_up()


def test_doctor_finds_no_fault_of_slurm(plain: OneHostCluster) -> None:
    defaults = config.load(None)
    values = {**defaults.values, "site.slurm_conf": str(plain.paths.slurm_conf)}
    wanted = {"core.slurm", "core.gpu_accounting", "core.gres_types"}
    mine = [check for check in checks.checks if check.name in wanted]
    assert len(mine) == len(wanted)
    assert doctor.run_checks(mine, config.Config(values, {})) == []
