# SPDX-License-Identifier: Apache-2.0
"""sd_notify: a datagram to the manager's socket, silence elsewhere."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fairwatt.core.notify import notify, ready


@pytest.mark.parametrize("abstract", [False, True])
def test_the_manager_gets_one_datagram(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool
) -> None:
    name = f"fairwatt-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name if abstract else name)
        manager.settimeout(1)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name if abstract else name)
        ready("3 GPUs")
        assert manager.recv(100) == b"READY=1\nSTATUS=3 GPUs"


@pytest.mark.parametrize("address", [None, "", "relative", "/nowhere/notify", "vsock:2:1"])
def test_nobody_listens(monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")
