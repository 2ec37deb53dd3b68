# SPDX-License-Identifier: Apache-2.0
"""Tables as CSV and JSON: the same rows and order as on the page, raw numbers."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any

from flask import Response

from fairwatt.core.records import Table

__all__ = ["as_csv", "as_json", "csv_response", "json_response", "safe_cell", "safe_name"]

# What makes a spreadsheet read a text as a formula, full-width twins included.
_FORMULA_STARTS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


def safe_cell(value: object) -> object:
    """Return a text that no spreadsheet takes for a formula; numbers stay as they are."""
    if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value


def safe_name(text: str) -> str:
    """Return a text as part of a file name: letters, digits, dot, dash, underscore."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:80].strip("._") or "table"


def as_csv(table: Table) -> str:
    """Return the table with a header of column keys; unknown values are empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([column.key for column in table.columns])
    writer.writerows([safe_cell(value) for value in row] for row in table.rows)
    return out.getvalue()


def as_json(table: Table) -> dict[str, Any]:
    """Return the table with its definitions; unknown values are null."""
    return {
        "name": table.name,
        "title": table.title,
        "columns": [
            {"key": c.key, "title": c.title, "kind": c.kind, "definition": c.definition}
            for c in table.columns
        ],
        "rows": table.records(),
        "data_version": table.data_version,
        "notes": list(table.notes),
    }


def csv_response(table: Table, page: str) -> Response:
    """Return one table as a download."""
    response = Response(as_csv(table), mimetype="text/csv")
    name = f"fairwatt-{safe_name(page)}-{safe_name(table.name)}.csv"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def json_response(tables: Sequence[Table]) -> Response:
    """Return tables as one JSON object."""
    body = json.dumps({"tables": [as_json(table) for table in tables]}, ensure_ascii=False)
    return Response(body, mimetype="application/json")
