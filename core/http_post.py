# SPDX-License-Identifier: Apache-2.0
"""One HTTP POST over a plain connection, without http.client.

That module loads ssl and the mail parser: 5 MB in a daemon that runs on every node. HTTP/1.0 has
neither chunks nor connections that stay open, so that little is left to do.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Answer", "http_post", "retry_after"]

LONGEST_ANSWER = 65_536


class Answer(NamedTuple):
    """A server's HTTP status and text; status 0: it could not be reached.

    `retry_after_s` is when it asks to be sent to again, None if it does not say.
    """

    status: int
    text: str
    retry_after_s: int | None = None


def http_post(
    host: str, port: int, path: str, headers: Mapping[str, str], body: bytes, timeout_s: float
) -> Answer:
    """Send `body` and return the answer, of its text the first 64 KiB.

    Raises:
        OSError: no answer within `timeout_s` (for each part), or not one of HTTP.
    """
    name = f"[{host}]" if ":" in host else host
    known = {"Host": f"{name}:{port}", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{key}: {value}\r\n" for key, value in known.items())
    with socket.create_connection((host, port), timeout_s) as peer:
        peer.sendall(f"POST {path} HTTP/1.0\r\n{head}\r\n".encode("ascii") + body)
        return _parsed(_received(peer))


def _received(peer: socket.socket) -> bytes:
    """Read until the server closes or has said all that it announced."""
    answer = b""
    while len(answer) < LONGEST_ANSWER and not _is_whole(answer):
        part = peer.recv(LONGEST_ANSWER)
        if not part:
            break
        answer += part
    return answer


def _is_whole(answer: bytes) -> bool:
    head, _, text = answer.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return b"\r\n\r\n" in answer and len(text) >= int(value)
    return False


def retry_after(value: str | None) -> int | None:
    """Return the seconds of a Retry-After header; None for none, or a date, which we never send.

    >>> retry_after("7"), retry_after("Fri, 31 Dec 1999 23:59:59 GMT")
    (7, None)
    """
    text = (value or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _header(head: bytes, name: bytes) -> str | None:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.decode("latin-1")
    return None


def _parsed(answer: bytes) -> Answer:
    head, _, text = answer.partition(b"\r\n\r\n")
    words = head.split(b"\r\n")[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise OSError(f"no answer in HTTP: {answer[:60]!r}")
    shown = text[:LONGEST_ANSWER].decode("utf-8", errors="replace")
    return Answer(int(words[1]), shown, retry_after(_header(head, b"retry-after")))
