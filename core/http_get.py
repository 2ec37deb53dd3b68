# SPDX-License-Identifier: Apache-2.0
"""One HTTP GET with a deadline and a limit, without http.client (see http_post for why).

Redirects are not followed: what is sent along is for this host alone.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

__all__ = ["HttpPlace", "http_get", "parse_url"]

LONGEST_HEAD = 65_536
_PART = 65_536
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}$)(?:{_LABEL}(?:\.{_LABEL})*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)")


class HttpPlace:
    """Where to ask: scheme "http" or "https", host, port and the path of the URL."""

    __slots__ = ("host", "path", "port", "scheme")

    def __init__(self, scheme: str, host: str, port: int, path: str) -> None:
        self.scheme, self.host, self.port, self.path = scheme, host, port, path

    @property
    def is_loopback(self) -> bool:
        """Whether the host is this very machine, by address or as `localhost`."""
        return self.host in ("localhost", "::1") or (
            self.host.startswith("127.") and self.host.replace(".", "").isdigit()
        )

    @property
    def netloc(self) -> str:
        """Return host and port as the Host header has them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_url(url: str) -> HttpPlace | None:
    """Return the parts of a plain http or https URL; None where it is none, or holds a user."""
    scheme, mark, rest = url.partition("://")
    netloc, slash, path = rest.partition("/")
    if not mark or scheme not in ("http", "https") or not url.isascii() or not url.isprintable():
        return None
    host, port = _host_and_port(netloc)
    if not _HOST.fullmatch(host) or any(sign in url for sign in '@#?\\ "<>'):
        return None
    if port and not (port.isdigit() and 0 < int(port[:6]) < 65_536):
        return None
    usual = 443 if scheme == "https" else 80
    return HttpPlace(scheme, host, int(port) if port else usual, slash + path or "/")


def _host_and_port(netloc: str) -> tuple[str, str]:
    if netloc.startswith("["):
        host, _, port = netloc[1:].partition("]")
        return host if ":" in host else "", port.removeprefix(":")
    host, _, port = netloc.partition(":")
    return host, port


def http_get(
    place: HttpPlace,
    *,
    headers: Mapping[str, str],
    timeout_s: float,
    longest: int,
    tls: ssl.SSLContext | None = None,
) -> tuple[int, bytes]:
    """Return the answer's status and body.

    Args:
        place: where.
        headers: besides Host.
        timeout_s: for all of it, however slowly the bytes come.
        longest: an answer beyond so many bytes is refused.
        tls: for "https", and then it must be given.

    Raises:
        OSError: no whole answer in time, too long, not one of HTTP, or the certificate is wrong.
    """
    until = time.monotonic() + timeout_s
    known = {"Host": place.netloc, "Connection": "close", **headers}
    head = "".join(f"{key}: {value}\r\n" for key, value in known.items())
    with _connected(place, timeout_s, tls) as peer:
        peer.settimeout(_left_s(until))
        peer.sendall(f"GET {place.path} HTTP/1.0\r\n{head}\r\n".encode("ascii"))
        return _parsed(_received(peer, until, longest + LONGEST_HEAD), longest)


@contextmanager
def _connected(
    place: HttpPlace, timeout_s: float, tls: ssl.SSLContext | None
) -> Iterator[socket.socket]:
    with socket.create_connection((place.host, place.port), timeout_s) as plain:
        if place.scheme == "http":
            yield plain
            return
        if tls is None:
            raise OSError("https without a TLS context")
        with tls.wrap_socket(plain, server_hostname=place.host) as peer:
            yield peer


def _left_s(until: float) -> float:
    left_s = until - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the answer took too long")
    return left_s


def _received(peer: socket.socket, until: float, longest: int) -> bytes:
    """Read until the server closes, or has said all that it announced."""
    answer = bytearray()
    while not _is_whole(answer):
        peer.settimeout(_left_s(until))
        part = peer.recv(_PART)
        if not part:
            break
        answer += part
        if len(answer) > longest:
            raise OSError(f"an answer of more than {longest} bytes")
    return bytes(answer)


def _is_whole(answer: bytearray) -> bool:
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return False
    length = _header(bytes(answer[:end]), b"content-length")
    return length.isdigit() and len(answer) - end - 4 >= int(length[:20])


def _header(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip().lower()
    return b""


def _parsed(answer: bytes, longest: int) -> tuple[int, bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b"\r\n")[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise OSError(f"no answer in HTTP: {answer[:60]!r}")
    length = _header(head, b"content-length")
    if length.isdigit() and len(body) < int(length[:20]):
        raise OSError("the answer ended too early")
    # Forbidden in an answer to HTTP/1.0, but there are small servers that know nothing else.
    whole = _dechunked(body) if _header(head, b"transfer-encoding") == b"chunked" else body
    if len(whole) > longest:
        raise OSError(f"an answer of more than {longest} bytes")
    return int(words[1][:3]), whole


def _dechunked(body: bytes) -> bytes:
    parts: list[bytes] = []
    while body:
        size, mark, body = body.partition(b"\r\n")
        try:
            length = int(size.split(b";")[0], 16)
        except ValueError:
            raise OSError(f"no chunk of an answer: {size[:20]!r}") from None
        if not mark or length < 0 or len(body) < length:
            break
        if length == 0:
            return b"".join(parts)
        parts.append(body[:length])
        body = body[length + 2 :]
    raise OSError("the answer ended too early")
