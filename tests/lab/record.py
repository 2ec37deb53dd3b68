# SPDX-License-Identifier: Apache-2.0
"""Records what a release of Slurm answers, for the unit tests of the parsers.

`python -m tests.lab.record 24.11` writes tests/data/24.11: do it when the parsers ask for more.
"""

from __future__ import annotations

import re
import socket
import sys
import time
from pathlib import Path

from fairwatt.accounting.sacct import TERMINAL_STATES, choose_fields
from tests.lab.cluster import OneHostCluster
from tests.lab.paths import REPOSITORY, temporary_root

DATA = REPOSITORY / "tests" / "data"
NAME = "pipe|new\nline `q` 's' \"d\" 100%s <script>alert(1)</script> \n tail\n"
COMMENT = (
    'fairwatt:{"v":1,"id":"1-1","asked":"gpu:20gb:1","given":"gpu:a100_3g.20gb:1",'
    '"notes":[["FW101","a b=c, d: \\"x\\""]],"next":[["a100","gpu"],["h100",null]]}'
)
ANSWERS = {
    "nodes.json": "scontrol show nodes --json",
    "partitions.txt": "scontrol --oneliner --all show partitions",
    "config.txt": "scontrol show config",
    "ping.txt": "scontrol ping",
    "squeue.json": "squeue --all --json",
    "sacct-helpformat.txt": "sacct --helpformat",
}


def run_jobs(cluster: OneHostCluster) -> None:
    """Let jobs end in every way that the import has to tell apart."""
    plain = {
        "typed": (["--gres=gpu:a100:1"], "true"),
        NAME: (["--gpus=2"], "true"),
        "decided": (["--gres=gpu:20gb:1"], "true"),
        "per task": (["-n2", "-N1", "--gpus-per-task=A100:1"], "true"),
        "fails": ([], "exit 3"),
        "kill": ([], "kill -9 $$"),
        "array": (["--array=0-1"], "true"),
    }
    jobs = {name: _submit(cluster, name, *args) for name, args in plain.items()}
    _cancel(cluster, _submit(cluster, "cancelme", ["--hold"], "true"))
    _suspend(cluster, _submit(cluster, "sus", [], "sleep 2"))
    again = _submit(cluster, "requeued", ["--requeue", "--gres=gpu:h100:1"], "sleep 600")
    cluster.wait_job(again, {"RUNNING"})
    time.sleep(6)  # slurmctld tells slurmdbd of a start every 5 s
    cluster.run(["scontrol", "requeue", again])
    cluster.wait_job(again, {"PENDING"})
    _cancel(cluster, again)
    for name, job in jobs.items():
        cluster.wait_job(job)
        if name != NAME:  # its line breaks are the parser's affair
            cluster.wait_recorded(job)


def _submit(cluster: OneHostCluster, name: str, args: list[str], script: str) -> str:
    done = cluster.sbatch([f"--job-name={name}", *args], script)
    return str(done.job_id)


def _cancel(cluster: OneHostCluster, job: str) -> None:
    cluster.run(["scancel", job])
    cluster.wait_job(job)
    cluster.wait_recorded(job)


def _suspend(cluster: OneHostCluster, job: str) -> None:
    cluster.wait_job(job, {"RUNNING"})
    cluster.run(["scontrol", "suspend", job])
    time.sleep(3)  # how long it is suspended
    cluster.run(["scontrol", "resume", job])
    cluster.wait_job(job)
    cluster.wait_recorded(job)


def fill_queue(cluster: OneHostCluster) -> None:
    """Let jobs wait for all kinds of reasons, each with a comment of ours."""
    slices = ["-p", "mig", "--gres=gpu:a100_3g.20gb:1"]
    taken = _submit(cluster, "taken", ["-p", "mig", "--gres=gpu:a100_3g.20gb:2"], "sleep 600")
    cluster.wait_job(taken, {"RUNNING"})
    kinds = {
        NAME: slices,
        "per job": ["-p", "mig", "--gpus=a100_3g.20gb:1"],
        "per task": ["-p", "mig", "-n1", "--gpus-per-task=a100_3g.20gb:1"],
        "array": [*slices, "--array=0-3%2"],
        "started array": ["--gres=gpu:h100:1", "--array=0-2%1"],
        "long array": [*slices, f"--array={','.join(str(n * n) for n in range(31))}"],
        "held": [*slices, "--hold"],
        "dependent": [*slices, f"--dependency=afterok:{taken}"],
        "later": [*slices, "--begin=now+1hour"],
        "exclusive": ["-p", "mig", "--exclusive", "--gres=gpu:a100_1g.5gb:1"],
    }
    for name, args in kinds.items():
        job = _submit(cluster, name, args, "sleep 600")
        cluster.run(["scontrol", "update", f"JobId={job}", f"AdminComment={COMMENT}"])
    cluster.run(["sbatch", *slices, ":", *slices, "--wrap=true"], user="ada")
    time.sleep(4)  # slurmctld gives a reason to each


def record(cluster: OneHostCluster, folder: Path) -> None:
    """Write the answers; this machine's name and the cluster's folder are replaced."""
    folder.mkdir(exist_ok=True)
    answers = {name: cluster.run(line.split()).stdout for name, line in ANSWERS.items()}
    fields = choose_fields(answers["sacct-helpformat.txt"])
    argv = ["env", "SLURM_TIME_FORMAT=%s", "TZ=UTC", "sacct", "-a", "-D", "-X", "-n", "-P"]
    argv += ["--noconvert", "--delimiter=\x1f", f"--format={','.join(fields)}"]
    argv += [f"--state={','.join(TERMINAL_STATES)}", "--starttime=now-1days", "--endtime=now"]
    answers["sacct-ended.txt"] = cluster.run(argv).stdout
    host = re.compile(rf"\b{re.escape(socket.gethostname().split('.')[0])}\b")
    root = str(cluster.paths.root)
    for name, text in answers.items():
        neutral = text.replace(root, "/lab").replace(root.replace("/", r"\/"), "/lab")
        (folder / name).write_text(host.sub("host1", neutral))


def main() -> None:
    """Record the release that the command line names."""
    release = sys.argv[1]
    with temporary_root() as root, OneHostCluster(root / "c", release=release) as cluster:
        cluster.start_fairwatt()
        run_jobs(cluster)
        fill_queue(cluster)
        record(cluster, DATA / release)


if __name__ == "__main__":
    main()
