# SPDX-License-Identifier: Apache-2.0
"""checks.toml holds together; health.toml changes single entries, each fault with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairwatt.core.errors import ConfigError
from fairwatt.prolog.health.reading import GPU_PARTS, NODE_PARTS
from fairwatt.prolog.health.registry import CHECKS
from fairwatt.prolog.health.schedule import Schedule
from fairwatt.prolog.health.site import site_checks
from fairwatt.prolog.health.spec import load_checks, load_xids

OWN = load_checks()


def changed(tmp_path: Path, text: str):
    path = tmp_path / "health.toml"
    path.write_text(text)
    return load_checks(path)


def test_codes_are_unique_and_every_check_has_its_function() -> None:
    codes = [spec.code for spec in OWN.values()]
    assert len(set(codes)) == len(codes)
    assert codes == sorted(codes)
    assert set(OWN) == set(CHECKS)


@pytest.mark.parametrize("spec", OWN.values(), ids=lambda spec: spec.name)
def test_every_check_explains_itself(spec) -> None:
    assert set(spec.about) == set(spec.parameters)
    assert set(spec.reads) <= {*GPU_PARTS, *NODE_PARTS}
    assert spec.deadline_s < spec.period_s
    assert spec.what.endswith(".")
    assert spec.remedy.endswith(".")
    assert spec.action == "alert" or "prolog" in spec.contexts


def test_the_xids_of_applications_are_no_faults() -> None:
    kinds = {number: item.kind for number, item in load_xids().items()}
    assert {kinds[number] for number in (13, 31, 43, 45)} == {"application"}
    assert {kinds[number] for number in (48, 64, 74, 79, 95, 119, 120)} == {"fault"}
    assert {kinds[number] for number in (63, 92, 94)} == {"notice"}


def test_a_site_changes_single_entries(tmp_path: Path) -> None:
    checks = changed(
        tmp_path,
        "[defaults]\nperiod_s = 120\n[checks.ecc_uncorrected]\naction = 'alert'\n"
        "parameters = { over = 3 }\n[checks.hot]\nenabled = false\nperiod_s = 7\n",
    )
    spec = checks["ecc_uncorrected"]
    assert (spec.action, spec.parameters, spec.period_s) == ("alert", {"over": 3}, 120)
    assert (checks["hot"].enabled, checks["hot"].period_s) == (False, 7)
    assert checks["gpu_lost"] == OWN["gpu_lost"].__class__(
        **{
            **{name: getattr(OWN["gpu_lost"], name) for name in OWN["gpu_lost"].__struct_fields__},
            "period_s": 120,
        }
    )
    assert load_checks() == OWN


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "{path}:1: x: unknown key; known here: defaults, checks"),
        ("[checks.gpu_lots]", "{path}:1: checks.gpu_lots: unknown key; did you mean gpu_lost?"),
        (
            "\n[checks.hot]\nseverty = 'bad'",
            "{path}:3: checks.hot.severty: unknown key; did you mean severity?",
        ),
        (
            "[checks.hot]\naction = 'reboot'",
            "{path}:2: checks.hot.action: Invalid enum value 'reboot' (got 'reboot'); "
            "see docs/health.md",
        ),
        (
            "[checks.hot.parameters]\nmargin = 3",
            "{path}:2: checks.hot.parameters.margin: unknown key; did you mean margin_c?",
        ),
        (
            "[checks.hot]\nparameters = { margin_c = '3' }",
            "{path}:2: checks.hot.parameters.margin_c: wrong type (got '3'); write it like 3",
        ),
        (
            "[checks.xid_fault]\nparameters.ignore = [true]",
            "{path}:2: checks.xid_fault.parameters.ignore: wrong type (got [True]); "
            "write it like []",
        ),
        (
            "[defaults]\nperiod_s = 0",
            "{path}:2: defaults.period_s: out of range (got 0); give 0.05 to 86400",
        ),
        ("checks = 3", "{path}:1: checks: no table (got 3); write [checks]"),
        ("[checks.hot]\nenabled = 1", "{path}:2: checks.hot.enabled: Expected `bool`"),
        ("[checks\n", "{path}:1: not valid TOML"),
        pytest.param("x = " + "[" * 5000, "{path}: not valid TOML", id="nested"),
    ],
)
def test_each_fault_names_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        changed(tmp_path, text)
    assert str(caught.value).startswith(message.format(path=tmp_path / "health.toml"))


def test_a_faulty_file_lets_no_check_drain(tmp_path: Path) -> None:
    path = tmp_path / "health.toml"
    path.write_text("[checks.hot]\naction = 'reboot'\n")
    checks, fault = site_checks(path)
    assert fault is not None
    assert (fault.code, fault.severity) == ("FWH905", "unknown")
    assert {spec.action for spec in checks.values()} == {"alert"}
    path.write_text("")
    assert site_checks(path) == (OWN, None)


def test_the_default_file_may_be_absent_and_a_named_one_may_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_checks(tmp_path / "none.toml")


SOME = [OWN[name] for name in ("gpu_lost", "pcie_width", "memory_held")]  # 15, 300, 60 s


class TestSchedule:
    def test_all_first_then_each_in_its_period(self) -> None:
        schedule = Schedule(SOME, 0)
        rounds = {now: [spec.name for spec in schedule.take(now)] for now in range(61)}
        assert {now: names for now, names in rounds.items() if names} == {
            0: ["gpu_lost", "pcie_width", "memory_held"],
            15: ["gpu_lost"],
            30: ["gpu_lost"],
            45: ["gpu_lost"],
            60: ["gpu_lost", "memory_held"],
        }
        assert schedule.wait_s(61) == 14

    def test_what_a_job_may_have_left_is_looked_for_soon(self) -> None:
        schedule = Schedule(SOME, 0)
        schedule.take(0)
        schedule.hasten("epilog", 1, 2)
        assert schedule.take(2) == []
        assert [spec.name for spec in schedule.take(3)] == ["memory_held"]
