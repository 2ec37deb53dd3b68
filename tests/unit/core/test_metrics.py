# SPDX-License-Identifier: Apache-2.0
"""The text of metrics, and that none can be told which the page does not have."""

from __future__ import annotations

import re

import pytest

from fairwatt.core.metrics import METRICS, OPENMETRICS, TEXT, Sample, content_type, render


def test_text_for_prometheus() -> None:
    text = render([Sample("collector_bodies", 3), Sample("collector_lag_seconds", 1.5)])
    assert text == (
        "# HELP fairwatt_collector_bodies_total Bodies taken since the collector began.\n"
        "# TYPE fairwatt_collector_bodies_total counter\n"
        "fairwatt_collector_bodies_total 3\n"
        "# HELP fairwatt_collector_lag_seconds Age of the newest window at the last delivery.\n"
        "# TYPE fairwatt_collector_lag_seconds gauge\n"
        "fairwatt_collector_lag_seconds 1.5\n"
    )


def test_openmetrics_names_the_family_without_total_and_ends() -> None:
    lines = render(
        [Sample("ledger_energy_joules", 12.345, ("gpu", "run"))], OPENMETRICS
    ).splitlines()
    assert lines[1:] == [
        "# TYPE fairwatt_ledger_energy_joules counter",
        'fairwatt_ledger_energy_joules_total{kind="gpu",owner="run"} 12.345',
        "# EOF",
    ]


def test_the_reader_says_which_form() -> None:
    assert content_type("application/openmetrics-text;version=1.0.0,text/plain;q=0.5") == (
        OPENMETRICS
    )
    assert content_type("text/plain") == content_type(None) == TEXT


@pytest.mark.parametrize(
    "sample",
    [
        Sample("collector_users", 1),
        Sample("collector_bodies", 1, ("x",)),
        Sample("ledger_energy_joules", 1, ("gpu",)),
        Sample("ledger_energy_joules", 1, ('gpu"} 1\nevil 2', "run")),
    ],
)
def test_what_is_not_in_the_table_cannot_be_told(sample: Sample) -> None:
    with pytest.raises(KeyError):
        render([sample])


def test_names_are_good_and_labels_few() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"[a-z][a-z_]*[a-z]", metric.name)
        assert not metric.name.endswith("_total")
        assert metric.doc.endswith(".")
        for values in (metric.labels or {}).values():
            assert len(values) <= 4
