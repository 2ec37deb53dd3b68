# SPDX-License-Identifier: Apache-2.0
"""Figures as sentences."""

from __future__ import annotations

import pytest

from fairwatt.accounting.reports.words import dept_headlines, duration_words, percent


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "unknown"),
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3_569, "59 min"),
        (3_570, "1 h"),
        (11_400, "3 h 10 min"),
        (86_400, "1 d"),
        (187_200, "2 d 4 h"),
    ],
)
def test_durations(seconds, words):
    assert duration_words(seconds) == words


def test_percent():
    assert percent(0.1234) == "12.3 %"
    assert percent(None) == "unknown"


def share_sentence(entitled, used, parent="root"):
    summary = dict.fromkeys(
        ("fge_hours", "wait_p50_s", "wait_p90_s", "energy_mj", "measured", "co2_mg")
    )
    return dept_headlines({**summary, "account": "a", "entitled": entitled, "used": used}, parent)[
        0
    ][2]


def test_direction_is_in_words():
    assert share_sentence(0.5, 0.4).endswith("10.0 percentage points less than its share.")
    assert share_sentence(0.4, 0.5).endswith("10.0 percentage points more than its share.")
    assert share_sentence(0.5, 0.502).endswith("as much as its share.")
    assert "without a share" in share_sentence(0.0, 0.1)
    assert "its share is unknown" in share_sentence(None, 0.1)
    assert "cannot be told" in share_sentence(0.5, None)
    assert "b's GPU time" in share_sentence(0.5, 0.5, parent="b")
