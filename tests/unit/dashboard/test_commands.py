# SPDX-License-Identifier: Apache-2.0
"""`fairwatt demo` and `fairwatt dashboard` as commands."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairwatt.core.errors import StoreError
from fairwatt.dashboard.commands import dashboard, demo

FAIRWATT = Path(sys.executable).with_name("fairwatt")


def test_seed_only_writes_a_store_and_says_so(tmp_path):
    path = tmp_path / "year.db"
    result = CliRunner().invoke(
        demo, ["--seed-only", "--database", str(path), "--until", "2026-03-01", "--json"]
    )
    assert result.exit_code == 0, result.output
    facts = json.loads(result.output)
    assert facts["database"] == str(path)
    assert 11_000 < facts["runs"] < 15_000
    assert facts["seconds"] < 30
    again = CliRunner().invoke(demo, ["--seed-only", "--database", str(path)])
    assert isinstance(again.exception, StoreError)


def test_seed_only_needs_a_place():
    result = CliRunner().invoke(demo, ["--seed-only"])
    assert result.exit_code == 2
    assert "--database" in result.output


def test_dashboard_without_a_store_names_it(tmp_path, monkeypatch):
    config = tmp_path / "fairwatt.toml"
    config.write_text(f'[collector]\ndatabase = "{tmp_path}/none.db"\n', encoding="utf-8")
    monkeypatch.setenv("FAIRWATT_CONFIG", str(config))
    result = CliRunner().invoke(dashboard, [])
    assert isinstance(result.exception, StoreError)
    assert "none.db" in str(result.exception)


def test_a_taken_port_is_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [FAIRWATT, "demo", "--port", port],
            capture_output=True,
            env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"127.0.0.1:{port}: cannot be listened on (Address already in use)" in done.stderr
    assert "--port" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_demo_serves_until_a_signal_and_leaves_nothing(tmp_path, ending):
    process = subprocess.Popen(
        [FAIRWATT, "demo", "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
        text=True,
    )
    try:
        facts = json.loads(process.stdout.readline())
        with urllib.request.urlopen(f"{facts['url']}/me", timeout=10) as answer:
            assert b"Invented data for demonstration" in answer.read()
        process.send_signal(ending)
        rest, errors = process.communicate(timeout=20)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert (process.returncode, rest, errors) == (0, "", "")
    assert list(tmp_path.iterdir()) == []
