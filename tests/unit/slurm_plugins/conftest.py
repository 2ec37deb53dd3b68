# SPDX-License-Identifier: Apache-2.0
"""The hook on every Lua, and the far end that it asks."""

from __future__ import annotations

import pytest

from tests.fakes.job_desc import LUAS, Hook, Wire
from tests.unit.slurm_plugins.far_end import real


@pytest.fixture
def far():
    return Wire(answer=real)


@pytest.fixture(params=LUAS)
def hook(request, tmp_path, far):
    return Hook(tmp_path, far, lua=request.param)
