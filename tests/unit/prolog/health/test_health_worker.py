# SPDX-License-Identifier: Apache-2.0
"""The worker as the agent's child: verdicts by line, a hung driver, what lasts over restarts."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairwatt.core.boot import read_boot_ms
from fairwatt.core.verdict import Finding, Verdict, decode_verdict
from tests.fakes.loaded import build_library, missing_tools
from tests.fakes.machines import a100_node
from tests.fakes.nvml_control import FakeNvml

PATIENCE_S = 15.0


class Node:
    """Fake boards, settings, stand-ins for scontrol and sinfo, and the worker as a child."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fake = FakeNvml(root / "nvml.control")
        self.gpus = a100_node(self.fake, "n1", count=2)
        self.kmsg = root / "kmsg"
        self.kmsg.touch()
        self.site_file = root / "health.toml"
        self.site_file.write_text("[defaults]\nperiod_s = 0.1\ndeadline_s = 0.3\n")
        paths = {
            "health.dir": root / "health",
            "health.file": self.site_file,
            "health.kmsg": self.kmsg,
            "agent.spool_dir": root / "spool",
            "agent.gres_conf": root / "gres.conf",
            "site.slurm_conf": root / "slurm.conf",
        }
        lines = [f"{key} = {json.dumps(str(path))}\n" for key, path in paths.items()]
        (root / "fairwatt.toml").write_text(
            "".join(lines) + 'agent.node = "n1"\nhealth.hang_s = 1.0\nhealth.heal_rounds = 2\n'
        )
        self.programs = root / "bin"
        self.programs.mkdir()
        (root / "node").write_text("n1|idle|Unknown|none\n")
        self.program("sinfo", f"cat {root}/node")
        self.program("scontrol", f'echo "$@" >>{root}/asked; cp {root}/next {root}/node')
        self.child: subprocess.Popen[bytes] | None = None
        self.lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def program(self, name: str, body: str) -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def start(self) -> None:
        search = f"{self.programs}:{os.environ['PATH']}"
        config = {"FAIRWATT_CONFIG": str(self.root / "fairwatt.toml"), "PATH": search}
        self.child = subprocess.Popen(
            [sys.executable, "-P", "-m", "fairwatt.prolog.health.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **self.fake.env, **config},
        )
        threading.Thread(target=self._follow, args=(self.child,), daemon=True).start()

    def _follow(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            self.lines.put(line)

    def tell(self, **notice: object) -> None:
        assert self.child is not None
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps({"holders": [], **notice}).encode() + b"\n")
        self.child.stdin.flush()

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            for pipe in (self.child.stdin, self.child.stdout):
                assert pipe is not None
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
            self.child = None

    def until(self, what: Callable[[Verdict], object]) -> Verdict:
        """The first verdict of which `what` is true."""
        end = time.monotonic() + PATIENCE_S
        last = None
        while time.monotonic() < end:
            try:
                last = decode_verdict(self.lines.get(timeout=0.1))
            except queue.Empty:
                continue
            if what(last):
                return last
        raise AssertionError(last)

    def finding(self, code: str, drain: str = "") -> Finding:
        """The finding of this code, once its drain is so."""

        def there(verdict: Verdict) -> bool:
            return any(
                f.code == code and (f.drain == drain or not drain) for f in verdict.findings
            )

        return next(each for each in self.until(there).findings if each.code == code)

    def asked(self) -> list[str]:
        path = self.root / "asked"
        return path.read_text().splitlines() if path.exists() else []


def states(verdict: Verdict) -> dict[str, str]:
    return {check.name: check.state for check in verdict.checks}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    reason = missing_tools()
    if reason is not None:
        pytest.skip(reason)
    build_library()
    made = Node(tmp_path)
    yield made
    made.kill()


def test_a_lost_board_is_drained_once_and_undrained(node: Node) -> None:
    uuid = node.gpus[0].uuid
    node.start()
    node.until(lambda verdict: verdict.state == "ok" and verdict.rounds)
    reason = f"fairwatt FWH101 {uuid}: the GPU at 0000:07:00 is lost"
    (node.root / "next").write_text(f"n1|drained|2026-11-30T15:25:02|{reason}\n")
    node.fake.lose(uuid)
    finding = node.finding("FWH101", drain="drained")
    assert (finding.device, finding.confirmed) == (uuid, True)
    assert node.asked() == [f"update nodename=n1 state=drain reason={reason}"]
    node.kill()
    node.start()  # what was done is known, and when it began
    again = node.finding("FWH101", drain="drained")
    assert again.since_ms == finding.since_ms
    (node.root / "next").write_text("n1|idle|Unknown|none\n")
    node.fake.heal(uuid)
    node.until(lambda _: len(node.asked()) == 2)
    assert node.asked()[1] == "update nodename=n1 state=undrain"
    node.until(lambda verdict: verdict.state == "ok")


def test_a_hung_driver_is_unknown_and_the_rest_is_still_judged(node: Node) -> None:
    node.fake.slow("nvmlDeviceGetCurrPcieLinkWidth", 60_000)
    node.start()
    verdict = node.until(
        lambda verdict: states(verdict)["gpu_lost"] == "unknown" and verdict.rounds
    )
    assert verdict.state == "unknown"
    assert verdict.stuck_s > 0.3
    assert {finding.code for finding in verdict.findings} == {"FWH904"}
    assert states(verdict)["disk_room"] == "ok"
    assert node.asked() == []


def test_the_kernels_xid_is_found_once_and_outlives_the_process(node: Node) -> None:
    micros = 1000 * (time.time_ns() // 1_000_000 - (read_boot_ms(Path("/proc")) or 0))
    node.kmsg.write_text(
        f"6,1,{micros},-;python3[7]: NVRM: Xid (PCI:0000:0f:00): 79, forged\n"
        f"3,2,{micros},-;NVRM: Xid (PCI:0000:0f:00): 119, pid=1, Timeout\n"
    )
    node.start()
    finding = node.finding("FWH201")
    assert (finding.device, finding.value) == (node.gpus[1].uuid, "XID 119")
    node.kill()
    node.kmsg.write_text("")
    node.start()
    assert node.finding("FWH201").since_ms == finding.since_ms


def test_an_xid_is_over_when_its_board_was_reset(node: Node) -> None:
    node.start()
    node.until(lambda verdict: verdict.rounds)
    micros = 1000 * (time.time_ns() // 1_000_000 - (read_boot_ms(Path("/proc")) or 0))
    for sequence, bus in enumerate(("07", "0f")):
        text = f"3,{sequence},{micros},-;NVRM: Xid (PCI:0000:{bus}:00): 119, pid=1, Timeout\n"
        node.kmsg.write_text(node.kmsg.read_text() + text)
    node.until(lambda verdict: len(verdict.findings) == 2)
    node.fake.reset(node.gpus[0].uuid)
    left = node.until(lambda verdict: len(verdict.findings) == 1)
    assert left.findings[0].device == node.gpus[1].uuid


def test_a_reset_ends_an_xid_that_was_there_before_the_checks(node: Node) -> None:
    """The driver hung with the XID, and the checks were begun anew."""
    micros = 1000 * (time.time_ns() // 1_000_000 - (read_boot_ms(Path("/proc")) or 0))
    line = f"3,1,{micros},-;NVRM: Xid (PCI:0000:07:00): 119, pid=1, Timeout\n"
    node.kmsg.write_text(line)
    node.start()
    node.finding("FWH201")
    node.until(lambda verdict: verdict.rounds > 2)
    node.fake.reset(node.gpus[0].uuid)
    node.until(lambda verdict: not verdict.findings)


def test_what_a_job_left_is_found_soon_after_its_end(node: Node) -> None:
    node.site_file.write_text("[checks.leftover_processes]\nparameters.allow_uids = []\n")
    node.start()
    node.until(lambda verdict: verdict.rounds)
    node.fake.add_process(node.gpus[0].uuid, os.getpid(), 100)
    node.tell(holders=[{"device": node.gpus[0].uuid}])
    node.tell(job_ended=True)
    finding = node.finding("FWH402")  # its period is a minute
    assert finding.device == node.gpus[0].uuid


def test_the_sites_file_is_read_again_when_it_changes(node: Node) -> None:
    node.start()
    node.until(lambda verdict: verdict.state == "ok" and verdict.rounds)
    node.fake.lose(node.gpus[0].uuid)
    node.site_file.write_text("[checks.gpu_lost]\naction = 'reboot'\n")
    finding = node.finding("FWH905")
    assert f"{node.site_file}:2: checks.gpu_lost.action" in finding.text
    node.site_file.write_text("[defaults]\nperiod_s = 0.1\n[checks.gpu_lost]\nenabled = false\n")
    verdict = node.until(lambda verdict: verdict.state == "ok")
    assert {check.state for check in verdict.checks if check.name == "gpu_lost"} == {"off"}


def test_nonsense_of_the_agent_is_passed_over_and_its_end_is_the_end(node: Node) -> None:
    node.start()
    assert node.child is not None
    assert node.child.stdin is not None
    node.child.stdin.write(b"nonsense\n\xff\n")
    node.child.stdin.flush()
    node.fake.slow("nvmlInit_v2", 60_000)
    node.until(lambda verdict: verdict.v == 1)
    node.child.stdin.close()
    assert node.child.wait(PATIENCE_S) == 0


def test_a_wrong_setting_ends_it_with_one_line(node: Node) -> None:
    (node.root / "fairwatt.toml").write_text("health.drian = true\n")
    child = subprocess.run(
        [sys.executable, "-m", "fairwatt.prolog.health.worker"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "FAIRWATT_CONFIG": str(node.root / "fairwatt.toml")},
        timeout=PATIENCE_S,
    )
    assert child.returncode == 1
    assert b"did you mean health.drain?" in child.stderr
    assert b"Traceback" not in child.stderr
