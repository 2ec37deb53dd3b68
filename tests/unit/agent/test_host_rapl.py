# SPDX-License-Identifier: Apache-2.0
"""RAPL zones in a powercap tree: which are read, and what a counter's fall means."""

from __future__ import annotations

import os

import pytest

from fairwatt.accounting.agent.host.meter import HostMeter
from fairwatt.accounting.agent.host.rapl import RaplSource, source
from fairwatt.accounting.agent.host.source import Reading
from fairwatt.accounting.ledger_host import HostDelta, host_delta
from fairwatt.core import config
from fairwatt.core.events import Flag
from tests.fakes.host_tree import RANGE_UJ, HostTree


def rapl(tree: HostTree) -> RaplSource:
    return RaplSource(tree.sys / "class" / "powercap")


def test_packages_and_dram_are_read_and_what_overlaps_them_is_not(tmp_path):
    tree = HostTree(tmp_path)
    tree.zone("psys", 9)
    found = {r.part: (r.energy_uj, r.wrap_uj, r.fault) for r in rapl(tree).read()}
    assert found == dict.fromkeys(("cpu0", "cpu1", "dram0", "dram1"), (1000000, RANGE_UJ, None))


def test_dies_of_a_package_are_parts_of_their_own(tmp_path):
    assert rapl(HostTree(tmp_path, packages=1, dies=2, dram=False)).parts == ["cpu0d0", "cpu0d1"]


def test_a_host_without_powercap_has_no_source(tmp_path):
    (tmp_path / "fairwatt.toml").write_text(f"[agent]\nsys_root = '{tmp_path}'\n")
    assert source(config.load(tmp_path / "fairwatt.toml")) is None


def test_counters_for_root_only_are_a_fault_said_once(tmp_path, caplog, monkeypatch):
    zones = rapl(HostTree(tmp_path))

    def refuse(path, flags):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    readings = [*zones.read(), *zones.read()]
    assert all(r.energy_uj is None and "root only" in r.fault for r in readings)
    assert len([r for r in caplog.records if "CAP_DAC_READ_SEARCH" in r.message]) == 1


def test_an_unreadable_range_is_unknown(tmp_path):
    tree = HostTree(tmp_path, packages=1, dram=False)
    (tree.counter("cpu0").parent / "max_energy_range_uj").unlink()
    assert rapl(tree).read()[0].wrap_uj is None


def test_a_counter_that_passed_its_end_goes_on():
    """E15: 262,143,000,000 to 1,000,000 µJ of 262,143,328,850 are 1,328,850 µJ."""
    delta = host_delta(262_143_000_000, 1_000_000, 10_000, RANGE_UJ, 500_000)
    assert delta == HostDelta(1_328_850, Flag.WRAPPED)


def test_a_fall_without_a_known_end_is_unknown_never_negative():
    assert host_delta(262_143_000_000, 1_000_000, 10_000, None, 500_000) == HostDelta(
        None, Flag.RESET
    )


@pytest.mark.parametrize(
    ("dt_ms", "energy_uj", "flags"),
    [
        (262_143, 1000, 0),  # 262,143 J at 500 W: 524.287 s; the half is 262.143 s
        (262_144, 1000, Flag.AMBIGUOUS),
        (524_286, 1000, Flag.AMBIGUOUS),
        (524_287, None, Flag.AMBIGUOUS),
    ],
)
def test_a_counter_that_was_not_read_for_long_may_have_passed_its_end(dt_ms, energy_uj, flags):
    assert host_delta(0, 1000, dt_ms, RANGE_UJ, 500_000) == HostDelta(energy_uj, Flag(flags))


def test_more_than_the_part_can_draw_is_unknown():
    """E16 without the boot id: 62,193 J in 40 s are 1.55 kW."""
    delta = host_delta(200_000_000_000, 50_000_000, 40_000, RANGE_UJ, 500_000)
    assert delta == HostDelta(None, Flag.WRAPPED | Flag.IMPLAUSIBLE)


def test_power_without_a_counter_is_held_until_the_next():
    """180 W for 60 s and then 60 W for 30 s are 12,600 J."""
    meter = HostMeter()
    for t_ms, power_mw in ((0, 100_000), (0, 180_000), (60_000, 60_000)):
        meter.take("ipmi", [Reading("node", t_ms, power_mw=power_mw)], unused=False)
        if t_ms == 0:
            meter.close("node", 0)
    done = meter.close("node", 90_000)
    assert (done.energy_uj, done.flags) == (12_600_000_000, Flag.INTEGRATED)


def test_a_power_that_is_too_old_says_nothing():
    meter = HostMeter()
    meter.take("ipmi", [Reading("node", 0, power_mw=100_000)], unused=False)
    meter.close("node", 0)
    assert meter.close("node", 60_001).energy_uj is None


def test_a_fault_makes_this_window_and_the_next_unknown(caplog):
    meter = HostMeter()
    good = [Reading("cpu0", 0, 5_000, RANGE_UJ, max_mw=500_000)]
    meter.take("rapl", good, unused=False)
    meter.close("cpu0", 0)
    for t_ms in (1000, 2000):
        meter.take("rapl", [Reading("cpu0", t_ms, fault="gone")], unused=False)
    assert meter.close("cpu0", 2000).flags == Flag.LOST
    meter.take("rapl", [Reading("cpu0", 3000, 9_000, RANGE_UJ, max_mw=500_000)], unused=False)
    assert meter.close("cpu0", 3000).energy_uj is None
    meter.take("rapl", [Reading("cpu0", 4000, 9_500, RANGE_UJ, max_mw=500_000)], unused=False)
    assert meter.close("cpu0", 4000).energy_uj == 500
    assert [r.message.split(":")[0] for r in caplog.records] == [
        "rapl cpu0", "rapl cpu0 answers again",
    ]  # fmt: skip


def test_idle_power_is_the_least_seen_while_no_job_ran():
    meter = HostMeter()
    meter.resume("cpu0", "rapl", 0, 0, None)
    # 40 W without a job, 30 W with one, 45 W without, and 1 s is too short a look.
    energy_uj = t_ms = 0
    for power_mw, ms, unused in (
        (40_000, 10_000, True), (30_000, 10_000, False), (45_000, 10_000, True),
        (5_000, 1_000, True),
    ):  # fmt: skip
        energy_uj, t_ms = energy_uj + power_mw * ms, t_ms + ms
        meter.take("rapl", [Reading("cpu0", t_ms, energy_uj, RANGE_UJ)], unused=unused)
    assert meter.close("cpu0", t_ms).idle_mw == 40_000


def test_packages_of_one_source_are_not_added_to_all_of_another():
    meter = HostMeter()
    meter.take("rapl", [Reading("cpu0", 0, 1), Reading("cpu1", 0, 1)], unused=False)
    meter.take("pm_counters", [Reading("cpu", 0, 2), Reading("dram", 0, 1)], unused=False)
    assert meter.parts == ["cpu0", "cpu1", "dram"]


def test_a_part_is_taken_from_the_first_source_that_gave_it():
    meter = HostMeter()
    meter.take("rapl", [Reading("cpu0", 0, 100)], unused=False)
    meter.take("pm_counters", [Reading("cpu0", 0, 7), Reading("node", 0, 9)], unused=False)
    assert {part: meter.close(part, 0).method for part in meter.parts} == {
        "cpu0": "rapl", "node": "pm_counters",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("dt_ms", "idle_mw"), [(10_000, 50_000), (3_600_000, None), (1_000, None)]
)
def test_idle_power_is_learned_from_a_look_of_seconds(dt_ms, idle_mw):
    """500 J in 10 s are 50 W; in an hour that the clock leapt they are nothing to keep."""
    meter = HostMeter()
    meter.take("rapl", [Reading("cpu0", 0, 0, RANGE_UJ)], unused=True)
    meter.take("rapl", [Reading("cpu0", dt_ms, 500_000_000, RANGE_UJ)], unused=True)
    assert meter.close("cpu0", dt_ms).idle_mw == idle_mw


def test_a_clock_that_was_set_back_loses_nothing_of_a_counter():
    """100 J before, 100 J while the clock goes from 10 s to 5 s, 100 J after."""
    meter = HostMeter()
    for t_ms, joules in ((0, 0), (10_000, 100), (5_000, 200), (15_000, 300)):
        reading = Reading("cpu0", t_ms, joules * 1_000_000, RANGE_UJ, max_mw=100_000)
        meter.take("rapl", [reading], unused=False)
        if t_ms == 0:
            meter.close("cpu0", 0)
    done = meter.close("cpu0", 15_000)
    assert (done.energy_uj, done.flags) == (300_000_000, Flag(0))


def test_a_part_that_did_not_answer_when_the_window_began_says_why_it_is_unknown():
    meter = HostMeter()
    meter.take("rapl", [Reading("cpu0", 0, 0, RANGE_UJ)], unused=False)
    meter.take("rapl", [Reading("cpu0", 1_000, fault="no answer")], unused=False)
    meter.close("cpu0", 1_000)
    meter.take("rapl", [Reading("cpu0", 2_000, 50_000_000, RANGE_UJ)], unused=False)
    done = meter.close("cpu0", 2_000)
    assert (done.energy_uj, done.flags) == (None, Flag.LOST)


def test_zones_whose_driver_is_loaded_later_are_found_within_a_minute(tmp_path):
    (tmp_path / "fairwatt.toml").write_text(f"[agent]\nsys_root = '{tmp_path / 'sys'}'\n")
    powercap = tmp_path / "sys" / "class" / "powercap"
    powercap.mkdir(parents=True)
    assert source(config.load(tmp_path / "fairwatt.toml")).read() == []
    now_s = 0.0
    zones = RaplSource(powercap, lambda: now_s)
    HostTree(tmp_path, packages=1)
    assert zones.read() == []
    now_s = 61.0
    assert [reading.part for reading in zones.read()] == ["cpu0", "dram0"]
    HostTree(tmp_path, packages=2)
    now_s = 122.0
    assert [reading.part for reading in zones.read()] == ["cpu0", "dram0", "cpu1", "dram1"]
