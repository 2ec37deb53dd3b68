# SPDX-License-Identifier: Apache-2.0
"""Real jobs and real credentials reach the store."""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
from contextlib import closing

import pytest

from fairwatt.accounting.slurmdb import SlurmDb
from fairwatt.accounting.store import open_reader
from fairwatt.core.munge import encode
from tests.lab.waiting import await_value

pytestmark = pytest.mark.lab

NAME = "pipe|new\nline 's' 100%s <script>alert(1)</script> =HYPERLINK(\"x\")"


def query(cluster, sql, *params):
    with closing(open_reader(cluster.database)) as db:
        return db.execute(sql, params).fetchall()


def stored(cluster, job_id, count=1):
    """The runs of a job once all `count` have ended and are in the store.

    slurmdbd calls a job `allocation` until the message with its name has come too.
    """

    def look():
        rows = query(
            cluster,
            "SELECT state, name, user, account, gpu_milli, start_ts, end_ts, restart_cnt"
            " FROM run WHERE job_id = ? AND end_ts IS NOT NULL AND name != 'allocation'"
            " ORDER BY submit_ts",
            job_id,
        )
        return rows if len(rows) >= count else None

    def detail():
        known = cluster.sacct_rows(f"--jobs={job_id}")
        return f"{known}\n{cluster.run(['squeue']).stdout}{cluster.log_text('collector')[-2000:]}"

    return await_value(look, what=f"job {job_id} in the store", timeout_s=40, detail=detail)


def test_jobs_reach_the_store_as_the_right_runs(cluster):
    gpu = cluster.sbatch(["--gres=gpu:a100:2"], "sleep 1", user="cleo").job_id
    named = cluster.sbatch(["-J", NAME], "exit 3").job_id
    waiting = cluster.sbatch(["--hold", "-J", "never"], "true").job_id
    again = cluster.sbatch(["--requeue", "--gres=gpu:h100:1"], "sleep 600").job_id
    cluster.run(["scancel", str(waiting)])
    cluster.wait_job(again, {"RUNNING"})
    cluster.run(["scontrol", "requeue", str(again)])
    cluster.wait_job(again, {"PENDING"})
    cluster.run(["scancel", str(again)])

    ((state, _, user, account, milli, start_ts, end_ts, _),) = stored(cluster, gpu)
    assert (state, user, account, milli) == ("COMPLETED", "cleo", "optics", 2000)
    assert 1 <= end_ts - start_ts <= 30
    ((state, name, *_),) = stored(cluster, named)
    # slurmdbd itself writes a backtick for a double quote.
    assert (state, name) == ("FAILED", NAME.replace('"', "`"))
    ((state, _, _, _, _, start_ts, _, _),) = stored(cluster, waiting)
    assert (state, start_ts) == ("CANCELLED", None)
    tries = stored(cluster, again, count=2)
    assert [(row[0], row[7]) for row in tries] == [("REQUEUED", 0), ("CANCELLED", 1)]


def test_accounts_and_coordinators_come_from_slurm(cluster):
    await_value(lambda: query(cluster, "SELECT 1 FROM account"), what="accounts", timeout_s=30)
    assert query(
        cluster,
        "SELECT parent, raw_shares FROM account WHERE name IN ('qcd', 'optics') ORDER BY 2",
    ) == [("physics", 40), ("physics", 60)]
    assert ("hana", "physics") in query(
        cluster, "SELECT user, account FROM membership WHERE coordinator"
    )


def test_syncing_by_hand_comes_to_rest(cluster):
    stored(cluster, cluster.sbatch([], "true").job_id)

    def quiet():
        done = cluster.fairwatt("sync", "--once", "--json")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["rejected"] == 0
        return result if result["changed"] == 0 else None

    assert await_value(quiet, what="an import without changes", timeout_s=30)["seen"] > 0


def test_fairwatt_job_shows_it(cluster):
    job_id = cluster.sbatch(["--gres=gpu:a100:1", "-J", "shown"], "sleep 1").job_id
    stored(cluster, job_id)
    done = cluster.fairwatt("job", str(job_id), "--json")
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]["rows"]
    assert (run["job_id"], run["state"], run["name"]) == (job_id, "COMPLETED", "shown")
    assert "COMPLETED" in cluster.fairwatt("job", str(job_id)).stdout
    missing = cluster.fairwatt("job", "999999")
    assert missing.returncode == 1
    assert "no such job" in missing.stderr


def deliver(cluster, body, cred):
    request = urllib.request.Request(
        f"{cluster.collector_url}/v1/events", data=body, headers={"Authorization": f"Munge {cred}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def credential(cluster, payload):
    return encode(payload.encode(), str(cluster.paths.munge_socket))


def digest(body):
    return hashlib.sha256(body).hexdigest()


def test_a_good_delivery_and_its_replay(cluster):
    cred = credential(cluster, digest(b""))
    assert deliver(cluster, b"", cred) == (200, {"accepted": 0, "duplicates": 0})
    status, answer = deliver(cluster, b"", cred)
    assert (status, "Replayed credential" in answer["error"]) == (403, True)


def test_a_wrong_hash(cluster):
    status, answer = deliver(cluster, b"body", credential(cluster, digest(b"other")))
    assert status == 403
    assert "belongs to another body" in answer["error"]


def test_a_foreign_munge_user(cluster):
    socket = cluster.paths.munge_socket
    argv = ["munge", f"--socket={socket}", f"--string={digest(b'')}"]
    cred = cluster.run(argv, user="ada").stdout.strip()
    status, answer = deliver(cluster, b"", cred)
    assert status == 403
    assert "may not deliver events" in answer["error"]


def test_a_body_that_is_too_large(cluster):
    body = b"x" * 9_000_000
    status, answer = deliver(cluster, body, credential(cluster, digest(body)))
    assert status == 413
    assert "larger than 8388608 bytes" in answer["error"]


def test_a_job_can_be_asked_for_by_its_number(cluster):
    job_id = cluster.sbatch([], "true").job_id
    cluster.wait_recorded(job_id)
    runs, rejected = SlurmDb(str(cluster.paths.slurm_conf)).by_id([job_id])
    assert rejected == []
    assert [(row.job_id, row.state) for row in runs] == [(job_id, "COMPLETED")]


def test_the_memory_of_a_job_s_steps_reaches_the_store(cluster):
    """300 MiB held until Slurm looked: sacct tells it of the step, the store of the run."""
    hold = "import time; held = b'x' * (300 << 20); time.sleep(12)"
    job_id = cluster.sbatch([], f'python3 -c "{hold}"').job_id
    stored(cluster, job_id)

    def peak():
        rows = query(
            cluster,
            "SELECT m.peak_mib FROM run_memory m JOIN run r USING (run_id) WHERE r.job_id = ?",
            job_id,
        )
        return rows[0][0] if rows else None

    def detail():
        fields = "JobIDRaw,Start,End,TRESUsageInTot"
        told = cluster.run(["sacct", "--duplicates", "-P", f"--jobs={job_id}", f"-o{fields}"])
        return f"{told.stdout}{cluster.log_text('collector')[-2000:]}"

    assert 300 <= await_value(peak, what="its memory", timeout_s=60, detail=detail) < 600
