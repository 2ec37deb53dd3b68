# SPDX-License-Identifier: Apache-2.0
"""Reads the catalogue's TOML files, merges them key by key, and checks every value.

A file holds `[model.KEY]` tables. A later file adds models or changes single keys of one.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from fairwatt.core.errors import CatalogueError

__all__ = ["ModelData", "ProfileData", "read"]

_Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
_Start = Annotated[int, msgspec.Meta(ge=0, le=64)]
_Word = Annotated[str, msgspec.Meta(min_length=1)]


class ProfileData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One MIG profile: `size` memory slices from one of `starts`; the name tells the rest."""

    name: Annotated[str, msgspec.Meta(pattern=r"^\dg\.\d{1,3}gb(\+me)?$")]
    size: _Count
    starts: tuple[_Start, ...]


class ModelData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One GPU model as a file gives it; memory in GB as sold, power in W."""

    title: _Word
    family: _Word
    nvml_names: tuple[_Word, ...]
    slurm_types: tuple[_Word, ...]
    memory_gb: _Count
    idle_w: _Count
    idle_mig_w: _Count
    max_w: _Count
    compute_slices: _Count = 1
    memory_slices: _Count = 1
    profiles: tuple[ProfileData, ...] = ()


def read(sources: Iterable[tuple[str, str]]) -> dict[str, ModelData]:
    """Merge (file name, text) pairs in order and return the models by key.

    Raises:
        CatalogueError: not TOML, an unknown or missing key, or a wrong value.
    """
    merged: dict[str, dict[str, Any]] = {}
    last_file: dict[str, str] = {}
    for file, text in sources:
        for key, table in _tables(file, text).items():
            merged[key] = {**merged.get(key, {}), **table}
            last_file[key] = file
    return {key: _checked(last_file[key], key, table) for key, table in merged.items()}


def _tables(file: str, text: str) -> Mapping[str, dict[str, Any]]:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CatalogueError(
            f"not valid TOML: {error}", place=file, remedy="mend the line it names"
        ) from error
    for key, value in tree.items():
        if key != "model" or not isinstance(value, dict):
            raise _fault(file, key, "unknown key", value, "write [model.NAME] tables only")
    tables: dict[str, dict[str, Any]] = tree.get("model", {})
    for key, table in tables.items():
        if not isinstance(table, dict):
            raise _fault(file, f"model.{key}", "not a table", table, f"write [model.{key}]")
    return tables


def _checked(file: str, key: str, table: dict[str, Any]) -> ModelData:
    try:
        data = msgspec.convert(table, ModelData)
    except msgspec.ValidationError as error:
        raise _explained(file, key, table, str(error)) from error
    for number, profile in enumerate(data.profiles):
        if not all(start + profile.size <= data.memory_slices for start in profile.starts):
            raise _fault(
                file,
                f"model.{key}.profiles[{number}]",
                "a placement ends beyond the board",
                profile.starts,
                f"the board has {data.memory_slices} memory slices",
            )
    return data


def _explained(file: str, key: str, table: dict[str, Any], problem: str) -> CatalogueError:
    """Turn msgspec's sentence into ours: file, key, value and what to write."""
    text, _, path = problem.partition(" - at `$")
    unknown = re.search(r"unknown field `(.*?)`", text)
    missing = re.search(r"missing required field `(.*?)`", text)
    place = f"model.{key}{path.rstrip('`')}"
    if unknown:
        near = difflib.get_close_matches(unknown[1], ModelData.__struct_fields__, n=1, cutoff=0.4)
        remedy = f"did you mean {near[0]}?" if near else "see core/data/gpus.toml for the keys"
        return _fault(file, f"{place}.{unknown[1]}", "unknown key", table.get(unknown[1]), remedy)
    if missing:
        return _fault(file, f"{place}.{missing[1]}", "missing key", None, "a new model needs it")
    value = table.get(path.strip(".`").split(".")[0].split("[")[0])
    return _fault(file, place, "wrong value", value, text)


def _fault(file: str, key: str, problem: str, value: object, remedy: str) -> CatalogueError:
    return CatalogueError(problem, place=f"{file}: {key}", value=value, remedy=remedy)
