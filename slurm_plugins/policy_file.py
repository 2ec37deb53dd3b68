# SPDX-License-Identifier: Apache-2.0
"""Reads the policy file: which rules run, in which order and mode, with which options.

    order = ["account_types"]        # these first, the others in fairwatt's own order

    [words]                          # the site's own words, for every rule that reads types
    training = ["h100", "a100"]

    [rules.known_types]
    mode = "warn"                    # off, audit, warn, enforce
    fail = "open"                    # after an error in the rule: open or closed

>>> [rule.name for rule in parse_policy("order = ['known_types']", "policy.toml").rules][:2]
['known_types', 'type_spelling']
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_args

import msgspec

from fairwatt.core.errors import ConfigError
from fairwatt.slurm_plugins.rule import (
    WORDS,
    ActiveRule,
    Fail,
    Mode,
    RuleSpec,
    WordedOptions,
    own_options,
)
from fairwatt.slurm_plugins.rulebook import known_rules

__all__ = [
    "DEFAULT_PATH",
    "PolicyFile",
    "inspect_policy",
    "load_policy",
    "parse_policy",
    "read_policy",
]

DEFAULT_PATH = Path("/etc/fairwatt/policy.toml")
_TOP = ("order", "rules", "words")
_MODES: tuple[Mode, ...] = get_args(Mode)
_FAILS: tuple[Fail, ...] = get_args(Fail)
_Word = TypeVar("_Word", bound=str)
_Part = TypeVar("_Part")
_P = ParamSpec("_P")
_PATH = re.compile(r" - at `\$\.?([^`]*)`")
_HEADER = re.compile(r"\s*\[\s*([^\[\]#]+?)\s*\]")
_WORD = re.compile(r"[a-z][a-z0-9_.-]{0,31}")
_KEY = re.compile(r"""\s*["']?([\w.:|-]+)["']?\s*=""")


class PolicyFile(msgspec.Struct, frozen=True):
    """The rules to run, in order; those that are off are among them."""

    rules: tuple[ActiveRule, ...]
    place: str
    words: Mapping[str, tuple[str, ...]] = {}


def load_policy(path: Path | None) -> PolicyFile:
    """Read a policy file; None, or the default path where nothing is, gives the defaults.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong; place is `file:line`.
        PolicyError: a site's own rule cannot be used.
    """
    if path is None or (path == DEFAULT_PATH and not path.exists()):
        return parse_policy("", "fairwatt's defaults")
    return parse_policy(read_policy(path), str(path))


def read_policy(path: Path) -> str:
    """Return a policy file's text.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", place=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"not UTF-8: {error}", place=str(path), remedy="save as UTF-8"
        ) from error


def parse_policy(text: str, place: str) -> PolicyFile:
    """Read a policy file's text; `place` names it in errors.

    Raises:
        ConfigError: the first thing that is wrong, with its line.
        PolicyError: a site's own rule cannot be used.
    """
    policy, problems = inspect_policy(text, place)
    if problems:
        raise problems[0]
    return policy


def inspect_policy(text: str, place: str) -> tuple[PolicyFile, list[ConfigError]]:
    """Return the policy and all that is wrong in its text; a wrong part counts as not written.

    Raises:
        PolicyError: a site's own rule cannot be used.
    """
    known = known_rules()
    reader = _Reader(text, place)
    tree = reader.tried(_tree, text, place) or {}
    for key in tree:
        if key not in _TOP:
            reader.problems.append(reader.unknown(key, (), _TOP))
    order = reader.tried(reader.order, tree.get("order", []), known) or list(known)
    tables = reader.tried(reader.table, tree.get("rules", {}), ("rules",)) or {}
    for name in tables:
        if name not in known:
            reader.problems.append(reader.unknown(name, ("rules",), known))
    words = reader.tried(reader.words, tree.get("words", {})) or {}
    rules = [
        reader.tried(reader.rule, known[name], tables.get(name, {}), words)
        or reader.rule(known[name], {}, words)
        for name in order
    ]
    return PolicyFile(tuple(rules), place, words), reader.problems


def _tree(text: str, place: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        at = f"{place}:{found[1]}" if found else place
        raise ConfigError(f"not valid TOML: {error}", place=at, remedy="mend it") from error


class _Reader:
    """Turns parts of one file's tree into rules; knows where each stands."""

    def __init__(self, text: str, place: str) -> None:
        self.problems: list[ConfigError] = []
        self._lines = text.splitlines()
        self._place = place

    def tried(
        self, read: Callable[_P, _Part], *args: _P.args, **kwargs: _P.kwargs
    ) -> _Part | None:
        """What `read` returns; None after a problem, which is kept."""
        try:
            return read(*args, **kwargs)
        except ConfigError as error:
            self.problems.append(error)
            return None

    def order(self, names: object, known: Mapping[str, RuleSpec]) -> list[str]:
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self._wrong(
                "no list of names", ("order",), names, 'write order = ["memory_fit"]'
            )
        for name in names:
            if name not in known:
                raise self._wrong("no such rule", ("order",), name, _nearest(name, known))
            if names.count(name) > 1:
                raise self._wrong("named twice", ("order",), name, "name each rule once")
        return [*names, *(name for name in known if name not in names)]

    def words(self, table: object) -> dict[str, tuple[str, ...]]:
        found = {}
        for word, members in self.table(table, (WORDS,)).items():
            keys = (WORDS, word)
            if not _WORD.fullmatch(word):
                remedy = "use small letters, digits, `-`, `_` and `.`"
                raise self._wrong("no word", keys, word, remedy)
            texts = isinstance(members, list) and all(isinstance(each, str) for each in members)
            if not texts or not members or any("|" in each for each in members):
                remedy = f'write {word} = ["type or word", ...], without |'
                raise self._wrong("no list of types and words", keys, members, remedy)
            found[word] = tuple(members)
        return found

    def rule(self, spec: RuleSpec, table: object, words: Mapping[str, Any]) -> ActiveRule:
        keys = ("rules", spec.name)
        entries = dict(self.table(table, keys))
        mode = self._chosen(entries.pop("mode", spec.mode), _MODES, (*keys, "mode"))
        fail = self._chosen(entries.pop("fail", spec.fail), _FAILS, (*keys, "fail"))
        fields = own_options(spec.options)
        for key in entries:
            if key not in fields:
                raise self.unknown(key, keys, ("mode", "fail", *fields))
        given = {WORDS: words} if issubclass(spec.options, WordedOptions) else {}
        try:
            options = msgspec.convert(entries | given, spec.options)
        except msgspec.ValidationError as error:
            raise self._misfit(error, keys, entries) from error
        return ActiveRule(spec, mode, fail, options)

    def table(self, value: object, keys: tuple[str, ...]) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong("no table", keys, value, f"write [{'.'.join(keys)}]")
        return value

    def unknown(self, key: str, parents: tuple[str, ...], known: Iterable[str]) -> ConfigError:
        return self._wrong("unknown key", (*parents, key), None, _nearest(key, known))

    def _chosen(self, value: object, choices: tuple[_Word, ...], keys: tuple[str, ...]) -> _Word:
        for choice in choices:
            if value == choice:
                return choice
        raise self._wrong("not a choice", keys, value, f"use one of {', '.join(choices)}")

    def _misfit(
        self, error: msgspec.ValidationError, keys: tuple[str, ...], entries: Mapping[str, Any]
    ) -> ConfigError:
        text = str(error)
        found = _PATH.search(text)
        inner = tuple(re.findall(r"\w+", found[1])) if found else ()
        reason = _PATH.sub("", text)
        value = entries.get(inner[0]) if inner else None
        return self._wrong(reason, (*keys, *inner), value, "see docs/rules.md")

    def _wrong(
        self, reason: str, keys: tuple[str, ...], value: object, remedy: str
    ) -> ConfigError:
        line = _line_of(self._lines, keys)
        place = f"{self._place}:{line}" if line else self._place
        return ConfigError(reason, place=f"{place}: {'.'.join(keys)}", value=value, remedy=remedy)


def _line_of(lines: list[str], keys: tuple[str, ...]) -> int | None:
    """The line (from 1) on which the longest known part of a dotted path is set; None: nowhere."""
    best: tuple[int, int | None] = (0, None)
    table: tuple[str, ...] = ()
    for number, line in enumerate(lines, 1):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            table = _split(header[1])
            path = table
        elif key:
            path = (*table, *_split(key[1]))
        else:
            continue
        if path == keys[: len(path)] and len(path) > best[0]:
            best = (len(path), number)
    return best[1]


def _split(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip(" \"'") for part in dotted.split("."))


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(names)}"
