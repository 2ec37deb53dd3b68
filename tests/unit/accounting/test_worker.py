# SPDX-License-Identifier: Apache-2.0
"""The gunicorn worker and clients that never end their request."""

from __future__ import annotations

import socket
from types import SimpleNamespace

from gunicorn.workers.gthread import ThreadWorker

from fairwatt.accounting import worker


def test_a_client_that_never_ends_its_request_is_read_no_longer(monkeypatch):
    """The thread gets an end of the stream instead of waiting, and can still answer."""
    monkeypatch.setattr(worker, "REQUEST_S", 0.05)
    monkeypatch.setattr(
        ThreadWorker, "handle", lambda _self, conn: [conn.sock.recv(9), conn.sock.recv(9)]
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"POST")
        impatient = worker.ImpatientWorker.__new__(worker.ImpatientWorker)
        assert impatient.handle(SimpleNamespace(sock=ours)) == [b"POST", b""]
        ours.sendall(b"408")
        assert theirs.recv(9) == b"408"


def test_a_quick_client_is_left_alone(monkeypatch):
    monkeypatch.setattr(worker, "REQUEST_S", 0.05)
    monkeypatch.setattr(ThreadWorker, "handle", lambda _self, conn: conn.sock.recv(9))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"GET")
        impatient = worker.ImpatientWorker.__new__(worker.ImpatientWorker)
        assert impatient.handle(SimpleNamespace(sock=ours)) == b"GET"
        ours.settimeout(0.2)
        theirs.sendall(b"more")
        assert ours.recv(9) == b"more"
