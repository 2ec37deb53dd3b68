# SPDX-License-Identifier: Apache-2.0
"""Log lines: level and name for people, journald's prefixes under systemd."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from fairwatt.core import logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def test_lines_for_people(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    logs.setup()
    logs.setup()  # a second call does not double the lines
    logging.getLogger("fairwatt.x").warning("look %s", "here")
    logging.getLogger("fairwatt.x").debug("hidden")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("WARNING fairwatt.x: look here\n")
    assert err.count("\n") == 1


def test_lines_for_journald(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    logs.setup(verbose=True)
    logging.getLogger("x").error("two\nlines")
    logging.getLogger("x").debug("small")
    assert capsys.readouterr().err == "<3>x: two\n<3>lines\n<7>x: small\n"
