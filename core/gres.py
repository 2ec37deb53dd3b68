# SPDX-License-Identifier: Apache-2.0
"""The GRES grammar: what jobs request and what nodes have, in every spelling of Slurm 20.11-26.05.

Nobody else looks inside such a string.

>>> parse_request("cpu=3,gres/gpu:a100=2")[1]
Gres(name='gpu', type='a100', count=2)
>>> format_request(parse_request("gres:gpu"), Spelling.SLASH)
'gres/gpu:1'
>>> parse_node_gres("gpu:(null):4(IDX:0-1,3)")[0].indices
(0, 1, 3)
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from fairwatt.core.errors import GrammarError

__all__ = [
    "MAX_COUNT",
    "Gres",
    "Spelling",
    "format_node_gres",
    "format_request",
    "is_doubled",
    "parse_count",
    "parse_node_gres",
    "parse_request",
    "server_reads",
]

MAX_COUNT = 2**64 - 3
"""Largest count that Slurm can hold: the two above are its NO_VAL64 and INFINITE64."""

CACHED = 512
"""Requests repeat: so many texts are kept as read. What cannot be read is not."""

_GRES = "gres"
_TRES = ""
# More than one where a client puts its own before the user's: scontrol update Gres=gres:gpu.
_PREFIX = re.compile(r"(?:gres[:/])+")
# `--gpus=gpu:a100:2`: the client puts its own before that as well.
_DOUBLED = re.compile(r"(?:gpu:(?:gres[:/])*)+(?=gpu:)")
_PLAIN_TRES = re.compile(r"(?:cpu|mem|node|billing|energy|pages|vmem)(?=[:=]|$)")
_RESERVED = re.compile(r"cpu|mem|node|billing|energy|pages|vmem|gres")
_OTHER_KIND = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)/")
_COUNT = re.compile(r"\+?([0-9]{1,20})([KMGTP]?)", re.IGNORECASE)
_NUMERIC = re.compile(r"[+-]?[0-9.]+[KMGTP]?", re.IGNORECASE)
_WORD = r"[^\s:,()=/\x00-\x1f\x7f]+"
_NAME = re.compile(_WORD)
# A comparison before the word is a wish of users ("gpu:>=40G:1"); the 22.05 client lets it pass.
_TYPE = re.compile(r"(?:[<>!]=)?[^\s:,()=\x00-\x1f\x7f]+")
_EQUALS_COUNT = re.compile(r"(?s)(.*[^<>!])=([^=:]*)")
_SUFFIXES = re.compile(r"(?:\([^()]*\))*$")
_SUFFIX = re.compile(r"\(([^()]*)\)")
_NOTHING = ("", "(null)", "N/A")
_FORM = "write name[:type][:count], for example gpu:2"


class Spelling(enum.Enum):
    """How a Slurm server spells GRES in a request; another server's spelling is refused."""

    BARE = "bare"
    """`gpu:2`: up to 20.11."""
    COLON = "colon"
    """`gres:gpu:2`: 21.08 to 23.02."""
    SLASH = "slash"
    """`gres/gpu:2`: from 23.11; per task it is `gres/gpu=2`."""


_PREFIXES = {Spelling.BARE: "", Spelling.COLON: "gres:", Spelling.SLASH: "gres/"}


@dataclass(frozen=True, slots=True, repr=False)
class Gres:
    """One entry: `count` of a generic resource, `type` None when untyped.

    In a mixed list entries that are no GRES (`cpu=3`, `license/x=1`) have another `kind`
    ("" or "license") and keep their `text` untouched. `no_consume` and `suffixes` (insides
    of the brackets, `S:0-1`, `IDX:0-3`) occur on nodes only.
    """

    name: str
    type: str | None
    count: int
    kind: str = _GRES
    text: str | None = None
    no_consume: bool = False
    suffixes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shown = [f"name={self.name!r}", f"type={self.type!r}", f"count={self.count}"]
        if self.kind != _GRES:
            shown += [f"kind={self.kind!r}", f"text={self.text!r}"]
        if self.no_consume:
            shown.append("no_consume=True")
        if self.suffixes:
            shown.append(f"suffixes={self.suffixes!r}")
        return f"Gres({', '.join(shown)})"

    @property
    def is_gpu(self) -> bool:
        """Whether this entry asks for GPUs or slices of them (not shard, mps or cpu)."""
        return self.kind == _GRES and self.name == "gpu"

    @property
    def sockets(self) -> str | None:
        """The socket list of `(S:0-1)`, as written, or None."""
        return self._suffix("S:")

    @property
    def indices(self) -> tuple[int, ...]:
        """The numbers of `(IDX:0-1,3)`; empty when absent, `N/A` or not a list of numbers."""
        return _expand(self._suffix("IDX:") or "")

    def _suffix(self, head: str) -> str | None:
        for suffix in self.suffixes:
            if suffix.startswith(head):
                return suffix[len(head) :]
        return None


@functools.lru_cache(CACHED)
def parse_request(text: str) -> tuple[Gres, ...]:
    """Read what a job asks for: `gpu`, `gpu:a100:2`, `gres:gpu:2`, `cpu=3,gres/gpu:a100=2`.

    Empty text asks for nothing. A missing count is 1. `gpu:gpu:a100:2`, which has no reading of
    its own, is what clients make of `--gpus=gpu:a100:2`, and read as that was meant.

    Raises:
        GrammarError: `part` is the entry or the piece of it that cannot be read.
    """
    if text in _NOTHING:
        return ()
    return tuple(_entry(part, text) for part in text.split(","))


@functools.lru_cache(CACHED)
def server_reads(text: str, spelling: Spelling) -> bool:
    """Whether a server of that spelling reads every GRES of a request as it stands.

    Up to 23.02 a count after `=` is read for a typed GRES only.

    Raises:
        GrammarError: as `parse_request`.
    """
    pairs = zip(parse_request(text), text.split(","), strict=False)
    return all(_is_read(part, spelling) for entry, part in pairs if entry.kind == _GRES)


def is_doubled(text: str) -> bool:
    """Whether an entry of a request is read only without a second `gpu:` in it.

    Raises:
        GrammarError: as `parse_request`.
    """
    return text.count("gpu:") > 1 and any(_is_doubled(part, text) for part in text.split(","))


def format_request(items: Iterable[Gres], spelling: Spelling, *, per_task: bool = False) -> str:
    """Write a request as the server spells it; `parse_request` reads it back to equal items.

    Args:
        items: entries; what only nodes have (flags, brackets) is left out.
        spelling: the server's.
        per_task: the text goes to tres_per_task, where SLASH separates the count by `=`.

    Raises:
        GrammarError: a name, type or count that the grammar cannot express.
    """
    equals = per_task and spelling is Spelling.SLASH
    prefix = _PREFIXES[spelling]
    return ",".join(_written(item, prefix, "=" if equals else ":") for item in items)


def parse_node_gres(text: str) -> tuple[Gres, ...]:
    """Read a node's Gres or GresUsed: `gpu:a100:4(S:0-1)`, `gpu:(null):4(IDX:0-3)`.

    Raises:
        GrammarError: `part` is the entry or the piece of it that cannot be read.
    """
    if text in _NOTHING:
        return ()
    return tuple(_node_entry(part, text) for part in _split_outside_brackets(text))


def format_node_gres(items: Iterable[Gres]) -> str:
    """Write a node's Gres as in slurm.conf; `parse_node_gres` reads it back to equal items.

    Raises:
        GrammarError: a name, type, count or bracket that the grammar cannot express.
    """
    return ",".join(_node_written(item) for item in items)


def parse_count(text: str, whole: str) -> int:
    """Read a count such as `4` or `2K` (steps of 1024); `whole` is shown in the error.

    Raises:
        GrammarError: it is not a whole number, or larger than Slurm can hold.
    """
    match = _COUNT.fullmatch(text)
    if match is None:
        raise GrammarError("not a count", text=whole, part=text, remedy=_FORM)
    count = int(match[1]) << 10 * " KMGTP".index(match[2].upper() or " ")
    if count > MAX_COUNT:
        raise GrammarError("count too large", text=whole, part=text, remedy="ask for less")
    return count


def _is_read(part: str, spelling: Spelling) -> bool:
    body = part.removeprefix(_PREFIXES[spelling])
    if not part.startswith(_PREFIXES[spelling]) or _PREFIX.match(body) or is_doubled(part):
        return False
    return spelling is Spelling.SLASH or "=" not in body


def _entry(part: str, whole: str) -> Gres:
    prefix = _PREFIX.match(part)
    if prefix is not None:
        return _gres(part[prefix.end() :], part, whole)
    if _PLAIN_TRES.match(part):
        return _other(part, part, _TRES, whole)
    kind = _OTHER_KIND.match(part)
    if kind is not None:
        return _other(part[kind.end() :], part, kind[1], whole)
    return _gres(part, part, whole)


def _other(body: str, part: str, kind: str, whole: str) -> Gres:
    name, separator, amount = _split_count(body)
    _checked(_NAME, name, part, whole)
    count = parse_count(amount, whole) if separator else 1
    return Gres(name, None, count, kind=kind, text=part)


def _split_count(body: str) -> tuple[str, str, str]:
    """Cut a non-GRES entry at its last `=`, else at its last `:`."""
    for separator in "=:":
        if separator in body:
            return body.rpartition(separator)
    return body, "", ""


def _gres(body: str, part: str, whole: str) -> Gres:
    try:
        return _single(body, part, whole)
    except GrammarError:
        doubled = _DOUBLED.match(body)
        if doubled is None:
            raise
    return _single(body[doubled.end() :], part, whole)


def _is_doubled(part: str, whole: str) -> bool:
    prefix = _PREFIX.match(part)
    body = part[prefix.end() :] if prefix else part
    if _DOUBLED.match(body) is None:
        return False
    try:
        _single(body, part, whole)
    except GrammarError:
        return True
    return False


def _single(body: str, part: str, whole: str) -> Gres:
    equals = _EQUALS_COUNT.fullmatch(body)
    if equals is not None:
        name, type_, rest = _name_and_type(equals[1].split(":"), part, whole)
        if rest:
            raise GrammarError("too many pieces", text=whole, part=part, remedy=_FORM)
        return Gres(name, type_, parse_count(equals[2], whole))
    name, type_, count = _fields(body.split(":"), part, whole)
    return Gres(name, type_, count)


def _fields(fields: list[str], part: str, whole: str) -> tuple[str, str | None, int]:
    """Read `name[:type][:count]`: a lone second field that looks like a number is the count."""
    if len(fields) == 2 and _NUMERIC.fullmatch(fields[1]):
        return _gres_name(fields[0], part, whole), None, parse_count(fields[1], whole)
    name, type_, rest = _name_and_type(fields, part, whole)
    if len(rest) > 1:
        raise GrammarError("too many pieces", text=whole, part=part, remedy=_FORM)
    return name, type_, parse_count(rest[0], whole) if rest else 1


def _name_and_type(fields: list[str], part: str, whole: str) -> tuple[str, str | None, list[str]]:
    name = _gres_name(fields[0], part, whole)
    if len(fields) == 1:
        return name, None, []
    if fields[1] == "(null)":
        return name, None, fields[2:]
    return name, _checked(_TYPE, fields[1], part, whole), fields[2:]


def _gres_name(piece: str, part: str, whole: str) -> str:
    if _RESERVED.fullmatch(piece):
        raise GrammarError("not the name of a GRES", text=whole, part=part, remedy=_FORM)
    return _checked(_NAME, piece, part, whole)


def _checked(pattern: re.Pattern[str], piece: str, part: str, whole: str) -> str:
    if pattern.fullmatch(piece) is None:
        what = "empty name or type" if not piece else "unreadable name or type"
        raise GrammarError(what, text=whole, part=piece or part, remedy=_FORM)
    return piece


def _node_entry(part: str, whole: str) -> Gres:
    cut = _SUFFIXES.search(part)
    tail = cut[0] if cut is not None and part[: cut.start()][-1:] != ":" else ""
    fields = part[: len(part) - len(tail)].split(":")
    no_consume = "no_consume" in fields[1:]
    fields = [fields[0], *(field for field in fields[1:] if field != "no_consume")]
    name, type_, count = _fields(fields, part, whole)
    suffixes = tuple(_SUFFIX.findall(tail))
    return Gres(name, type_, count, no_consume=no_consume, suffixes=suffixes)


def _split_outside_brackets(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for place, sign in enumerate(text):
        if sign == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
        depth += (sign == "(") - (sign == ")")
    return [*parts, text[start:]]


def _written(item: Gres, prefix: str, separator: str) -> str:
    if item.kind != _GRES:
        return item.text or f"{item.kind}/{item.name}={item.count}".lstrip("/")
    return f"{prefix}{_head(item)}{separator}{item.count}"


def _node_written(item: Gres) -> str:
    flag = ":no_consume" if item.no_consume else ""
    tail = "".join(f"({suffix})" for suffix in item.suffixes)
    if _SUFFIXES.fullmatch(tail) is None:
        raise GrammarError("unreadable bracket", text=tail, part=tail, remedy="no brackets inside")
    return f"{_head(item)}{flag}:{item.count}{tail}"


def _head(item: Gres) -> str:
    shown = repr(item)
    _gres_name(item.name, item.name, shown)
    if not 0 <= item.count <= MAX_COUNT:
        raise GrammarError("count out of range", text=shown, part=str(item.count))
    if item.type is None:
        return item.name
    return f"{item.name}:{_checked(_TYPE, item.type, item.type, shown)}"


def _expand(ranges: str) -> tuple[int, ...]:
    """Return the numbers of `0-1,3`; a range of more than 4096 is taken as unreadable."""
    numbers: list[int] = []
    for piece in ranges.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", piece)
        if match is None or int(match[2] or match[1]) - int(match[1]) > 4096:
            return ()
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(numbers)
