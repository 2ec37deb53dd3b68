# SPDX-License-Identifier: Apache-2.0
"""Every flag of a measured amount stands in the admins' page with its number."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairwatt.core.events import Flag

PAGE = Path(__file__).parents[2] / "docs" / "for-admins.md"


@pytest.mark.parametrize("flag", Flag, ids=lambda flag: flag.name)
def test_each_flag_is_explained(flag: Flag) -> None:
    assert f"| {flag.value} {flag.name} |" in PAGE.read_text(encoding="utf-8")
