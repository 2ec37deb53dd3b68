# SPDX-License-Identifier: Apache-2.0
"""Rules for every test: none hangs, and a skip must be one that `expected-skips.txt` names."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

from tests.bound import bounded, limit_s

# Time is measured in benchmarks: a busy host must not fail a property.
hypothesis.settings.register_profile("house", deadline=None, print_blob=True)
hypothesis.settings.load_profile("house")

EXPECTED = Path(__file__).with_name("expected-skips.txt")
_skipped: list[str] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    with bounded(limit_s(item.path)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with bounded(limit_s(item.path)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    with bounded(limit_s(item.path)):
        return (yield)


def pytest_report_teststatus(report, config):
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _skipped.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session, exitstatus):
    if os.environ.get("FAIRWATT_STRICT_SKIPS") != "1" or hasattr(session.config, "workerinput"):
        return
    surprises = sorted({skip for skip in _skipped if not _expected(skip)})
    if surprises and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    for skip in surprises:
        print(f"\nunexpected skip: {skip}")


def _expected(skip: str) -> bool:
    lines = EXPECTED.read_text(encoding="utf-8").splitlines()
    return any(line and not line.startswith("#") and line in skip for line in lines)
