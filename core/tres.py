# SPDX-License-Identifier: Apache-2.0
"""The TRES grammar of Slurm's accounting: AllocTRES, ReqTRES and the TRESUsage fields.

>>> tres = parse_tres("cpu=8,mem=250.5G,gres/gpu=4,gres/gpu:a100=2")
>>> tres.cpus, tres.mem_bytes, tres.gpus
(8, 268972326912, {'a100': 2, None: 2})
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fairwatt.core.errors import GrammarError

__all__ = ["NO_VAL64", "Tres", "TresEntry", "format_tres", "parse_amount", "parse_tres"]

NO_VAL64 = 2**64 - 2
"""Slurm's "unknown" in 64 bits; it also writes one more, and both mean unknown."""

_KEY = re.compile(r"[^\s,=\x00-\x1f\x7f]+")
_AMOUNT = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,20}))?([KMGTPE]?)", re.IGNORECASE)
_CLOCK = re.compile(r"(?:[0-9]+-)?[0-9]+(?::[0-9]+){1,2}(?:\.[0-9]+)?")
_MEMORY = "mem"
_MIB = 2**20
_GPU = "gres/gpu"
_NOTHING = ("", "(null)", "N/A")
_FORM = "write name=amount,name=amount, for example cpu=8,gres/gpu=1"


@dataclass(frozen=True, slots=True)
class TresEntry:
    """One `key=amount`; None is Slurm's "unknown". A time (`cpu=00:01:00`) keeps its `text`."""

    key: str
    amount: int | None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Tres:
    """A TRES list in the order written; memory is in bytes, everything else a plain count."""

    entries: tuple[TresEntry, ...] = ()

    def amount(self, key: str) -> int | None:
        """Return the amount of a key; None when it is absent or unknown."""
        for entry in self.entries:
            if entry.key == key:
                return entry.amount
        return None

    @property
    def cpus(self) -> int | None:
        """CPUs, or None."""
        return self.amount("cpu")

    @property
    def mem_bytes(self) -> int | None:
        """Memory in bytes, or None."""
        return self.amount(_MEMORY)

    @property
    def nodes(self) -> int | None:
        """Nodes, or None."""
        return self.amount("node")

    @property
    def gpu_count(self) -> int:
        """All GPUs: the generic `gres/gpu` if present, else the sum of the typed ones."""
        generic = self.amount(_GPU)
        return sum(self._typed().values()) if generic is None else generic

    @property
    def gpus(self) -> dict[str | None, int]:
        """GPUs by type, no zeros; what the typed entries leave of the generic is under None."""
        typed = self._typed()
        rest = self.gpu_count - sum(typed.values())
        return {**typed, None: rest} if rest > 0 else dict(typed)

    @property
    def gpu_util_ratio(self) -> float | None:
        """Mean GPU utilisation 0-1 of a TRESUsage text: Slurm >= 24.05 sums per cent over GPUs."""
        total = self.amount("gres/gpuutil")
        return None if total is None or self.gpu_count == 0 else total / 100 / self.gpu_count

    def _typed(self) -> dict[str | None, int]:
        head = f"{_GPU}:"
        return {
            entry.key[len(head) :]: entry.amount
            for entry in self.entries
            if entry.key.startswith(head) and entry.amount
        }


def parse_tres(text: str, *, bare_mem_bytes: int = _MIB) -> Tres:
    """Read `cpu=8,mem=250.5G,gres/gpu:a100=2`; unknown names are kept, NO_VAL64 becomes None.

    Args:
        text: the field; empty gives an empty list.
        bare_mem_bytes: bytes of one unit of a `mem` without suffix: MiB in AllocTRES and
            ReqTRES; pass 1 for TRESUsage fields.

    Raises:
        GrammarError: `part` is the entry or the amount that cannot be read.
    """
    if text in _NOTHING:
        return Tres()
    return Tres(tuple(_entry(part, text, bare_mem_bytes) for part in text.split(",")))


def format_tres(tres: Tres | Iterable[TresEntry]) -> str:
    """Write a list so that `parse_tres` reads it back equal; memory in M, else exact in K.

    Raises:
        GrammarError: a key or an amount that the grammar cannot express.
    """
    entries = tres.entries if isinstance(tres, Tres) else tres
    return ",".join(_written(entry) for entry in entries)


def parse_amount(text: str, whole: str, unit: int = 1) -> int | None:
    """Read `4`, `250.5G` or `1.95T` (steps of 1024) to the nearest whole; NO_VAL64 gives None.

    `unit` multiplies an amount without suffix.

    Raises:
        GrammarError: it is no amount, or a fraction without suffix.
    """
    match = _AMOUNT.fullmatch(text)
    if match is None or (match[2] and not match[3] and unit == 1):
        raise GrammarError("not an amount", text=whole, part=text, remedy=_FORM)
    fraction = match[2] or ""
    if not fraction and not match[3] and int(match[1]) >= NO_VAL64:
        return None
    scale: int = 1 << 10 * " KMGTPE".index(match[3].upper()) if match[3] else unit
    base: int = 10 ** len(fraction)
    return (2 * int(match[1] + fraction) * scale + base) // (2 * base)


def _entry(part: str, whole: str, bare_mem_bytes: int) -> TresEntry:
    key, equals, value = part.partition("=")
    if not equals or _KEY.fullmatch(key) is None:
        raise GrammarError("not name=amount", text=whole, part=part, remedy=_FORM)
    if _CLOCK.fullmatch(value):
        return TresEntry(key, None, value)
    return TresEntry(key, parse_amount(value, whole, bare_mem_bytes if key == _MEMORY else 1))


def _written(entry: TresEntry) -> str:
    if _KEY.fullmatch(entry.key) is None:
        raise GrammarError("unreadable name", text=repr(entry), part=entry.key)
    return f"{entry.key}={_amount_text(entry)}"


def _amount_text(entry: TresEntry) -> str:
    if entry.text is not None:
        return entry.text
    if entry.amount is None:
        return str(NO_VAL64)
    if not 0 <= entry.amount < NO_VAL64:
        raise GrammarError("amount out of range", text=repr(entry), part=str(entry.amount))
    if entry.key != _MEMORY:
        return str(entry.amount)
    return _memory_text(entry.amount)


def _memory_text(amount: int) -> str:
    """Bytes as M when whole, else as decimal K: n/1024 has at most ten decimals, so exact."""
    if amount % _MIB == 0:
        return f"{amount // _MIB}M"
    whole, rest = divmod(amount, 1024)
    decimals = f"{rest * 10**10 // 1024:010d}".rstrip("0")
    return f"{whole}.{decimals}K" if decimals else f"{whole}K"
