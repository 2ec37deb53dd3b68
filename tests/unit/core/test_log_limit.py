# SPDX-License-Identifier: Apache-2.0
"""A line of code that logs at every sample: its first records, their number, and the others'."""

from __future__ import annotations

import logging

import pytest

from fairwatt.core import logs
from fairwatt.core.log_limit import LimitRepeats


class Keeps(logging.Handler):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def test_a_day_of_one_fault_is_a_few_lines() -> None:
    """8,640 samples of a day, 3 records in each of 144 periods; another line of code is free."""
    log, handler, now_s = logging.Logger("fairwatt.flood"), Keeps(), 0.0
    handler.addFilter(LimitRepeats(3, 600.0, lambda: now_s))
    log.addHandler(handler)
    for number in range(8_640):
        now_s = 10.0 * number
        log.warning("no answer %d", number)
    log.warning("another")
    told = handler.texts
    assert len(told) == 3 * 144 + 1
    assert told[:4] == [
        "no answer 0",
        "no answer 1",
        "no answer 2 (more like it are held for up to 10 min)",
        "no answer 60 (57 like it were held)",
    ]
    assert told[-1] == "another"


def test_a_limited_set_up_holds_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logs.setup(limited=True)
        for _ in range(100):
            logging.getLogger("x").warning("again")
    finally:
        root.handlers[:], root.level = handlers, level
    assert capsys.readouterr().err.count("again") == 20
