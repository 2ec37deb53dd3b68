# SPDX-License-Identifier: Apache-2.0
"""A fake node whose clock stands still, seen through the real nvidia-ml-py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.fakes.loaded import build_library, loaded_nvml, missing_tools
from tests.fakes.nvml_control import FakeNvml


@pytest.fixture(scope="session")
def library() -> Path:
    reason = missing_tools()
    if reason:
        pytest.skip(reason)
    return build_library()


@pytest.fixture
def fake(library: Path, tmp_path: Path) -> FakeNvml:
    """A node without devices; its clock is stopped at 1,000 ms."""
    node = FakeNvml(tmp_path / "control")
    node.set_clock(1_000)
    return node


@pytest.fixture
def nvml(fake: FakeNvml) -> Iterator[ModuleType]:
    """nvidia-ml-py on the fake node, initialised."""
    with loaded_nvml(fake.path) as module:
        module.nvmlInit()
        yield module
