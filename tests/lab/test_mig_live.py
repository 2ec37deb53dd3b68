# SPDX-License-Identifier: Apache-2.0
"""`fairwatt mig apply` under real Slurm 22.05, 24.11 and 26.05: no job lost, whatever happens."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fairwatt.prolog.mig.steps import STEPS_DYNAMIC, STEPS_STATIC
from tests.fakes.loaded import loaded_nvml
from tests.fakes.mig_calls import mig_uuids
from tests.lab.demo import idle_mw, install_program, nodes_of_devices, settle
from tests.lab.demo_check import check_conservation, check_energy
from tests.lab.sliced import DYNAMIC, LARGE, SMALL, STATIC, SlicedCluster, sliced_cluster
from tests.lab.system import HOST_RELEASE, OTHER_RELEASES, why_missing
from tests.lab.waiting import await_value

pytestmark = pytest.mark.lab

FULL_MATRIX = "24.11"
GRES = {
    DYNAMIC: {"small": SMALL, "large": LARGE},
    STATIC: {
        "small": "gpu:a100_1g.5gb:7,gpu:a100_3g.20gb:2",
        "large": "gpu:a100_3g.20gb:4",
    },
}
"""What slurmctld shows by layout of the first board; mig01's second one stays 2 x 3g.20gb."""
LOOK_S = 0.02
LONG = "gpu:a100_3g.20gb:1"


@pytest.fixture(scope="module", params=[HOST_RELEASE, *OTHER_RELEASES])
def mig(request: pytest.FixtureRequest, lab_root: Path) -> Iterator[SlicedCluster]:
    """The cluster; at the end slurmctld must never have seen fewer GPUs than configured."""
    release = request.param
    reason = None if release == HOST_RELEASE else why_missing(release)
    if reason is not None:
        pytest.skip(reason)
    with sliced_cluster(lab_root / f"m{release}", release) as running:
        install_program(running.lab)
        out = running.lab.paths.root / "out"
        out.mkdir()
        out.chmod(0o1777)
        yield running
        log = running.lab.log_text("own-slurmctld")
        assert "reported lower than configured" not in log
        assert "to INVAL" not in log


@pytest.fixture(autouse=True)
def tidy(mig: SlicedCluster) -> Iterator[None]:
    """After each test: no jobs, both nodes small again."""
    yield
    mig.lab.run(["scancel", "--user=ada"])
    for node in (DYNAMIC, STATIC):
        mig.lab.nodes[node].fake.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 0)
        if not mig.is_back(node, GRES[node]["small"]):
            mig.apply(node, "--plan", str(plan_for(mig, node, "small")))
            mig.await_back(node, GRES[node]["small"])
    await_value(
        lambda: not mig.lab.run(["squeue", "--noheader"]).stdout, what="no jobs", timeout_s=20
    )


def plan_for(mig: SlicedCluster, node: str, layout: str) -> Path:
    """Write a plan that changes the first board of a node only."""
    board = {"number": 0, "after": layout}
    path = mig.lab.paths.root / "out" / f"{node}-{layout}.json"
    path.write_text(json.dumps({"proposals": [{"node": node, "boards": [board]}]}))
    return path


def submit(mig: SlicedCluster, *args: str, script: str = "echo seen=$CUDA_VISIBLE_DEVICES") -> int:
    folder = mig.lab.paths.root / "out"
    done = mig.lab.sbatch([*args, f"--output={folder}/%j.out"], script)
    assert done.job_id is not None, done.stderr
    return done.job_id


def seen(mig: SlicedCluster, job_id: int) -> set[str]:
    """The devices that a job saw, once it has ended well."""
    assert mig.lab.wait_job(job_id) == ["COMPLETED"]
    text = (mig.lab.paths.root / "out" / f"{job_id}.out").read_text()
    return set(text.partition("seen=")[2].split()[0].split(","))


def uuids(mig: SlicedCluster, node: str) -> set[str]:
    """The MIG devices that are on a node now."""
    with loaded_nvml(mig.lab.nodes[node].control_path) as nvml:
        nvml.nvmlInit()
        boards = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        return {uuid for board in boards for uuid in mig_uuids(nvml, board)}


def profiles(mig: SlicedCluster, node: str) -> list[str]:
    """What `fairwatt mig show` tells of the first board."""
    done = mig.mig(node, "show", "--json")
    return list(json.loads(done.stdout)[0]["instances"])


def runs(mig: SlicedCluster, job_id: int) -> None:
    """It runs, and was never requeued."""
    shown = mig.lab.run(["scontrol", "--oneliner", "show", "job", str(job_id)]).stdout
    assert "JobState=RUNNING" in shown
    assert "Restarts=0" in shown


@dataclass
class Watch:
    """Looks at a node's state from outside all the time, in a thread."""

    mig: SlicedCluster
    node: str
    seen: list[tuple[float, str, str]] = field(default_factory=list)

    def __enter__(self) -> Watch:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.is_set():
            words = dict(w.partition("=")[::2] for w in self.mig.shown(self.node).split())
            row = (time.monotonic(), words.get("State", "none"), words.get("Gres", ""))
            self.seen.append(row)
            self._stop.wait(LOOK_S)

    def outage_s(self, gres: str) -> float:
        """From the last look at which jobs could start to the first one after the change."""
        well = [i for i, (_, state, _) in enumerate(self.seen) if is_up(state)]
        first = next(i for i in well if self.seen[i][2] == gres)
        before = [i for i in well if i < first]
        return self.seen[first][0] - self.seen[before[-1]][0]


def is_up(state: str) -> bool:
    return state.partition("+")[0] in ("IDLE", "MIXED", "ALLOCATED") and not any(
        word in state for word in ("DRAIN", "INVAL", "NOT_RESPONDING", "*")
    )


def test_a_queue_for_large_slices_gets_them(mig: SlicedCluster) -> None:
    """dyn01 holds 7 x 1g.5gb; mig01's two 3g.20gb are taken; two more jobs want such."""
    taken = [submit(mig, "-p", "cut", f"--gres={LONG}", script="sleep 60") for _ in range(2)]
    for job in taken:
        mig.lab.wait_job(job, {"RUNNING"})
    waiting = [submit(mig, "-p", "cut", f"--gres={LONG}") for _ in range(2)]
    plan = mig.lab.paths.root / "out" / "plan.json"

    def proposed() -> bool:
        done = mig.mig(DYNAMIC, "plan", "--json")
        plan.write_text(done.stdout)
        return done.returncode == 3

    await_value(proposed, what="a proposal", timeout_s=10, detail=plan.read_text)
    (proposal,) = json.loads(plan.read_text())["proposals"]
    assert (proposal["node"], proposal["boards"][0]["after"]) == (DYNAMIC, "large")
    with Watch(mig, DYNAMIC) as watch:
        outcome = mig.apply(DYNAMIC, "--plan", str(plan))
        mig_devices = {device for job in waiting for device in seen(mig, job)}
    assert outcome["result"] == "applied"
    assert mig_devices == uuids(mig, DYNAMIC), "each its own slice, and such as there are"
    assert profiles(mig, DYNAMIC) == ["3g.20gb@0", "3g.20gb@4"]
    for job in taken:
        runs(mig, job)
    away_s = watch.outage_s(LARGE)
    print(f"\nSlurm {mig.lab.release}, dynamic node: out of service for {away_s:.2f} s")
    assert away_s <= 2
    assert not any("INVAL" in state for _, state, _ in watch.seen)


def test_the_same_where_slurm_conf_names_the_node(mig: SlicedCluster) -> None:
    """mig01 is busy with small slices: it is waited for. TaskProlog gives the new UUIDs."""
    busy = submit(mig, "-p", "mig", "--gres=gpu:a100_3g.20gb:2", script="sleep 2")
    elsewhere = submit(mig, "-p", "gpu", "-w", "gpu01", script="sleep 60")
    for job in (busy, elsewhere):
        mig.lab.wait_job(job, {"RUNNING"})
    script = "echo seen=$CUDA_VISIBLE_DEVICES; sleep 2"
    waiting = [submit(mig, "-p", "mig", "--gres=gpu:a100_3g.20gb:2", script=script)
               for _ in range(2)]  # fmt: skip
    before = (mig.lab.paths.etc / "slurm.conf").read_text()
    with Watch(mig, STATIC) as watch:
        outcome = mig.apply(STATIC, "--plan", str(plan_for(mig, STATIC, "large")))
        mig.await_back(STATIC, GRES[STATIC]["large"])
    assert outcome["result"] == "applied"
    assert mig.lab.wait_job(busy) == ["COMPLETED"]
    devices = [device for job in waiting for device in seen(mig, job)]
    assert set(devices) == uuids(mig, STATIC)
    runs(mig, elsewhere)
    after = (mig.lab.paths.etc / "slurm.conf").read_text()
    assert after == before.replace(GRES[STATIC]["small"], GRES[STATIC]["large"])
    idle = next(t for t, state, _ in watch.seen if state.startswith("IDLE+DRAIN"))
    back = next(
        t for t, state, gres in watch.seen if is_up(state) and gres == GRES[STATIC]["large"]
    )
    print(f"\nSlurm {mig.lab.release}, node of slurm.conf: {back - idle:.2f} s after idle")
    # Before 23.11 slurmctld itself must restart, which takes that long on these two cores.
    assert back - idle <= (8 if mig.lab.release == HOST_RELEASE else 2)


def matrix(release: str, node: str) -> list[tuple[str, str]]:
    """The points at which to kill, each with what is done then."""
    steps = STEPS_DYNAMIC if node == DYNAMIC else STEPS_STATIC
    if release != FULL_MATRIX:
        steps = ("cut", "start")
    phases = ("begin", "done") if (release, node) == (FULL_MATRIX, DYNAMIC) else ("done",)
    points = [f"forward:{step}:{phase}" for step in steps for phase in phases]
    return [(point, ("", "--rollback")[number % 2]) for number, point in enumerate(points)]


@pytest.mark.parametrize("node", [DYNAMIC, STATIC])
def test_killed_at_each_step(mig: SlicedCluster, node: str) -> None:
    """Then run again: it goes on, or back, and every job is still there."""
    running = submit(mig, "-p", "gpu", "-w", "gpu01", script="sleep 300")
    mig.lab.wait_job(running, {"RUNNING"})
    small = "--gres=gpu:a100_1g.5gb:1"
    pinned = submit(mig, "-p", "cut", "-w", node, small, "--hold")
    layout = "small"
    for point, how in matrix(mig.lab.release, node):
        wanted = "large" if layout == "small" else "small"
        mig.killed(node, point, "--plan", str(plan_for(mig, node, wanted)))
        ends_at = layout if how else wanted
        outcome = mig.apply(node, *filter(None, [how]))
        mig.await_back(node, GRES[node][ends_at])
        assert outcome["result"] == ("rolled back" if how else "applied"), point
        assert len(uuids(mig, node)) == {"small": 7, "large": 2}[ends_at] + 2 * (node == STATIC)
        layout = ends_at
    mig.apply(node, "--plan", str(plan_for(mig, node, "small")))
    runs(mig, running)
    mig.lab.run(["scontrol", "release", str(pinned)])
    assert seen(mig, pinned) < uuids(mig, node)


CALLS = (
    ("nvmlComputeInstanceDestroy", "before", 2),
    ("nvmlGpuInstanceDestroy", "after", 1),
    ("nvmlDeviceCreateGpuInstanceWithPlacement", "after", 1),
    ("nvmlGpuInstanceCreateComputeInstance", "before", 2),
)


def test_killed_between_calls_of_the_driver(mig: SlicedCluster) -> None:
    """Half of the instances are gone, or one is half made."""
    fake = mig.lab.nodes[DYNAMIC].fake
    wanted = "large"
    for number, call in enumerate(CALLS[:: 1 if mig.lab.release == FULL_MATRIX else 3]):
        fake.kill(*call)
        mig.killed(DYNAMIC, "forward:none:begin", "--plan", str(plan_for(mig, DYNAMIC, wanted)))
        fake.kill(call[0], call[1], 0)
        back = number % 2 == 1
        outcome = mig.apply(DYNAMIC, *(["--rollback"] if back else []))
        assert outcome["result"] == ("rolled back" if back else "applied")
        now = {"large": "small", "small": "large"}[wanted] if back else wanted
        mig.await_back(DYNAMIC, GRES[DYNAMIC][now])
        wanted = "small" if now == "large" else "large"


def test_what_the_driver_refuses_is_taken_back(mig: SlicedCluster) -> None:
    """And where it refuses the way back too, the node stays drained until it is mended."""
    fake = mig.lab.nodes[DYNAMIC].fake
    pinned = uuids(mig, DYNAMIC).pop()
    fake.add_process(pinned, 1)
    done = mig.mig(DYNAMIC, "apply", "--layout", "large", "--yes")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "a process still uses it" in done.stdout
    mig.await_back(DYNAMIC, SMALL)
    assert len(uuids(mig, DYNAMIC)) == 7
    fake.remove_process(pinned, 1)
    fake.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 999)
    outcome = mig.apply(STATIC, "--plan", str(plan_for(mig, STATIC, "small")))
    assert outcome["result"] == "unchanged"
    mig.lab.nodes[STATIC].fake.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 999)
    stuck = mig.mig(STATIC, "apply", "--plan", str(plan_for(mig, STATIC, "large")), "--yes")
    assert stuck.returncode == 5, stuck.stdout + stuck.stderr
    assert "FWM202 re-slice failed" in mig.shown(STATIC).replace("_", " ")
    assert json.loads(mig.mig(STATIC, "status", "--json").stdout)["state"] == "stuck"
    mig.lab.nodes[STATIC].fake.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 0)
    assert mig.apply(STATIC, "--rollback")["result"] == "rolled back"
    mig.await_back(STATIC, GRES[STATIC]["small"])


@pytest.mark.parametrize("node", [DYNAMIC, STATIC])
def test_a_node_that_an_admin_drained_stays_drained(mig: SlicedCluster, node: str) -> None:
    reason = "fan broken, see ticket 17"
    mig.lab.run(["scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}"])
    with Watch(mig, node) as watch:
        outcome = mig.apply(node, "--plan", str(plan_for(mig, node, "large")))
    assert outcome["result"] == "applied"
    assert mig.field(node, "Gres") == GRES[node]["large"]
    assert reason in mig.shown(node)
    assert "DRAIN" in mig.field(node, "State")
    assert not any(is_up(state) for _, state, _ in watch.seen), "not for a moment"
    mig.lab.run(["scontrol", "update", f"nodename={node}", "state=resume"])
    mig.await_back(node, GRES[node]["large"])


BAD = [
    ("[layouts.large]\nprofiles = ['5g.20gb']\n", "no such MIG profile", "5g.20gb"),
    ("[layouts.large]\nprofiles = ['3g.20gb@2']\n", "cannot begin there", "possible: 0, 4"),
    ("[layouts.large]\nprofiles = ['4g.20gb', '4g.20gb']\n", "too many compute slices", "8 of 7"),
    ("[layouts.large\n", "TOML", "mig.toml"),
    ("[layouts.other]\nprofiles = ['1g.5gb']\n", "no such layout", "large"),
    ("[layouts.large]\nprofiles = ['$(reboot)']\n", "no such MIG profile", "$(reboot)"),
]


def test_bad_input_changes_nothing(mig: SlicedCluster) -> None:
    """One message that names place and remedy; the node is not even drained."""
    path = mig.lab.paths.etc / "mig.toml"
    good, before = path.read_text(), mig.lab.nodes[DYNAMIC].control_path.read_text()
    slurmd = (mig.lab.paths.run / f"slurmd-{DYNAMIC}.pid").read_text()
    try:
        for text, *said in BAD:
            path.write_text(text)
            done = mig.mig(DYNAMIC, "apply", "--layout", "large", "--yes")
            assert done.returncode == 1, done.stdout
            assert all(word in done.stderr for word in said), done.stderr
    finally:
        path.write_text(good)
    others = (
        ("apply", "gpu07", "--yes"),
        ("apply", "--rollback"),
        ("apply", "--plan", str(path), "--yes"),
        ("apply", "--restart", "--layout", "large", "--yes"),
    )
    for args in others:
        assert mig.mig(DYNAMIC, *args).returncode == 1
    assert mig.lab.nodes[DYNAMIC].control_path.read_text() == before
    assert mig.is_back(DYNAMIC, SMALL)
    assert (mig.lab.paths.run / f"slurmd-{DYNAMIC}.pid").read_text() == slurmd
    assert json.loads(mig.mig(DYNAMIC, "status", "--json").stdout)["state"] != "open"


def test_two_at_once_and_a_job_that_comes_in_between(mig: SlicedCluster) -> None:
    """The second one is refused; a job that runs is waited for, and an interrupt gives up."""
    job = submit(mig, "-p", "cut", "-w", DYNAMIC, "--gres=gpu:a100_1g.5gb:1", script="sleep 60")
    mig.lab.wait_job(job, {"RUNNING"})
    refused: list[str] = []

    def second() -> None:
        await_value(lambda: "DRAIN" in mig.field(DYNAMIC, "State"), what="drained", timeout_s=20)
        refused.append(mig.mig(DYNAMIC, "apply", "--yes").stderr)
        mig.lab.run(["scontrol", "update", f"nodename={DYNAMIC}", "state=resume"])

    thread = threading.Thread(target=second)
    thread.start()
    done = mig.mig(DYNAMIC, "apply", "--yes")
    thread.join()
    assert "another fairwatt mig apply is at work" in refused[0]
    assert done.returncode == 4
    assert "somebody resumed it" in done.stdout
    runs(mig, job)
    mig.await_back(DYNAMIC, SMALL)


def test_energy_of_a_job_on_a_new_slice(mig: SlicedCluster) -> None:
    """The agent runs all the time: before, during and after; not a millijoule is lost."""
    load = f"exec sh {mig.lab.paths.root}/bin/use-gpu"
    jobs = [submit(mig, "-p", "cut", "-w", DYNAMIC, "--gres=gpu:a100_1g.5gb:2",
                   script=f"{load} 30 2")]  # fmt: skip
    assert mig.lab.wait_job(jobs[0]) == ["COMPLETED"]
    mig.apply(DYNAMIC, "--layout", "large")
    jobs.append(submit(mig, "-p", "cut", "-w", DYNAMIC, f"--gres={LONG}", script=f"{load} 80 3"))
    assert mig.lab.wait_job(jobs[1]) == ["COMPLETED"]
    db = settle(mig.lab)
    try:
        check(mig, db, jobs)
    finally:
        db.close()


def check(mig: SlicedCluster, db: sqlite3.Connection, jobs: list[int]) -> None:
    fakes = {name: node.fake for name, node in mig.lab.nodes.items()}
    devices = {d: n for d, n in nodes_of_devices(mig.lab).items() if n in (DYNAMIC, STATIC)}
    energy = check_energy(db, fakes, idle_mw(mig.lab), {job: f"job {job}" for job in jobs})
    conserved = check_conservation(db, fakes, devices)
    assert energy.faults + conserved.faults == [], "\n".join(energy.lines + conserved.lines)
    held = db.execute("SELECT instance_uuid FROM hold WHERE job_id = ?", (jobs[1],)).fetchall()
    assert {row["instance_uuid"] for row in held} < uuids(mig, DYNAMIC)
    assert len(held) == 1


@pytest.mark.parametrize("node", [DYNAMIC, STATIC])
def test_instances_that_a_reboot_destroyed_are_made_again(mig: SlicedCluster, node: str) -> None:
    """`fairwatt mig restore` before slurmd starts: nobody drains, nothing is told to Slurm."""
    mig.apply(node, "--plan", str(plan_for(mig, node, "large")))
    lab_node = mig.lab.nodes[node]
    mig.lab.run([str(lab_node.folder / "slurmd-stop")], check=True)
    for board in lab_node.layout.gpus:
        lab_node.fake.clear_instances(board.uuid)
    before = (mig.lab.paths.etc / "slurm.conf").read_bytes()
    assert mig.mig(node, "restore").stdout == f"{node}: {2 + 2 * (node == STATIC)} changes\n"
    assert mig.mig(node, "restore").stdout == f"{node}: is so already\n"
    known = [f"{key}={value}" for key, value in lab_node.fake.env.items()]
    mig.lab.run(["env", *known, str(lab_node.folder / "slurmd-start")], check=True)
    mig.await_back(node, GRES[node]["large"])
    assert (mig.lab.paths.etc / "slurm.conf").read_bytes() == before
    partition = "cut" if node == DYNAMIC else "mig"
    assert seen(mig, submit(mig, "-p", partition, "-w", node, f"--gres={LONG}")) < uuids(mig, node)
