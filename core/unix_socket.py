# SPDX-License-Identifier: Apache-2.0
"""Asks one of our own daemons over its unix socket: one line there, one line back."""

from __future__ import annotations

import socket
from pathlib import Path

__all__ = ["ask_line"]


def ask_line(path: str | Path, line: bytes, patience_s: float) -> bytes:
    """Send `line` (with its end) and return the answer's line, b"" if it hung up without one.

    Raises:
        OSError: nobody listens, or a step took longer than patience_s.
    """
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(patience_s)
        peer.connect(str(path))
        peer.sendall(line)
        return peer.makefile("rb").readline()
