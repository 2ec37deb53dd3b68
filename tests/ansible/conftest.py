# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the tests of the roles, and how long each of their steps took."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ansible.available import why_unavailable
from tests.ansible.sites import CAMPUS, SMALL, BootedSite, booted_site

SHORT_S = 0.3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `ansible` where no node can boot."""
    wanted = [item for item in items if item.get_closest_marker("ansible")]
    reason = why_unavailable() if wanted else None
    if reason is not None:
        for item in wanted:
            item.add_marker(pytest.mark.skip(reason=f"ansible: {reason}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the steps (set-up of a test, its call) in the order in which they ended."""
    reports = [
        report
        for kind in ("passed", "failed", "error", "")
        for report in terminalreporter.stats.get(kind, [])
        if isinstance(report, pytest.TestReport) and "tests/ansible/" in report.nodeid
    ]
    slow = sorted((r for r in reports if r.duration >= SHORT_S), key=lambda r: r.stop)
    if slow:
        terminalreporter.section("steps of tests/ansible", sep="-")
    for report in slow:
        name = report.nodeid.removeprefix("tests/ansible/")
        terminalreporter.write_line(f"{report.duration:6.1f} s  {report.when:<8}  {name}")


@pytest.fixture(scope="module")
def campus() -> Iterator[BootedSite]:
    """Debian 13 with Slurm 24.11: controller, accounting host, two GPU nodes, just booted."""
    with booted_site(CAMPUS) as site:
        yield site


@pytest.fixture(scope="module")
def small() -> Iterator[BootedSite]:
    """One freshly booted Debian 12 host that is a whole cluster of Slurm 22.05."""
    with booted_site(SMALL) as site:
        yield site
