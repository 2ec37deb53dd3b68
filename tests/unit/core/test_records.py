# SPDX-License-Identifier: Apache-2.0
"""Records: tables as dictionaries."""

from __future__ import annotations

import pytest

from fairwatt.core.records import Column, Table


def table(*rows: tuple[object, ...]) -> Table:
    columns = [
        Column(key=key, title=key.upper(), kind="integer", definition="A number.")
        for key in ("a", "b")
    ]
    return Table(name="t", title="T", columns=columns, rows=rows, data_version=3)


def test_rows_by_column() -> None:
    assert table((1, None), (3, 4)).records() == [{"a": 1, "b": None}, {"a": 3, "b": 4}]


def test_a_row_of_the_wrong_length_is_a_fault() -> None:
    with pytest.raises(ValueError, match="shorter"):
        table((1,)).records()
