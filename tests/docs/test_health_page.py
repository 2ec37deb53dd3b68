# SPDX-License-Identifier: Apache-2.0
"""docs/health.md is what the checks say, and every code is explained there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fairwatt.prolog.health import page
from fairwatt.prolog.health.own_codes import OWN_CODES
from fairwatt.prolog.health.spec import load_checks

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "health.md"


def test_the_page_is_what_the_checks_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page.as_markdown() + "\n", (
        "run: python -m fairwatt.prolog.health.page > docs/health.md"
    )


@pytest.mark.parametrize("spec", load_checks().values(), ids=lambda spec: spec.name)
def test_every_check_and_parameter_is_explained(spec) -> None:
    text = PAGE.read_text(encoding="utf-8")
    part = text.split(f"### {spec.code} {spec.name}\n")[1].split("\n### ")[0]
    assert spec.remedy in part
    for name in spec.parameters:
        assert f"| `{name}` |" in part


def test_every_code_that_the_program_says_is_known() -> None:
    known = {spec.code for spec in load_checks().values()} | set(OWN_CODES)
    sources = [*(ROOT / "prolog").rglob("*.py"), ROOT / "accounting" / "agent" / "health.py"]
    said = {code for path in sources for code in re.findall(r"FWH\d{3}", path.read_text())}
    assert said <= known
