# SPDX-License-Identifier: Apache-2.0
"""Loopback ports for one cluster, without races between clusters that start at once."""

from __future__ import annotations

import itertools
import random
import socket

__all__ = ["PortBlock"]

# Below Linux's ephemeral range (32768 up), so that no outgoing connection takes one of ours.
FIRST, LAST, SIZE = 20_000, 32_000, 32


class PortBlock:
    """A block of free ports, held for as long as its guard socket listens on the first of them."""

    def __init__(self) -> None:
        starts = list(range(FIRST, LAST, SIZE))
        random.shuffle(starts)
        for start in starts:
            guard = _listen(start)
            if guard is None:
                continue
            if all(_is_free(port) for port in range(start + 1, start + SIZE)):
                self._guard = guard
                self._ports = itertools.islice(itertools.count(start + 1), SIZE - 1)
                return
            guard.close()
        raise OSError(f"no free block of {SIZE} ports between {FIRST} and {LAST}")

    def take(self) -> int:
        """Return a port of the block that was not taken before."""
        return next(self._ports)

    def release(self) -> None:
        """Give the block back."""
        self._guard.close()


def _listen(port: int) -> socket.socket | None:
    guard = socket.socket()
    try:
        guard.bind(("127.0.0.1", port))
        guard.listen(1)
    except OSError:
        guard.close()
        return None
    return guard


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
        return True
