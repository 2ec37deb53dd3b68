# SPDX-License-Identifier: Apache-2.0
"""The node's power by IPMI, from what the tools print; the BMC is asked rarely."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from fairwatt.accounting.agent.host import ipmi
from fairwatt.accounting.agent.host.bmc import BmcSource
from fairwatt.core.errors import DeviceError

RECORDED = Path(__file__).parents[2] / "data" / "bmc"
SETTINGS = {"agent.bmc_timeout_s": 5.0, "agent.bmc_period_s": 30.0}


@pytest.mark.parametrize(
    ("file", "power_mw"),
    [("ipmi-dcmi.txt", 1_184_000), ("ipmitool.txt", 220_000), ("ipmiutil.txt", 49_000)],
)
def test_the_momentary_power_of_each_tool(file, power_mw) -> None:
    assert ipmi.parse_power((RECORDED / file).read_text()) == power_mw


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ((RECORDED / "ipmi-dcmi-inactive.txt").read_text(), "does not measure"),
        ("Current Power : 0 Watts", "cannot be"),
        ("Current Power : 65535 Watts", "cannot be"),
        ("Current Power : -5 Watts", "no power"),
        ("Current Power : 5 kW", "no power"),
        ("", "no power"),
        ("DCMI request failed because: Invalid command (c1)", "Invalid command"),
    ],
)
def test_what_is_no_power_is_told_not_taken_for_0(text, problem) -> None:
    with pytest.raises(DeviceError, match=problem):
        ipmi.parse_power(text)


def test_the_command_is_run_and_read() -> None:
    printing = f"print({(RECORDED / 'ipmi-dcmi.txt').read_text()!r})"
    config = {**SETTINGS, "agent.ipmi_command": [sys.executable, "-c", printing]}
    (reading,) = ipmi.source(config).read()
    assert (reading.part, reading.power_mw, reading.fault) == ("node", 1_184_000, None)
    assert reading.energy_uj is None


@pytest.mark.parametrize(
    ("argv", "fault"),
    [
        (["/no/such/ipmi-dcmi"], "not found"),
        ([sys.executable, "-c", "raise SystemExit('no device')"], "no device"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "no answer within 0.3 s"),
    ],
)
def test_a_tool_that_is_missing_fails_or_hangs_is_a_fault(argv, fault) -> None:
    config = {**SETTINGS, "agent.ipmi_command": argv, "agent.bmc_timeout_s": 0.3}
    (reading,) = ipmi.source(config).read()
    assert reading.power_mw is None
    assert fault in reading.fault


def test_the_bmc_is_asked_once_in_its_period() -> None:
    now, answers = [100.0], iter([200_000, 300_000])
    source = BmcSource("ipmi", lambda: next(answers), 30.0, clock=lambda: now[0])
    assert source.slow
    (first,) = source.read()
    now[0] = 129.9
    assert source.read() == [first]
    now[0] = 130.0
    (second,) = source.read()
    assert (first.power_mw, second.power_mw) == (200_000, 300_000)
    assert second.t_ms >= first.t_ms


@pytest.mark.parametrize("text", ["\n" * 1_000_000, " " * 1_000_000, "current power " * 80_000,
                                  "power measurement :" + " " * 1_000_000 + "x"])  # fmt: skip
def test_a_strange_answer_takes_no_time(text) -> None:
    """Python's regular expressions hold up all other threads, hooks' answers too."""
    began_s = time.process_time()
    with pytest.raises(DeviceError):
        ipmi.parse_power(text)
    assert time.process_time() - began_s < 1.0
