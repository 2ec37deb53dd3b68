# SPDX-License-Identifier: Apache-2.0
"""A job's report: facts, use, what was rewritten, energy."""

from __future__ import annotations

import pytest

from fairwatt.accounting.reports.carbon_basis import CarbonAsk
from fairwatt.accounting.reports.decision import read_decision
from fairwatt.accounting.reports.flags import flag_words, method_words
from fairwatt.accounting.reports.job import gpu_words, job_report
from fairwatt.accounting.reports.scope import scope_of
from fairwatt.accounting.reports.words import job_headlines
from fairwatt.core.errors import NotFoundError
from fairwatt.core.events import Flag
from tests.unit.reports.tiny import CLUSTER, KWH, add_factor, add_run, named

DECISION = '{"v":1,"asked":"gpu:20gb:1","given":"gpu:m_3g.20gb:1","notes":[["FW101","because"]]}'


def report(store, user="ann", job_id=7, cluster=CLUSTER, **how):
    return job_report(
        store.conn,
        scope_of(store.conn, user, **how),
        cluster,
        job_id,
        carbon=CarbonAsk(zone="AAA"),
    )


def add_energy(store, run_id, uuid="GPU-1", idle=KWH, active=KWH, util=500, seconds=100, flags=0):
    store.execute(
        "INSERT INTO run_energy VALUES (?, ?, 'n1', 'm', ?, ?, ?, ?, ?, 'counter')",
        (run_id, uuid, idle, active, util, seconds, flags),
    )


def test_facts_and_what_was_used(store):
    run_id = add_run(
        store, eligible_ts=1_000_100, start_ts=1_000_400, end_ts=1_004_000, elapsed_s=3600,
        timelimit_s=7200, ncpus=4, cpu_time_s=7200, mem_mib=2048, exit_code=0, exit_signal=9,
        req_tres="cpu=2,mem=1G,gres/gpu=2", alloc_tres="cpu=4,mem=2G,gres/gpu=2,gres/gpu:m=2",
    )  # fmt: skip
    add_energy(store, run_id, "GPU-1", util=900, seconds=300)
    add_energy(store, run_id, "GPU-2", util=100, seconds=100)
    tables = report(store)
    facts = named(tables, "runs").records()[0]
    assert (facts["wait_s"], facts["elapsed_s"], facts["exit"]) == (300, 3600, "0, signal 9")
    rows = {row["resource"]: row for row in named(tables, "resources").records()}
    assert (rows["GPUs"]["asked"], rows["GPUs"]["given"]) == ("2 × GPU", "2 × m")
    assert rows["GPUs"]["used_share"] == pytest.approx(0.7)  # (0.9·300 + 0.1·100) / 400
    assert (rows["CPU cores"]["asked"], rows["CPU cores"]["used_share"]) == ("2", 0.5)
    assert (rows["Memory"]["asked"], rows["Memory"]["used"]) == ("1.0 GiB", "unknown")
    assert rows["Time"]["used_share"] == 0.5


@pytest.mark.parametrize(
    ("seconds", "suspended", "is_whole"),
    [(3600, 0, True), (3370, 0, True), (3300, 0, False), (1700, 1800, True), (1600, 1800, False)],
)
def test_energy_of_a_part_of_the_time_says_so(store, seconds, suspended, is_whole):
    """An hour, 5 % and a minute of grace; while suspended nothing need be measured."""
    run_id = add_run(
        store, start_ts=1_000_000, end_ts=1_003_600, elapsed_s=3600, suspended_s=suspended,
        alloc_tres="gres/gpu=1",
    )  # fmt: skip
    add_energy(store, run_id, seconds=seconds)
    lines = {row["topic"]: row for row in named(report(store), "headlines").records()}
    whole = "All runs of this job together."
    part = "A part only: not all of the job's GPUs, runs or time were measured."
    assert lines["GPU energy"]["sentence"] == (whole if is_whole else part)


def job_carbon_words(**facts):
    known = dict.fromkeys(("wait_s", "elapsed_s", "busy", "gpus", "start_ts", "end_ts"))
    plain = {"energy_mj": KWH, "co2_mg": 5, "is_part": False, "holds_none": False}
    return job_headlines({**known, **plain, "start_ts": 1, "has_host": False, **facts})[4][2]


def test_emissions_say_whose_electricity_is_in_them():
    rest = " and the machine room's overhead, by what the grid emitted (location-based)."
    assert job_carbon_words() == f"Electricity of its GPUs{rest}"
    assert job_carbon_words(has_host=True) == (
        f"Electricity of its GPUs and its part of the nodes{rest}"
    )
    assert job_carbon_words(is_part=True).endswith(" A part only, as of the energy.")
    assert job_carbon_words(energy_mj=None, has_host=True) == (
        f"Electricity of its part of the nodes{rest} Its GPUs were not measured and are not in it."
    )
    assert job_carbon_words(energy_mj=None, has_host=True, holds_none=True) == (
        f"Electricity of its part of the nodes{rest}"
    )


def test_rewrite_names_both_sides_and_the_reason(store):
    add_run(store, decision=DECISION)
    row = named(report(store), "rewrite").records()[0]
    assert (row["asked"], row["given"]) == ("gpu:20gb:1", "gpu:m_3g.20gb:1")
    assert (row["rule"], row["mode"], row["code"], row["reason"]) == (
        None, "enforce", "FW101", "because",
    )  # fmt: skip


def test_untouched_job_has_no_rewrite(store):
    add_run(store)
    assert named(report(store), "rewrite").rows == []


@pytest.mark.parametrize("text", ["{", "[]", '{"notes":[1]}', "\x00", '{"v":"x"}', "\ud800"])
def test_a_broken_decision_says_so(text):
    assert "cannot be read" in read_decision(text).notes[0][1]


def test_carbon_follows_the_hours_not_the_start(store):
    """0.5 kWh in each of 4 hours at 100, 200, 300, 400 g/kWh and PUE 1.2 is 600 g."""
    run_id = add_run(store)
    for hour in range(4):
        add_factor(store, hour * 3600, (hour + 1) * 3600, 100 * (hour + 1))
        store.execute(
            "INSERT INTO run_hour (run_id, hour_ts, idle_mj, active_mj) VALUES (?, ?, ?, ?)",
            (run_id, hour * 3600, KWH // 4, KWH // 4),
        )
    row = named(report(store), "carbon").records()[0]
    assert (row["energy_mj"], row["co2_mg"], row["pue"]) == (2 * KWH, 600_000, "1.2")
    assert row["g_per_kwh"] == "250"
    assert "AAA" in row["factor"]
    assert "version 4" in row["factor"]


def test_without_factors_carbon_is_unknown(store):
    run_id = add_run(store)
    store.execute(
        "INSERT INTO run_hour (run_id, hour_ts, idle_mj, active_mj) VALUES (?, 0, 5, 5)", (run_id,)
    )
    row = named(report(store), "carbon").records()[0]
    assert (row["energy_mj"], row["co2_mg"]) == (10, None)


def test_a_pending_job(store):
    add_run(store, state="PENDING")
    tables = report(store)
    values = [row["value"] for row in named(tables, "headlines").records()]
    assert values == ["–", "–", "unknown", "unknown", "unknown"]
    assert named(tables, "runs").records()[0]["start_ts"] is None


def test_requeued_runs_come_newest_first_with_their_own_energy(store):
    first = add_run(store, state="NODE_FAIL")
    second = add_run(store, restart_cnt=1)
    add_energy(store, first, active=3 * KWH)
    add_energy(store, second)
    tables = report(store)
    assert [row["state"] for row in named(tables, "runs").records()] == ["COMPLETED", "NODE_FAIL"]
    energies = [(r["restart_cnt"], r["energy_mj"]) for r in named(tables, "energy").records()]
    assert energies == [(1, 2 * KWH), (0, 4 * KWH)]
    assert named(tables, "headlines").records()[3]["value"] == "6.00 kWh"


@pytest.mark.parametrize(
    ("user", "job_id", "cluster"),
    [("bob", 7, CLUSTER), ("ann", 8, CLUSTER), ("ann", 7, "other"), ("", 7, CLUSTER)],
)
def test_missing_and_foreign_jobs_look_the_same(store, user, job_id, cluster):
    add_run(store)
    with pytest.raises(NotFoundError, match="no such job in your view"):
        report(store, user, job_id, cluster)


def test_head_and_admin_see_it(store):
    add_run(store, account="a1")
    assert report(store, "head")
    assert report(store, "anyone", admin=True)


def test_gpu_words():
    assert gpu_words("cpu=1,gres/gpu=3,gres/gpu:m=2") == "2 × m, 1 × GPU"
    assert gpu_words("cpu=1") is None
    assert gpu_words(None) is None
    assert gpu_words("gres/gpu=???") == "gres/gpu=???"


def test_flags_in_words():
    assert flag_words(0) == ""
    assert flag_words(Flag.GAP | Flag.LOST).count(";") >= 2
    assert flag_words(1 << 20) == "an unknown flag"
    assert all(flag_words(flag) not in ("", "an unknown flag") for flag in Flag)
    assert method_words("counter") == "GPU energy counter"
    assert method_words("counter+integrated") == "GPU energy counter and power samples added up"
    assert method_words("new_thing") == "new thing"


def test_an_id_that_slurm_used_again_is_another_job(store):
    """E10: only the newest job's runs, energy and utilisation; the older one is told of."""
    old = add_run(store, submit_ts=1_000, user="bob")
    again = add_run(store, submit_ts=2_000, restart_cnt=1, user="bob")
    new = add_run(store, submit_ts=900_000, state="NODE_FAIL")
    newest = add_run(store, submit_ts=900_500, restart_cnt=1)
    for run_id, active in ((old, 50 * KWH), (again, 50 * KWH), (new, KWH), (newest, 2 * KWH)):
        add_energy(store, run_id, active=active)
    tables = report(store, "root", admin=True)
    assert [row["submit_ts"] for row in named(tables, "runs").records()] == [900_500, 900_000]
    assert [row["energy_mj"] for row in named(tables, "energy").records()] == [3 * KWH, 2 * KWH]
    assert named(tables, "headlines").records()[3]["value"] == "5.00 kWh"
    assert named(tables, "runs").notes == [
        "The id was used before: 2 older runs are another job's and not shown here."
    ]
    (own,) = named(report(store, "bob"), "runs").records()[1:]
    assert own["submit_ts"] == 1_000


def test_a_part_of_the_energy_is_not_told_as_the_whole(store):
    add_energy(store, add_run(store, alloc_tres="gres/gpu=1"))
    assert _energy_words(store) == "All runs of this job together."
    add_run(store, submit_ts=1_000_100, restart_cnt=1, alloc_tres="gres/gpu=1")
    assert _energy_words(store).startswith("A part only")


def _energy_words(store):
    return named(report(store), "headlines").records()[3]["sentence"]


def test_a_run_whose_eligible_time_is_unknown_has_started(store):
    add_run(store, start_ts=1_000_060, end_ts=1_000_160, elapsed_s=100, alloc_tres="cpu=1")
    run_time, wait = named(report(store), "headlines").records()[:2]
    assert (run_time["value"], run_time["sentence"]) == ("2 min", "On no GPU.")
    assert (wait["value"], wait["sentence"]) == (
        "unknown", "When it became eligible is not known."
    )  # fmt: skip


@pytest.mark.parametrize(
    ("run", "sentence", "exit_words"),
    [
        ({"start_ts": None, "end_ts": None}, "It has not started.", "not ended yet"),
        (
            {"end_ts": None, "alloc_tres": "cpu=1,gres/gpu=1"},
            "It still runs: its nodes tell every few minutes.",
            "not ended yet",
        ),
        ({"alloc_tres": "cpu=1"}, "It held no GPU, and its nodes do not measure their CPUs.", "0"),
        ({"alloc_tres": "cpu=1,gres/gpu=1"}, "No node measured this job.", "0"),
    ],
)
def test_why_there_is_no_energy_and_no_exit_code(store, run, sentence, exit_words):
    add_run(store, **{"start_ts": 1_000_060, "end_ts": 1_000_160, "exit_code": 0, **run})
    tables = report(store)
    energy = named(tables, "headlines").records()[3]
    value = "–" if run.get("alloc_tres") == "cpu=1" else "unknown"
    assert (energy["value"], energy["sentence"]) == (value, sentence)
    assert named(tables, "runs").records()[0]["exit"] == exit_words
