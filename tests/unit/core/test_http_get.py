# SPDX-License-Identifier: Apache-2.0
"""The GET without http.client, against servers that behave and others."""

from __future__ import annotations

import time

import pytest

from fairwatt.core.http_get import http_get, parse_url
from tests.fakes.bmc_server import bmc_server, page


def get(server, path="/x", timeout_s=5.0, longest=1000):
    place = parse_url(server.url + path)
    return http_get(place, headers={"Accept": "a/b"}, timeout_s=timeout_s, longest=longest)


def test_status_and_body_come_back() -> None:
    with bmc_server() as server:
        server.pages["/x"] = page(b"hello", "201 Created")
        assert get(server) == (201, b"hello")
        assert "Accept: a/b\r\n" in server.headers[0]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (page(b"y" * 1001), "more than"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"y" * 200_000, "more than"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "too early"),
        (b"SSH-2.0-OpenSSH\r\n", "no answer in HTTP"),
        (b"", "no answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal", "too early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhal", "no chunk"),
    ],
)
def test_what_is_not_a_whole_small_answer_is_refused(answer, problem) -> None:
    with bmc_server() as server:
        server.pages["/x"] = answer
        with pytest.raises(OSError, match=problem):
            get(server)


def test_chunks_are_put_together() -> None:
    chunked = b"4\r\nhell\r\n1;x=y\r\no\r\n0\r\n\r\n"
    with bmc_server() as server:
        server.pages["/x"] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked
        assert get(server) == (200, b"hello")


def test_a_server_that_drips_does_not_hold_us_beyond_the_deadline() -> None:
    """Each byte comes in time: only the whole takes too long."""

    def drip(peer) -> None:
        peer.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while not server.done.wait(0.05):
            peer.sendall(b"x")

    with bmc_server() as server:
        server.pages["/x"] = drip
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            get(server, timeout_s=0.3)
        assert time.monotonic() - begun < 2


def test_a_redirect_is_an_answer_like_any_other() -> None:
    with bmc_server() as server:
        server.pages["/x"] = b"HTTP/1.1 302 Found\r\nLocation: /y\r\n\r\n"
        assert get(server)[0] == 302
        assert server.asked == ["/x"]


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://bmc.example", ("https", "bmc.example", 443, "/", False)),
        ("http://127.0.0.1:9400/metrics", ("http", "127.0.0.1", 9400, "/metrics", True)),
        ("http://[::1]:9400/metrics", ("http", "::1", 9400, "/metrics", True)),
        ("http://localhost/", ("http", "localhost", 80, "/", True)),
        ("http://127.0.0.1.example/", ("http", "127.0.0.1.example", 80, "/", False)),
    ],
)
def test_parts_of_a_url(url, parts) -> None:
    place = parse_url(url)
    assert place is not None
    assert (place.scheme, place.host, place.port, place.path, place.is_loopback) == parts


@pytest.mark.parametrize(
    "url",
    ["", "bmc", "ftp://bmc/", "https://", "https://u:p@bmc/", "https://bmc:0/",
     "https://bmc:99999/", "https://bmc:x/", "https://b mc/", "http://bmc/\r\nX: y", "http://ü/",
     "https://.bmc/", "https://bmc..x/", "https://" + 64 * "a" + "/", "https://[x]/", "https://-/"],
)  # fmt: skip
def test_no_url(url) -> None:
    assert parse_url(url) is None
