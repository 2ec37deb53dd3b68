# SPDX-License-Identifier: Apache-2.0
"""Values of a Table as text for people, each with its unit; unknown is written, never 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from markupsafe import Markup, escape

from fairwatt.accounting.reports.words import duration_words, hours_words, percent
from fairwatt.core.units import UNKNOWN, format_carbon, format_kwh

__all__ = ["is_number", "shown", "time_words", "with_code"]

NOTHING = "–"
_SECOND, _MINUTE = "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M"


def shown(value: object, kind: str, zone: ZoneInfo) -> str:
    """Return a cell of the given column kind as text."""
    if value is None or value == "":
        return NOTHING if kind in ("text", "json", "ts") else UNKNOWN
    if isinstance(value, int) and kind == "ts":
        return datetime.fromtimestamp(value, zone).strftime(_MINUTE)
    return _FORMATS.get(kind, str)(value)


def time_words(t_ts: int | None, zone: ZoneInfo) -> str:
    """Return a UTC epoch second as local time to the second; a dash if it has not come."""
    return NOTHING if t_ts is None else datetime.fromtimestamp(t_ts, zone).strftime(_SECOND)


def with_code(text: str) -> Markup:
    """Return a text with its parts in backticks as code; all else is escaped."""
    parts = [str(escape(part)) for part in text.split("`")]
    if len(parts) % 2 == 0:  # an odd backtick is no markup
        return Markup("`".join(parts))  # noqa: S704 - escaped above
    coded = [f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts)]
    return Markup("".join(coded))  # noqa: S704 - escaped above


def is_number(kind: str) -> bool:
    """Say whether cells of this kind line up on the right."""
    return kind not in ("text", "json", "ts")


def _hours(value: float) -> str:
    return f"{hours_words(value)} h"


_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "integer": lambda value: f"{value:,}",
    "ratio": percent,
    "duration_s": duration_words,
    "energy_mj": format_kwh,
    "carbon_mg": format_carbon,
    "gpu_hours": _hours,
}
