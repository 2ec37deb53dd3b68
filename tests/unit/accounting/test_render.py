# SPDX-License-Identifier: Apache-2.0
"""Tables as text: cells, widths, and text that would steer a terminal."""

from __future__ import annotations

import json

import pytest

from fairwatt.accounting.render import as_json, as_text, cell
from fairwatt.core.records import Column, Table


def column(key, kind="text"):
    return Column(key=key, title=key.title(), kind=kind, definition=f"The {key}.")


def table(*rows, notes=()):
    columns = (column("name"), column("energy", "energy_mj"))
    return Table(name="t", title="Things", columns=columns, rows=rows, data_version=3, notes=notes)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("integer", 1234567, "1,234,567"),
        ("ratio", 0.4567, "45.7 %"),
        ("duration_s", 90_061, "1 d 01:01:01"),
        ("energy_mj", 1_080_000_000, "300 Wh"),
        ("carbon_mg", 600_000, "600 g"),
        ("gpu_hours", 2.5, "2.50"),
        ("json", {"a": 1}, '{"a": 1}'),
        ("text", None, "unknown"),
        ("energy_mj", None, "unknown"),
        ("energy_mj", 0, "0 Wh"),
    ],
)
def test_cells(kind, value, text):
    assert cell(column("x", kind), value) == text


def test_hostile_text_cannot_steer_the_terminal():
    shown = cell(column("name"), "a\x1b[2J\nroot: \u202eok\r")
    assert shown == "a\\x1b[2J\\nroot: \\u202eok\\r"


def test_one_row_reads_as_a_list():
    assert as_text([table(("a", None), notes=["n"])]) == (
        "Things\n──────\nName    a\nEnergy  unknown\nnote: n"
    )


def test_many_rows_read_as_a_grid():
    assert as_text([table(("a", 3_600_000), ("long", 7_200_000))]) == (
        "Things\n──────\nName  Energy\na     1.00 Wh\nlong  2.00 Wh"
    )


def test_no_rows():
    assert as_text([table()]) == "Things\n──────\n(none)"


def test_json_keeps_values_and_definitions():
    data = json.loads(as_json([table(("<b>\n", 5))]))
    assert data["t"]["rows"] == [{"name": "<b>\n", "energy": 5}]
    assert data["t"]["columns"]["energy"] == {"kind": "energy_mj", "definition": "The energy."}
    assert data["t"]["data_version"] == 3
