# SPDX-License-Identifier: Apache-2.0
"""Tells systemd how a service is doing (sd_notify); nothing happens outside of systemd."""

from __future__ import annotations

import contextlib
import os
import socket

__all__ = ["notify", "ready"]


def ready(status: str) -> None:
    """Say that the service can be used now; `status` is one line for `systemctl status`."""
    notify("READY=1", f"STATUS={status}")


def notify(*states: str) -> None:
    """Send assignments such as `READY=1` to the socket that NOTIFY_SOCKET names.

    A service must not fail because its manager does not listen: errors are ignored.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    # "@" stands for the abstract namespace, whose names begin with a null byte.
    target = "\0" + address[1:] if address.startswith("@") else address
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.setblocking(False)
        out.sendto("\n".join(states).encode(), target)
