# SPDX-License-Identifier: Apache-2.0
"""Periods of reports: whole local days, half-open, written in the address as text.

>>> parse_period("2026-02", date(2026, 3, 9), "UTC")
Period(first=datetime.date(2026, 2, 1), until=datetime.date(2026, 3, 1), zone='UTC')
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta

from fairwatt.accounting.days import day_bounds, day_of, site_zone
from fairwatt.core.errors import ReportError

__all__ = ["Period", "first_of_month", "parse_period", "parse_since", "today_in"]

_MAX_DAYS = 3_660
_EARLIEST, _LATEST = date(1971, 1, 1), date(9000, 1, 1)
"""Calendars and clocks end a little beyond; nothing was ever measured there."""
_REMEDY = "use 7d, 30d, month, last-month, 2026-02 or 2026-02-01..2026-03-01 (end not included)"


@dataclass(frozen=True)
class Period:
    """The local days first ≤ day < until in an IANA zone."""

    first: date
    until: date
    zone: str

    @property
    def start_ts(self) -> int:
        """First second, UTC epoch."""
        return day_bounds(str(self.first), site_zone(self.zone))[0]

    @property
    def end_ts(self) -> int:
        """Second after the last, UTC epoch."""
        return day_bounds(str(self.until), site_zone(self.zone))[0]

    @property
    def days(self) -> int:
        """Number of local days."""
        return (self.until - self.first).days

    @property
    def text(self) -> str:
        """The period as it is written in an address."""
        return f"{self.first}..{self.until}"

    def whole_months(self) -> Period:
        """Return the calendar months that the period touches."""
        last = self.until - timedelta(days=1)
        return Period(first_of_month(self.first), first_of_month(last, -1), self.zone)

    def words(self) -> str:
        """Return the period for people, last day included."""
        last = self.until - timedelta(days=1)
        return f"{_day_words(self.first)} to {_day_words(last)} ({self.zone})"


def parse_period(text: str, today: date, zone: str) -> Period:
    """Read a period: `7d` ends with today, `month` is the current calendar month.

    Raises:
        ReportError: it is not a period, is empty, longer than ten years, or beyond all time.
    """
    try:
        first, until = _bounds(text, today)
    except (ValueError, OverflowError) as error:
        raise ReportError("not a period", place="period", value=text, remedy=_REMEDY) from error
    if not 0 < (until - first).days <= _MAX_DAYS:
        raise ReportError("empty or too long", place="period", value=text, remedy=_REMEDY)
    if first < _EARLIEST or until > _LATEST:
        raise ReportError("before or after all time", place="period", value=text, remedy=_REMEDY)
    return Period(first, until, zone)


def parse_since(text: str, today: date, zone: str) -> Period:
    """Read where a period begins that ends with today: `7d`, or a day like `2026-02-01`.

    Raises:
        ReportError: as `parse_period`.
    """
    is_day = re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII) is not None
    return parse_period(f"{text}..{today + timedelta(days=1)}" if is_day else text, today, zone)


def today_in(zone: str, now_ts: float) -> date:
    """Return the local day of a UTC epoch second."""
    return date.fromisoformat(day_of(int(now_ts), site_zone(zone)))


def first_of_month(day: date, months_back: int = 0) -> date:
    """Return the first day of the month that lies `months_back` before the day's own."""
    months = day.year * 12 + day.month - 1 - months_back
    return date(months // 12, months % 12 + 1, 1)


def _bounds(text: str, today: date) -> tuple[date, date]:
    if re.fullmatch(r"\d{1,4}d", text, re.ASCII):
        tomorrow = today + timedelta(days=1)
        return tomorrow - timedelta(days=int(text[:-1])), tomorrow
    if text == "month":
        return first_of_month(today), first_of_month(today, -1)
    if text == "last-month":
        return first_of_month(today, 1), first_of_month(today)
    if re.fullmatch(r"\d{4}-\d{2}", text, re.ASCII):
        first = date.fromisoformat(f"{text}-01")
        return first, first_of_month(first, -1)
    first_text, _, until_text = text.partition("..")
    return date.fromisoformat(first_text), date.fromisoformat(until_text)


def _day_words(day: date) -> str:
    return f"{day.day} {day:%b} {day.year}"
