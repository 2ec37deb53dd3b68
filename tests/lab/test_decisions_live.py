# SPDX-License-Identifier: Apache-2.0
"""Each decision of a real policyd arrives in the store once, whatever is killed in between."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fairwatt.core.events import decode_event
from fairwatt.core.sealed_line import unseal
from fairwatt.core.segments import read_lines
from tests.lab.cluster import OneHostCluster
from tests.lab.paths import REPOSITORY
from tests.lab.users import find_user
from tests.lab.waiting import await_value

pytestmark = pytest.mark.lab

LATER = "--begin=now+1hour"


@pytest.fixture(scope="module")
def lab(lab_root: Path) -> Iterator[OneHostCluster]:
    """Slurm with our submit hook, policyd and the collector; no agents."""
    nothing = REPOSITORY / "tests" / "lab" / "recorder"
    with OneHostCluster(
        lab_root / "d", node_hooks=nothing, settings={"collector.sync_s": 2.0}
    ) as running:
        running.start_collector()
        running.start_policyd()
        yield running


def rows(lab: OneHostCluster, condition: str = "1", *values: object) -> list[dict]:
    with closing(sqlite3.connect(f"file:{lab.database}?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        sql = f"SELECT * FROM decision WHERE {condition} ORDER BY t_ms, seq"
        return [dict(row) for row in db.execute(sql, values)]


def wait_rows(lab: OneHostCluster, count: int, condition: str, *values: object) -> list[dict]:
    """At least so many, so that too many are seen too."""
    found = await_value(
        lambda: [found for found in [rows(lab, condition, *values)] if len(found) >= count],
        what=f"{count} decisions",
        timeout_s=30,
        detail=lambda: lab.log_text("policyd"),
    )
    return found[0]


def on_disk(lab: OneHostCluster) -> list[str]:
    """The ids of the decisions that wait for the collector."""
    return [
        decode_event(line).id
        for segment in sorted(lab.paths.decisions.glob("*.journal"))
        for line in read_lines(segment, unseal)
    ]


def tables(lab: OneHostCluster, *command: str) -> dict[str, dict]:
    return json.loads(lab.fairwatt(*command, "--json").stdout)


def test_a_rewritten_job_tells_its_whole_decision(lab):
    done = lab.sbatch(["--gres=gpu:20gb:1"], "true", user="ada")
    (row,) = wait_rows(lab, 1, "asked = 'gpu:20gb:1'")
    assert (row["verb"], row["accepted"], row["edited"]) == ("submit", 1, 1)
    assert (row["user"], row["uid"]) == ("ada", find_user("ada").uid)
    assert (row["cluster"], row["given"]) == ("campus", "gpu:a100_3g.20gb:1")
    assert [note[:3] for note in json.loads(row["notes"])] == [["memory_fit", "enforce", "FW101"]]
    assert 0 < row["took_us"] < 1_000_000
    lab.wait_job(done.job_id)
    lab.wait_recorded(done.job_id)
    lab.fairwatt("sync", "--once")
    shown = tables(lab, "job", str(done.job_id))
    assert [r["rule"] for r in shown["rewrite"]["rows"]] == ["memory_fit"]
    (decision,) = shown["decision"]["rows"]
    assert (decision["outcome"], decision["took_us"]) == ("rewritten", row["took_us"])
    assert "gpu:20gb:1" in decision["written"]
    (listed,) = [
        each
        for each in tables(lab, "decisions")["decisions"]["rows"]
        if each["asked"] == "gpu:20gb:1"
    ]
    assert (listed["job_id"], listed["account"]) == (done.job_id, "qcd")


def test_a_refused_submission_has_no_job_but_is_told(lab):
    assert lab.sbatch(["--gres=gpu:h10:1"], "true", user="ben").job_id is None
    wait_rows(lab, 1, "NOT accepted AND user = 'ben'")
    (told,) = tables(lab, "decisions", "--refused", "--user", "ben")["decisions"]["rows"]
    assert (told["outcome"], told["codes"], told["job_id"]) == ("refused", "FW302", "")
    assert told["account"] == "qcd"  # his only membership
    assert "nearest: h100" in told["reason"]


def test_a_change_is_a_decision_about_its_job(lab):
    job = lab.sbatch(["--gres=gpu:a100:1", LATER], "true", user="ada").job_id
    update = ["scontrol", "update", f"JobId={job}"]
    assert lab.run([*update, "Gres=gpu:h10:1"], user="ada").returncode != 0
    assert lab.run([*update, "Gres=gpu:A100:2"], user="ada").returncode == 0
    refused, mended = wait_rows(lab, 2, "verb = 'modify' AND job_id = ?", job)
    assert (refused["user"], refused["accepted"]) == ("ada", 0)
    assert (mended["accepted"], mended["asked"], mended["given"]) == (
        1,
        "gpu:A100:2",
        "gpu:a100:2",
    )
    lab.run(["scancel", str(job)])
    lab.wait_recorded(job)
    lab.fairwatt("sync", "--once")
    changes = tables(lab, "job", str(job))["changes"]["rows"]
    assert [row["outcome"] for row in changes] == ["refused", "rewritten"]


def test_a_job_that_asks_for_no_gpu_is_as_asked(lab):
    job = lab.sbatch(["-c1"], "true", user="ada").job_id
    lab.wait_job(job)
    lab.wait_recorded(job)
    lab.fairwatt("sync", "--once")
    shown = tables(lab, "job", str(job))
    assert (shown["rewrite"]["rows"], shown["decision"]["rows"]) == ([], [])


def test_kills_lose_nothing_that_is_on_disk_and_double_nothing(lab):
    before = len(rows(lab))

    def submit(count: int) -> None:
        for _ in range(count):
            lab.run(["scancel", str(lab.sbatch(["--gres=gpu:A100:1", LATER], "true").job_id)])

    submit(2)
    wait_rows(lab, before + 2, "1")
    lab.kill_collector()
    submit(3)
    await_value(lambda: len(on_disk(lab)) >= 3, what="three on disk", timeout_s=20)
    lab.kill_policyd()
    kept = on_disk(lab)
    lab.start_policyd()
    submit(2)
    lab.start_collector()
    wait_rows(lab, before + 7, "1")
    await_value(lambda: not on_disk(lab), what="an empty journal", timeout_s=90)
    found = [row["id"] for row in rows(lab)]
    assert len(found) == len(set(found)) == before + 7
    assert set(kept) <= set(found)
