# SPDX-License-Identifier: Apache-2.0
"""Answers that policyd has given before: equal request bytes, equal policy and facts, no judging.

>>> memo = Memo()
>>> memo.put(b"request", Remembered(1, (b"<", b">"), query, decision, 30, 90))  # doctest: +SKIP
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from fairwatt.slurm_plugins.engine import Decision
from fairwatt.slurm_plugins.wire import Query

__all__ = ["NO_LIMIT", "Memo", "Remembered"]

NO_LIMIT = -1
"""Stands for the time limit of a request that names none."""

MAX_ENTRIES = 4096
MAX_BYTES = 8 << 20
MAX_KEY_BYTES = 8192
"""Longer requests are hostile or rare: not worth the room."""

MAX_BANDS = 4
"""So many answers to requests that differ in their time limit alone; as many as the hook keeps."""

MAX_REFERRED = 2048
"""So many answers the hook may have at a time, however small the memo."""

MAX_REFERRED_KEY_BYTES = 4096
"""The hook keeps no answer to a longer request."""

LATE_S = 5.0
"""A report may come so long after the time in which the answer might be given."""

OBJECT_BYTES = 2500
"""About what one entry's query, decision and notes take beside the texts in them."""

COPIES = 3
"""The texts of a request are in the key, in the query, and in part in the decision."""


class Remembered(msgspec.Struct, frozen=True, gc=False):
    """An answer in pieces, between which the request's id goes, and what it was made from.

    `ref` names it for as long as it may still be given again. It holds for time limits from
    `low_min` to `high_min`, both inclusive; both are NO_LIMIT where the request named none.
    """

    ref: int
    pieces: tuple[bytes, ...]
    query: Query
    decision: Decision
    low_min: int = NO_LIMIT
    high_min: int = NO_LIMIT


class _Entry(msgspec.Struct, frozen=True, gc=False):
    epoch: int
    size: int
    bands: tuple[Remembered, ...]


class _Reference(msgspec.Struct, frozen=True, gc=False):
    epoch: int
    until_s: float
    remembered: Remembered


class Memo:
    """Keeps the answers used last; bounded in entries and in bytes (an estimate).

    `forget` makes all of them unusable at once and costs nothing: entries of before are passed
    over and make room one by one. Freeing thousands of objects would hold up a request.
    """

    def __init__(
        self,
        max_entries: int = MAX_ENTRIES,
        max_bytes: int = MAX_BYTES,
        max_referred: int = MAX_REFERRED,
    ) -> None:
        self._max_entries = max_entries
        self._max_referred = max_referred
        self._max_bytes = max_bytes
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._referred: OrderedDict[int, _Reference] = OrderedDict()
        self._epoch = 0
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """The estimate of what is kept."""
        return self._size_bytes

    def forget(self) -> None:
        """Give out nothing of what was put in so far."""
        self._epoch += 1

    def get(self, key: bytes, limit_min: int = NO_LIMIT) -> Remembered | None:
        """What was put in for this key and time limit since the last `forget`."""
        entry = self._entries.get(key)
        if entry is None or entry.epoch != self._epoch:
            return None
        self._entries.move_to_end(key)
        for each in entry.bands:
            if each.low_min <= limit_min <= each.high_min:
                return each
        return None

    def refer(self, remembered: Remembered, now_s: float, for_s: float) -> bool:
        """Let `referred` find an answer for so long; False: too many others are there now.

        It goes when another needs its place: after its time, or after a `forget`.
        """
        ref, until_s = remembered.ref, now_s + for_s + LATE_S
        known = self._referred.get(ref)
        if known is not None:
            until_s = max(until_s, known.until_s)
        elif len(self._referred) >= self._max_referred:
            oldest = next(iter(self._referred.values()))
            if oldest.epoch == self._epoch and oldest.until_s > now_s:
                return False
            self._referred.popitem(last=False)
        self._referred[ref] = _Reference(self._epoch, until_s, remembered)
        self._referred.move_to_end(ref)
        return True

    def referred(self, ref: int) -> Remembered | None:
        """The answer of this number, if it may still have been given."""
        found = self._referred.get(ref)
        return None if found is None else found.remembered

    def put(self, key: bytes, remembered: Remembered) -> None:
        """Keep an answer; the ones unused for longest go until all fit."""
        if len(key) > MAX_KEY_BYTES:
            return
        old = self._entries.pop(key, None)
        before = old.bands if old and old.epoch == self._epoch else ()
        others = [each for each in before if each.low_min != remembered.low_min]
        bands = (remembered, *others[: MAX_BANDS - 1])
        size = sum(_size(key, each) for each in bands)
        self._size_bytes += size - (old.size if old else 0)
        self._entries[key] = _Entry(self._epoch, size, bands)
        while len(self._entries) > self._max_entries or self._size_bytes > self._max_bytes:
            _, oldest = self._entries.popitem(last=False)
            self._size_bytes -= oldest.size


def _size(key: bytes, remembered: Remembered) -> int:
    return COPIES * (len(key) + sum(map(len, remembered.pieces))) + OBJECT_BYTES
