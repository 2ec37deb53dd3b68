# SPDX-License-Identifier: Apache-2.0
"""A test that hangs is ended, in Python or in a child process."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from tests.bound import QUICK_S, SLOW_S, bounded, limit_s


@pytest.mark.parametrize(
    "hang", [lambda: threading.Event().wait(30), lambda: subprocess.run(["sleep", "30"])]
)
def test_what_hangs_is_ended(hang):
    with pytest.raises(pytest.fail.Exception, match=r"hangs: not ended within 0\.1 s"):  # noqa: SIM117
        with bounded(0.1):
            hang()


def test_real_daemons_have_more_time_than_unit_tests():
    assert limit_s(Path(__file__)) == QUICK_S
    assert limit_s(Path(__file__).parents[2] / "lab" / "test_lab_jobs.py") == SLOW_S
