# SPDX-License-Identifier: Apache-2.0
"""Doctor's checks of the submit side."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fairwatt.core import config as config_module
from fairwatt.core.errors import PolicyError
from fairwatt.slurm_plugins.checks import HOOK, checks

CHECK = {check.name: check.run for check in checks}


@pytest.fixture
def config(tmp_path):
    conf = tmp_path / "slurm.conf"
    conf.write_text("")
    values = {"policyd.socket": str(tmp_path / "p"), "site.slurm_conf": str(conf)}
    base = config_module.load(None)
    return replace(base, values={**base.values, **values})


def levels(findings):
    return [finding.level for finding in findings]


def answering(path, answer: bytes):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)

    def serve():
        client, _ = listener.accept()
        with client, listener:
            client.recv(100)
            client.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_policyd_that_is_away_is_an_error(config):
    (finding,) = CHECK["submit.policyd"](config)
    assert finding.level == "error"
    assert config["policyd.socket"] in finding.problem


def test_the_pace_of_policyd_is_told_and_a_slow_one_named(config):
    pong = '{"ok":true,"age_s":3.0,"nodes":4,"judged":9,"memo_hits":7,"p50_us":12,"p99_us":%d}\n'
    for p99_us, expected in ((310, ["info"]), (2100, ["info", "warn"])):
        thread = answering(config["policyd.socket"], (pong % p99_us).encode())
        findings = CHECK["submit.policyd"](config)
        thread.join()
        Path(config["policyd.socket"]).unlink()
        assert levels(findings) == expected
        assert (
            f"9 jobs judged, 7 of them from memory, half within 12 µs, 99 % within {p99_us} µs"
            in (findings[0].problem)
        )


@pytest.mark.parametrize(
    ("answer", "level"),
    [(b'{"ok":true,"age_s":3.0,"nodes":4}\n', "info"), (b'{"ok":true,"age_s":null}\n', "warn")],
)
def test_policyd_that_answers(config, answer, level):
    thread = answering(config["policyd.socket"], answer)
    assert levels(CHECK["submit.policyd"](config)) == [level]
    thread.join()


def test_another_program_on_the_socket(config):
    thread = answering(config["policyd.socket"], b"[]\n")
    with pytest.raises(PolicyError):
        CHECK["submit.policyd"](config)
    thread.join()


def test_decisions_that_wait_for_hours_are_told(config, tmp_path):
    config = replace(config, values={**config.values, "policyd.journal_dir": str(tmp_path / "d")})
    assert CHECK["submit.decisions"](config) == []
    segment = tmp_path / "d" / "0000000001.journal"
    segment.parent.mkdir()
    segment.write_bytes(bytes(2**20))
    assert CHECK["submit.decisions"](config) == []
    os.utime(segment, (time.time() - 7200,) * 2)
    (finding,) = CHECK["submit.decisions"](config)
    assert finding.level == "warn"
    assert "1.0 MiB of decisions have waited 2 h" in finding.problem
    off = replace(config, values={**config.values, "policyd.journal_dir": ""})
    assert CHECK["submit.decisions"](off) == []


def test_the_hook_file(config, tmp_path):
    assert levels(CHECK["submit.hook"](config)) == ["error"]
    shutil.copy(HOOK, tmp_path)
    assert levels(CHECK["submit.hook"](config)) == ["warn"]
    (tmp_path / "fairwatt_hook.lua").write_text("return {}")
    assert levels(CHECK["submit.hook"](config)) == []
    (tmp_path / "job_submit.lua").write_text("return 0")
    assert levels(CHECK["submit.hook"](config)) == ["error"]
