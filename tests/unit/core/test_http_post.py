# SPDX-License-Identifier: Apache-2.0
"""The POST without http.client, against servers that behave and others."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fairwatt.core.http_post import Answer, http_post
from fairwatt.core.sha256 import sha256_hex


@contextmanager
def server(answer: bytes, *, closes: bool = True) -> Iterator[tuple[int, Callable[[], bytes]]]:
    """A server for one request, which it answers when the body of 5 bytes has arrived."""
    got: list[bytes] = []
    done = threading.Event()

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            request = b""
            while not request.endswith(b"\r\n\r\nhello"):
                request += peer.recv(4096)
            got.append(request)
            peer.sendall(answer)
            if not closes:
                done.wait(5)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], lambda: got[0]
        done.set()
        thread.join()


def post(port: int) -> Answer:
    return http_post("127.0.0.1", port, "/v1/x", {"Authorization": "Munge M"}, b"hello", 2.0)


def test_what_is_sent_and_what_comes_back() -> None:
    with server(b"HTTP/1.1 413 Too Large\r\nServer: x\r\n\r\nzu gro\xc3\x9f") as (port, request):
        assert post(port) == (413, "zu groß", None)
    head = request().decode().split("\r\n\r\n")[0].split("\r\n")
    assert head[0] == "POST /v1/x HTTP/1.0"
    assert set(head[1:]) == {
        f"Host: 127.0.0.1:{port}",
        "Content-Length: 5",
        "Authorization: Munge M",
    }


def test_a_server_that_keeps_the_connection_open_is_not_waited_for() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    with server(answer, closes=False) as (port, _):
        assert post(port) == (200, "ok", None)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (b"Retry-After: 7", 7),
        (b"retry-after:  12 ", 12),
        (b"Retry-After: -3", None),
        (b"Retry-After: 1e3", None),
        (b"Retry-After: Fri, 31 Dec 1999 23:59:59 GMT", None),
        (b"Retry-After: 99999999999", None),
    ],
)
def test_when_to_come_again(header: bytes, seconds: int | None) -> None:
    with server(b"HTTP/1.1 429 Busy\r\n" + header + b"\r\n\r\nlater") as (port, _):
        assert post(port) == (429, "later", seconds)


@pytest.mark.parametrize("answer", [b"", b"\r\n", b"SSH-2.0-x\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_another_protocol_is_an_error_that_shows_it(answer: bytes) -> None:
    with server(answer) as (port, _), pytest.raises(OSError, match="no answer in HTTP"):
        post(port)


def test_an_endless_answer_is_cut() -> None:
    with server(b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 200_000) as (port, _):
        status, text, _ = post(port)
    assert (status, len(text) <= 65_536) == (200, True)


def test_sha256_is_the_usual_one() -> None:
    assert sha256_hex(b"abc") == hashlib.sha256(b"abc").hexdigest()
    # FIPS 180-2, appendix B.1
    assert sha256_hex(b"abc").startswith("ba7816bf8f01cfea414140de5dae2223b00361a3")


def test_the_agent_does_not_load_what_is_big() -> None:
    """Each of these costs every GPU node megabytes."""
    code = "import sys, fairwatt.accounting.agent.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "pynvml" in loaded
    assert not loaded & {"ssl", "_hashlib", "http.client", "email.message", "click"}
