# SPDX-License-Identifier: Apache-2.0
"""A policy file in use: modes that only tell or record, a rule of the site, faulty reloads."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.lab.cluster import OneHostCluster
from tests.lab.paths import REPOSITORY
from tests.lab.waiting import LabError, await_value

pytestmark = pytest.mark.lab

CAMPUS_RULES = '''\
from fairwatt.slurm_plugins.message import Message
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.rule import Options, RuleSpec

C001 = Message("C001", "Too many", "{count} GPUs: this week at most {most}", "Ask for less.")


class CampusOptions(Options, frozen=True):
    """`most`: GPUs per entry."""

    most: int = 3


def campus(request, site, options):
    count = max((ask.count for ask in request.gpus), default=0)
    if options.most < 1:
        raise ValueError("nobody could have a GPU")
    if count <= options.most:
        return Outcome(request)
    return Outcome(request, rejection=C001.note(count=count, most=options.most))


RULE = RuleSpec("campus", "At most so many GPUs.", campus, CampusOptions, "enforce")
'''
AUDITED = """
[rules.untyped_slices]
mode = "audit"
"""
WARNED = """
[rules.untyped_slices]
mode = "warn"

[rules.mig_per_process]
mode = "warn"
action = "refuse"
"""


def install_rule(folder: Path) -> None:
    """A distribution with one entry point, as pip would leave it."""
    (folder / "campus_rules.py").write_text(CAMPUS_RULES)
    about = folder / "campus_rules-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: campus-rules\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[fairwatt.rules]\ncampus = campus_rules:RULE\n")


@pytest.fixture(scope="module")
def lab(lab_root: Path) -> Iterator[OneHostCluster]:
    """Slurm with our hook, collector and policyd, which finds the site's rule on its path."""
    nothing, policy = REPOSITORY / "tests" / "lab" / "recorder", lab_root / "site.toml"
    policy.write_text(AUDITED)
    rules = lab_root / "site-rules"
    rules.mkdir()
    install_rule(rules)
    with OneHostCluster(
        lab_root / "o", node_hooks=nothing, settings={"policyd.policy_file": str(policy)}
    ) as running:
        running.env["PYTHONPATH"] = str(rules)
        running.start_collector()
        running.start_policyd()
        yield running


def reload(lab: OneHostCluster, text: str, said: str) -> None:
    """Write the policy, let policyd read it, and wait for one more such line in its log."""
    before = lab.log_text("policyd").count(said)
    (lab.paths.root.parent / "site.toml").write_text(text)
    os.kill(lab.daemon("policyd").process.pid, signal.SIGHUP)
    await_value(
        lambda: lab.log_text("policyd").count(said) > before,
        what=said,
        timeout_s=20,
        detail=lambda: lab.log_text("policyd"),
    )


def decision(lab: OneHostCluster, asked: str) -> dict:
    """The row of the only decision on such a request."""

    def look() -> list[dict]:
        with closing(sqlite3.connect(f"file:{lab.database}?mode=ro", uri=True)) as db:
            db.row_factory = sqlite3.Row
            rows = db.execute("SELECT * FROM decision WHERE asked = ?", (asked,))
            return [dict(row) for row in rows]

    (row,) = await_value(look, what="its row", timeout_s=30)
    return row


def shown(lab: OneHostCluster, job_id: int) -> str:
    return lab.run(["scontrol", "--oneliner", "show", "job", str(job_id)]).stdout


def held(lab: OneHostCluster, *args: str):
    return lab.sbatch(["--hold", *args], "true")


def test_audit_decides_and_records_but_neither_tells_nor_changes(lab):
    done = held(lab, "-p", "all", "--gpus=1")
    assert (done.returncode, done.stderr) == (0, "")
    job = shown(lab, done.job_id)
    assert "ExcNodeList=(null)" in job
    assert '"notes":[["FW202","audit: gpu:1: nodes with MIG slices are left out (mig01)"]]' in job
    row = decision(lab, "gpu:1")
    assert (row["accepted"], row["given"]) == (1, "gpu:1")
    assert [note[:3] for note in json.loads(row["notes"])] == [
        ["untyped_slices", "audit", "FW202"]
    ]


def test_warn_tells_what_would_be_and_changes_nothing(lab):
    reload(lab, WARNED, "configuration read again")
    done = held(lab, "-p", "all", "--gpus=2")
    text = "gpu:2: nodes with MIG slices are left out (mig01)"
    assert done.stderr == f"sbatch: fairwatt FW202 (warn): would be changed: {text}\n"
    assert "ExcNodeList=(null)" in shown(lab, done.job_id)
    assert json.loads(decision(lab, "gpu:2")["notes"])[0][:3] == [
        "untyped_slices",
        "warn",
        "FW202",
    ]
    done = held(lab, "-p", "mig", "--gres=gpu:a100_1g.5gb:3")
    assert "fairwatt FW212 (warn): would be refused: gpu:a100_1g.5gb:3" in done.stderr
    assert "gpu:a100_1g.5gb:3" in shown(lab, done.job_id)
    row = decision(lab, "gpu:a100_1g.5gb:3")
    said = [note[:3] for note in json.loads(row["notes"])]
    assert (row["accepted"], said) == (1, [["mig_per_process", "warn", "FW212"]])


def test_a_rule_of_the_sites_own_judges_like_any_other(lab):
    refused = held(lab, "--gpus=a100:4")
    assert refused.stderr.startswith("sbatch: error: fairwatt C001: 4 GPUs: this week at most 3\n")
    assert json.loads(decision(lab, "gpu:a100:4")["notes"])[0][:3] == ["campus", "enforce", "C001"]
    reload(lab, "[rules.campus]\nmost = 4\n", "configuration read again")
    assert held(lab, "--gpus=a100:4").job_id is not None
    listed = lab.fairwatt("policy", "show").stdout
    assert "campus                 enforce  At most so many GPUs." in listed


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[rules.campus]\nmost = 2\n[rules.cmpus]\n", "site.toml:3: rules.cmpus: unknown key"),
        ("[rules.campus]\nmost = 'x'\n", "site.toml:2: rules.campus.most: Expected `int`"),
        ("[rules.campus\n", "site.toml:1: not valid TOML"),
        (
            "[rules.campus]\nmost = 0\n",
            "rule campus fails on an empty request: ValueError: nobody",
        ),
    ],
)
def test_a_faulty_policy_changes_nothing_and_says_where(lab, text, fault):
    reload(lab, "[rules.campus]\nmost = 1\n", "configuration read again")
    reload(lab, text, "configuration not taken over, the last good one stays")
    line = lab.log_text("policyd").strip().splitlines()[-1]
    assert fault in line
    assert "C001: 2 GPUs: this week at most 1" in held(lab, "--gpus=a100:2").stderr
    assert held(lab, "--gpus=a100:1").job_id is not None


def test_slurmctld_starts_whatever_policy_and_settings_say(lab):
    """policyd then does not; jobs go on as they were typed, and their users are told."""
    settings = lab.paths.etc / "fairwatt_hook.lua"
    policy = lab.paths.root.parent / "site.toml"
    good = settings.read_text()
    lab.stop_policyd()
    try:
        settings.write_text("return {")
        policy.write_text("[rules")
        lab.kill("slurmctld")
        daemon = lab.spawn("slurmctld", ["slurmctld", "-D"])
        daemon.ready(lambda: lab.run(["scontrol", "ping"]).stdout.count("is UP") > 0, 30)
        done = held(lab, "--gpus=a100:1")
    finally:
        settings.write_text(good)
    assert done.job_id is not None, done.stderr
    assert "the site's GPU policy could not be applied" in done.stderr
    assert "fairwatt_hook.lua is not used, defaults hold" in lab.log_text("slurmctld")
    with pytest.raises(LabError, match=r"site\.toml:1: not valid TOML"):
        lab.start_policyd()
