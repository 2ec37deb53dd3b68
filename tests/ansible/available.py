# SPDX-License-Identifier: Apache-2.0
"""Whether nodes can be booted on this machine."""

from __future__ import annotations

import functools
import os
import shutil

from tests.ansible.capsule import Capsule
from tests.lab.waiting import LabError

__all__ = ["why_unavailable"]

PROGRAMS = ("mmdebstrap", "systemd-nspawn", "ip", "unshare", "nsenter")


@functools.cache
def why_unavailable() -> str | None:
    """The reason why no node can be booted here, in one clause; None where one can."""
    if os.geteuid() != 0:
        return "not root: booted nodes need namespaces and mounts"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (see tests/debian-packages.txt)"
    try:
        Capsule("10.77.0.254/24").close()
    except (LabError, OSError) as error:
        return f"no namespaces: {error}"
    return None
