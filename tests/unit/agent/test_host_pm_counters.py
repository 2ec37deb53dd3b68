# SPDX-License-Identifier: Apache-2.0
"""Cray's counters in a folder: joules, one renewal, and a controller that died."""

from __future__ import annotations

import pytest

from fairwatt.accounting.agent.host import pm_counters
from fairwatt.accounting.agent.host.meter import HostMeter
from fairwatt.accounting.agent.host.pm_counters import PmCountersSource
from fairwatt.core.events import Flag

FILES = {
    "energy": "22384929 J 1764525724000000 us", "cpu_energy": "8123000 J 1764525724000000 us",
    "memory_energy": "901 J 1764525724000000 us", "accel0_energy": "77 J 1764525724000000 us",
    "power": "512 W 1764525724000000 us", "power_cap": "0 W", "freshness": "41",
    "generation": "3", "version": "2", "startup": "1764000000",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "cray" / "pm_counters"
    made.mkdir(parents=True)
    for name, text in FILES.items():
        (made / name).write_text(text + "\n")
    return made


def by_part(source):
    return {reading.part: reading for reading in source.read()}


def test_joules_of_the_node_its_cpus_and_memory(folder) -> None:
    readings = by_part(PmCountersSource(folder))
    assert {part: one.energy_uj for part, one in readings.items()} == {
        "node": 22_384_929_000_000,
        "cpu": 8_123_000_000_000,
        "dram": 901_000_000,
    }
    assert all(one.wrap_uj is one.fault is one.power_mw is None for one in readings.values())


def test_the_older_form_has_no_time_and_may_tell_each_package(folder) -> None:
    (folder / "cpu_energy").unlink()
    for number in (0, 1):
        (folder / f"cpu{number}_energy").write_text(f"{number + 5} J\n")
    readings = by_part(PmCountersSource(folder))
    assert [readings[part].energy_uj for part in ("cpu0", "cpu1")] == [5_000_000, 6_000_000]
    assert "cpu" not in readings


def test_all_packages_together_go_before_each(folder) -> None:
    """Both would count the same joules twice."""
    (folder / "cpu0_energy").write_text("5 J\n")
    assert set(by_part(PmCountersSource(folder))) == {"node", "cpu", "dram"}


def test_an_unreadable_file_is_the_fault_of_its_part_alone(folder) -> None:
    source = PmCountersSource(folder)
    (folder / "memory_energy").write_text("NaN\n")
    (folder / "cpu_energy").unlink()
    readings = by_part(source)
    assert readings["node"].energy_uj == 22_384_929_000_000
    assert "no energy in joules (got 'NaN')" in readings["dram"].fault
    assert "No such file" in readings["cpu"].fault


def test_readings_are_of_one_renewal(folder, monkeypatch) -> None:
    """The controller renews its files in between: all are read again."""
    source, counts = PmCountersSource(folder), iter(["41", "42", "42", "42"])
    monkeypatch.setattr(source, "_freshness", lambda: next(counts))
    read = []
    plain = PmCountersSource._reading
    monkeypatch.setattr(source, "_reading", lambda *args: read.append(args[0]) or plain(*args))
    source.read()
    assert read == 2 * source.parts


def test_counters_that_stand_still_are_a_fault_not_0_watts(folder, monkeypatch) -> None:
    now_ms = [1_000_000]
    monkeypatch.setattr(pm_counters, "now_ms", lambda: now_ms[0])
    source = PmCountersSource(folder)
    assert by_part(source)["node"].fault is None
    now_ms[0] += pm_counters.STALE_MS + 1
    assert "renews its counters no more" in by_part(source)["node"].fault
    assert by_part(source)["node"].energy_uj is None
    (folder / "freshness").write_text("42")
    assert by_part(source)["node"].fault is None


def test_only_a_cray_has_the_source(folder, tmp_path) -> None:
    assert pm_counters.source({"agent.sys_root": str(tmp_path)}).parts == ["cpu", "node", "dram"]
    assert pm_counters.source({"agent.sys_root": str(tmp_path / "elsewhere")}) is None


@pytest.mark.parametrize("joules", [22_384_929 + 2**32, 10**15])
def test_a_counter_that_jumps_is_unknown(folder, joules) -> None:
    """2^32 J in 10 s were 429 MW: no node of one blade."""
    source, meter = PmCountersSource(folder), HostMeter()
    meter.take(source.name, source.read(), unused=False)
    (folder / "energy").write_text(f"{joules} J 1764525734000000 us\n")
    later = source.read()
    meter.take(source.name, later, unused=False)
    closed = meter.close("node", later[0].t_ms)
    assert closed.energy_uj is None
    assert closed.flags & (Flag.IMPLAUSIBLE | Flag.LOST)
