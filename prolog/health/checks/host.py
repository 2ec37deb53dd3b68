# SPDX-License-Identifier: Apache-2.0
"""Is the rest of the node well? Driver, library, disk."""

from __future__ import annotations

from collections.abc import Iterator

from fairwatt.prolog.health.judge import Params, Problem
from fairwatt.prolog.health.reading import Reading

__all__ = ["disk_room", "driver_mismatch", "driver_missing"]


def driver_mismatch(reading: Reading, _params: Params) -> Iterator[Problem]:
    """The kernel module is of another release than the library."""
    versions = reading.versions
    if versions is None:
        return
    kernel, library = versions.kernel or "unknown", versions.library or "unknown"
    differ = versions.kernel and versions.library and versions.kernel != versions.library
    if versions.fault == "mismatch" or differ:
        yield Problem(None, f"{kernel} / {library}", f"kernel module {kernel}, library {library}")


def driver_missing(reading: Reading, _params: Params) -> Iterator[Problem]:
    """No kernel module answers the library."""
    if reading.versions is not None and reading.versions.fault == "not-loaded":
        yield Problem(None, "not loaded", "NVML says that the driver is not loaded")


def disk_room(reading: Reading, params: Params) -> Iterator[Problem]:
    """Folders with less room than `least_mib`, or fewer inodes than `least_inodes`."""
    for disk in reading.disks or ():
        if disk.free_mib < params["least_mib"]:
            text = f"{disk.free_mib} MiB free in {disk.path}"
            yield Problem(None, f"{disk.free_mib} MiB", text)
        elif disk.free_inodes is not None and disk.free_inodes < params["least_inodes"]:
            text = f"{disk.free_inodes} inodes free in {disk.path}"
            yield Problem(None, f"{disk.free_inodes} inodes", text)
