# SPDX-License-Identifier: Apache-2.0
"""Periods as texts, and days of 23 and 25 hours."""

from __future__ import annotations

from datetime import date

import pytest

from fairwatt.accounting.reports.period import Period, first_of_month, parse_period, today_in
from fairwatt.core.errors import FairwattError, ReportError

TODAY = date(2026, 3, 9)


@pytest.mark.parametrize(
    ("text", "first", "until"),
    [
        ("7d", "2026-03-03", "2026-03-10"),
        ("1d", "2026-03-09", "2026-03-10"),
        ("month", "2026-03-01", "2026-04-01"),
        ("last-month", "2026-02-01", "2026-03-01"),
        ("2025-12", "2025-12-01", "2026-01-01"),
        ("2026-01-05..2026-01-06", "2026-01-05", "2026-01-06"),
    ],
)
def test_texts(text, first, until):
    period = parse_period(text, TODAY, "UTC")
    assert (str(period.first), str(period.until)) == (first, until)
    assert parse_period(period.text, TODAY, "UTC") == period


@pytest.mark.parametrize(
    "text",
    ["", "0d", "9999d", "-7d", "7", "2026-13", "2026-02-30..2026-03-01", "2026-03-01..2026-03-01",
     "2026-03-02..2026-03-01", "month'--", "٣d", "2026-01-01..", "0001-01..9999-12",
     "0001-01", "0001-12", "1970-12", "0001-01-01..0001-01-02", "9999-11",
     "9999-12-01..9999-12-31", "9999-12-30..9999-12-31"],
)  # fmt: skip
def test_nonsense_names_value_and_remedy(text):
    with pytest.raises(ReportError) as error:
        parse_period(text, TODAY, "UTC")
    assert repr(text) in str(error.value)
    assert "use 7d" in str(error.value)


def test_days_of_23_and_25_hours():
    spring = Period(date(2026, 3, 29), date(2026, 3, 30), "Europe/Paris")
    autumn = Period(date(2026, 10, 25), date(2026, 10, 26), "Europe/Paris")
    assert spring.end_ts - spring.start_ts == 23 * 3600
    assert autumn.end_ts - autumn.start_ts == 25 * 3600


def test_words_name_the_last_day_and_the_zone():
    period = parse_period("2026-02", TODAY, "Europe/Paris")
    assert period.words() == "1 Feb 2026 to 28 Feb 2026 (Europe/Paris)"


def test_unknown_zone_is_a_named_fault():
    with pytest.raises(FairwattError, match="Mars"):
        today_in("Mars/Base", 0)


def test_local_day_and_months_back():
    assert today_in("Pacific/Auckland", 1_767_265_200) == date(2026, 1, 2)  # 2026-01-01 11:00 UTC
    assert first_of_month(date(2026, 3, 31), 3) == date(2025, 12, 1)
    assert first_of_month(date(2026, 12, 5), -1) == date(2027, 1, 1)


def test_whole_months_are_those_that_the_period_touches():
    touched = Period(date(2026, 11, 30), date(2026, 12, 2), "UTC").whole_months()
    assert (touched.first, touched.until) == (date(2026, 11, 1), date(2027, 1, 1))
    whole = Period(date(2026, 2, 1), date(2026, 3, 1), "UTC")
    assert whole.whole_months() == whole
