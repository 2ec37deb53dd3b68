# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG: axes, proportions, names."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fairwatt.dashboard import charts
from fairwatt.dashboard.charts import Bullet, Series

CSS = (Path(charts.__file__).parent / "static" / "fairwatt.css").read_text(encoding="utf-8")
EVIL = '<a onclick="x">&"'


@pytest.mark.parametrize(
    ("largest", "top", "step"),
    [(0, 1, 1), (1, 1.0, 0.5), (3.9, 4, 1), (9, 10, 5), (935, 1000, 500), (0.03, 0.03, 0.01)],
)
def test_axes_end_on_round_numbers(largest, top, step):
    found, ticks = charts.nice_scale(largest)
    assert found == pytest.approx(top)
    assert ticks[1] - ticks[0] == pytest.approx(step)


def drawings(markup):
    """Each of the two drawings as XML."""
    return [
        ElementTree.fromstring(part) for part in re.findall(r"<svg.*?</svg>", str(markup), re.S)
    ]


ALL = {
    "bars": lambda: charts.bars([EVIL, "b"], [Series(EVIL, [1, None])], unit=EVIL, label=EVIL),
    "bullets": lambda: charts.bullets([Bullet(EVIL, 0.5, None), Bullet("b", None, 2)], label=EVIL),
    "split": lambda: charts.split_bar([(EVIL, 3), ("b", 0)], label=EVIL),
    "timeline": lambda: charts.timeline([(EVIL, 5, 5), ("b", 5, 9)], label=EVIL),
    "nothing": lambda: charts.bars([], [], unit="h", label=EVIL),
}


@pytest.mark.parametrize("draw", ALL.values(), ids=ALL)
def test_charts_are_sound_xml_and_name_themselves(draw):
    found = drawings(draw())
    assert len(found) == 2
    for svg in found:
        assert svg.get("role") == "img"
        assert svg.get("aria-label") == EVIL
        assert not any("style" in node.attrib or "onclick" in node.attrib for node in svg.iter())


def test_bars_are_in_proportion():
    svg = drawings(charts.bars(["a", "b"], [Series("s", [2, 1])], unit="h", label="l"))[0]
    heights = [float(node.get("height")) for node in svg.iter() if node.get("class") == "s0"]
    assert heights[0] == pytest.approx(2 * heights[1], abs=0.2)


def test_an_unknown_use_has_no_bar():
    svg = drawings(charts.bullets([Bullet("a", 0.5, None)], label="l"))[0]
    assert not [node for node in svg.iter() if node.get("class") == "s0"]
    assert "unknown" in [node.text for node in svg.iter()]


def palette(scheme):
    """The custom properties of the light or the dark scheme."""
    blocks = re.findall(r":root \{(.*?)\}", CSS, re.S)
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[0 if scheme == "light" else 1]))


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_formula():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_of_text_and_marks(scheme):
    colours = palette(scheme)
    for text, grounds in (
        ("ink", ("page", "card", "tint")),
        ("soft", ("page", "card", "tint")),
        ("link", ("page", "card", "tint")),
        ("good", ("card", "page", "tint")),
        ("bad", ("card", "page", "tint")),
        ("warn-ink", ("warn-bg",)),
    ):
        for ground in grounds:
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for number in range(charts.SERIES_COUNT):
        assert contrast(colours[f"s{number}"], colours["card"]) >= 3, number
