# SPDX-License-Identifier: Apache-2.0
"""fairwatt's daemons in the cluster: all up at once, each ended and started again by itself."""

from __future__ import annotations

import pytest

from tests.lab.cluster import OneHostCluster
from tests.lab.programs import answers_http, answers_ping

pytestmark = pytest.mark.lab


def test_a_slices_uuid_reaches_the_job(cluster: OneHostCluster) -> None:
    args = ["--partition=mig", "--gres=gpu:a100_3g.20gb:2", "--output=%j.out"]
    job = cluster.sbatch(args, "echo $CUDA_VISIBLE_DEVICES", "cleo").job_id
    assert job is not None
    assert cluster.wait_job(job) == ["COMPLETED"]
    large = [made.uuid for made in cluster.nodes["mig01"].layout.gpus[1].instances]
    assert (cluster.paths.home / "cleo" / f"{job}.out").read_text() == ",".join(large) + "\n"


def test_policyd_ends_cleanly_and_comes_back(cluster: OneHostCluster) -> None:
    cluster.stop_policyd()
    assert not answers_ping(cluster.paths.policyd_socket)
    cluster.start_policyd()
    cluster.kill_policyd()
    cluster.start_policyd()
    assert answers_ping(cluster.paths.policyd_socket)


def test_the_collector_ends_cleanly_and_comes_back(cluster: OneHostCluster) -> None:
    cluster.stop_collector()
    assert not answers_http(f"{cluster.collector_url}/healthz")
    cluster.start_collector()
    cluster.kill_collector()
    cluster.start_collector()
    assert answers_http(f"{cluster.collector_url}/healthz")


def test_an_agent_ends_cleanly_and_comes_back(cluster: OneHostCluster) -> None:
    socket = cluster.nodes["h01"].agent_socket
    cluster.stop_agent("h01")
    assert not answers_ping(socket)
    cluster.start_agent("h01")
    cluster.kill_agent("h01")
    cluster.start_agent("h01")
    assert answers_ping(socket)
