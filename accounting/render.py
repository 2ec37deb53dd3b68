# SPDX-License-Identifier: Apache-2.0
"""Tables as text for a terminal and as JSON; adds nothing to what the report says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from fairwatt.core.records import Column, Table
from fairwatt.core.units import UNKNOWN, format_carbon, format_duration, format_kwh

__all__ = ["as_json", "as_text", "cell"]

_SHOWN: Mapping[str, Callable[[Any], str]] = {
    "text": str,
    "integer": lambda value: f"{value:,}",
    "ratio": lambda value: f"{100 * value:.1f} %",
    "ts": lambda value: f"{datetime.fromtimestamp(value).astimezone():%Y-%m-%d %H:%M:%S %Z}",
    "duration_s": format_duration,
    "energy_mj": format_kwh,
    "carbon_mg": format_carbon,
    "gpu_hours": lambda value: f"{value:,.2f}",
    "json": lambda value: value if isinstance(value, str) else json.dumps(value),
}


def as_json(tables: Iterable[Table]) -> str:
    """Return the tables by name, each with its rows as objects and its columns' definitions."""
    return json.dumps(
        {
            table.name: {
                "title": table.title,
                "columns": {
                    column.key: {"kind": column.kind, "definition": column.definition}
                    for column in table.columns
                },
                "rows": table.records(),
                "notes": list(table.notes),
                "data_version": table.data_version,
            }
            for table in tables
        },
        indent=2,
        ensure_ascii=False,
    )


def as_text(tables: Iterable[Table]) -> str:
    """Return the tables below each other; a single row is shown as one line per column."""
    return "\n\n".join(_table(table) for table in tables)


def cell(column: Column, value: Any) -> str:  # noqa: ANN401 - a cell holds what its kind says
    """Return one value for people; control characters of hostile text are made visible."""
    if value is None:
        return UNKNOWN
    return _visible(_SHOWN[column.kind](value))


def _visible(text: str) -> str:
    """A job name must not move the cursor or forge a line of a terminal."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def _table(table: Table) -> str:
    head = [table.title, "─" * len(table.title)]
    notes = [f"note: {_visible(note)}" for note in table.notes]
    if not table.rows:
        return "\n".join([*head, "(none)", *notes])
    rows = [
        [cell(column, value) for column, value in zip(table.columns, row, strict=True)]
        for row in table.rows
    ]
    titles = [column.title for column in table.columns]
    body = _record(titles, rows[0]) if len(rows) == 1 else _grid(titles, rows)
    return "\n".join([*head, *body, *notes])


def _record(titles: Sequence[str], values: Sequence[str]) -> list[str]:
    width = max(len(title) for title in titles)
    return [f"{title:<{width}}  {value}" for title, value in zip(titles, values, strict=True)]


def _grid(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [titles, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(titles))]
    return [
        "  ".join(f"{value:<{width}}" for value, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
