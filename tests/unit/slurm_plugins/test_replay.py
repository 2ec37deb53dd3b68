# SPDX-License-Identifier: Apache-2.0
"""History as sacct tells it, and what another policy would make of it."""

from __future__ import annotations

import json

import pytest

from fairwatt.core.call import Completed
from fairwatt.slurm_plugins import history
from fairwatt.slurm_plugins.history import PastJob, parse_rows
from fairwatt.slurm_plugins.replay import Replay, as_text
from tests.fakes.sites import demo, enforcing

DEMO = demo()
RECORD = {"v": 1, "asked": "gpu:20gb:1", "given": "gpu:a100_3g.20gb:1", "notes": []}


def row(**values) -> str:
    """A line of sacct with the columns that `history` asks for."""
    known = {
        "JobIDRaw": "7",
        "Submit": "1700000000",
        "UID": "1000",
        "Account": "qcd",
        "Partition": "gpu",
        "QOS": "normal",
        "TimelimitRaw": "60",
        "ReqNodes": "1",
        "ReqTRES": "billing=1,cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=8G,node=1",
        "Constraints": "",
        "Reservation": "",
        "AdminComment": "",
        "SubmitLine": "",
    }
    return "\x1f".join({**known, **values}.values())


def fields(**values):
    (job,) = parse_rows(row(**values) + "\n")
    return job.fields


def test_a_row_becomes_the_fields_that_the_hook_would_see():
    assert fields() == {
        "account": "qcd",
        "partition": "gpu",
        "qos": "normal",
        "user_id": 1000,
        "time_limit": 60,
        "min_nodes": 1,
        "tres_per_job": "gres/gpu:a100:2",
        "min_cpus": 4,
        "min_mem_per_node": 8192,
        "has_script": 1,
    }


@pytest.mark.parametrize(
    ("line", "batch"), [("sbatch x", True), ("/usr/bin/srun -n1 x", False), ("salloc", False)]
)
def test_interactive_jobs_are_told_by_their_command(line, batch):
    assert ("has_script" in fields(SubmitLine=line)) == batch


def test_a_rewritten_job_is_judged_by_what_its_user_wrote():
    found = fields(
        AdminComment="fairwatt:" + json.dumps(RECORD),
        Partition="mig",
        ReqTRES="cpu=1,gres/gpu:a100_3g.20gb=1,gres/gpu=1",
    )
    assert found["tres_per_job"] == "gres/gpu:20gb:1"
    assert "partition" not in found


def test_flags_of_the_command_line_are_what_was_written():
    found = fields(SubmitLine="sbatch -p all --gpus-per-node=A100:1 -n 3 'my job.sh'")
    assert found["tres_per_node"] == "gres/gpu:A100:1"
    assert "tres_per_job" not in found
    assert (found["partition"], found["num_tasks"]) == ("all", 3)


@pytest.mark.parametrize(
    "values",
    [
        {"SubmitLine": "sbatch --wrap 'open"},
        {"SubmitLine": "sbatch -n zero"},
        {"ReqTRES": "nonsense", "TimelimitRaw": "UNLIMITED", "Submit": "Unknown"},
        {"AdminComment": "fairwatt:{broken"},
        {"AdminComment": "fairwatt:[1]"},
    ],
)
def test_hostile_or_odd_rows_are_read_as_far_as_they_go(values):
    assert fields(**values)["account"] == "qcd"


def test_a_line_that_is_no_row_is_passed_over():
    assert list(parse_rows("half a row\n\n")) == []


def past(job_id, **job_fields):
    return PastJob(job_id, 1700000000, job_fields, None)


@pytest.fixture
def replayed():
    """Four jobs: known_types off in the policy in use, memory_fit off in the new one."""
    found = Replay(enforcing(DEMO, known_types="off"), enforcing(DEMO, memory_fit="off"))
    found.add(
        [
            past("1", tres_per_node="gres/gpu:a100:1"),
            past("2", tres_per_node="gres/gpu:a1000:1"),
            past("3", tres_per_node="gres/gpu:20gb:1"),
            past("4", num_tasks=1),
        ]
    )
    return found


def test_what_would_change_is_counted_by_message(replayed):
    found = replayed.as_dict()
    assert {name: found[name] for name in ("jobs", "same", "refused", "admitted", "changed")} == {
        "jobs": 4,
        "same": 2,
        "refused": 2,
        "admitted": 0,
        "changed": 0,
    }
    assert found["codes"] == [{"change": "refused", "code": "FW302", "jobs": 2}]


def test_the_text_shows_each_kind_with_its_jobs(replayed):
    text = as_text(replayed)
    assert text.startswith("4 jobs judged by the policy in use and by the new one\n")
    assert "       2 would newly be refused (50.0%)" in text
    assert "  job 3: --gres=gpu:20gb:1\n    now   -p mig --gres=gpu:a100_3g.20gb:1\n" in text


def test_a_rule_switched_off_admits_again():
    found = Replay(enforcing(DEMO), enforcing(DEMO, known_types="off"))
    found.add([past("2", tres_per_node="gres/gpu:a1000:1")])
    assert found.counts["admitted"] == 1
    assert found.examples[0].code == "FW302"


def test_no_more_than_a_few_examples_are_kept():
    found = Replay(enforcing(DEMO, known_types="off"), enforcing(DEMO))
    found.add(past(str(n), tres_per_node="gres/gpu:a1000:1") for n in range(100))
    assert (found.counts["refused"], len(found.examples)) == (100, 5)


def test_a_day_is_asked_for_in_the_form_that_sacct_reads(monkeypatch):
    """Plain epoch seconds are no time to it: `Invalid time specification` (22.05 to 26.05)."""
    asked = []

    def answer(argv, **_):
        asked.append(list(argv))
        return Completed(0, "", "")

    monkeypatch.setattr(history, "call", answer)
    assert history.read_day(1793491200, None) == []
    start, end = (asked[0][asked[0].index(flag) + 1] for flag in ("-S", "-E"))
    assert (start, end) == ("uts1793491200", "uts1793577600")
