# SPDX-License-Identifier: Apache-2.0
"""How sure an energy is, in words and numbers."""

from __future__ import annotations

import tomllib

import pytest

from fairwatt.accounting.render import as_text
from fairwatt.accounting.reports.job import job_report
from fairwatt.accounting.reports.scope import scope_of
from fairwatt.accounting.reports.uncertainty import DATA, band, method_line, percent_of
from tests.unit.reports.tiny import CLUSTER, KWH, add_run


def test_the_band_is_the_sensors_error_both_ways():
    """5 % of 2 kWh are 0.1 kWh."""
    assert band(2 * KWH, "counter") == (1_900_000 * 3_600, 2_100_000 * 3_600)


def test_the_band_never_leaves_the_energy_out():
    assert band(1, "counter") == (0, 2)
    assert band(0, "counter") == (0, 0)


def test_the_line_says_how_and_how_well():
    assert method_line("counter", 2 * KWH) == (
        "GPU energy counter, good to ± 5 %: 1.90 kWh to 2.10 kWh"
    )


def test_of_two_methods_the_worse_counts():
    assert percent_of("counter+integrated") == 10


def test_memory_is_less_sure_than_packages():
    assert (percent_of("rapl", "cpu"), percent_of("rapl", "dram")) == (5, 20)


@pytest.mark.parametrize("method", ["none", "included", "invented", "counter+new thing"])
def test_what_has_no_figure_gets_no_band(method):
    assert percent_of(method) is None
    assert "±" not in method_line(method, KWH)


def test_an_unknown_energy_has_no_band():
    assert method_line("counter", None) == "GPU energy counter"


def test_the_job_report_and_its_text_say_it(store):
    run_id = add_run(store, alloc_tres="gres/gpu=1")
    store.execute(
        "INSERT INTO run_energy (run_id, device_uuid, node, model, idle_mj, active_mj,"
        " util_permille, measured_s, flags, method)"
        " VALUES (?, 'GPU-1', 'n1', 'm', ?, ?, 500, 100, 0, 'counter')",
        (run_id, KWH, KWH),
    )
    tables = job_report(store.conn, scope_of(store.conn, "ann"), CLUSTER, 7)
    assert "good to ± 5 %: 1.90 kWh to 2.10 kWh" in as_text(tables)


def test_no_sensor_is_claimed_to_be_good_to_one_percent_and_each_has_its_source():
    for table in tomllib.loads(DATA.read_text(encoding="utf-8")).values():
        assert table["percent"] > 1
        assert table["source"]
        assert table["mark"] in ("read", "recalled", "ours")
