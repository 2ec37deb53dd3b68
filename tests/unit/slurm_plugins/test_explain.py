# SPDX-License-Identifier: Apache-2.0
"""`fairwatt explain`: flags, facts, text and JSON; and the page of messages."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fairwatt.core.errors import ConfigError, GrammarError
from fairwatt.slurm_plugins import explain as explaining
from fairwatt.slurm_plugins import messages
from fairwatt.slurm_plugins.commands import explain
from fairwatt.slurm_plugins.engine import Decision, Step
from fairwatt.slurm_plugins.explain import DEMO_SITE, submission
from fairwatt.slurm_plugins.history import PastJob
from fairwatt.slurm_plugins.jobdesc import parse
from fairwatt.slurm_plugins.message import Note
from fairwatt.slurm_plugins.sbatch_flags import as_flags, job_fields, passed_over

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        ("--gres=gpu:20gb:1 -n1", {"tres_per_node": "gres/gpu:20gb:1", "num_tasks": 1}),
        ("--gres gpu:1,shard:2", {"tres_per_node": "gres/gpu:1,gres/shard:2"}),
        ("--gpus=a100:2", {"tres_per_job": "gres/gpu:a100:2"}),
        ("-G 2", {"tres_per_job": "gres/gpu:2"}),
        ("-G2 -N1-3", {"tres_per_job": "gres/gpu:2", "min_nodes": 1, "max_nodes": 3}),
        ("--gpus-per-node=2", {"tres_per_node": "gres/gpu:2"}),
        ("--gpus-per-task=h100:1 -c8", {"tres_per_task": "gres/gpu:h100:1", "cpus_per_task": 8}),
        ("--gpus-per-socket=1", {"tres_per_socket": "gres/gpu:1"}),
        ("-p gpu -A qcd -q long", {"partition": "gpu", "account": "qcd", "qos": "long"}),
        (
            "-C a100|h100 -w n1 -x n2",
            {"features": "a100|h100", "req_nodes": "n1", "exc_nodes": "n2"},
        ),
        ("--ntasks-per-node=4 --mem=4G", {"ntasks_per_node": 4, "min_mem_per_node": 4096}),
        ("--mem-per-cpu=1500 -n2", {"min_mem_per_cpu": 1500, "num_tasks": 2}),
        (
            "--mem-per-gpu=16G --cpus-per-gpu=8 -G1",
            {
                "mem_per_tres": "gres/gpu:16384",
                "cpus_per_tres": "gres/gpu:8",
                "tres_per_job": "gres/gpu:1",
            },
        ),
        ("--exclusive -a 1-9", {"shared": 0, "array_inx": "1-9"}),
        ("--exclusive=user -G1", {"tres_per_job": "gres/gpu:1"}),
        ("-t 30", {"time_limit": 30}),
        ("-t 3-0 --time-min=1:00:00", {"time_limit": 4320, "time_min": 60}),
        ("-t 30:30", {"time_limit": 31}),
        ("-t 1:00:00", {"time_limit": 60}),
        ("-t 1-12", {"time_limit": 2160}),
        ("-t 2-0:5", {"time_limit": 2885}),
        ("-t UNLIMITED", {"time_limit": 4294967295}),
    ],
)
def test_flags_and_back(flags, fields):
    assert job_fields(flags.split()) == fields
    assert job_fields(shlex.split(as_flags(fields))) == fields


def test_what_the_hook_writes_is_shown_as_flags_of_any_release():
    written = {
        "tres_per_node": "gres:gpu:1",
        "tres_per_job": "gres/gpu",
        "cpus_per_tres": "gres:gpu:4",
    }
    assert as_flags(written) == "--gpus=1 --gres=gpu:1 --cpus-per-gpu=4"


def test_counts_per_task_are_written_as_the_flag_takes_them():
    assert as_flags({"tres_per_task": "gres/gpu:a100=2"}) == "--gpus-per-task=a100:2"


def test_flags_that_nobody_looks_at():
    assert passed_over(["--gpu=1", "-n1", "--nice", "4", "job.sh"]) == ["--gpu=1", "--nice"]
    assert passed_over(["--gres=gpu:1", "job.sh"]) == []


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ("-N x", GrammarError),
        ("-t x", GrammarError),
        ("-n zero", click.UsageError),
        ("-p", click.UsageError),
    ],
)
def test_flags_that_cannot_be_read(flags, error):
    with pytest.raises(error):
        job_fields(flags.split())


@pytest.fixture
def run(monkeypatch):
    monkeypatch.delenv("FAIRWATT_CONFIG", raising=False)

    def call(*args):
        return CliRunner().invoke(explain, ["--site", str(DEMO_SITE), *args])

    return call


def test_rules_that_speak_have_a_line_and_the_others_are_listed(run):
    result = run("--", "--gres=gpu:20gb:1", "-n1")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    heads = [line.split()[0] for line in lines]
    assert [head for head in heads if head != "off"] == [
        *("asked", "memory_fit", "no", "result", "facts")
    ]
    assert lines[0] == "asked     --gres=gpu:20gb:1 -n 1"
    assert "FW101 gpu:20gb:1 -> gpu:a100_3g.20gb:1" in lines[1]
    assert {"type_spelling", "known_types"} <= set(re.split("[ ,]+", lines[2]))
    assert lines[-2] == "result    accepted, as if written -p mig --gres=gpu:a100_3g.20gb:1"


def test_a_past_job_shows_what_was_decided_and_what_would_be_today(run, monkeypatch):
    record = {"given": "gpu:a100_3g.20gb:1", "notes": [["FW101", "said \x1b then"], "odd"]}
    fields = {"tres_per_job": "gres/gpu:20gb:1", "partition": "mig"}
    past = PastJob("47_3", 1700000000, fields, record)
    monkeypatch.setattr(explaining, "read_job", lambda job_id, conf: {"47_3": past}.get(job_id))
    lines = run("47_3").output.splitlines()
    assert lines[:4] == [
        "asked     -p mig --gpus=20gb:1",
        "at submit given gpu:a100_3g.20gb:1",
        "at submit FW101 said ? then",
        "today",
    ]
    assert lines[-2] == "result    accepted, as if written --gpus=a100_3g.20gb:1"
    assert "no such job" in str(run("48").exception)


def test_a_misspelt_flag_is_not_passed_over_in_silence(run):
    assert "note      not looked at: --gpu=1;" in run("--", "--gpu=1").output


def test_json(run):
    body = json.loads(run("--json", "--", "--gres=gpu:h10:1").output)
    assert body["decision"]["accepted"] is False
    assert body["decision"]["steps"][-1]["rejection"]["code"] == "FW302"


def test_sbatchs_flags_are_those_of_a_batch_job():
    fields, _ = submission(["--gpus=1"])
    assert parse(fields).request.kind == "batch"


def test_no_gpu_and_malformed(run):
    assert "result    accepted, unchanged" in run("--", "-n1").output
    assert "FW304 refused" in run("--", "--gres=gpu:::1").output


@pytest.mark.parametrize("text", ["{", "[]", '{"nodes": 5, "partitions": []}'])
def test_a_broken_site_file_is_named(tmp_path, text):
    path = tmp_path / "site.json"
    path.write_text(text)
    result = CliRunner().invoke(explain, ["--site", str(path), "--", "-n1"])
    assert isinstance(result.exception, ConfigError)
    assert str(path) in str(result.exception)


def test_the_page_of_messages_is_the_table():
    page = (REPOSITORY / "docs" / "messages.md").read_text(encoding="utf-8")
    assert page == messages.as_markdown()


def test_every_code_in_the_source_is_in_the_table_and_used():
    sources = [
        *(REPOSITORY / "slurm_plugins").rglob("*.py"),
        *(REPOSITORY / "slurm_plugins").rglob("*.lua"),
    ]
    text = "".join(p.read_text(encoding="utf-8") for p in sources if p.name != "messages.py")
    assert set(re.findall(r"FW\d{3}", text)) == set(messages.MESSAGES)


def test_codes_are_in_order():
    assert list(messages.MESSAGES) == sorted(messages.MESSAGES)


def test_what_the_engine_itself_refuses_is_shown_after_the_rules():
    told = Note("FW004", "the rewritten exc_nodes would be too long for Slurm; name a GPU type")
    decision = Decision(accepted=False, steps=(Step("need", "enforce"),), told=(told,))
    text = explaining.as_text(explaining.Explanation(job={}, decision=decision, facts="x"))
    assert f"(all rules)                     FW004 {told.text}" in text.splitlines()
    assert "result    refused" in text.splitlines()
