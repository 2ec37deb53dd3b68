# SPDX-License-Identifier: Apache-2.0
"""One HTTP POST over a plain connection, without http.client.

That module loads ssl and the mail parser: 5 MB in a daemon that runs on every node. HTTP/1.0 has
neither chunks nor connections that stay open, so that little is left to do.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

__all__ = ["http_post"]

LONGEST_ANSWER = 65_536


def http_post(
    host: str, port: int, path: str, headers: Mapping[str, str], body: bytes, timeout_s: float
) -> tuple[int, str]:
    """Send `body` and return the answer's status and text, of which the first 64 KiB.

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


def _parsed(answer: bytes) -> tuple[int, str]:
    head, _, text = answer.partition(b"\r\n\r\n")
    words = head.split(b"\r\n")[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise OSError(f"no answer in HTTP: {answer[:60]!r}")
    return int(words[1]), text[:LONGEST_ANSWER].decode("utf-8", errors="replace")
