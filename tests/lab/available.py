# SPDX-License-Identifier: Apache-2.0
"""Whether the one-host cluster can run on this machine."""

from __future__ import annotations

import functools
import os
import shutil

from tests.lab.namespace import Namespace

__all__ = ["why_unavailable"]

PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "sbatch", "sacctmgr", "munged", "mariadbd")


@functools.cache
def why_unavailable() -> str | None:
    """The reason why no cluster can be started here, in one clause; None where one can."""
    if os.geteuid() != 0:
        return "not root: slurmd, device nodes and several users need it"
    missing = [name for name in PROGRAMS if shutil.which(name, path=_search_path()) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (see tests/debian-packages.txt)"
    try:
        Namespace().close([])
    except OSError as error:
        return f"no process namespace: {error}"
    return None


def _search_path() -> str:
    return f"/usr/sbin:/sbin:{os.environ.get('PATH', os.defpath)}"
