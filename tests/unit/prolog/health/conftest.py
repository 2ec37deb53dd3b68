# SPDX-License-Identifier: Apache-2.0
"""Settings of a node in a folder, and fake devices in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairwatt.prolog.health.settings import HealthSettings
from tests.fakes.loaded import build_library, loaded_nvml, missing_tools
from tests.fakes.nvml_control import FakeNvml


@pytest.fixture
def settings(tmp_path: Path) -> HealthSettings:
    return HealthSettings(
        node="n1",
        file=tmp_path / "health.toml",
        state_file=tmp_path / "health.json",
        folder=tmp_path / "health",
        kmsg=tmp_path / "kmsg",
        spool_dir=tmp_path / "spool",
        proc_root=tmp_path / "proc",
        slurm_conf=tmp_path / "slurm.conf",
        gres_conf=tmp_path / "gres.conf",
        mig_file=tmp_path / "mig.toml",
        catalogue_dir=None,
        agent_socket=tmp_path / "agent.sock",
        drains=False,
        max_drains_per_hour=2,
        confirm_rounds=2,
        heal_rounds=3,
        hang_s=2.0,
    )


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeNvml]:
    """The control file of devices that this process sees."""
    reason = missing_tools()
    if reason is not None:
        pytest.skip(reason)
    build_library()
    control = FakeNvml(tmp_path / "nvml.control")
    with loaded_nvml(control.path):
        yield control
