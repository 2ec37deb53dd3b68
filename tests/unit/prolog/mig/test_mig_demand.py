# SPDX-License-Identifier: Apache-2.0
"""Waiting jobs and nodes as three releases tell them, and what users may write into them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairwatt.core.errors import SlurmError
from fairwatt.prolog.mig.cluster import read_nodes
from fairwatt.prolog.mig.demand import merged, read_demand
from fairwatt.prolog.mig.history import mean_waits

DATA = Path(__file__).parents[3] / "data"
NODES = {"22.05": "sinfo.json", "24.11": "nodes.json", "26.05": "nodes.json"}
LARGE = "a100_3g.20gb"
NOW = 1_796_050_700


@pytest.fixture(params=sorted(NODES))
def release(request) -> str:
    return request.param


class TestRecorded:
    """The jobs of tests/lab/record.py: 1 runs, 6 has started, 8 to 10 wait for no GPU."""

    def test_who_wants_what(self, release) -> None:
        demands, unreadable = read_demand((DATA / release / "squeue.json").read_text(), NOW)
        assert unreadable == 0
        found = {each.job: each for each in demands}
        assert set(found) == {"2", "3", "4", "5_[...]", "7_[...]", "11", "12", "13"}
        for job in ("2", "3", "4"):  # per node, per job, per task
            assert found[job].needs == {LARGE: 1}
        assert found["11"].needs == {"a100_1g.5gb": 1}
        assert found["5_[...]"].copies == 4
        assert found["7_[...]"].copies > 10  # Slurm cuts this list short
        assert found["2"].partitions == {"mig"}
        assert 0 < found["2"].wait_s < 120

    def test_jobs_that_are_alike_are_one(self, release) -> None:
        demands, _ = read_demand((DATA / release / "squeue.json").read_text(), NOW)
        ones, members = merged(demands)
        assert len(ones) == 2
        assert sum(each.copies for each in ones) == sum(each.copies for each in demands)
        assert sorted(each.job for group in members for each in group) == sorted(
            each.job for each in demands
        )

    def test_nodes(self, release) -> None:
        nodes = {n.name: n for n in read_nodes((DATA / release / NODES[release]).read_text())}
        assert nodes["mig01"].gpus == {"a100_1g.5gb": 7, LARGE: 2}
        assert nodes["mig01"].use == "idle"
        assert nodes["gpu01"].partitions == {"gpu", "all"}
        assert nodes["h01"].features == {"h100"}
        assert nodes["mig01"].started_ts is not None
        assert nodes["mig01"].idle_since_ts >= nodes["mig01"].started_ts


def job(**more) -> dict:
    return {"job_id": 7, "job_state": ["PENDING"], "state_reason": "Resources", **more}


def read(*jobs: dict):
    return read_demand(json.dumps({"jobs": jobs}), NOW)


class TestJobs:
    @pytest.mark.parametrize(
        ("more", "needs", "nodes"),
        [
            ({"tres_per_node": "gres/gpu:a100:2", "node_count": 3}, {"a100": 2}, 3),
            ({"tres_per_node": "gres:gpu"}, {None: 1}, 1),
            ({"tres_per_job": "gres/gpu:a100:5", "node_count": 2}, {"a100": 3}, 2),
            ({"tres_per_task": "cpu=4,gres/gpu:a100=1", "tasks": 4}, {"a100": 4}, 1),
            (
                {"tres_per_task": "gres/gpu:a100=1", "tasks": 4, "node_count": 2},
                {"a100": 2},
                2,
            ),
            ({"tres_per_node": "gres/gpu:a:1,gres/gpu:b:2"}, {"a": 1, "b": 2}, 1),
        ],
    )
    def test_levels_of_a_request(self, more, needs, nodes) -> None:
        ((one,), _) = read(job(**more))
        assert (one.needs, one.nodes) == (needs, nodes)

    @pytest.mark.parametrize(
        "more",
        [
            {"state_reason": "Dependency"},
            {"state_reason": "JobHeldUser", "priority": 0},
            {"state_reason": "Resources", "priority": 0},
            {"state_reason": "BeginTime"},
            {"state_reason": "QOSMaxGRESPerUser"},
            {"job_state": ["RUNNING"]},
            {"tres_per_node": "gres/shard:2"},
            {"tres_per_node": ""},
        ],
    )
    def test_jobs_that_no_gpu_would_start(self, more) -> None:
        assert read(job(**{"tres_per_node": "gres/gpu:a:1", **more})) == ([], 0)

    def test_a_job_that_slurm_holds_for_lack_of_its_type_is_demand(self) -> None:
        asks = {"tres_per_node": "gres/gpu:a:1", "state_reason": "BadConstraints", "priority": 0}
        ((one,), _) = read(job(**asks))
        assert one.held

    def test_features_and_nodes(self) -> None:
        asks = {"tres_per_node": "gres/gpu:a:1", "features": "ib&nvme"}
        named = {"required_nodes": "n[1-2]", "excluded_nodes": "n3"}
        ((one,), _) = read(job(**asks, **named))
        assert one.features == {"ib", "nvme"}
        assert (one.required, one.excluded) == ({"n1", "n2"}, {"n3"})
        ((other,), _) = read(job(tres_per_node="gres/gpu:a:1", features="[ib|eth]&x"))
        assert other.features == frozenset()

    def test_the_most_urgent_comes_first(self) -> None:
        asks = {"tres_per_node": "gres/gpu:a:1"}
        demands, _ = read(
            job(job_id=1, priority=5, eligible_time=NOW - 5, **asks),
            job(job_id=2, priority=9, eligible_time=NOW - 1, **asks),
            job(job_id=3, priority=5, eligible_time=NOW - 9, **asks),
        )
        assert [each.job for each in demands] == ["2", "3", "1"]

    @pytest.mark.parametrize(
        "bad",
        [
            {"tres_per_node": "gres/gpu:a:9999999999999999999999"},
            {"tres_per_node": "gres/gpu:$(reboot):x:y"},
            {"tres_per_node": {"x": 1}},
            {"excluded_nodes": "n[1-", "tres_per_node": "gres/gpu:a:1"},
            {"job_id": "x"},
        ],
    )
    def test_a_record_that_cannot_be_read_costs_only_itself(self, bad) -> None:
        good = job(job_id=8, tres_per_node="gres/gpu:a:1")
        demands, unreadable = read(job(**bad), good)
        assert ([each.job for each in demands], unreadable) == (["8"], 1)

    def test_a_list_of_a_billion_nodes_is_not_expanded(self) -> None:
        ((one,), _) = read(job(tres_per_node="gres/gpu:a:1", required_nodes="n[1-999999999]"))
        assert one.required is None

    @pytest.mark.parametrize("text", ["", "{}", "[]", '{"jobs": 1}', "\ufffd"])
    def test_an_answer_that_is_none(self, text) -> None:
        with pytest.raises(SlurmError, match="squeue --json"):
            read_demand(text, NOW)
        with pytest.raises(SlurmError, match="scontrol show nodes"):
            read_nodes(text)


class TestNodes:
    @pytest.mark.parametrize(
        ("state", "more", "use"),
        [
            (["IDLE"], {}, "idle"),
            ("idle", {"state_flags": []}, "idle"),
            (["MIXED"], {"alloc_cpus": 4}, "busy"),
            (["IDLE"], {"gres_used": "gpu:a100:1(IDX:0)"}, "busy"),
            (["IDLE", "COMPLETING"], {}, "busy"),
            (["IDLE", "DRAIN"], {"reason": "fan broken"}, "out"),
            (["IDLE", "DRAIN"], {"reason": "fairwatt FWM201 re-slice to large"}, "draining"),
            ("idle", {"state_flags": ["DRAIN"], "reason": "fairwatt FWH101 x"}, "out"),
            (["DOWN"], {}, "out"),
            (["IDLE", "NOT_RESPONDING"], {}, "out"),
            (["IDLE", "INVALID_REG"], {}, "out"),
            (["IDLE", "MAINTENANCE", "RESERVED"], {}, "out"),
            (["FUTURE"], {}, "out"),
            ([], {}, "out"),
        ],
    )
    def test_what_a_node_is_used_for(self, state, more, use) -> None:
        raw = {"name": "n1", "state": state, "gres": "gpu:a100:2", **more}
        (node,) = read_nodes(json.dumps({"nodes": [raw]}))
        assert node.use == use


class TestHistory:
    def test_the_mean_wait_by_type(self) -> None:
        rows = [
            "100|160|cpu=1,gres/gpu=1,gres/gpu:a100_3g.20gb=1",
            "100|100|cpu=1,gres/gpu=2,gres/gpu:a100_3g.20gb=1,gres/gpu:a100_1g.5gb=1",
            "Unknown|200|gres/gpu:a100_3g.20gb=1",
            "100|200|cpu=1",
            "100|200|;;;==",
            "no row",
            "",
        ]
        assert mean_waits(rows) == {LARGE: 30.0, "a100_1g.5gb": 0.0}
