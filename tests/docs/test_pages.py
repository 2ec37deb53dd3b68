# SPDX-License-Identifier: Apache-2.0
"""Every page of docs/: its links lead somewhere, its settings and commands exist."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from fairwatt.core.settings import SETTINGS
from fairwatt.slurm_plugins.rulebook import BUILT_IN

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_exist(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), target


def test_the_map_of_files_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \| [^|]", text, re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell) if name[-1] != "/"]
    assert len(named) > 100
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_map_of_files_names_every_rule_in_its_order() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    names = re.findall(r"^\| `slurm_plugins/rules/(\w+)\.py`", text, re.MULTILINE)
    assert names == [spec.name for spec in BUILT_IN]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_in_prose_exist(page: Path) -> None:
    keys = {setting.key for setting in SETTINGS}
    sections = "|".join(sorted({key.split(".")[0] for key in keys}))
    for key in re.findall(rf"`((?:{sections})\.[a-z_]+)`", page.read_text(encoding="utf-8")):
        assert key in keys or key.endswith((".py", ".toml", ".md")), key


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_prose_exist(page: Path) -> None:
    known = {entry.name for entry in entry_points(group="fairwatt.commands")}
    for name in re.findall(r"`fairwatt ([a-z]+)\b", page.read_text(encoding="utf-8")):
        assert name in known, name
