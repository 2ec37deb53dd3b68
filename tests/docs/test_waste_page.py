# SPDX-License-Identifier: Apache-2.0
"""docs/waste.md says of rules, classes and limits what the code does."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from fairwatt.accounting.waste import Limits, Rule
from fairwatt.core.settings import SETTINGS

PAGE = (Path(__file__).parents[2] / "docs" / "waste.md").read_text(encoding="utf-8")


def rows(head: str) -> list[list[str]]:
    """The cells of the table whose first column has this title."""
    table = PAGE.partition(f"\n| {head} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_every_rule_stands_there_in_its_order_with_its_class() -> None:
    assert [(row[0], row[1]) for row in rows("Rule")] == [
        (rule.value[1], str(rule.kind)) for rule in Rule
    ]


def test_every_limit_stands_there_with_its_default() -> None:
    told = {row[0].strip("`"): int(row[1]) for row in rows("Limit")}
    assert told == dataclasses.asdict(Limits())


def test_every_setting_of_waste_stands_beside_its_limit() -> None:
    told = {name for row in rows("Limit") for name in re.findall(r"`([a-z._]+)`", row[2])}
    assert told == {setting.key for setting in SETTINGS if setting.key.startswith("waste.")}


def test_the_policies_of_idle_energy_add_up() -> None:
    for row in rows("Policy"):
        *parts, whole = [float(cell.replace(",", "") or 0) for cell in row[1:]]
        assert round(sum(parts)) == whole == 1080
