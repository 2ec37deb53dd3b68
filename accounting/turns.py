# SPDX-License-Identifier: Apache-2.0
"""A lock whose waiters get it in the order in which they came."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType

__all__ = ["TurnLock"]


class TurnLock:
    """As `threading.Lock` in a with statement; but a thread that wants it again goes last.

    With a plain lock a loop that lets go and takes it again keeps all others out for as long as
    it runs.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False
