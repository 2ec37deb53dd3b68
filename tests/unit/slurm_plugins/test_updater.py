# SPDX-License-Identifier: Apache-2.0
"""Passes of the updater over a queue in memory: bounds, races, restarts, a second updater."""

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec
import pytest

from fairwatt.core import config
from fairwatt.core.errors import CommandError
from fairwatt.core.gres import Spelling
from fairwatt.slurm_plugins import updater as updating
from fairwatt.slurm_plugins.pending import QueuedJob
from fairwatt.slurm_plugins.site import Facts
from fairwatt.slurm_plugins.updater import Updater, pass_safely
from tests.unit.slurm_plugins.campus import POLICY
from tests.unit.slurm_plugins.test_updater_widening import NOW, SMALL, job, note


class FakeQueue:
    """Records of slurmctld; like it, a change of a started job is refused as a whole."""

    def __init__(self, *jobs: QueuedJob) -> None:
        self.now = {each.job_id: each for each in jobs}
        self.updates: list[tuple[str, dict[str, str | int]]] = []
        self.before_update = lambda: None
        self.refuse = False

    def jobs(self, *, started: bool = False) -> list[QueuedJob]:
        return [each for each in self.now.values() if started or each.states == ("PENDING",)]

    def job(self, one: QueuedJob) -> QueuedJob | None:
        return self.now.get(one.job_id)

    def update(self, address: str, changes: dict[str, str | int]) -> None:
        self.before_update()
        self.updates.append((address, changes))
        (one,) = (each for each in self.now.values() if each.address == address)
        fields = {name: value for name, value in changes.items() if name != "admin_comment"}
        if self.refuse or (fields and one.states != ("PENDING",)):
            raise CommandError(["scontrol"], 1, "Job is no longer pending execution")
        comment = str(changes.get("admin_comment", one.comment))
        self.now[one.job_id] = msgspec.structs.replace(
            one, fields={**one.fields, **fields}, comment=comment
        )

    def started(self, job_id: int) -> None:
        self.now[job_id] = msgspec.structs.replace(self.now[job_id], states=("RUNNING",))


class Clock:
    def __init__(self) -> None:
        self.now = float(NOW)

    def __call__(self) -> float:
        return self.now


def made(queue: FakeQueue, clock: Clock | None = None, **more: Any) -> Updater:
    settings = {"wait_s": 60, "max_changes": 20, **more}
    rules = lambda: (POLICY, Spelling.SLASH)  # noqa: E731
    return Updater(queue, rules, clock=clock or Clock(), **settings)


def given(one: QueuedJob) -> str:
    return json.loads(one.comment.removeprefix("fairwatt:"))["given"]


def numbered(job_id: int, waited_s: int = 100) -> QueuedJob:
    return job(job_id=job_id, address=str(job_id), eligible_ts=NOW - waited_s)


class TestPass:
    def test_request_and_comment_change_in_one_call(self):
        queue = FakeQueue(job())
        (outcome,) = made(queue).run_pass()
        assert outcome.changed
        ((address, changes),) = queue.updates
        assert address == "7"
        assert changes.keys() == {"tres_per_node", "partition", "admin_comment"}
        assert given(queue.now[7]) == "gpu:a100:1"

    def test_the_next_change_comes_after_another_wait(self):
        queue, clock = FakeQueue(job()), Clock()
        updater = made(queue, clock)
        updater.run_pass()
        clock.now += 59
        assert updater.run_pass() == []
        clock.now += 1
        updater.run_pass()
        assert given(queue.now[7]) == "gpu:h100:1"
        clock.now += 3600
        assert updater.run_pass() == []
        assert len(queue.updates) == 2

    def test_the_longest_wait_comes_first_and_one_pass_is_bounded(self):
        queue = FakeQueue(numbered(1, 70), numbered(2, 90), numbered(3, 80))
        updater = made(queue, max_changes=2)
        assert [outcome.job_id for outcome in updater.run_pass()] == [2, 3]
        assert [outcome.job_id for outcome in updater.run_pass()] == [1]

    def test_what_is_refused_does_not_keep_others_waiting(self):
        queue, clock = FakeQueue(numbered(1, 90), numbered(2, 80)), Clock()
        updater = made(queue, clock, max_changes=1)
        queue.refuse = True
        assert [(o.job_id, o.changed) for o in updater.run_pass()] == [(1, False)]
        queue.refuse = False
        assert [(o.job_id, o.changed) for o in updater.run_pass()] == [(2, True)]
        clock.now += 301
        assert (1, True) in [(o.job_id, o.changed) for o in updater.run_pass()]

    def test_policy_and_facts_are_read_only_when_a_job_is_due(self):
        def rules():
            raise AssertionError("asked")

        queue = FakeQueue(numbered(1, 10), job(job_id=2, comment=""))
        assert Updater(queue, rules, wait_s=60, max_changes=9, clock=Clock()).run_pass() == []

    def test_a_dry_run_says_the_same_and_does_nothing(self):
        queue = FakeQueue(job())
        (outcome,) = made(queue, dry_run=True).run_pass()
        assert outcome.changed
        assert outcome.text == (
            f"gpu:{SMALL}:1 -> gpu:a100:1 in partition gpu after 100 s of waiting"
        )
        assert queue.updates == []

    def test_a_reason_is_logged_once(self, caplog):
        caplog.set_level(logging.INFO)
        clock = Clock()
        updater = made(FakeQueue(job(comment=note(next=[["gone", None]]))), clock)
        for _ in range(3):
            (outcome,) = updater.run_pass()
            assert not outcome.changed
            assert updater.run_pass() == []
            clock.now += 301
        assert len(caplog.records) == 1
        assert "job 7 stays as it is" in caplog.text

    def test_a_change_is_one_line(self, caplog):
        caplog.set_level(logging.INFO)
        made(FakeQueue(job())).run_pass()
        assert len(caplog.records) == 1


def test_slurm_away_is_said_once_and_so_is_its_return(caplog):
    caplog.set_level(logging.INFO)
    queue = FakeQueue(job(eligible_ts=None))
    updater, look = made(queue), queue.jobs

    def away(*, started: bool = False) -> list[QueuedJob]:
        raise CommandError(["squeue"], 1, "Unable to contact slurm controller")

    failing = False
    for answer in (away, away, look, look):
        queue.jobs = answer
        failing = pass_safely(updater, failing)
    assert not failing
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "Unable to contact" in caplog.records[0].message


class TestRaces:
    def test_a_job_that_starts_between_look_and_act_is_unharmed(self):
        queue = FakeQueue(job())
        queue.before_update = lambda: queue.started(7)
        (outcome,) = made(queue).run_pass()
        assert not outcome.changed
        assert queue.now[7].fields["tres_per_node"] == f"gres/gpu:{SMALL}:1"
        assert queue.now[7].comment == note()

    @pytest.mark.parametrize(
        "meanwhile",
        [
            None,
            job(reason="JobHeldUser", held=True),
            job({"tres_per_node": f"gres/gpu:{SMALL}:2"}),
            job(comment=note(given="gpu:a100:1")),
            job(states=("RUNNING",)),
        ],
    )
    def test_it_looks_again_just_before(self, meanwhile):
        queue = FakeQueue(job())
        queue.job = lambda one: meanwhile
        (outcome,) = made(queue).run_pass()
        assert not outcome.changed
        assert queue.updates == []

    def test_another_reason_that_a_flavour_mends_is_no_change(self):
        queue = FakeQueue(job())
        queue.job = lambda one: job(reason="Priority")
        (outcome,) = made(queue).run_pass()
        assert outcome.changed

    def test_two_updaters_change_a_job_once(self):
        """Each has read the queue before the other wrote."""
        queue = FakeQueue(job())
        first, second = made(queue), made(queue)
        stale = queue.jobs()
        first.run_pass()
        queue.jobs = lambda *, started=False: stale
        assert [outcome.changed for outcome in second.run_pass()] == [False]
        assert len(queue.updates) == 1


class TestArray:
    WAITING = job(job_id=7, address="7_[1-3]", in_array=True, many_tasks=True)

    def test_the_request_first_then_the_comment_where_it_is(self):
        queue = FakeQueue(self.WAITING)
        made(queue).run_pass()
        (first, second) = queue.updates
        assert first == ("7_[1-3]", {"tres_per_node": "gres/gpu:a100:1", "partition": "gpu"})
        assert (second[0], list(second[1])) == ("7_[1-3]", ["admin_comment"])
        assert given(queue.now[7]) == "gpu:a100:1"

    def test_tasks_that_started_before_keep_their_comment_and_later_ones_get_it(self):
        old = job(job_id=9, address="7_0", in_array=True, states=("RUNNING",))
        queue = FakeQueue(self.WAITING, old)
        look = queue.jobs

        def task_starts(*, started: bool = False) -> list[QueuedJob]:
            if queue.updates:
                new = msgspec.structs.replace(
                    queue.now[7], job_id=8, address="7_1", states=("RUNNING",), many_tasks=False
                )
                queue.now.setdefault(8, new)
            return look(started=started)

        queue.jobs = task_starts
        made(queue).run_pass()
        assert queue.now[9].comment == note()
        assert given(queue.now[8]) == given(queue.now[7]) == "gpu:a100:1"

    def test_more_tasks_than_one_pass_may_note_are_noted_by_the_next(self):
        half = {"tres_per_node": "gres/gpu:a100:1", "partition": "gpu"}
        begun = [
            job(half, job_id=n, address=f"7_{n}", in_array=True, states=("RUNNING",))
            for n in range(1, 6)
        ]
        queue = FakeQueue(*begun)
        updater = made(queue, max_changes=2)
        for _ in range(2):
            updater.run_pass()
        assert {given(one) for one in queue.now.values()} == {"gpu:a100:1"}

    def test_killed_in_between_the_next_updater_ends_it(self):
        half = {"tres_per_node": "gres/gpu:a100:1", "partition": "gpu"}
        waiting = job(half, address="7_[2-3]", in_array=True, many_tasks=True)
        begun = job(half, job_id=8, address="7_1", in_array=True, states=("RUNNING",))
        queue = FakeQueue(waiting, begun)
        made(queue).run_pass()
        assert sorted(address for address, _ in queue.updates) == ["7_1", "7_[2-3]"]
        assert given(queue.now[8]) == given(queue.now[7]) == "gpu:a100:1"


def test_the_cluster_is_read_by_the_backend_that_the_site_chose(tmp_path, monkeypatch):
    asked = []

    def reader(slurm_conf: str | None, backend: str):
        asked.append((slurm_conf, backend))
        return lambda: Facts((), ())

    monkeypatch.setattr(updating.facts, "ChildReader", reader)
    monkeypatch.setattr(updating.SlurmClient, "version", lambda _client: (24, 11, 5))
    file = tmp_path / "fairwatt.toml"
    file.write_text('[site]\nslurm_backend = "cli"\n')
    _, spelling = updating._rules(config.load(file), "/x/slurm.conf")
    assert (asked, spelling) == ([("/x/slurm.conf", "cli")], Spelling.SLASH)
