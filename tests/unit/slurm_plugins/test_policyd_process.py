# SPDX-License-Identifier: Apache-2.0
"""`fairwatt policyd` as a process: up without slurmctld, answering, gone without a trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairwatt.core.events import decode_event
from fairwatt.core.sealed_line import unseal
from fairwatt.core.segments import read_lines
from fairwatt.core.unix_socket import ask_line
from tests.lab.waiting import await_value


@pytest.fixture
def policyd(tmp_path):
    """A policyd for which there is no Slurm; yields the process and its socket."""
    path = tmp_path / "p.sock"
    config = tmp_path / "fairwatt.toml"
    folder = tmp_path / "decisions"
    config.write_text(f'[policyd]\nsocket = "{path}"\njournal_dir = "{folder}"\n')
    program = Path(sys.executable).with_name("fairwatt")
    process = subprocess.Popen(
        [str(program), "policyd"],
        env={"FAIRWATT_CONFIG": str(config), "PATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    yield process, path
    if process.poll() is None:
        process.kill()
    process.communicate()


def answer(path: Path, line: bytes) -> dict:
    def ask() -> dict | None:
        try:
            return json.loads(ask_line(path, line, 5))
        except OSError:
            return None

    return await_value(ask, what="policyd's answer", timeout_s=10)


def test_it_starts_without_slurmctld_stands_aside_and_ends_clean(policyd):
    process, path = policyd
    pong = answer(path, b'{"v":1,"verb":"ping"}\n')
    assert (pong["ok"], pong["age_s"], pong["judged"]) == (True, None, 0)
    job = b'{"v":1,"id":"1","verb":"submit","job":{"tres_per_node":"gres/gpu:1"}}\n'
    assert "FW002" in answer(path, job)["say"]
    os.kill(process.pid, signal.SIGHUP)
    assert answer(path, b'{"verb":"ping"}\n')["judged"] == 1
    assert any(b"configuration read again" in line for line in process.stderr)
    os.kill(process.pid, signal.SIGTERM)
    out, _ = process.communicate(timeout=10)
    assert (process.returncode, out) == (0, b"")
    assert not path.exists()
    (segment,) = (path.parent / "decisions").glob("*.journal")
    (event,) = (decode_event(line) for line in read_lines(segment, unseal))
    assert (event.id, [note.code for note in event.notes]) == ("1", ["FW002"])


def test_a_broken_configuration_is_one_line(tmp_path):
    config = tmp_path / "fairwatt.toml"
    config.write_text("[policyd]\nsockett = 1\n")
    program = Path(sys.executable).with_name("fairwatt")
    done = subprocess.run(
        [str(program), "policyd"],
        env={"FAIRWATT_CONFIG": str(config)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "policyd.sockett" in done.stderr
