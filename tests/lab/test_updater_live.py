# SPDX-License-Identifier: Apache-2.0
"""The updater against real queues: what it changes, what it must leave alone, and races."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.lab.cluster import OneHostCluster
from tests.lab.commands import Completed
from tests.lab.paths import REPOSITORY
from tests.lab.programs import command
from tests.lab.waiting import await_value

pytestmark = pytest.mark.lab

SMALL = "a100_3g.20gb"
NEXT = [["a100", "gpu"], ["h100", "gpu"]]
LEVELS = {
    "tres_per_node": [f"--gres=gpu:{SMALL}:1"],
    "tres_per_job": [f"--gpus={SMALL}:1"],
    "tres_per_task": ["-n1", f"--gpus-per-task={SMALL}:1"],
    "tres_per_socket": ["--sockets-per-node=1", f"--gpus-per-socket={SMALL}:1"],
}
SLICE = LEVELS["tres_per_node"]
SETTINGS = {"updater.wait_s": 1, "updater.interval_s": 0.5}
Row = dict[str, Any]


@pytest.fixture(scope="module")
def lab(release: str, lab_root: Path) -> Iterator[OneHostCluster]:
    """Slurm of that release with hook and policyd; both 20 GB slices are taken for good."""
    with OneHostCluster(
        lab_root / f"u{release}",
        release=release,
        node_hooks=REPOSITORY / "tests" / "lab" / "recorder",
        settings=SETTINGS,
    ) as running:
        running.start_policyd()
        # One who is no root and may change every job, as SlurmUser: the hook judges him.
        admin = ["modify", "user", "ben", "set", "adminlevel=admin"]
        running.run(["sacctmgr", "--immediate", *admin], check=True)
        taken = running.sbatch(["-p", "mig", f"--gres=gpu:{SMALL}:2"], "sleep 900", "cleo")
        running.wait_job(taken.job_id, {"RUNNING"})
        yield running


@pytest.fixture
def queue(lab: OneHostCluster) -> Iterator[OneHostCluster]:
    """The cluster, without ada's jobs afterwards."""
    yield lab
    lab.run(["scancel", "-u", "ada"])
    await_value(
        lambda: not lab.run(["squeue", "-h", "-u", "ada"]).stdout,
        what="ada's jobs gone",
        timeout_s=20,
    )


@pytest.fixture
def typed(queue: OneHostCluster) -> OneHostCluster:
    """Where slurmctld can change a type."""
    if queue.release < "23.11":
        pytest.skip("this slurmctld keeps the old type beside the new one: TestOldServer")
    return queue


def note(next_: Sequence[Any] = NEXT) -> str:
    body: Row = {"v": 1, "id": "1-1", "asked": "gpu:20gb:1", "given": f"gpu:{SMALL}:1"}
    rest = {"notes": [["FW101", 'a b=c, "d"']], "next": next_}
    return "fairwatt:" + json.dumps({**body, **rest}, separators=(",", ":"))


def submit(lab: OneHostCluster, *args: str, script: str = "sleep 60") -> int:
    """A job of ada's in partition mig, without a comment."""
    done = lab.sbatch(["-p", "mig", *args], script)
    assert done.job_id is not None, done.stderr
    return done.job_id


def noted(lab: OneHostCluster, *args: str, comment: str = "", script: str = "sleep 60") -> int:
    """A job of ada's with our comment."""
    job_id = submit(lab, *args, script=script)
    update(lab, job_id, f"AdminComment={comment or note()}", check=True)
    return job_id


def waiting(lab: OneHostCluster, *args: str, comment: str = "") -> int:
    """A job of ada's with our comment that has waited for resources for as long as it must."""
    job_id = noted(lab, *args, comment=comment)
    await_due(lab, job_id)
    return job_id


def await_due(lab: OneHostCluster, *job_ids: int) -> None:
    await_value(
        lambda: all(is_due(job) for job in records(lab) if job["job_id"] in job_ids),
        what="waiting for resources",
        timeout_s=15,
    )


def output(lab: OneHostCluster, job_id: int) -> str:
    assert lab.wait_job(job_id) == ["COMPLETED"]
    return (lab.paths.home / "ada" / f"slurm-{job_id}.out").read_text()


def is_due(job: Row) -> bool:
    evaluated, eligible = number(job["last_sched_evaluation"]), number(job["eligible_time"])
    return job["state_reason"] in ("Resources", "Priority") and evaluated - eligible >= 1


def number(value: Any) -> int:
    return int(value["number"] if isinstance(value, dict) else value)


def records(lab: OneHostCluster) -> list[Row]:
    """All that slurmctld knows, ended jobs too."""
    answer: Row = json.loads(lab.run(["squeue", "--states=all", "--json"]).stdout)
    return list(answer["jobs"])


def rows(lab: OneHostCluster, job_id: int) -> list[Row]:
    """All records of a job or an array, started ones too."""
    return [job for job in records(lab) if job_id in (job["job_id"], number(job["array_job_id"]))]


def row(lab: OneHostCluster, job_id: int) -> Row:
    return next(job for job in rows(lab, job_id) if job["job_id"] == job_id)


def state(job: Row) -> str:
    named = job["job_state"]
    return str(named if isinstance(named, str) else named[0])


def said(job: Row) -> Row:
    body: Row = json.loads(job["admin_comment"].removeprefix("fairwatt:"))
    return body


def update(
    lab: OneHostCluster, job: int | str, *words: str, user: str | None = None, check: bool = False
) -> Completed:
    return lab.run(["scontrol", "update", f"JobId={job}", *words], user=user, check=check)


def once(lab: OneHostCluster, *more: str) -> list[str]:
    """One pass; what it says of jobs."""
    done = lab.fairwatt("updater", "--once", *more)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def gres(lab: OneHostCluster, text: str) -> str:
    return f"gres{':' if lab.release < '23.11' else '/'}{text}"


class TestChange:
    def test_jobs_that_wait_get_the_next_flavour_at_the_level_they_asked_at(self, typed):
        script = "echo on $SLURMD_NODENAME"
        jobs = {field: noted(typed, *args, script=script) for field, args in LEVELS.items()}
        await_due(typed, *jobs.values())
        for line, job in zip(once(typed), jobs.values(), strict=True):
            change = f"gpu:{SMALL}:1 -> gpu:a100:1 in partition gpu after "
            assert line.startswith(f"job {job}: {change}")
        for field, job in jobs.items():
            now = row(typed, job)
            assert "gpu:a100" in now[field]
            assert SMALL not in "".join(now[level] for level in LEVELS)
            assert now["partition"] == "gpu"
            told = said(now)
            assert (told["given"], told["next"]) == ("gpu:a100:1", [["h100", "gpu"]])
            ((_, before, after),) = told["widened"]
            assert (before, after) == (f"gpu:{SMALL}:1", "gpu:a100:1 in partition gpu")
            assert told["notes"] == [["FW101", 'a b=c, "d"']]
            assert output(typed, job) in ("on gpu01\n", "on gpu02\n")

    def test_from_a_need_to_a_step_on_the_second_choice(self, typed):
        """Nothing by hand: the rule writes the flavours, and steps do not ask for the first."""
        script = "srun sh -c 'echo step on $SLURMD_NODENAME'"
        needs = (["--gpus=20gb:1"], ["-n1", "--gpus-per-task=20gb:1"], ["--gres=gpu:20gb:1"])
        done = [typed.sbatch(need, script) for need in needs]
        assert [f"-> gpu:{SMALL}:1" in each.stderr for each in done] == [True] * 3
        jobs = [each.job_id for each in done if each.job_id is not None]
        await_due(typed, *jobs)
        for line, job in zip(once(typed), jobs, strict=True):
            assert line.startswith(f"job {job}: gpu:{SMALL}:1 -> gpu:a100:1")
        for job in jobs:
            assert output(typed, job) in ("step on gpu01\n", "step on gpu02\n")

    def test_the_daemon_does_it_too_and_ends_at_once(self, typed):
        job = noted(typed, *SLICE)
        env = {**os.environ, **typed.env, "FAIRWATT_CONFIG": str(typed.config_path)}
        with subprocess.Popen(command("updater"), env=env, stderr=subprocess.PIPE) as daemon:
            try:
                typed.wait_job(job, {"RUNNING"}, timeout_s=15)
            finally:
                daemon.terminate()
                _, log = daemon.communicate(timeout=5)
        assert daemon.returncode == 0
        assert log.decode().count(f"job {job}: gpu:{SMALL}:1 -> gpu:a100:1") == 1

    def test_a_dry_run_changes_nothing(self, typed):
        job = waiting(typed, *SLICE)
        (line,) = once(typed, "--dry-run")
        assert f"job {job}: would change: gpu:{SMALL}:1 -> gpu:a100:1" in line
        assert said(row(typed, job))["given"] == f"gpu:{SMALL}:1"

    def test_two_at_once_change_a_job_once(self, typed):
        job = waiting(typed, *SLICE, comment=note([["a100", "all"], ["h100", "all"]]))
        env = {**os.environ, **typed.env, "FAIRWATT_CONFIG": str(typed.config_path)}
        argv = command("updater", "--once")
        both = [subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) for _ in range(2)]
        assert [each.communicate(timeout=20) and each.returncode for each in both] == [0, 0]
        told = said(row(typed, job))
        assert (told["given"], len(told["widened"])) == ("gpu:a100:1", 1)


class TestLeftAlone:
    def test_what_waits_for_something_else(self, queue):
        other = submit(queue, "--hold")
        jobs = [
            submit(queue, *SLICE, *more)
            for more in (["--hold"], [f"--dependency=afterok:{other}"], ["--begin=now+1hour"])
        ]
        jobs.append(submit(queue, *SLICE))  # without our comment
        for job in jobs[:-1]:
            update(queue, job, f"AdminComment={note()}", check=True)
        het = queue.run(
            ["sbatch", "-p", "mig", *SLICE, ":", "-p", "mig", *SLICE, "--wrap=true"], user="ada"
        )
        first = int(het.stdout.split()[-1])
        update(queue, first, f"AdminComment={note()}", check=True)
        await_due(queue, jobs[-1])
        before = {job: row(queue, job)["tres_per_node"] for job in (*jobs, first, first + 1)}
        assert once(queue) == []
        assert {job: row(queue, job)["tres_per_node"] for job in before} == before

    def test_a_request_that_its_user_changed(self, queue):
        job = waiting(queue, *SLICE)
        assert update(queue, job, "Gres=gpu:a100_3g.20gb:2", user="ada").returncode == 0
        await_due(queue, job)
        (line,) = once(queue)
        assert "no longer" in line
        assert said(row(queue, job))["given"] == f"gpu:{SMALL}:1"

    def test_a_flavour_that_does_not_exist(self, queue):
        job = waiting(queue, *SLICE, comment=note([["a100;reboot", "gpu"], ["h100", None]]))
        (line,) = once(queue)
        assert line.startswith(f"job {job}: stays: ")
        assert row(queue, job)["tres_per_node"] == gres(queue, f"gpu:{SMALL}:1")


class TestOldServer:
    """Slurm before 23.11: a type cannot be changed, a partition can."""

    @pytest.fixture(autouse=True)
    def old(self, queue):
        if queue.release >= "23.11":
            pytest.skip("types can be changed")

    def test_slurm_joins_the_types_and_the_job_can_never_start(self, queue):
        """Why the updater must not do it; a new release that passes this may be let in."""
        job = waiting(queue, *SLICE)
        update(queue, job, "Gres=gpu:a100:1", "Partition=gpu", check=True)
        await_value(
            lambda: row(queue, job)["state_reason"] == "BadConstraints",
            what="never runnable",
            timeout_s=15,
        )

    def test_the_updater_says_so_and_leaves_the_job(self, queue):
        job = waiting(queue, *SLICE)
        (line,) = once(queue)
        assert line.startswith(f"job {job}: stays: Slurm before 23.11")
        assert row(queue, job)["partition"] == "mig"

    def test_another_partition_with_the_same_type(self, queue):
        job = waiting(queue, *SLICE, comment=note([[SMALL, "all"]]))
        (line,) = once(queue)
        assert f"gpu:{SMALL}:1 -> gpu:{SMALL}:1 in partition all" in line
        now = row(queue, job)
        assert (now["partition"], said(now)["next"]) == ("all", [])


class TestStarted:
    """What Slurm does with a change that comes too late: the updater rests on it."""

    @pytest.fixture
    def begun(self, queue):
        job = submit(queue, "--gres=gpu:a100_1g.5gb:1")
        queue.wait_job(job, {"RUNNING"})
        update(queue, job, f"AdminComment={note()}", check=True)
        return job

    @pytest.mark.parametrize("user", [None, "ben"])
    def test_a_single_job_keeps_request_partition_and_comment(self, queue, begun, user):
        words = [f"TresPerNode={gres(queue, f'gpu:{SMALL}:1')}", "AdminComment=late"]
        for change in (words, [*words, "Partition=all"], ["Partition=all", words[1]]):
            assert update(queue, begun, *change, user=user).returncode != 0
        now = row(queue, begun)
        assert now["tres_per_node"] == gres(queue, "gpu:a100_1g.5gb:1")
        assert (now["partition"], now["admin_comment"]) == ("mig", note())
        assert state(now) == "RUNNING"

    def test_started_tasks_of_an_array_are_unharmed_by_a_change_of_all(self, queue):
        """By the list that was read before some of them started."""
        array = submit(queue, "--array=0-3%2", "--gres=gpu:a100_1g.5gb:1")
        started = await_value(
            lambda: [job for job in rows(queue, array) if state(job) == "RUNNING"][1:],
            what="two tasks that run",
            timeout_s=15,
        )
        assert started
        # Of the same type, which every release can change.
        update(queue, f"{array}_[0-3]", f"TresPerNode={gres(queue, 'gpu:a100_1g.5gb:2')}")
        after = {state(job): job["tres_per_node"] for job in rows(queue, array)}
        assert after == {
            "RUNNING": gres(queue, "gpu:a100_1g.5gb:1"),
            "PENDING": gres(queue, "gpu:a100_1g.5gb:2"),
        }


class TestArray:
    def test_waiting_tasks_change_together_and_started_ones_stay(self, typed):
        job = waiting(typed, "--array=0-3%2", *SLICE, comment=note([["a100", "gpu"]]))
        lines = once(typed)
        assert [line.split(": ")[1][:4] for line in lines] == ["gpu:", "now "]
        typed.run(["scontrol", "show", "job", str(job)])
        await_value(
            lambda: sum(state(each) == "RUNNING" for each in rows(typed, job)) == 2,
            what="two tasks that run",
            timeout_s=15,
        )
        assert {each["tres_per_node"] for each in rows(typed, job)} == {"gres/gpu:a100:1"}
        assert {said(each)["given"] for each in rows(typed, job)} == {"gpu:a100:1"}
        assert once(typed) == []

    def test_killed_in_between_it_is_ended_later_for_tasks_that_run_too(self, typed):
        job = waiting(typed, "--array=0-3%2", *SLICE)
        half = ["TresPerNode=gres/gpu:a100:1", "Partition=gpu"]
        update(typed, f"{job}_[0-3]", *half, check=True)
        await_value(
            lambda: sum(state(each) == "RUNNING" for each in rows(typed, job)) == 2,
            what="two tasks that run",
            timeout_s=15,
        )
        assert {said(each)["given"] for each in rows(typed, job)} == {f"gpu:{SMALL}:1"}
        once(typed)
        assert {said(each)["given"] for each in rows(typed, job)} == {"gpu:a100:1"}


class TestJudgedByTheHook:
    """SlurmUser is not root: the modify hook judges what the updater writes."""

    def change(self, lab: OneHostCluster, job: int, type_: str) -> Completed:
        words = [f"TresPerNode={gres(lab, f'gpu:{type_}:1')}", "Partition=gpu"]
        return update(lab, job, *words, "AdminComment=fairwatt:{}", user="ben")

    def test_request_and_comment_are_taken_together(self, queue):
        job = submit(queue, *SLICE, "--begin=now+1hour")
        assert self.change(queue, job, "a100").returncode == 0
        now = row(queue, job)
        assert now["tres_per_node"] == gres(queue, "gpu:a100:1")
        assert now["admin_comment"] == "fairwatt:{}"

    def test_or_refused_together(self, queue):
        job = submit(queue, *SLICE, "--begin=now+1hour")
        update(queue, job, f"AdminComment={note()}", check=True)
        assert self.change(queue, job, "h10").returncode != 0
        now = row(queue, job)
        assert now["tres_per_node"] == gres(queue, f"gpu:{SMALL}:1")
        assert (now["partition"], now["admin_comment"]) == ("mig", note())
