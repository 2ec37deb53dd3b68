# SPDX-License-Identifier: Apache-2.0
"""What evaded a list of types per account on a live cluster, and a replay of that cluster's jobs.

Whole nodes bring GPUs that nobody asked for; slurmctld makes an account's name small only after
the hook; a QOS or --time-min lets a job start that has more time than its partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.cluster import OneHostCluster
from tests.lab.paths import REPOSITORY
from tests.lab.waiting import await_value

pytestmark = pytest.mark.lab

POLICY = """
[rules.account_types]
accounts = { qcd = ["a100", "mig"] }
"""


@pytest.fixture(scope="module")
def lab(release: str, lab_root: Path) -> Iterator[OneHostCluster]:
    """Slurm of that release under the policy above, with a QOS that lifts the time."""
    policy = lab_root / f"whole-{release}.toml"
    policy.write_text(POLICY)
    nothing = REPOSITORY / "tests" / "lab" / "recorder"
    settings = {"policyd.policy_file": str(policy)}
    root = lab_root / f"w{release}"
    with OneHostCluster(root, node_hooks=nothing, settings=settings, release=release) as running:
        flag = "flags=PartitionTimeLimit"
        for words in (["add", "qos", "long", flag], ["modify", "user", "ada", "set", "qos+=long"]):
            done = running.run(["sacctmgr", "--immediate", *words])
            assert done.returncode == 0, done.stderr
        running.start_policyd()
        yield running


def job_of(lab: OneHostCluster, job_id: int | None) -> dict[str, str]:
    text = lab.run(["scontrol", "--oneliner", "show", "job", str(job_id)]).stdout
    return dict(pair.split("=", 1) for pair in text.split() if "=" in pair)


def test_whole_nodes_are_kept_off_types_that_the_account_may_not_use(lab):
    done = lab.sbatch(["--exclusive", "-p", "gpu"], "true")
    assert "FW706" in done.stderr
    assert job_of(lab, done.job_id)["ExcNodeList"] == "h01"
    refused = lab.sbatch(["--exclusive", "-p", "gpu", "-w", "h01", "--gres=none"], "true")
    assert (refused.job_id, "FW707" in refused.stderr) == (None, True)


def test_nor_does_a_change_of_the_pending_job_get_there(lab):
    job_id = lab.sbatch(["--exclusive", "-p", "mig", "-H"], "true").job_id
    update = ["scontrol", "update", f"JobId={job_id}"]
    assert lab.run([*update, "Partition=gpu"], user="ada").returncode != 0
    assert lab.run([*update, "Partition=gpu", "ExcNodeList="], user="ada").returncode == 0
    assert job_of(lab, job_id)["ExcNodeList"] == "h01"
    assert lab.run([*update, "ReqNodeList=h01"], user="ada").returncode != 0
    lab.run(["scancel", str(job_id)])


def test_an_account_in_capitals_is_the_same_one(lab):
    done = lab.sbatch(["-A", "QCD", "--gres=gpu:h100:1"], "true")
    assert (done.job_id, "FW701" in done.stderr) == (None, True)


@pytest.mark.parametrize("args", [["-q", "long"], ["-q", "LONG"], ["--time-min=1"]])
def test_what_slurm_starts_though_it_is_long_is_not_refused(lab, args):
    done = lab.sbatch(["--gres=gpu:a100:1", "-t", "3-0", *args], "true")
    assert lab.wait_job(done.job_id) == ["COMPLETED"], done.stderr
    named = lab.sbatch(["--gres=gpu:a100:1", "-t", "3-0", "-q", "normal"], "true")
    assert (named.job_id, "FW803" in named.stderr) == (None, True)


def test_the_jobs_of_this_cluster_are_replayed(lab, tmp_path):
    job_id = lab.sbatch(["--gres=gpu:a100:1", "-p", "gpu"], "true").job_id
    lab.wait_recorded(job_id)
    stricter = tmp_path / "stricter.toml"
    stricter.write_text(POLICY.replace('"a100", ', ""))

    def told() -> str | None:
        done = lab.fairwatt("policy", "replay", "--days=2", str(stricter))
        assert done.returncode == 0, done.stderr
        return done.stdout if f"job {job_id}:" in done.stdout else None

    assert "would newly be refused (FW701)" in await_value(
        told, what="the replayed job", timeout_s=30
    )
