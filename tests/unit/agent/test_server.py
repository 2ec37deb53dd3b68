# SPDX-License-Identifier: Apache-2.0
"""The agent's socket: mode, peers, whole lines only."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairwatt.accounting.agent import server as server_module
from fairwatt.accounting.agent.server import HookServer


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[tuple[Path, selectors.BaseSelector, list[bytes]]]:
    selector = selectors.DefaultSelector()
    lines: list[bytes] = []

    def handle(line: bytes, reply) -> None:
        lines.append(line)
        reply(b"fine\n")

    server = HookServer(tmp_path / "run" / "agent.sock", selector, handle)
    yield tmp_path / "run" / "agent.sock", selector, lines
    server.close()
    selector.close()


def turn(selector: selectors.BaseSelector, times: int = 3) -> None:
    for _ in range(times):
        for key, _ in selector.select(0.05):
            key.data()


def connect(path: Path) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(2)
    peer.connect(str(path))
    return peer


def test_a_line_in_pieces_is_one_line(serving) -> None:
    path, selector, lines = serving
    with connect(path) as peer:
        peer.sendall(b'{"a":')
        turn(selector)
        peer.sendall(b"1}\nrest")
        turn(selector)
        assert peer.recv(100) == b"fine\n"
    assert lines == [b'{"a":1}']


def test_only_the_owner_may_connect(serving) -> None:
    assert serving[0].stat().st_mode & 0o777 == 0o600


def test_other_users_are_refused(serving, monkeypatch, caplog) -> None:
    path, selector, lines = serving
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.setattr(server_module.struct, "unpack", lambda *_: (1, 1000, 1000))
    with connect(path) as peer:
        peer.sendall(b"{}\n")
        turn(selector)
        assert _is_closed(peer)
    assert lines == []
    assert "refused a connection of uid 1000" in caplog.text


def test_endless_lines_and_silent_peers_are_dropped(serving) -> None:
    path, selector, lines = serving
    with connect(path) as silent, connect(path) as endless:
        silent.close()
        endless.setblocking(False)
        for _ in range(4):
            with contextlib.suppress(BrokenPipeError):
                endless.send(b"x" * 40_000)
            turn(selector)
        endless.settimeout(2)
        assert _is_closed(endless)
    assert lines == []


def _is_closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(100) == b""
    except ConnectionResetError:
        return True
