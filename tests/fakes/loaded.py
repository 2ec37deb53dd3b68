# SPDX-License-Identifier: Apache-2.0
"""Loads the fake library into this process's nvidia-ml-py, for tests without a child process."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pynvml

from tests.fakes.nvml_control import LIBRARY

__all__ = ["build_library", "loaded_nvml", "missing_tools"]

_ROOT = Path(__file__).resolve().parents[2]


def missing_tools() -> str | None:
    """Return why the library cannot be built here, None if it can."""
    missing = [tool for tool in ("gcc", "make") if shutil.which(tool) is None]
    return f"no {' and no '.join(missing)} to build the fake NVML library" if missing else None


def build_library() -> Path:
    """Build the library if its sources are newer; return its path."""
    command = ["make", "-s", "-C", str(_ROOT), "-f", "tests/fakes/fakes.mk", "fakes"]
    subprocess.run(command, check=True)
    return LIBRARY


@contextmanager
def loaded_nvml(control: Path) -> Iterator[ModuleType]:
    """Give `pynvml`, not yet initialised, on a control file's devices; undo all afterwards."""
    before = pynvml.nvmlLib, os.environ.get("FAIRWATT_FAKE_NVML")
    os.environ["FAIRWATT_FAKE_NVML"] = str(control)
    pynvml._nvmlGetFunctionPointer_cache.clear()
    pynvml.nvmlLib = ctypes.CDLL(str(LIBRARY))
    try:
        yield pynvml
    finally:
        while pynvml.nvmlLib.nvmlShutdown() == 0:
            pass
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml.nvmlLib = before[0]
        if before[1] is None:
            del os.environ["FAIRWATT_FAKE_NVML"]
        else:
            os.environ["FAIRWATT_FAKE_NVML"] = before[1]
