# SPDX-License-Identifier: Apache-2.0
"""Reads fairwatt.toml and its conf.d/ into typed settings, each with its origin.

`python -m fairwatt.core.config FILE` only checks one: status 1 and its fault on stderr.

>>> load(None)["agent.sample_s"]
10.0
"""

from __future__ import annotations

import difflib
import math
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairwatt.core.errors import ConfigError
from fairwatt.core.settings import SETTINGS, Setting

__all__ = ["DEFAULT_PATH", "Config", "find", "load"]

DEFAULT_PATH = Path("/etc/fairwatt/fairwatt.toml")
_BY_KEY = {setting.key: setting for setting in SETTINGS}
_SECTIONS = {key.split(".", 1)[0] for key in _BY_KEY}
_TYPE_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}


@dataclass(frozen=True)
class Config:
    """All settings by dotted key; `origins` says which file set each one (absent: default)."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]

    def __getitem__(self, key: str) -> Any:
        """Return the value of a setting; an unknown key is a fault of the caller (KeyError)."""
        return self.values[key]


def find() -> Path | None:
    """Return the file named by FAIRWATT_CONFIG, else the default path if it exists."""
    named = os.environ.get("FAIRWATT_CONFIG")
    if named:
        return Path(named)
    return DEFAULT_PATH if DEFAULT_PATH.exists() else None


def load(path: Path | None) -> Config:
    """Read `path` and, in name order, the *.toml files of the conf.d folder beside it.

    A later file wins key by key. None gives the defaults.

    Raises:
        ConfigError: a file cannot be read, is not TOML, or has an unknown key, a wrong
            type or a number below 0; the message names file, key, value and what to write.
    """
    values = {setting.key: setting.default for setting in SETTINGS}
    origins: dict[str, str] = {}
    for file in [] if path is None else _files(path):
        for key, value in _read(file):
            values[key] = value
            origins[key] = str(file)
    return Config(values, origins)


def _files(path: Path) -> list[Path]:
    return [path, *sorted((path.parent / "conf.d").glob("*.toml"))]


def _read(file: Path) -> Iterator[tuple[str, Any]]:
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", place=str(file)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"not valid TOML: {error}", place=str(file), remedy="mend the line it names"
        ) from error
    for section, entries in tree.items():
        if section not in _SECTIONS or not isinstance(entries, dict):
            raise _unknown(file, section, entries, _SECTIONS)
        for name, value in entries.items():
            key = f"{section}.{name}"
            yield key, _checked(file, key, value)


def _checked(file: Path, key: str, value: Any) -> Any:
    setting = _BY_KEY.get(key)
    if setting is None:
        raise _unknown(file, key, value, set(_BY_KEY))
    if setting.type is float and type(value) is int:
        value = float(value)
    if type(value) is not setting.type or not _list_fits(setting, value):
        raise ConfigError(
            "wrong type", place=f"{file}: {key}", value=value, remedy=_wanted(setting)
        )
    if not all(0 <= number < math.inf for number in _numbers(value)):
        raise ConfigError(
            "out of range",
            place=f"{file}: {key}",
            value=value,
            remedy="give a finite number, 0 or more",
        )
    if setting.choices and value not in setting.choices:
        raise ConfigError(
            "not a choice", place=f"{file}: {key}", value=value, remedy=_wanted(setting)
        )
    return value


def _numbers(value: Any) -> list[int | float]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if type(item) in (int, float)]


def _list_fits(setting: Setting, value: Any) -> bool:
    """A list holds values of its default's element type."""
    if setting.type is not list:
        return True
    element = type(setting.default[0]) if setting.default else str
    return all(type(item) is element for item in value)


def _wanted(setting: Setting) -> str:
    if setting.choices:
        return f"use one of {', '.join(setting.choices)}"
    if setting.type is list:
        element = type(setting.default[0]) if setting.default else str
        return f"give a list, each {_TYPE_NAMES[element]}"
    return f"give {_TYPE_NAMES[setting.type]}, for example {setting.default!r}"


def _unknown(file: Path, key: str, value: Any, known: set[str]) -> ConfigError:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
    remedy = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known))}"
    return ConfigError("unknown key", place=f"{file}: {key}", value=value, remedy=remedy)


def _main(argv: list[str]) -> None:
    try:
        load(Path(argv[0]))
    except ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main(sys.argv[1:])
