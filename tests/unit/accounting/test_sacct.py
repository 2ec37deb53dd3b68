# SPDX-License-Identifier: Apache-2.0
"""Rows of sacct, each with the outcome worked out by hand; E numbers are real-world cases."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.accounting.quality import RunFlag
from fairwatt.accounting.sacct import choose_fields, parse_sacct
from fairwatt.accounting.sacct_columns import parse_duration_ms
from tests.unit.accounting.samples import FIELDS, line, sacct_run

DATA = Path(__file__).parents[2] / "data"
RECORDED = DATA / "22.05"


def test_a_plain_row():
    row = sacct_run()
    run = row
    assert (run.cluster, run.job_id, run.submit_ts) == ("campus", 7, 1000)
    assert (run.eligible_ts, run.start_ts, run.end_ts, run.elapsed_s) == (1000, 1060, 1160, 100)
    assert (run.ncpus, run.timelimit_s) == (4, 600)
    assert (run.user, run.uid, run.account, run.state) == ("ada", 1000, "qcd", "COMPLETED")
    assert (run.slurm_energy_j, run.cpu_time_s, run.decision) == (None, None, None)
    assert row.flags == 0


@pytest.mark.parametrize("text", ["18446744073709551614", "18446744073709551615"])
def test_no_value_is_unknown_with_its_reason(text):
    """E4"""
    row = sacct_run(ConsumedEnergyRaw=text)
    assert row.slurm_energy_j is None
    assert row.flags == RunFlag.SLURM_ENERGY_UNKNOWN


def test_slurms_energy_is_the_jobs_joules():
    """E5: 101,630 J in 122 s; the 794 W of TRESUsageOutAve are not asked for."""
    assert sacct_run(ConsumedEnergyRaw="101630").slurm_energy_j == 101_630


def test_zero_energy_means_that_nothing_measures():
    """E26"""
    row = sacct_run(ConsumedEnergyRaw="0")
    assert (row.slurm_energy_j, row.flags) == (None, 0)


def test_cancelled_while_pending():
    """E18, in the spelling of 22.05: start and end are the moment of the cancel."""
    row = sacct_run(
        State="CANCELLED by 1000", Start="1160", End="1160", ElapsedRaw="0", NNodes="0",
        NodeList="None assigned", AllocTRES="", Eligible="Unknown",
    )  # fmt: skip
    run = row
    assert (run.state, run.start_ts, run.end_ts) == ("CANCELLED", None, 1160)
    assert (run.elapsed_s, run.eligible_ts, run.nodelist, run.nnodes) == (None, None, None, None)


@pytest.mark.parametrize("text", ["Unknown", "None", ""])
def test_a_start_that_is_not_there(text):
    assert sacct_run(Start=text, End=text, State="PENDING").start_ts is None


@pytest.mark.parametrize(
    "state",
    ["OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED", "TIMEOUT"],
)
def test_states_are_kept(state):
    """E19"""
    assert sacct_run(State=state).state == state


def test_a_record_that_began_before_it_was_submitted():
    """22.05, measured: after a resize at 1500 the next record has the job's first start."""
    run = sacct_run(Submit="1500", Start="1060", End="1700", ElapsedRaw="640")
    assert (run.start_ts, run.end_ts, run.elapsed_s) == (1500, 1700, 200)


def test_an_array_that_waits_is_one_record():
    """E20"""
    runs, rejected = parse_sacct(
        line(JobIDRaw="18114115", JobID="18114115_[0-719%64]", State="PENDING", Start="Unknown",
             End="Unknown", NodeList="None assigned") + "\n",
        FIELDS, "\x1f",
    )  # fmt: skip
    assert (len(runs), rejected) == (1, [])
    run = runs[0]
    assert (run.array_job_id, run.array_task_id, run.start_ts) == (18114115, None, None)


def test_array_task_and_het_component():
    """E21"""
    task = sacct_run(JobIDRaw="12", JobID="5_3")
    assert (task.job_id, task.array_job_id, task.array_task_id) == (12, 5, 3)
    part = sacct_run(JobIDRaw="101", JobID="100+1")
    assert (part.job_id, part.het_job_id, part.het_offset) == (101, 100, 1)
    assert part.array_job_id is None


NASTY = 'a|b\nc "q" \'s\' 100%s <script>alert(1)</script>\n\n\t=HYPERLINK("x")'


def test_a_nasty_name_keeps_its_row():
    """E30"""
    text = line(JobName=NASTY) + "\n" + line(JobIDRaw="8", JobID="8") + "\n"
    runs, rejected = parse_sacct(text, FIELDS, "\x1f")
    assert rejected == []
    assert [row.name for row in runs] == [NASTY, "train"]
    assert runs[0].alloc_tres == "cpu=4,mem=4G,gres/gpu=1,gres/gpu:a100=1"


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=5))
def test_any_names_come_back(names):
    delimiter = "\x1f5eed\x1f"
    text = "".join(
        line(JobIDRaw=str(n + 1), JobID=str(n + 1), JobName=name).replace("\x1f", delimiter, 26)
        + "\n"
        for n, name in enumerate(names)
    )
    runs, rejected = parse_sacct(text, FIELDS, delimiter)
    assert rejected == []
    assert [row.name for row in runs] == names


def test_a_name_cannot_forge_a_row_when_the_delimiter_is_secret():
    forged = line(JobName="x\n" + line(JobIDRaw="1", User="root"))
    text = forged.replace("\x1f", "\x1fk3y\x1f", len(FIELDS) - 1) + "\n"
    runs, rejected = parse_sacct(text, FIELDS, "\x1fk3y\x1f")
    assert [(row.job_id, row.user) for row in runs] == [(7, "ada")]
    assert rejected == []


def test_a_broken_row_is_reported_and_the_rest_goes_on():
    text = "\n".join([line(JobIDRaw="1"), "2\x1f2\x1fcampus", line(JobIDRaw="3")]) + "\n"
    runs, rejected = parse_sacct(text, FIELDS, "\x1f")
    assert [row.job_id for row in runs] == [1, 3]
    assert [(item.line, item.reason) for item in rejected] == [
        ("2\x1f2\x1fcampus", "3 of 27 fields")
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"Submit": "Unknown"}, "no submit time"),
        ({"State": ""}, "no state"),
        ({"JobID": "7.batch"}, "is no job"),
    ],
)
def test_rows_that_are_no_runs(changes, reason):
    runs, rejected = parse_sacct(line(**changes) + "\n", FIELDS, "\x1f")
    assert runs == []
    assert reason in rejected[0].reason


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("41:40:59.47", 150_059_470),
        ("01-16:59:47", 147_587_000),
        ("04:16.354", 256_354),
        ("00:00:00", 0),
        ("", None),
        ("INVALID", None),
    ],
)
def test_durations(text, ms):
    """E31"""
    assert parse_duration_ms(text) == ms


def test_more_cpu_time_than_there_was_is_flagged_not_shown():
    """E31: 41 h of CPU in 26 min on 2 CPUs."""
    row = sacct_run(TotalCPU="41:40:59.47", ElapsedRaw="1560", NCPUS="2")
    assert (row.cpu_time_s, row.flags) == (None, RunFlag.CPU_TIME_IMPLAUSIBLE)


def test_cpu_time_in_seconds():
    assert sacct_run(TotalCPU="04:16.354", ElapsedRaw="200", NCPUS="2").cpu_time_s == 256


def test_the_decision_is_cut_out_of_the_comment():
    comment = 'site note fairwatt:{"v":1,"asked":"gpu:20gb:1"} more'
    assert sacct_run(AdminComment=comment).decision == '{"v":1,"asked":"gpu:20gb:1"}'


@pytest.mark.parametrize("comment", ["fairwatt:{broken", "fairwatt:[1]", "fairwatt:"])
def test_a_broken_decision_is_flagged(comment):
    row = sacct_run(AdminComment=comment)
    assert (row.decision, row.flags) == (None, RunFlag.DECISION_UNREADABLE)


@pytest.mark.parametrize("number", ["4294967294", "253402300800", str(2**62)])
def test_a_time_beyond_the_calendar_is_unknown(number):
    run = sacct_run(Eligible=number, Start=number, End=number)
    assert (run.eligible_ts, run.start_ts, run.end_ts) == (None, None, None)
    assert parse_sacct(line(Submit=number), FIELDS, "\x1f")[1][0].reason.startswith("no submit")


def test_numbers_beyond_sqlite_are_unknown():
    assert sacct_run(NCPUS=str(2**63), TimelimitRaw=str(2**62)).ncpus is None


def test_suspension_and_exit():
    run = sacct_run(Suspended="00:30:00", ExitCode="1:9")
    assert (run.suspended_s, run.exit_code, run.exit_signal) == (1800, 1, 9)


def test_fields_that_a_release_lacks_are_not_asked_for():
    fields = choose_fields((RECORDED / "sacct-helpformat.txt").read_text())
    assert "DBIndex" in fields
    assert "AdminComment" in fields
    assert not {"SLUID", "Restarts"} & set(fields)
    assert fields[-1] == "JobName"
    assert {"SLUID", "Restarts"} <= set(choose_fields("SLUID Restarts"))


def test_recorded_22_05_answer():
    """As Slurm 22.05.8 printed it; the double quote became a backtick in slurmdbd itself."""
    text = (RECORDED / "sacct-ended.txt").read_text()
    runs, rejected = parse_sacct(text, FIELDS, "\x1f")
    assert rejected == []
    by_name = {row.name: row for row in runs}
    assert len(runs) == 16
    name = "pipe|new\nline `q` 's' 100%s <script>alert(1)</script> \n tail\n"
    assert by_name[name].alloc_tres == (
        "billing=21,cpu=1,gres/gpu:a100=2,gres/gpu=2,mem=1000M,node=1"
    )
    assert (by_name["cancelme"].state, by_name["cancelme"].start_ts) == ("CANCELLED", None)
    assert (by_name["fails"].exit_code, by_name["kill"].exit_signal) == (3, 9)
    assert (by_name["sus"].elapsed_s, by_name["sus"].suspended_s) == (6, 3)
    tries = [row for row in runs if row.name == "requeued"]
    assert [run.state for run in tries] == ["REQUEUED", "CANCELLED"]
    assert tries[1].submit_ts == tries[0].end_ts
    assert sorted(row.array_task_id for row in runs if row.array_job_id == 5) == [
        0, 1, 2, 3, 4, 5,
    ]  # fmt: skip


@pytest.mark.parametrize("release", ["24.11", "26.05"])
def test_recorded_answers_of_newer_releases(release):
    """As tests.lab.record took them; the job's name was typed with a double quote."""
    folder = DATA / release
    fields = choose_fields((folder / "sacct-helpformat.txt").read_text())
    assert {"SLUID", "DBIndex", "Restarts", "AdminComment"} <= set(fields)
    runs, rejected = parse_sacct((folder / "sacct-ended.txt").read_text(), fields, "\x1f")
    assert rejected == []
    assert len(runs) == 12
    assert {row.flags for row in runs} == {0}
    assert all(row.restart_cnt is not None for row in runs)
    # One number of 64 bits, drawn per cluster: 24.11's is beyond SQLite's integers.
    assert len({row.record_id for row in runs}) == len(runs)
    assert {(row.record_id or 0) < 0 for row in runs} == {release == "24.11"}
    alone, _ = parse_sacct(
        (folder / "sacct-ended.txt").read_text(),
        ["x" if name == "DBIndex" else name for name in fields],
        "\x1f",
    )
    assert [row.record_id for row in alone] == [row.record_id for row in runs]
    by_name = {row.name: row for row in runs}
    name = "pipe|new\nline `q` 's' `d` 100%s <script>alert(1)</script> \n tail\n"
    assert by_name[name].alloc_tres == (
        "billing=21,cpu=1,gres/gpu:a100=2,gres/gpu=2,mem=1000M,node=1"
    )
    assert '"given":"gpu:a100_3g.20gb:1"' in (by_name["decided"].decision or "")
    assert by_name["per task"].alloc_tres == (
        "billing=22,cpu=2,gres/gpu:a100=2,gres/gpu=2,mem=2000M,node=1"
    )
    cancelled = by_name["cancelme"]
    assert (cancelled.state, cancelled.start_ts, cancelled.nodelist) == ("CANCELLED", None, None)
    assert (by_name["fails"].exit_code, by_name["kill"].exit_signal) == (3, 9)
    assert by_name["sus"].suspended_s == 3
    tries = [row for row in runs if row.name == "requeued"]
    assert [(run.state, run.restart_cnt) for run in tries] == [
        ("REQUEUED", 0),
        ("CANCELLED", 1),
    ]
    assert sorted(row.array_task_id for row in runs if row.name == "array") == [0, 1]
