# SPDX-License-Identifier: Apache-2.0
"""A real controller gives equal jobs policyd's answer again, until policyd says no more."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairwatt.core.unix_socket import ask_line
from tests.lab.cluster import OneHostCluster
from tests.lab.fairwatt_conf import toml
from tests.lab.paths import REPOSITORY
from tests.lab.waiting import await_value

pytestmark = pytest.mark.lab

SWITCHED_OFF = '[rules.known_types]\nmode = "off"\n[rules.type_spelling]\nmode = "off"\n'


@pytest.fixture(scope="module")
def lab(release: str, lab_root: Path) -> Iterator[OneHostCluster]:
    """A controller of each release with a policyd, whose rules a test may change."""
    nothing = REPOSITORY / "tests" / "lab" / "recorder"
    with OneHostCluster(lab_root / f"u{release}", node_hooks=nothing, release=release) as running:
        with running.config_path.open("a") as file:
            file.write(toml({"policyd.policy_file": str(running.paths.etc / "policy.toml")}))
        (running.paths.etc / "policy.toml").write_text("")
        running.start_policyd()
        yield running


def submit(lab: OneHostCluster, user: str = "ada", *more: str):
    """Submit the same job as every time."""
    options = ["--begin=2030-01-01T00:00", "--gres=gpu:A100:1", *more]
    return lab.sbatch(options, "true", user=user)


def told(lab: OneHostCluster) -> dict[str, int]:
    """What policyd counts."""
    return json.loads(ask_line(lab.paths.policyd_socket, b'{"verb":"ping"}\n', 5.0))


def reused(lab: OneHostCluster, *users: str) -> list[int]:
    """Submit one job a user; return how many answers the hook has given again after each."""
    counts = []
    for user in users:
        before = told(lab)["judged"]
        assert "FW301" in submit(lab, user).stderr
        await_value(
            lambda before=before: told(lab)["judged"] > before, what="the report", timeout_s=5
        )
        counts.append(told(lab)["reused"])
    return counts


def comment(lab: OneHostCluster, job_id: int) -> dict:
    text = lab.run(["scontrol", "show", "job", str(job_id)]).stdout
    found = text.partition("AdminComment=fairwatt:")[2]
    return json.loads(found.splitlines()[0])


def test_equal_jobs_of_any_user_have_the_answer_and_each_is_counted_and_named(lab):
    before = told(lab)
    assert reused(lab, "ada", "ada", "ben") == [before["reused"] + n for n in (0, 1, 2)]
    assert told(lab)["judged"] == before["judged"] + 3
    jobs = [submit(lab).job_id for _ in range(3)]
    comments = [comment(lab, job) for job in jobs]
    assert len({each.pop("id") for each in comments}) == 3
    assert comments[0] == comments[1] == comments[2]
    tres = [lab.run(["scontrol", "show", "job", str(job)]).stdout for job in jobs]
    assert all("gpu:a100:1" in text for text in tres)


def test_jobs_with_time_limits_of_their_own_have_one_answer_and_keep_their_limits(lab):
    before = told(lab)
    jobs = [submit(lab, "ada", f"--time={minutes}").job_id for minutes in range(31, 36)]
    await_value(
        lambda: told(lab)["judged"] == before["judged"] + 5, what="four reports", timeout_s=5
    )
    assert told(lab)["reused"] == before["reused"] + 4
    shown = [lab.run(["scontrol", "show", "job", str(job)]).stdout for job in jobs]
    limits = [text.partition("TimeLimit=")[2].split()[0] for text in shown]
    assert limits == [f"00:{minutes}:00" for minutes in range(31, 36)]
    ids = [comment(lab, job)["id"] for job in jobs]
    assert len(set(ids)) == 5


def test_another_policy_counts_from_the_next_job_on(lab):
    reused(lab, "ada", "ada")
    policy = lab.paths.etc / "policy.toml"
    policy.write_text(SWITCHED_OFF)
    before = lab.log_text("policyd").count("configuration read again")
    os.kill(lab.daemon("policyd").process.pid, signal.SIGHUP)
    try:
        await_value(
            lambda: lab.log_text("policyd").count("configuration read again") > before,
            what="the new policy",
            timeout_s=20,
        )
        assert "FW301" not in submit(lab).stderr
    finally:
        policy.write_text("")
        os.kill(lab.daemon("policyd").process.pid, signal.SIGHUP)
        await_value(
            lambda: "FW301" in submit(lab).stderr, what="the old policy again", timeout_s=20
        )


def test_a_killed_policyd_means_the_fail_mode_for_the_next_job(lab):
    reused(lab, "ada", "ada")
    lab.kill_policyd()
    try:
        out = submit(lab)
        assert "could not be applied" in out.stderr
        assert "FW301" not in out.stderr
        assert out.job_id is None  # as typed it is nothing that Slurm has
    finally:
        lab.start_policyd()
        await_value(lambda: "FW301" in submit(lab).stderr, what="the policy again", timeout_s=40)
