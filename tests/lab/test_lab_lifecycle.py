# SPDX-License-Identifier: Apache-2.0
"""Clusters start and stop fast, side by side, and leave nothing behind however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.lab.cluster import OneHostCluster
from tests.lab.commands import ENDED
from tests.lab.paths import REPOSITORY, temporary_root
from tests.lab.waiting import LabError, await_value

pytestmark = pytest.mark.lab

MOST_UP_S, MOST_DOWN_S = 10.0, 3.0
# The job puts a process in the background that no signal to its group reaches.
RUNAWAY = "setsid sleep 600 & sleep 600"


def processes_of(root: Path) -> list[str]:
    """Command lines of the processes that have `root` in their command line or variables."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            line = (folder / "cmdline").read_bytes()
            known_by = line + (folder / "environ").read_bytes()
        except OSError:
            continue
        if str(root).encode() in known_by:
            found.append(line.replace(b"\0", b" ").decode(errors="replace"))
    return found


def files_in_run() -> set[str]:
    """What lies in /run that a daemon of Slurm's world could have made there."""
    ours = ("slurm", "munge", "mysql", "maria", "fairwatt")
    return {str(path) for path in Path("/run").rglob("*") if any(n in path.name for n in ours)}


def start_runaway(cluster: OneHostCluster) -> None:
    job = cluster.sbatch(["--gres=gpu:a100:1"], RUNAWAY).job_id
    assert job is not None
    cluster.wait_job(job, {"RUNNING"})
    await_value(lambda: len(_sleepers(cluster)) >= 2, what="runaway", timeout_s=20)


def _sleepers(cluster: OneHostCluster) -> list[str]:
    return [line for line in processes_of(cluster.paths.root) if line.startswith("sleep 600")]


def timed(act: Callable[[], None]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def test_up_and_down_in_time_and_without_leftovers(capsys: pytest.CaptureFixture[str]) -> None:
    run_before = files_in_run()
    with temporary_root() as folder:
        cluster = OneHostCluster(folder / "c", with_fairwatt=False)
        up_s = timed(cluster.start)
        start_runaway(cluster)
        assert processes_of(folder)
        down_s = timed(cluster.stop)
        assert processes_of(folder) == []
        assert list(folder.iterdir()) == []
    with capsys.disabled():
        print(f"\none-host cluster: up in {up_s:.1f} s, down in {down_s:.1f} s")
    assert up_s <= MOST_UP_S
    assert down_s <= MOST_DOWN_S
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()
    assert files_in_run() <= run_before


def test_two_clusters_that_start_at_once_do_not_meet() -> None:
    with temporary_root() as folder:
        pair = [OneHostCluster(folder / name, with_fairwatt=False) for name in ("a", "b")]
        try:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(OneHostCluster.start, pair))
            jobs = [cluster.sbatch(["--gres=gpu:1"], "true").job_id for cluster in pair]
            assert jobs == [1, 1]
            for cluster in pair:
                assert cluster.wait_job(1, ENDED) == ["COMPLETED"]
                assert [row["State"] for row in cluster.wait_recorded(1)] == ["COMPLETED"]
        finally:
            for cluster in pair:
                cluster.stop()
        assert processes_of(folder) == []


CHILD = """
import sys
from pathlib import Path
from tests.lab.cluster import OneHostCluster
from tests.lab.test_lab_lifecycle import start_runaway
cluster = OneHostCluster(Path(sys.argv[1]), with_fairwatt=False)
cluster.start()
start_runaway(cluster)
print("up", flush=True)
sys.stdin.read()
"""


def test_nothing_survives_a_kill_9_of_the_parent() -> None:
    with temporary_root() as folder:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder / "c")],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        assert len(processes_of(folder)) > 8
        child.send_signal(signal.SIGKILL)
        child.communicate()
        await_value(lambda: processes_of(folder) == [], what="all ended", timeout_s=MOST_DOWN_S)


def test_a_failed_start_shows_the_log_and_leaves_nothing() -> None:
    with temporary_root() as folder:
        wrong = {"SelectType": "select/nonsense"}
        with pytest.raises(LabError, match=r"slurmctld ended(.|\n)*select/nonsense"):
            OneHostCluster(folder / "c", with_fairwatt=False, slurm=wrong).start()
        assert processes_of(folder) == []
        assert list(folder.iterdir()) == []
