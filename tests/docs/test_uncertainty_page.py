# SPDX-License-Identifier: Apache-2.0
"""The admins' page gives the errors that the data file has."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_method_stands_there_with_its_error() -> None:
    text = (ROOT / "docs" / "for-admins.md").read_text(encoding="utf-8")
    section = text.partition("### How sure an energy is")[2].partition("\n### ")[0]
    told = {
        method: int(percent)
        for row, percent in re.findall(r"^\| (.+) \| ± (\d+) % \|$", section, re.MULTILINE)
        for method in re.findall(r"`(\w+)`", row.replace("`rapl`, memory", "`rapl_dram`"))
    }
    data = tomllib.loads((ROOT / "accounting" / "data" / "uncertainty.toml").read_text("utf-8"))
    assert told == {name.replace("-", "_"): table["percent"] for name, table in data.items()}
