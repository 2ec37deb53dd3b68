# SPDX-License-Identifier: Apache-2.0
"""A real agent process on fake devices, what its journal says, and a keeper on the bench."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from fairwatt.accounting.agent.segments import read_entries
from fairwatt.core.events import Event, RunEnded, WindowClosed
from fairwatt.core.segments import segment_numbers, segment_path
from fairwatt.core.unix_socket import ask_line
from tests.fakes.nvml_control import FakeNvml
from tests.lab.waiting import await_value
from tests.unit.agent.keeper_bench import Bench, board

PATIENCE_S = 10.0


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Poll a condition; fail with `what` after PATIENCE_S."""
    await_value(condition, what=what, timeout_s=PATIENCE_S)


class AgentLab:
    """One node: fake devices, a configuration, and the agent as a child process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fake = FakeNvml(root / "nvml.control")
        self.socket = root / "agent.sock"
        self.inbox = root / "inbox"
        self.jobs = root / "jobs"
        self.process: subprocess.Popen[bytes] | None = None
        self.log = root / "agent.log"
        (root / "fairwatt.toml").write_text(
            f"[agent]\nnode = 'n1'\nsocket = '{self.socket}'\ninbox_dir = '{self.inbox}'\n"
            f"job_dir = '{self.jobs}'\nspool_dir = '{root / 'spool'}'\n"
            f"gres_conf = '{root / 'gres.conf'}'\nsample_s = 0.3\nship_s = 60\n"
            f"sys_root = '{root / 'sys'}'\n"
            "collector_url = 'http://127.0.0.1:9'\n"
            f"[site]\nmunge_socket = '{root / 'munge.sock'}'\n"
            f"slurm_conf = '{root / 'slurm.conf'}'\n"
            "[health]\nenabled = false\n"
        )

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", "from fairwatt.core.cli import main; main()", "agent"]

    @property
    def env(self) -> dict[str, str]:
        return {**self.fake.env, "FAIRWATT_CONFIG": str(self.root / "fairwatt.toml")}

    def start(self) -> None:
        """Start the agent and wait until it answers."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, env={**os.environ, **self.env}, stdout=log, stderr=log
            )
        wait_until(self.answers, f"the agent's answer; its log: {self.log.read_text()}")

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            return bool(self.ask(verb="status")["next_seq"])
        except OSError:
            return False

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it as systemd does."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(PATIENCE_S)
        self.process = None

    def ask(self, **message: object) -> dict[str, object]:
        """Send one message to the agent and return its answer."""
        line = json.dumps({"v": 1, **message}).encode() + b"\n"
        return json.loads(ask_line(self.socket, line, PATIENCE_S))

    def hook(self, verb: str, job_id: int, *uuids: str, t_ms: int | None = None) -> dict:
        """Do what a hook does over the socket; the job's devices are UUIDs."""
        return self.ask(**self.message(verb, job_id, *uuids, t_ms=t_ms))

    def message(self, verb: str, job_id: int, *uuids: str, t_ms: int | None = None) -> dict:
        env = {"SLURM_JOB_ID": str(job_id), "SLURM_JOB_UID": "1000"}
        if uuids:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(uuids)
        return {"verb": verb, "t_ms": t_ms or now_ms(), "env": env}

    def leave(self, verb: str, job_id: int, *uuids: str, t_ms: int | None = None) -> None:
        """Do what a hook does when the agent is away."""
        message = {"v": 1, **self.message(verb, job_id, *uuids, t_ms=t_ms)}
        self.inbox.mkdir(exist_ok=True)
        path = self.inbox / f"{message['t_ms']:014d}-{job_id}-{verb}.json"
        path.write_text(json.dumps(message))

    def events(self) -> list[Event]:
        """Return all events in the journal, in order."""
        folder = self.root / "spool" / "journal"
        entries = [
            e for n in segment_numbers(folder) for e in read_entries(segment_path(folder, n))
        ]
        return [entry.event for entry in entries if entry.event is not None]

    def windows(self, device: str) -> list[WindowClosed]:
        return [e for e in self.events() if isinstance(e, WindowClosed) and e.device == device]

    def ends(self) -> dict[int, str]:
        return {e.job_id: e.closed_by for e in self.events() if isinstance(e, RunEnded)}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def job_mj(windows: list[WindowClosed], job_id: int) -> int:
    """Sum a job's idle and active energy over windows."""
    return sum(
        share.idle_mj + share.active_mj
        for window in windows
        for share in window.shares
        if share.job_id == job_id
    )


def assert_conserved(windows: list[WindowClosed]) -> None:
    """Windows follow one another, and each splits its measured energy to the mJ."""
    for before, after in pairwise(windows):
        assert before.t1_ms == after.t0_ms
    for window in windows:
        if window.measured_mj is None:
            assert window.shares == ()
            assert window.unallocated_idle_mj is window.unallocated_active_mj is None
            continue
        parts = [share.idle_mj + share.active_mj for share in window.shares]
        assert window.unallocated_idle_mj is not None
        assert window.unallocated_active_mj is not None
        unallocated = window.unallocated_idle_mj + window.unallocated_active_mj
        assert sum(parts) + unallocated == window.measured_mj


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[AgentLab]:
    if not (Path(__file__).parents[3] / "build" / "fakes" / "libnvidia-ml.so.1").exists():
        pytest.skip("build the fake GPU library first: make fakes")
    lab = AgentLab(tmp_path)
    yield lab
    if lab.process is not None:
        lab.kill()


@pytest.fixture(name="wait_until")
def wait_until_fixture() -> Callable[[Callable[[], object], str], None]:
    return wait_until


@pytest.fixture(name="job_mj")
def job_mj_fixture() -> Callable[[list[WindowClosed], int], int]:
    return job_mj


@pytest.fixture(name="assert_conserved")
def assert_conserved_fixture() -> Callable[[list[WindowClosed]], None]:
    return assert_conserved


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, board("GPU-1"))
    made.start()
    yield made
    made.crash()
