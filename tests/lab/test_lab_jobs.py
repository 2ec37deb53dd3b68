# SPDX-License-Identifier: Apache-2.0
"""Jobs on the plain cluster reach sacct as Slurm's own accounting should show them."""

from __future__ import annotations

import pytest

from tests.lab.cluster import OneHostCluster
from tests.lab.commands import ENDED

pytestmark = pytest.mark.lab


def submit(cluster: OneHostCluster, args: list[str], script: str, user: str = "ada") -> int:
    result = cluster.sbatch(["--output=%j.out", *args], script, user)
    assert result.job_id is not None, result.stderr
    return result.job_id


def test_each_users_job_has_typed_gpus_in_sacct(plain: OneHostCluster) -> None:
    slice_args = ["--partition=mig", "--gres=gpu:a100_3g.20gb:1"]
    wanted = [
        ("ada", "qcd", ["--gres=gpu:a100:2"], "gres/gpu:a100=2,gres/gpu=2"),
        ("cleo", "optics", ["--gpus=h100:3"], "gres/gpu:h100=3,gres/gpu=3"),
        ("dora", "chemistry", slice_args, "gres/gpu:a100_3g.20gb=1,gres/gpu=1"),
    ]
    jobs = [submit(plain, args, "id -un", user) for user, _, args, _ in wanted]
    for job, (user, account, _, typed) in zip(jobs, wanted, strict=True):
        (row,) = plain.wait_recorded(job)
        assert (row["State"], row["User"], row["Account"]) == ("COMPLETED", user, account)
        assert typed in row["AllocTRES"]
        assert (plain.paths.home / user / f"{job}.out").read_text() == f"{user}\n"


def test_the_hooks_admin_comment_reaches_sacct(plain: OneHostCluster) -> None:
    job = submit(plain, ["--gres=gpu:1", "--comment=by ada"], "true")
    (row,) = plain.wait_recorded(job)
    assert row["AdminComment"] == 'fairwatt:{"v":1,"asked":"gres:gpu:1"}'
    assert row["Comment"] == "by ada"
    assert row["SubmitLine"] == "sbatch --output=%j.out --gres=gpu:1 --comment=by ada"


def test_a_requeued_job_has_two_runs(plain: OneHostCluster) -> None:
    job = submit(plain, ["--gres=gpu:1"], '[ "${SLURM_RESTART_COUNT:-0}" = 1 ] || sleep 600')
    plain.wait_job(job, {"RUNNING"})
    plain.run(["scontrol", "requeue", str(job)], "ada", check=True)
    plain.wait_job(job, ENDED)
    rows = plain.wait_recorded(job)
    assert [row["State"] for row in rows] == ["REQUEUED", "COMPLETED"]
    assert len({row["Start"] for row in rows}) == 2


def test_an_array_has_one_row_a_task(plain: OneHostCluster) -> None:
    job = submit(plain, ["--gres=gpu:1", "--array=0-2"], "exit $SLURM_ARRAY_TASK_ID", "ben")
    plain.wait_job(job, ENDED)
    rows = {row["JobID"]: row["ExitCode"] for row in plain.wait_recorded(job)}
    assert rows == {f"{job}_0": "0:0", f"{job}_1": "1:0", f"{job}_2": "2:0"}


def test_a_job_cancelled_while_pending_never_started(plain: OneHostCluster) -> None:
    job = submit(plain, ["--gres=gpu:1", "--begin=now+1hour"], "true", "emil")
    plain.wait_job(job, {"PENDING"})
    plain.run(["scancel", str(job)], "emil", check=True)
    plain.wait_job(job, {"CANCELLED"})
    (row,) = plain.wait_recorded(job)
    assert row["State"].startswith("CANCELLED by ")
    assert row["AllocTRES"] == ""
    assert row["NodeList"] == "None assigned"


def test_a_user_cannot_cancel_anothers_job(plain: OneHostCluster) -> None:
    job = submit(plain, ["--begin=now+1hour"], "true", "emil")
    refused = plain.run(["scancel", str(job)], "fay")
    assert "Access/permission denied" in refused.stderr
    plain.run(["scancel", str(job)], check=True)


def test_an_account_of_another_department_is_refused(plain: OneHostCluster) -> None:
    result = plain.sbatch(["--account=medicine"], "true", "ada")
    assert result.job_id is None
    assert "Invalid account" in result.stderr


def test_the_department_tree_with_shares_and_coordinator(plain: OneHostCluster) -> None:
    shown = plain.run(["sacctmgr", "-nP", "show", "assoc", "format=account,user,share,parentname"])
    rows = [line.split("|") for line in shown.stdout.splitlines()]
    accounts = {(row[0], row[2], row[3]) for row in rows if not row[1]}
    assert accounts == {
        ("root", "1", ""),
        ("physics", "50", "root"),
        ("chemistry", "30", "root"),
        ("medicine", "20", "root"),
        ("qcd", "60", "physics"),
        ("optics", "40", "physics"),
    }
    who = plain.run(["sacctmgr", "-nP", "show", "user", "hana", "withcoord", "format=user,coord"])
    assert set(who.stdout.strip().split("|")[1].split(",")) == {"physics", "qcd", "optics"}
