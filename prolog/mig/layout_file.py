# SPDX-License-Identifier: Apache-2.0
"""Reads mig.toml: every fault with its line and remedy, all at once.

[layouts.small]
profiles = { "1g.5gb" = 7 }            # or a list; "3g.20gb@4" fixes the first memory slice
[nodes]
"mig[01-04]" = "small"
"mix01" = { "0-1" = "whole", "2-3" = "small" }   # N of /dev/nvidiaN, or UUIDs
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from fairwatt.core.catalogue import Catalogue, GpuModel
from fairwatt.core.errors import ConfigError
from fairwatt.prolog.mig.layout import (
    ALL,
    WHOLE,
    GpuSet,
    Layout,
    MigFile,
    NodeLayout,
    Piece,
    PlanRules,
    why_not,
)
from fairwatt.prolog.mig.toml_places import Places

__all__ = ["inspect_layouts", "load_layouts", "parse_layouts"]

_TABLES = ("layouts", "nodes", "plan", "types")
_LAYOUT_KEYS = ("profiles", "gpus", "model")
_PLAN_FLAGS = ("drain", "dry_run")
_PLAN_SECONDS = ("idle_s", "min_hold_s", "min_wait_s")
_PLAN_KEYS = ("allowed", "keep", *_PLAN_SECONDS, *_PLAN_FLAGS)
_PIECE = re.compile(r"([^@\s]+)(?:@(\d))?")
_RANGE = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?")
_SPAN = re.compile(r"(\d{1,18})-(\d{1,18})")
_BRACKETS = re.compile(r"\[([^]]*)\]?")
_PARTS = re.compile(r",(?![^[]*\])")
_UUID = re.compile(r"GPU-[0-9A-Za-z-]{1,80}")
_TYPE = re.compile(r"[A-Za-z0-9_.+-]{1,60}")
_MOST_NODES, _MOST_PIECES = 100_000, 16


def load_layouts(path: Path, catalogue: Catalogue) -> MigFile:
    """Read mig.toml.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong: one line for each fault.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}",
            place=str(path),
            remedy="declare the layouts there (docs/mig.md), or name the file in mig.file",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"not UTF-8: {error}", place=str(path), remedy="save as UTF-8"
        ) from error
    return parse_layouts(text, str(path), catalogue)


def parse_layouts(text: str, place: str, catalogue: Catalogue) -> MigFile:
    """Read mig.toml's text; `place` names it in errors.

    Raises:
        ConfigError: something in it is wrong: one line for each fault.
    """
    found, problems = inspect_layouts(text, place, catalogue)
    if problems:
        raise ConfigError("\n".join(map(str, problems)))
    return found


def inspect_layouts(
    text: str, place: str, catalogue: Catalogue
) -> tuple[MigFile, list[ConfigError]]:
    """Return what mig.toml says and all that is wrong; a wrong part counts as not written."""
    reader = _Reader(text, place, catalogue)
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        line = re.search(r"line (\d+)", str(error))  # absent where the text ends too early
        at = f"{place}:{line[1] if line else len(text.splitlines())}"
        fault = ConfigError(f"not valid TOML: {error}", place=at, remedy="mend the line")
        return MigFile({}, {}, PlanRules(), {}, place), [fault]
    return reader.file(tree), reader.problems


def _most_nodes(part: str) -> int:
    """How many names a part of a host list without commas outside brackets may at most give."""
    return math.prod(sum(map(_length, text.split(","))) for text in _BRACKETS.findall(part))


def _length(text: str) -> int:
    span = _SPAN.match(text)
    return max(1, int(span[2]) - int(span[1]) + 1) if span else 1


class _Reader:
    """Turns one file's tree into records; keeps the faults, each with its line."""

    def __init__(self, text: str, place: str, catalogue: Catalogue) -> None:
        self.problems: list[ConfigError] = []
        self._faulty: set[str] = set()
        self._places = Places(text, place)
        self._place = place
        self._catalogue = catalogue

    def file(self, tree: Mapping[str, Any]) -> MigFile:
        """Read the whole tree."""
        self._known_keys((), tree, _TABLES)
        layouts = {WHOLE: Layout(WHOLE, place=self._place)}
        for name, body in self._table(tree, "layouts").items():
            layout = self._layout(name, body)
            if layout is not None:
                layouts[name] = layout
            else:
                self._faulty.add(name)
        nodes = self._nodes(self._table(tree, "nodes"), layouts)
        plan = self._plan(self._table(tree, "plan"), layouts)
        return MigFile(layouts, nodes, plan, self._types(self._table(tree, "types")), self._place)

    def _fault(self, problem: str, value: object, remedy: str, *path: str) -> None:
        at = ".".join(path)
        self.problems.append(
            ConfigError(
                f"{at}: {problem}", place=self._places.of(*path), value=value, remedy=remedy
            )
        )

    def _known_keys(
        self, path: tuple[str, ...], body: Mapping[str, Any], known: Iterable[str]
    ) -> None:
        for key in body:
            if key not in known:
                self._fault("unknown key", key, _nearest(key, known), *path, key)

    def _table(self, tree: Mapping[str, Any], *path: str) -> dict[str, Any]:
        body = tree.get(path[-1], {})
        if isinstance(body, dict):
            return body
        self._fault("not a table", body, f"write [{'.'.join(path)}] and keys below it", *path)
        return {}

    def _layout(self, name: str, body: object) -> Layout | None:
        path = ("layouts", name)
        if not isinstance(body, dict):
            self._fault("not a table", body, f"write [layouts.{name}] and profiles = [...]", *path)
            return None
        if name == WHOLE:
            self._fault("this name is taken", name, "it is MIG off, always known: rename", *path)
            return None
        self._known_keys(path, body, _LAYOUT_KEYS)
        before = len(self.problems)
        pieces = self._pieces(body.get("profiles"), *path, "profiles")
        gpus = self._gpus(body.get("gpus", "all"), *path, "gpus")
        model = self._model(body.get("model"), *path, "model")
        if before == len(self.problems):
            self._check_pieces(pieces, model, *path, "profiles")
        if before != len(self.problems):
            return None
        key = model.key if model else None
        return Layout(name, pieces, gpus, key, self._places.of(*path))

    def _pieces(self, value: object, *path: str) -> tuple[Piece, ...]:
        example = 'write a list such as ["3g.20gb", "3g.20gb"] or counts such as {"1g.5gb" = 7}'
        if isinstance(value, dict):
            counts = list(value.items())
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            counts = [(item, 1) for item in value]
        else:
            self._fault("no profiles", value, example, *path)
            return ()
        pieces: list[Piece] = []
        for text, count in counts:
            match = _PIECE.fullmatch(text)
            if match is None or type(count) is not int or not 1 <= count <= _MOST_PIECES:
                self._fault("no profile with its count", {text: count}, example, *path)
            else:
                start = None if match[2] is None else int(match[2])
                pieces += [Piece(match[1], start)] * count
        return tuple(pieces[:_MOST_PIECES])

    def _model(self, value: object, *path: str) -> GpuModel | None:
        if value is None:
            return None
        found = next((model for model in self._catalogue.models if model.key == value), None)
        if found is None:
            self._fault("no such GPU model", value, self._models_like(str(value)), *path)
        return found

    def _models_like(self, word: str) -> str:
        meant = [model.key for model in self._catalogue.models_of_type(word)]
        if meant:
            return f"did you mean {' or '.join(meant)}?"
        return _nearest(word, [model.key for model in self._catalogue.models])

    def _check_pieces(self, pieces: tuple[Piece, ...], model: GpuModel | None, *path: str) -> None:
        models = [model] if model else _candidates(self._catalogue, pieces)
        reasons = [why_not(each, pieces) for each in models]
        if pieces and reasons and None not in reasons:
            what, value, remedy = reasons[0] or ("", "", "")
            self._fault(f"{what} on {models[0].title}", value, remedy, *path)

    def _gpus(self, value: object, *path: str) -> GpuSet:
        words = value if isinstance(value, list) else [value]
        sets = [_gpu_set(word) for word in words]
        found = [each for each in sets if each is not None]
        if not found or len(found) != len(sets):
            remedy = 'write "all", N of /dev/nvidiaN such as [0, 1] or "0-3", or UUIDs'
            self._fault("no GPUs", value, remedy, *path)
            return GpuSet()
        return _joined(found)

    def _nodes(self, body: dict[str, Any], layouts: Mapping[str, Layout]) -> dict[str, NodeLayout]:
        found: dict[str, NodeLayout] = {}
        for hosts, value in body.items():
            place = self._places.of("nodes", hosts)
            parts = self._parts(value, layouts, "nodes", hosts)
            for node in self._hosts(hosts, "nodes", hosts):
                if node in found:
                    other = found[node].place
                    self._fault(f"{node} is there twice", hosts, f"see {other}", "nodes", hosts)
                else:
                    found[node] = NodeLayout(node, parts, place)
        return found

    def _parts(
        self, value: object, layouts: Mapping[str, Layout], *path: str
    ) -> tuple[tuple[GpuSet, Layout], ...]:
        parts: list[tuple[GpuSet, Layout]] = []
        for gpus, name in self._named(value, *path):
            layout = layouts.get(name) if isinstance(name, str) else None
            if layout is None:
                self._no_layout(name, layouts, *path)
                continue
            mine = layout.gpus if gpus is None else gpus
            twice = [other for other, _ in parts if mine.overlaps(other)]
            if twice:
                remedy = f"{mine} and {twice[0]} overlap: name each GPU once"
                self._fault("a GPU in two layouts", value, remedy, *path)
            parts.append((mine, layout))
        return tuple(parts)

    def _no_layout(self, name: object, layouts: Mapping[str, Layout], *path: str) -> None:
        """Of a layout that is there, but wrong, enough was said."""
        if not (isinstance(name, str) and name in self._faulty):
            self._fault("no such layout", name, _nearest(str(name), layouts), *path)

    def _named(self, value: object, *path: str) -> Iterator[tuple[GpuSet | None, object]]:
        if isinstance(value, dict):
            for gpus, name in value.items():
                yield self._gpus(gpus, *path), name
        elif isinstance(value, list):
            yield from ((None, name) for name in value)
        else:
            yield None, value

    def _hosts(self, hosts: str, *path: str) -> list[str]:
        if sum(map(_most_nodes, _PARTS.split(hosts))) > _MOST_NODES:
            self._fault("too many nodes", hosts, "write a shorter range", *path)
            return []
        try:
            return [str(node) for node in NodeSet(hosts, resolver=RESOLVER_NOGROUP)]
        except NodeSetException as error:
            self._fault(f"no host list ({error})", hosts, "write n1 or n[01-04]", *path)
            return []

    def _plan(self, body: dict[str, Any], layouts: Mapping[str, Layout]) -> PlanRules:
        self._known_keys(("plan",), body, _PLAN_KEYS)
        plain = {key: self._plain(body[key], key) for key in body if key in _PLAN_KEYS[2:]}
        good = {key: value for key, value in plain.items() if value is not None}
        return PlanRules(
            allowed=self._allowed(self._table(body, "allowed"), layouts),
            keep=self._keep(self._table(body, "keep")),
            **good,
        )

    def _plain(self, value: object, key: str) -> Any:  # noqa: ANN401 -- by the key's kind
        if key in _PLAN_FLAGS and type(value) is bool:
            return value
        if key in _PLAN_SECONDS and type(value) is int and 0 <= value <= 10**9:
            return value
        remedy = "write true or false" if key in _PLAN_FLAGS else "write seconds, 0 or more"
        self._fault("wrong value", value, remedy, "plan", key)
        return None

    def _allowed(
        self, body: dict[str, Any], layouts: Mapping[str, Layout]
    ) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        path = ("plan", "allowed")
        for hosts, names in body.items():
            if not isinstance(names, list):
                self._fault("no list", names, 'write ["name", ...]', *path, hosts)
                continue
            for name in names:
                if not isinstance(name, str) or name not in layouts:
                    self._no_layout(name, layouts, *path, hosts)
            words = [name for name in names if isinstance(name, str)]
            known = tuple(dict.fromkeys(name for name in words if name in layouts))
            for node in self._hosts(hosts, *path, hosts):
                if node in found:
                    self._fault(f"{node} is there twice", hosts, "name it once", *path, hosts)
                found.setdefault(node, known)
        return found

    def _keep(self, body: dict[str, Any]) -> dict[str, int]:
        for type_, count in body.items():
            if type(count) is not int or count < 0:
                self._fault("no count", count, "write a number, 0 or more", "plan", "keep", type_)
        return {key: count for key, count in body.items() if type(count) is int and count >= 0}

    def _types(self, body: dict[str, Any]) -> dict[str, str]:
        keys = [model.key for model in self._catalogue.models]
        for key, word in body.items():
            if key not in keys:
                self._fault("no such GPU model", key, self._models_like(key), "types", key)
            elif not isinstance(word, str) or not _TYPE.fullmatch(word):
                remedy = "write the word of Gres=gpu:WORD:…, in quotes"
                self._fault("no GRES type", word, remedy, "types", key)
        return {key: word for key, word in body.items() if isinstance(word, str)}


def _candidates(catalogue: Catalogue, pieces: Iterable[Piece]) -> list[GpuModel]:
    """The models that are meant: those with most of the profiles, first of all with MIG."""
    names = {piece.profile for piece in pieces}

    def known(model: GpuModel) -> int:
        return sum(model.profile(name) is not None for name in names)

    most = max(map(known, catalogue.models), default=0)
    return [model for model in catalogue.models if known(model) == most and model.profiles]


def _gpu_set(word: object) -> GpuSet | None:
    if type(word) is int and 0 <= word < 1000:
        return GpuSet(numbers=frozenset([word]))
    if not isinstance(word, str):
        return None
    parts = [_gpu_word(part.strip()) for part in word.split(",")]
    found = [part for part in parts if part is not None]
    return _joined(found) if len(found) == len(parts) else None


def _gpu_word(word: str) -> GpuSet | None:
    if word == "all":
        return ALL
    if _UUID.fullmatch(word):
        return GpuSet(uuids=frozenset([word]))
    match = _RANGE.fullmatch(word)
    if match is None:
        return None
    numbers = range(int(match[1]), int(match[2] or match[1]) + 1)
    return GpuSet(numbers=frozenset(numbers)) if numbers else None


def _joined(sets: Iterable[GpuSet]) -> GpuSet:
    parts = list(sets)
    return GpuSet(
        numbers=frozenset().union(*(part.numbers for part in parts)),
        uuids=frozenset().union(*(part.uuids for part in parts)),
        all=any(part.all for part in parts),
    )


def _nearest(word: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.4)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
