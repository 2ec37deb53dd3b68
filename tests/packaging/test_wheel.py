# SPDX-License-Identifier: Apache-2.0
"""The wheel holds what the tree holds: sub-packages are listed by hand, and an editable
install would hide an omission."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("core", "slurm_plugins", "prolog", "accounting", "dashboard")

pytestmark = pytest.mark.packaging


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel built from a copy of the tracked files, so that no leftover helps."""
    source = tmp_path_factory.mktemp("source")
    for name in _tracked():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(out), str(source)],
        check=True,
        capture_output=True,
    )
    return next(out.glob("fairwatt-*.whl"))


def _tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


def test_wheel_holds_every_file_of_the_rooms(wheel):
    expected = {f"fairwatt/{name}" for name in _tracked() if name.split("/")[0] in ROOMS}
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if not name.startswith("fairwatt-")}
    assert expected - found == set()
    assert found - expected == set()


def test_entry_points_name_real_objects():
    from importlib.metadata import entry_points

    for group in ("fairwatt.commands", "fairwatt.checks", "fairwatt.host_sources"):
        for entry in entry_points(group=group):
            assert entry.load() is not None, entry
