# SPDX-License-Identifier: Apache-2.0
"""selftest.lua: says whether this Lua can run the hook and gets an answer from policyd."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from fairwatt.slurm_plugins.checks import HOOK
from fairwatt.slurm_plugins.lineserver import LineServer
from tests.unit.slurm_plugins.far_end import real
from tests.unit.slurm_plugins.test_policyd_process import answer, policyd  # noqa: F401

SELFTEST = HOOK.with_name("selftest.lua")
LUAS = ("lua5.1", "lua5.3", "lua5.4")


@pytest.fixture(params=LUAS)
def proof(request, tmp_path):
    """Runs the self-test in one Lua on a staged hook whose settings name `socket`."""

    def run(socket: Path, *, hook: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        staged = tmp_path / "job_submit.lua"
        shutil.copy(HOOK, staged)
        if hook:
            staged.write_text(hook)
        # The real deadline of 10 ms is for a host at rest, not for one that runs tests.
        settings = f'return {{ socket = "{socket}", deadline_ms = 1000 }}\n'
        (tmp_path / "fairwatt_hook.lua").write_text(settings)
        return subprocess.run(
            [request.param, str(SELFTEST), str(staged)],
            env={"PATH": "/usr/bin:/bin", **env}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


@pytest.fixture
def far_end(tmp_path):
    """A socket at which policyd with the facts of a campus answers."""
    server = LineServer(tmp_path / "p.sock", lambda line: real(line.decode("ascii")).encode())
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server.path
    server.stop()
    thread.join()
    server.close()


def test_all_is_well(proof, far_end):
    done = proof(far_end)
    assert (done.returncode, done.stderr) == (0, "")


def test_policyd_without_facts_is_named(proof, policyd):  # noqa: F811
    _, socket = policyd
    answer(socket, b'{"verb":"ping"}\n')
    done = proof(socket)
    assert done.returncode == 1
    assert "the cluster's facts are" in done.stderr


def test_policyd_that_is_away_is_named(proof, tmp_path):
    done = proof(tmp_path / "none.sock")
    assert done.returncode == 1
    assert "policyd: " in done.stderr


@pytest.mark.parametrize("hook", ["function slurm_job_submit(", "error('no')", "return 0"])
def test_a_hook_that_cannot_be_loaded_is_named(proof, tmp_path, hook):
    done = proof(tmp_path / "none.sock", hook=hook)
    assert done.returncode == 1
    assert "job_submit.lua" in done.stderr


def test_missing_sockets_are_named(proof, tmp_path):
    done = proof(tmp_path / "none.sock", LUA_PATH="/nowhere/?.lua", LUA_CPATH="/nowhere/?.so")
    assert done.returncode == 1
    assert "has no module socket: install LuaSocket for it" in done.stderr
