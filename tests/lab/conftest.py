# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the lab: clusters that live as long as the test session of one worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.available import why_unavailable
from tests.lab.cluster import OneHostCluster
from tests.lab.paths import temporary_root
from tests.lab.system import HOST_RELEASE, OTHER_RELEASES, why_missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `lab` where no cluster can run."""
    wanted = [item for item in items if item.get_closest_marker("lab")]
    reason = why_unavailable() if wanted else None
    if reason is not None:
        for item in wanted:
            item.add_marker(pytest.mark.skip(reason=f"lab: {reason}"))


@pytest.fixture(scope="session")
def lab_root() -> Iterator[Path]:
    """A short folder that every user may pass; pytest's own are closed to the lab's users."""
    with temporary_root() as folder:
        yield folder


@pytest.fixture(scope="module", params=(HOST_RELEASE, *OTHER_RELEASES))
def release(request: pytest.FixtureRequest) -> str:
    """Each release of Slurm in turn; a test may choose, by `parametrize` with `indirect`."""
    reason = why_missing(request.param)
    if reason is not None:
        pytest.skip(reason)
    return request.param


@pytest.fixture(scope="session")
def cluster(lab_root: Path) -> Iterator[OneHostCluster]:
    """The whole house: Slurm with our hooks, policyd, four agents, collector."""
    with OneHostCluster(lab_root / "c") as running:
        running.start_fairwatt()
        yield running


@pytest.fixture(scope="session")
def plain(lab_root: Path) -> Iterator[OneHostCluster]:
    """Slurm alone, with hooks that write down what they are given (tests/lab/recorder)."""
    here = Path(__file__).parent
    with OneHostCluster(
        lab_root / "p",
        with_fairwatt=False,
        hook=here / "recorder.lua",
        node_hooks=here / "recorder",
    ) as running:
        yield running
