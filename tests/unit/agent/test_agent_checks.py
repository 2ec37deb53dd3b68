# SPDX-License-Identifier: Apache-2.0
"""The agent's part of `fairwatt doctor`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fairwatt.accounting.agent import checks as checks_module
from fairwatt.accounting.agent.checks import checks
from fairwatt.core import config
from fairwatt.core.call import call
from tests.fakes.machines import a100_node

RUN_CHECKS = """
import json
from fairwatt.accounting.agent.checks import checks
from fairwatt.core import config
from fairwatt.core.doctor import Report, as_json, run_checks
print(as_json(Report(tuple(run_checks(checks, config.load(config.find()))))))
"""


def run(lab, name: str) -> list[dict[str, str]]:
    """Run this room's checks as on the lab's node; return the findings of one."""
    argv = [sys.executable, "-c", RUN_CHECKS]
    report = json.loads(call(argv, timeout_s=20, env=lab.env).stdout)
    return [item for item in report["findings"] if item["check"] == name]


def test_a_healthy_node(lab) -> None:
    a100_node(lab.fake, "n1", count=2)
    lab.start()
    assert run(lab, "agent.nvml")[0]["problem"] == "NVML shows 2 GPUs"
    assert run(lab, "agent.socket")[0]["problem"] == "agent answers, 2 GPUs"
    assert run(lab, "agent.spool") == []
    (collector,) = run(lab, "agent.collector")
    assert collector["level"] == "error"
    assert "fairwatt collector" in collector["remedy"]


def test_a_board_whose_counter_contradicts_its_power_is_a_warning() -> None:
    told = {"GPU-1": "counter 60 W, power sensor 20 W"}
    status = {"devices": 1, "on_disk": True, "faults": {}, "doubtful": told}
    _, finding = checks_module._of_status(status, needs_gpus=True)
    assert (finding.level, finding.problem) == ("warn", "GPU-1: counter 60 W, power sensor 20 W")


def test_the_idle_power_of_boards_is_told() -> None:
    since_ms = 1_793_491_200_000  # 2026-11-01 00:00 UTC
    told = {
        "GPU-1": {"mw": 58_240, "by": "learnt", "looks": 96, "since_ms": since_ms,
                  "catalogue_mw": 50_000},
        "GPU-2": {"mw": 50_000, "by": "catalogue", "looks": 3, "since_ms": since_ms,
                  "catalogue_mw": 50_000},
    }  # fmt: skip
    status = {"devices": 2, "on_disk": True, "faults": {}, "idle_power": told}
    _, *findings = checks_module._of_status(status, needs_gpus=True)
    assert [(finding.level, finding.problem) for finding in findings] == [
        ("info", "GPU-1: 58.2 W without work, learnt from 96 windows since 2026-11-01"
                 " (catalogue: 50 W)"),
        ("info", "idle power of 1 GPUs by the catalogue"),
    ]  # fmt: skip


def test_what_was_set_aside_is_pointed_at(lab) -> None:
    folder = lab.root / "spool" / "journal"
    folder.mkdir(parents=True)
    (folder / "0000000001.bad").write_text("x")
    lab.inbox.mkdir()
    (finding,) = run(lab, "agent.spool")
    assert finding["level"] == "warn"
    assert "0000000001.bad" in finding["problem"]


def test_a_driver_that_is_not_loaded_is_an_error(lab) -> None:
    lab.fake.driver(False)
    (finding,) = run(lab, "agent.nvml")
    assert finding["level"] == "error"
    assert "Driver Not Loaded" in finding["problem"]
    (socket,) = run(lab, "agent.socket")
    assert "start `fairwatt agent`" in socket["remedy"]


def test_without_gpus_the_checks_say_so_and_pass(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(checks_module, "_is_gpu_node", lambda: False)
    file = tmp_path / "fairwatt.toml"
    file.write_text(f"[agent]\nspool_dir = '{tmp_path / 'none'}'\n")
    for check in checks[1:]:
        (finding,) = check.run(config.load(file))
        assert finding.level == "info"


@pytest.mark.parametrize("check", checks)
def test_names_are_of_this_room(check) -> None:
    assert check.name.startswith("agent.")
