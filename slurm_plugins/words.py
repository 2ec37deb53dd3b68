# SPDX-License-Identifier: Apache-2.0
"""What people may write where a GRES type stands: a need in words, read as the types that meet it.

A name that the cluster itself uses for a type is always that type. Else a word is one of the
site's own, a memory size (`20gb`), `any` (a whole GPU), `mig` or `mig-10gb` (a slice of at least
that memory), a family of the catalogue, or another name of a board. `a|b` is any of these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from fairwatt.slurm_plugins.site import Site

__all__ = ["Kind", "Meaning", "Order", "Vocabulary", "meant", "memory_mib", "memory_text"]

Kind = Literal["type", "word", "size", "any", "slice", "family", "alias", "any_of", "unknown"]
Order = Literal["smallest", "largest"]
OwnWords = Mapping[str, tuple[str, ...]]
Types = tuple[str | None, ...]

ANY = "any"
SLICE = "mig"
SEPARATOR = "|"
MAX_MEMBERS = 16
"""Every member is judged while slurmctld waits."""

_MEMORY = re.compile(
    r"(?:>=)?([0-9]{1,6}(?:\.[0-9]{1,3})?)(g|gb|gib|m|mb|mib)|(?:vram|mem)([0-9]{1,6})(?:g|gb)?",
    re.IGNORECASE,
)


class Meaning(msgspec.Struct, frozen=True):
    """A word read: all types of the cluster that meet it, best first, wherever they are.

    `text` completes "no GPU here is ..."; `unknown` are the words in it that mean nothing.
    """

    kind: Kind
    types: Types
    text: str
    unknown: tuple[str, ...] = ()


class Vocabulary(msgspec.Struct, frozen=True):
    """The words that a site understands.

    `own` are the site's own words; `slices`: `any` and families mean slices too; `order` says
    which of several types is best.
    """

    site: Site
    own: OwnWords = {}
    slices: bool = False
    order: Order = "smallest"

    def read(self, text: str) -> Meaning:
        """Read what stands where a type should."""
        if text in self.site.types:
            return Meaning("type", (text,), text)
        if SEPARATOR in text:
            return self._any_of(text.split(SEPARATOR))
        return self._word(text, frozenset())

    def types_of(self, words: Iterable[str]) -> frozenset[str | None]:
        """All types that any of these words means."""
        return frozenset(type_ for word in words for type_ in self.read(word).types)

    def _any_of(self, members: list[str]) -> Meaning:
        found = [self._member(member) for member in members[:MAX_MEMBERS] if member]
        unknown = [word for meaning in found for word in meaning.unknown]
        if len(members) > MAX_MEMBERS or not all(members):
            unknown.append(SEPARATOR.join(members))
        text = " or ".join(meaning.text for meaning in found)
        return Meaning("any_of", _together(found), text, tuple(unknown))

    def _member(self, word: str, seen: frozenset[str] = frozenset()) -> Meaning:
        if word in self.site.types:
            return Meaning("type", (word,), word)
        return self._word(word, seen)

    def _word(self, text: str, seen: frozenset[str]) -> Meaning:
        word = text.casefold()
        if word in self.own and word not in seen:
            found = [self._member(member, seen | {word}) for member in self.own[word]]
            return Meaning("word", _together(found), f"for {text}")
        if word == ANY:
            whole = "a GPU or a slice" if self.slices else "a whole GPU"
            return Meaning("any", self._best(lambda _: True), whole)
        return self._by_memory(text) or self._family(text) or self._alias(text)

    def _by_memory(self, text: str) -> Meaning | None:
        head, _, size = text.partition("-")
        if head.casefold() != SLICE:
            need = memory_mib(text)
            if need is None:
                return None
            return Meaning("size", self._fitting(need, slices_only=False), memory_text(need))
        need = memory_mib(size)
        if need is None and size:
            return None
        types = self._fitting(need or 0, slices_only=True)
        return Meaning("slice", types, _slice_text(need))

    def _fitting(self, need_mib: int, *, slices_only: bool) -> Types:
        """The types that hold so much, least memory first, whatever the order of others."""
        found = [
            (known.memory_mib, known.milli, name)
            for name, known in self.site.types.items()
            if name is not None
            and known.memory_mib is not None
            and known.memory_mib >= need_mib
            and (known.is_slice or not slices_only)
        ]
        return tuple(name for _, _, name in sorted(found))

    def _family(self, text: str) -> Meaning | None:
        models = {model.key for model in self.site.catalogue.family(text)}
        if not models:
            return None
        types = self._best(lambda name: self.site.types[name].model in models)
        return Meaning("family", types, f"of the {text.casefold()} family")

    def _alias(self, text: str) -> Meaning:
        names = (name for name in self.site.types if name is not None)
        types = self._sorted(meant(text, names, self.site))
        catalogue = self.site.catalogue
        known = types or catalogue.slice_type(text) or catalogue.model_of_type(text)
        return Meaning("alias", types, text) if known else Meaning("unknown", (), text, (text,))

    def _best(self, fits: Callable[[str | None], bool]) -> Types:
        names = (
            name
            for name, known in self.site.types.items()
            if (self.slices or not known.is_slice) and fits(name)
        )
        return self._sorted(names)

    def _sorted(self, names: Iterable[str | None]) -> Types:
        return tuple(sorted(names, key=self._size, reverse=self.order == "largest"))

    def _size(self, name: str | None) -> tuple[int, int, str]:
        known = self.site.types[name]
        return known.memory_mib or 0, known.milli, name or ""


def memory_mib(text: str | None) -> int | None:
    """Read `20gb`, `20G`, `4864mib`, `>=20G` or `vram20` as MiB, rounded up; None: no size."""
    match = _MEMORY.fullmatch(text or "")
    if match is None:
        return None
    if match[3]:
        return int(match[3]) * 1024
    unit = 1024 if match[2][0] in "gG" else 1
    return -int(-float(match[1]) * unit // 1)


def memory_text(mib: int) -> str:
    """Write a memory size for people: `20 GB`."""
    return f"{mib // 1024} GB" if mib % 1024 == 0 else f"{mib} MB"


def meant(asked: str, names: Iterable[str], site: Site) -> list[str]:
    """The cluster's types, out of `names`, that a spelling can mean; the closest reading wins.

    Read as the same letters in another case, as another name of the very same boards, as a MIG
    profile, or as a name that covers the type (`a100` where the cluster tells 40 from 80 GB).
    """
    known = list(names)
    for same in (_same_letters, _same_boards, _same_profile, _covers):
        found = [name for name in known if same(asked, name, site)]
        if found:
            return found
    return []


def _same_letters(asked: str, name: str, site: Site) -> bool:
    return asked.casefold() == name.casefold()


def _same_boards(asked: str, name: str, site: Site) -> bool:
    models = site.catalogue.models_of_type(asked)
    return bool(models) and models == site.catalogue.models_of_type(name)


def _same_profile(asked: str, name: str, site: Site) -> bool:
    part, known = site.catalogue.slice_type(asked), site.types[name]
    if part is None:
        return False
    bare = asked.casefold() == part[1].name
    return known.profile == part[1].name and (bare or known.model == part[0].key)


def _covers(asked: str, name: str, site: Site) -> bool:
    models = {model.key for model in site.catalogue.models_of_type(asked)}
    own = {model.key for model in site.catalogue.models_of_type(name)}
    first = site.catalogue.model_of_type(asked)
    known = site.types[name]
    return not known.is_slice and bool(
        (own and own <= models) or (first and known.model == first.key)
    )


def _together(found: Iterable[Meaning]) -> Types:
    """The types of several meanings, each once, in the order in which they were written."""
    return tuple(dict.fromkeys(type_ for meaning in found for type_ in meaning.types))


def _slice_text(need_mib: int | None) -> str:
    return f"a slice with {memory_text(need_mib)}" if need_mib else "a slice"
