# SPDX-License-Identifier: Apache-2.0
"""The reference pages are what the code says; every setting, command and message is in them."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from fairwatt.core import reference
from fairwatt.core.settings import SETTINGS
from fairwatt.slurm_plugins import messages

DOCS = Path(__file__).parents[2] / "docs"
MEND = "run: python -m fairwatt.core.reference docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(reference.PAGES))
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    assert page(name) == reference.PAGES[name](), MEND


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_every_setting_is_documented(setting: object) -> None:
    section, name = setting.key.split(".", 1)  # type: ignore[attr-defined]
    text = page("settings.md").split(f"## [{section}]\n")[1].split("\n## ")[0]
    assert f"| `{name}` |" in text
    assert setting.doc in text  # type: ignore[attr-defined]


def test_every_command_is_documented() -> None:
    headings = set(re.findall(r"^## fairwatt (\S+)", page("commands.md"), re.MULTILINE))
    assert headings >= {entry.name for entry in entry_points(group="fairwatt.commands")}


def test_every_option_says_what_it_does() -> None:
    rows = re.findall(r"^\| `(--?\w[^`]*)` \| (.*) \|$", page("commands.md"), re.MULTILINE)
    assert len(rows) >= len(entry_points(group="fairwatt.commands"))
    assert [name for name, meaning in rows if not meaning] == []


@pytest.mark.parametrize("code", sorted(messages.MESSAGES))
def test_every_message_is_documented_with_a_remedy(code: str) -> None:
    rows = [line for line in page("messages.md").splitlines() if line.startswith(f"| {code} |")]
    assert len(rows) == 1
    assert messages.MESSAGES[code].remedy in rows[0]


def test_settings_explain_themselves() -> None:
    keys = [setting.key for setting in SETTINGS]
    assert len(keys) == len(set(keys))
    for setting in SETTINGS:
        assert type(setting.default) is setting.type, setting.key
        assert setting.doc.endswith("."), setting.key
        assert not setting.choices or setting.default in setting.choices, setting.key


def test_sections_stand_together() -> None:
    sections = [setting.key.split(".")[0] for setting in SETTINGS]
    assert sections == sorted(sections, key=sections.index)
