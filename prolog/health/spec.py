# SPDX-License-Identifier: Apache-2.0
"""The checks as data: checks.toml, changed by the site's health.toml.

    [defaults]                    # for all checks
    period_s = 60

    [checks.ecc_uncorrected]      # one check, by its name in docs/health.md
    action = "alert"              # or enabled, severity, period_s, deadline_s
    parameters = { over = 3 }

>>> load_checks()["gpu_lost"].code
'FWH101'
"""

from __future__ import annotations

import difflib
import functools
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from fairwatt.core.errors import ConfigError
from fairwatt.core.verdict import Action
from fairwatt.prolog.mig.toml_places import Places

__all__ = ["DEFAULT_PATH", "CheckSpec", "XidKind", "load_checks", "load_xids"]

DEFAULT_PATH = Path("/etc/fairwatt/health.toml")
Context = Literal["prolog", "epilog", "background"]
_Changeable = ("enabled", "severity", "action", "period_s", "deadline_s", "parameters")
_Timing = ("period_s", "deadline_s")
_HERE = Path(__file__)
_PATH = re.compile(r" - at `\$\.?([^`]*)`")


class CheckSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One check.

    Attributes:
        name: its key in the files and its module's function.
        code: FWHnnn; never changes its meaning.
        title: what is wrong when it finds something, in a few words.
        what: how it is found out.
        remedy: what an admin does about it.
        contexts: prolog: its findings may stop a job; epilog: also run when a job has ended;
            background: run on schedule.
        severity: of its findings.
        action: whether a confirmed finding drains the node.
        period_s: seconds between two rounds.
        deadline_s: when its reading must be there; later the check is unknown.
        reads: the parts of a reading that it needs.
        parameters: its numbers; `about` says what each means.
    """

    name: str
    code: str
    title: str
    what: str
    remedy: str
    contexts: tuple[Context, ...]
    severity: Literal["warn", "bad"]
    action: Action
    period_s: float
    deadline_s: float
    reads: tuple[str, ...]
    parameters: dict[str, Any] = {}
    about: dict[str, str] = {}
    enabled: bool = True


class XidKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an XID number stands for: a fault of the node, a notice, or the application's doing."""

    kind: Literal["fault", "notice", "application"]
    meaning: str


def load_checks(path: Path | None = None) -> dict[str, CheckSpec]:
    """Return all checks by name, those that are off too, as the site's file changes them.

    None, or the default path where nothing is, gives fairwatt's own.

    Raises:
        ConfigError: the file cannot be read, or something in it is wrong; place is `file:line`.
    """
    if path is None or (path == DEFAULT_PATH and not path.exists()):
        return dict(_own())
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", place=str(path)) from error
    return _SiteFile(text, str(path)).changed(_own())


@functools.cache
def load_xids() -> Mapping[int, XidKind]:
    """Return what is known about XID numbers (xids.toml)."""
    tree = tomllib.loads(_HERE.with_name("xids.toml").read_text(encoding="utf-8"))
    return {int(number): msgspec.convert(item, XidKind) for number, item in tree.items()}


@functools.cache
def _own() -> Mapping[str, CheckSpec]:
    tree = tomllib.loads(_HERE.with_name("checks.toml").read_text(encoding="utf-8"))
    return {
        name: msgspec.convert({"name": name, **entries}, CheckSpec)
        for name, entries in tree.items()
    }


class _SiteFile:
    """One health.toml; knows where each of its keys stands."""

    def __init__(self, text: str, place: str) -> None:
        self._places = Places(text, place)
        try:
            self._tree = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            found = re.search(r"line (\d+)", str(error))
            at = f"{place}:{found[1]}" if found else place
            raise ConfigError(f"not valid TOML: {error}", place=at, remedy="mend it") from error

    def changed(self, own: Mapping[str, CheckSpec]) -> dict[str, CheckSpec]:
        """Return the checks with this file's changes."""
        self._known(self._tree, ("defaults", "checks"), ())
        defaults = self._table(self._tree.get("defaults", {}), "defaults")
        self._known(defaults, _Timing, ("defaults",))
        tables = self._table(self._tree.get("checks", {}), "checks")
        self._known(tables, own, ("checks",))
        timed = {name: self._fit(spec, defaults, ("defaults",)) for name, spec in own.items()}
        return {
            name: self._one(spec, tables[name]) if name in tables else spec
            for name, spec in timed.items()
        }

    def _one(self, spec: CheckSpec, table: object) -> CheckSpec:
        path = ("checks", spec.name)
        entries = dict(self._table(table, *path))
        self._known(entries, _Changeable, path)
        given = self._table(entries.pop("parameters", {}), *path, "parameters")
        self._known(given, spec.parameters, (*path, "parameters"))
        for key, value in given.items():
            if not _alike(value, spec.parameters[key]):
                example = f"write it like {spec.parameters[key]!r}"
                raise self._wrong("wrong type", (*path, "parameters", key), value, example)
        return self._fit(spec, {**entries, "parameters": {**spec.parameters, **given}}, path)

    def _fit(
        self, spec: CheckSpec, entries: Mapping[str, Any], path: tuple[str, ...]
    ) -> CheckSpec:
        for key in _Timing:
            value = entries.get(key, 1)
            if isinstance(value, int | float) and not 0.05 <= value <= 86_400:
                raise self._wrong("out of range", (*path, key), value, "give 0.05 to 86400")
        try:
            return msgspec.convert({**msgspec.to_builtins(spec), **entries}, CheckSpec)
        except msgspec.ValidationError as error:
            key = next(iter(re.findall(r"\w+", _PATH.findall(str(error))[0])), "")
            reason, value = _PATH.sub("", str(error)), entries.get(key)
            raise self._wrong(reason, (*path, key), value, "see docs/health.md") from error

    def _table(self, value: object, *path: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong("no table", path, value, f"write [{'.'.join(path)}]")
        return value

    def _known(self, entries: Iterable[str], known: Iterable[str], path: tuple[str, ...]) -> None:
        names = list(known)
        for key in entries:
            if key not in names:
                near = difflib.get_close_matches(key, names, n=1, cutoff=0.4)
                shown = f"known here: {', '.join(names) or 'none'}"
                remedy = f"did you mean {near[0]}?" if near else shown
                raise self._wrong("unknown key", (*path, key), None, remedy)

    def _wrong(
        self, reason: str, path: tuple[str, ...], value: object, remedy: str
    ) -> ConfigError:
        place = f"{self._places.of(*path)}: {'.'.join(path)}"
        return ConfigError(reason, place=place, value=value, remedy=remedy)


def _main(argv: list[str]) -> None:
    """Only check a file: status 1 and its fault on stderr."""
    try:
        load_checks(Path(argv[0]))
    except ConfigError as error:
        sys.exit(str(error))


def _alike(value: object, example: object) -> bool:
    """Whether a value may stand where the example stands: 0 or more, lists of the same kind."""
    if isinstance(example, list):
        kind = type(example[0]) if example else int
        return isinstance(value, list) and all(type(item) is kind for item in value)
    if type(example) is float:
        return type(value) in (int, float) and 0 <= value < 1e12  # type: ignore[operator]
    if type(example) is int:
        return type(value) is int and value >= 0
    return type(value) is type(example)


if __name__ == "__main__":
    _main(sys.argv[1:])
