# SPDX-License-Identifier: Apache-2.0
"""Cases of nodes from the field (J15 to J22), live on three releases: no job lost, no drain."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from fairwatt.core.events import WindowClosed
from tests.lab.hooks import PACKAGE_NODE_HOOKS
from tests.lab.node_jobs import (
    answering,
    awaited,
    ended,
    events,
    flag,
    flags,
    full_disk,
    known,
    output,
    run_of,
    running,
    seen,
    starts,
    submit,
)
from tests.lab.node_site import NodeSite
from tests.lab.paths import temporary_root
from tests.lab.sliced import DYNAMIC, sliced_cluster
from tests.lab.system import HOST_RELEASE
from tests.lab.users import find_user
from tests.lab.waiting import await_value

pytestmark = pytest.mark.lab

AGENTS = ("gpu01", "gpu02", "mig01")
SLICE = "--gres=gpu:a100_1g.5gb"
HOLD = "while [ ! -e {flag} ]; do sleep 0.1; done\n"


@pytest.fixture(scope="module")
def site(release: str) -> Iterator[NodeSite]:
    with temporary_root() as root, NodeSite(root / "n", release) as running:
        flags(running).mkdir()
        flags(running).chmod(0o1777)
        for node in AGENTS:
            running.start_agent(node)
        yield running


def test_hooks_beside_the_site_s_own(site: NodeSite) -> None:
    """The site's parts run before and after ours, whatever order Slurm has for them."""
    job_id = submit(site, "-w", "gpu02", "--gres=gpu:1", script="true")
    ended(site, job_id)
    started, end = run_of(site, "gpu02", job_id)
    assert (len(started.holds), end.closed_by) == (1, "epilog")
    turns = [
        line.split()[1:]
        for line in site.turns.read_text().splitlines()
        if line.split()[0] == str(job_id)
    ]
    assert turns == [
        [key, name] for key in ("prolog", "epilog") for name in ("90-site", "10-site")
    ]


def test_j15_the_map_of_dcgm_exporter(site: NodeSite) -> None:
    """A slice, two whole GPUs where NVML counts backwards, and two jobs on one GPU."""
    wait = HOLD.format(flag=flag(site, "j15"))
    mig = submit(site, "-p", "mig", f"{SLICE}:2", script=wait)
    whole = submit(site, "-w", "gpu02", "--gres=gpu:2", script=wait)
    shards = [submit(site, "-w", "gpu01", "--gres=shard:1", script=wait) for _ in range(2)]
    for job_id in (mig, whole, *shards):
        running(site, job_id)
    # A job is RUNNING before its prolog has ended.
    for node in AGENTS:
        await_value(
            lambda node=node: sum(map(len, site.dcgm(node).values())) == 2,
            what=f"the map of {node}",
            timeout_s=10,
            detail=lambda node=node: str(site.dcgm(node)),
        )
    slices = site.nodes["mig01"].layout.gpus[0].instances
    assert site.dcgm("mig01") == {f"0.{one.gi}": [str(mig)] for one in slices[:2]}
    assert site.dcgm("gpu02") == {"3": [str(whole)], "2": [str(whole)]}
    assert {name: set(jobs) for name, jobs in site.dcgm("gpu01").items()} == {
        "0": {str(job_id) for job_id in shards}
    }
    flag(site, "j15").touch()
    ended(site, mig, whole, *shards)
    for node in AGENTS:
        await_value(lambda node=node: not site.dcgm(node), what=f"map of {node}", timeout_s=10)


def test_j16_steps_with_whole_gpus_keep_what_slurm_set(site: NodeSite) -> None:
    """The same job with and without our TaskProlog: the same variable in every task."""
    show = "sh -c 'echo $SLURM_STEP_ID $SLURM_PROCID $CUDA_VISIBLE_DEVICES'\n"
    script = f"srun -n2 --gpus-per-task=1 {show}srun -n1 --gres=gpu:a100:2 {show}"
    args = ("-w", "gpu02", "-n2", "--gres=gpu:a100:3")
    ours = submit(site, *args, script=script)
    ended(site, ours)
    hook = site.paths.etc / "task-prolog"
    text = hook.read_text()
    hook.write_text("#!/bin/sh\n")
    plain = submit(site, *args, script=script)
    ended(site, plain)
    hook.write_text(text)
    assert sorted(output(site, ours).split("\n")) == sorted(output(site, plain).split("\n"))
    assert "GPU-" not in output(site, ours)
    lines = [line.split() for line in output(site, ours).splitlines()]
    assert sorted(len(line[-1].split(",")) for line in lines) == [1, 1, 2]


def test_mig_tasks_see_their_own_instances(site: NodeSite) -> None:
    """Sets with a hole in them, and one slice for each task.

    Slurm 22.05 gives a step nothing that asks for a typed GPU per task; untyped it works.
    """
    show = "echo seen=$CUDA_VISIBLE_DEVICES\nsrun -n1 sh -c 'echo seen=$CUDA_VISIBLE_DEVICES'\n"
    each = "srun -n3 --gpus-per-task=1 sh -c 'echo seen=$CUDA_VISIBLE_DEVICES'\n"
    first, hole = (
        submit(site, "-p", "mig", f"{SLICE}:1", script=HOLD.format(flag=flag(site, name)))
        for name in ("first", "hole")
    )
    running(site, first)
    running(site, hole)
    third = submit(site, "-p", "mig", f"{SLICE}:1", script=HOLD.format(flag=flag(site, "first")))
    running(site, third)
    flag(site, "hole").touch()
    ended(site, hole)
    holed = submit(site, "-p", "mig", f"{SLICE}:2", script=show)
    tasks = submit(site, "-p", "mig", "-n3", f"{SLICE}:3", script=each)
    ended(site, holed, tasks)
    flag(site, "first").touch()
    ended(site, first, third)
    instances = [one.uuid for one in site.nodes["mig01"].layout.gpus[0].instances]
    held = {hold.instance for hold in run_of(site, "mig01", holed)[0].holds}
    assert held == {instances[1], instances[3]}
    assert seen(site, holed) == [held, held]
    own = seen(site, tasks)
    assert [len(one) for one in own] == [1, 1, 1]
    assert set.union(*own) == {h.instance for h in run_of(site, "mig01", tasks)[0].holds}


def test_j20_j21_the_epilog_ends_the_job_s_own_alone(site: NodeSite) -> None:
    """A job leaves two daemons; its user's other job, interactive job and login shell live on."""
    daemon = "setsid sh -c '{what} while :; do sleep 0.2; done' >/dev/null 2>&1 &\n"
    leave = daemon.format(what='trap "" TERM; touch {flag};') + daemon.format(what="")
    leaving = leave.format(flag=flag(site, "left")) + HOLD.format(flag=flag(site, "left"))
    wait = HOLD.format(flag=flag(site, "j20"))
    batch = submit(site, "-w", "gpu02", "--gres=gpu:1", script=wait)
    uid = find_user("ada").uid
    shell = site.spawn("login", ["setpriv", f"--reuid={uid}", "--clear-groups", "sleep", "60"])
    interactive = threading.Thread(
        target=site.run,
        args=(["srun", "-w", "gpu02", "sh", "-c", f"touch {flag(site, 'i')}; {wait}"], "ada"),
    )
    interactive.start()
    await_value(flag(site, "i").exists, what="the interactive job", timeout_s=20)
    running(site, batch)
    with site.journal("gpu02") as journal:
        job_id = submit(site, "-w", "gpu02", "--gres=gpu:1", script=leaving)
        ended(site, job_id)
        lines = await_value(lambda: journal.lines, what="the epilog's line", timeout_s=10)
    assert f"job {job_id}: ended " in lines[0]
    assert names_of(job_id) == []
    assert len(names_of(batch)) >= 1
    assert shell.process.poll() is None
    assert interactive.is_alive()
    flag(site, "j20").touch()
    interactive.join(20)
    assert not interactive.is_alive()
    ended(site, batch)
    site.kill("login")


def names_of(job_id: int) -> list[str]:
    """Processes on this host that were started with the job's id, but for Slurm's own."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environ = (folder / "environ").read_bytes().split(b"\0")
            if f"SLURM_JOB_ID={job_id}".encode() in environ and folder.stat().st_uid != 0:
                found.append((folder / "comm").read_text().strip())
        except OSError:
            continue
    return found


def test_shards_are_accounted_exactly(site: NodeSite) -> None:
    """Two jobs on one GPU: neither closes the other, and every millijoule has one owner."""
    fake, board = site.nodes["gpu01"].fake, site.nodes["gpu01"].devices[0]
    wait = HOLD.format(flag=flag(site, "shards"))
    small = submit(site, "-w", "gpu01", "--gres=shard:1", script=wait)
    running(site, small)
    large = submit(site, "-w", "gpu01", "--gres=shard:3", script=wait, user="ben")
    running(site, large)
    fake.set_power(board.uuid, 300_000)
    await_value(
        lambda: [e for e in starts(site, "gpu01", large) if known(e)],
        what="slurmctld's answer",
        timeout_s=10,
    )
    flag(site, "shards").touch()
    ended(site, small, large)
    runs = [run_of(site, "gpu01", job_id) for job_id in (small, large)]
    assert [start.mapped_by for start, _ in runs] == ["slurmctld"] * 2
    assert [(h.device, h.numerator, h.denominator) for s, _ in runs for h in s.holds] == [
        (board.uuid, 1, 4),
        (board.uuid, 3, 4),
    ]
    assert [end.closed_by for _, end in runs] == ["epilog"] * 2
    windows = [e for e in events(site, "gpu01") if isinstance(e, WindowClosed)]
    mine = [w for w in windows if w.device == board.uuid]
    assert all(one.t1_ms == two.t0_ms for one, two in pairwise(mine))
    assert all(
        sum(s.idle_mj + s.active_mj for s in w.shares)
        + w.unallocated_idle_mj + w.unallocated_active_mj == w.measured_mj
        for w in mine
    )  # fmt: skip
    both = [w for w in mine if {s.job_id for s in w.shares} == {small, large}]
    assert both
    for window in both[1:]:  # by then slurmctld had told both
        parts = {s.job_id: s.idle_mj + s.active_mj for s in window.shares}
        assert abs(3 * parts[small] - parts[large]) <= 4


def test_mps_is_accounted_by_percentage(site: NodeSite) -> None:
    """Where gres.conf has Count= without File=, slurmd tells the prolog 0: slurmctld is asked."""
    wait = HOLD.format(flag=flag(site, "mps"))
    jobs = [submit(site, "-w", "gpu02", f"--gres=mps:{n}", script=wait) for n in (25, 50)]
    for job_id in jobs:
        running(site, job_id)
        await_value(
            lambda job_id=job_id: [e for e in starts(site, "gpu02", job_id) if known(e)],
            what="slurmctld's answer",
            timeout_s=10,
        )
    flag(site, "mps").touch()
    ended(site, *jobs)
    runs = [run_of(site, "gpu02", job_id) for job_id in jobs]
    assert [[(h.numerator, h.denominator) for h in s.holds] for s, _ in runs] == [
        [(25, 100)],
        [(50, 100)],
    ]
    assert len({start.holds[0].device for start, _ in runs}) == 1
    assert [end.closed_by for _, end in runs] == ["epilog"] * 2


def test_agent_dead_at_prolog_and_at_epilog(site: NodeSite) -> None:
    """The job runs with its slice's UUID and is on the map; both messages wait for the agent."""
    site.kill_agent("mig01")
    script = "echo seen=$CUDA_VISIBLE_DEVICES\n" + HOLD.format(flag=flag(site, "dead"))
    job_id = submit(site, "-p", "mig", f"{SLICE}:1", script=script)
    try:
        await_value(
            lambda: list(site.dcgm("mig01").values()) == [[str(job_id)]],
            what="the map without the agent",
            timeout_s=20,
            detail=lambda: str(site.dcgm("mig01")),
        )
        flag(site, "dead").touch()
        ended(site, job_id)
        await_value(lambda: not site.dcgm("mig01"), what="the map without the job", timeout_s=10)
    finally:
        site.start_agent("mig01")
    (uuids,) = seen(site, job_id)
    started, end = run_of(site, "mig01", job_id)
    assert {hold.instance for hold in started.holds} == uuids
    assert end.closed_by == "inbox"
    assert not list(site.nodes["mig01"].inbox_dir.glob("*.json"))


def test_agent_hung_at_prolog_and_at_epilog(site: NodeSite) -> None:
    daemon = site.daemon("agent-mig01")
    assert daemon is not None
    os.killpg(daemon.process.pid, signal.SIGSTOP)
    try:
        script = "echo seen=$CUDA_VISIBLE_DEVICES\n"
        job_id = submit(site, "-p", "mig", f"{SLICE}:1", script=script)
        ended(site, job_id)
    finally:
        os.killpg(daemon.process.pid, signal.SIGCONT)
    (uuids,) = seen(site, job_id)
    started, _ = run_of(site, "mig01", job_id)
    assert {hold.instance for hold in started.holds} == uuids
    await_value(lambda: not site.dcgm("mig01"), what="the map", timeout_s=10)


def test_disk_full_for_the_inbox_and_no_agent(site: NodeSite) -> None:
    """h01 has no agent: the message can go nowhere, the job runs, slurmd's log says so."""
    with full_disk(site, site.nodes["h01"].inbox_dir), site.journal("h01") as journal:
        job_id = submit(site, "-w", "h01", "--gres=gpu:h100:1", script="true")
        ended(site, job_id)
        awaited(journal, job_id, "No space left on device")


def test_j18_the_plugin_folder_is_removed(site: NodeSite) -> None:
    package = site.paths.etc / "node"
    package.rename(package.with_name("gone"))
    try:
        with site.journal("h01") as journal:
            job_id = submit(site, "-w", "h01", "--gres=gpu:h100:1", script="true")
            ended(site, job_id)
            awaited(journal, job_id, "is missing; the job is not accounted")
    finally:
        package.with_name("gone").rename(package)


def test_without_python_the_job_runs(site: NodeSite) -> None:
    wrapper = site.paths.etc / "prolog"
    text = wrapper.read_text()
    wrapper.write_text(text.replace("FAIRWATT_PYTHON=", "FAIRWATT_PYTHON=/nonexistent"))
    try:
        with site.journal("h01") as journal:
            job_id = submit(site, "-w", "h01", "--gres=gpu:h100:1", script="true")
            ended(site, job_id)
            awaited(journal, job_id, "no Python at /nonexistent")
    finally:
        wrapper.write_text(text)


@pytest.mark.parametrize("stuck", ["sleep 60", "trap '' TERM; while :; do sleep 1; done"])
def test_the_budget_of_a_hook_is_hard(tmp_path: Path, stuck: str) -> None:
    """A Python that hangs, even one that ignores SIGTERM: status 0 in less than five seconds."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{stuck}\n")
    python.chmod(0o755)
    env = {"FAIRWATT_PYTHON": str(python), "FAIRWATT_LOG_SOCKET": str(tmp_path / "none")}
    begun = time.monotonic()
    done = subprocess.run(
        [PACKAGE_NODE_HOOKS / "prolog"], env=env, capture_output=True, text=True, check=False
    )
    assert time.monotonic() - begun < 5
    assert done.returncode == 0
    assert "took longer than 4 s" in done.stderr


def test_j22_what_slurm_does_when_a_prolog_fails(site: NodeSite) -> None:
    """An agent that proves a device of the job broken: the node is drained, the job is held."""
    fault = b'{"ok":true,"verdict":{"state":"bad","drain":{"code":"FWH101","device":"GPU-1","text":"lost"}}}\n'  # noqa: E501
    with answering(site.nodes["h01"].agent_socket, fault), site.journal("h01") as journal:
        job_id = submit(site, "-w", "h01", "--gres=gpu:h100:1", script="true")
        await_value(lambda: "drain" in site.state("h01"), what="h01 drained", timeout_s=20)
        reason = await_value(
            lambda: site.run(["squeue", "-h", "-j", str(job_id), "-t", "PD", "-o", "%r"]).stdout,
            what="the job is pending again",
            timeout_s=20,
        )
        awaited(journal, job_id, "FWH101 GPU-1 lost")
    assert "launch failed requeued held" in reason
    assert "Prolog error" in site.state("h01")
    site.run(["scancel", str(job_id)], check=True)
    site.run(["scontrol", "update", "nodename=h01", "state=resume"], check=True)
    again = submit(site, "-w", "h01", "--gres=gpu:h100:1", script="true")
    ended(site, again)


def test_detected_slices_are_known_by_uuid() -> None:
    """AutoDetect: no File= anywhere; Slurm itself names the slices, and the map takes its word."""
    with temporary_root() as root, sliced_cluster(root / "d", HOST_RELEASE) as sliced:
        folder = root / "d" / "flags"
        folder.mkdir()
        folder.chmod(0o1777)
        args = ["-p", "cut", "-w", DYNAMIC, "--gres=gpu:2", f"--output={folder}/out"]
        done = sliced.lab.sbatch(args, "echo $CUDA_VISIBLE_DEVICES")
        assert done.job_id is not None, done.stderr
        assert sliced.lab.wait_job(done.job_id) == ["COMPLETED"]
        started, end = run_of(sliced.lab, DYNAMIC, done.job_id)
    assert started.mapped_by == "uuid"
    assert end.closed_by == "epilog"
    assert [(hold.numerator, hold.denominator) for hold in started.holds] == [(1, 7)] * 2
