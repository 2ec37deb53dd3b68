# SPDX-License-Identifier: Apache-2.0
"""Emissions from making the hardware, and the SCI of ISO/IEC 21031: (E × I + M) per R.

The columns of a hardware file are hardware (a model of the catalogue or a Slurm GPU type), kg (a
GPU's emissions before use, with its part of the node where that is known), life_years and source.
What no file names is unknown.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fairwatt.accounting.carbon.factors import table_rows
from fairwatt.accounting.carbon.versions import VALID, replace_rows
from fairwatt.core.catalogue import Catalogue
from fairwatt.core.errors import ConfigError

__all__ = [
    "Hardware",
    "embodied_mg",
    "embodied_of_types",
    "load_hardware",
    "read_hardware",
    "sci_mg",
    "stage_hardware",
]

# Not importlib.resources: it cannot read an editable install of packages without __init__.py.
DEFAULT_FILE = Path(__file__).parents[1] / "data" / "embodied.csv"
COLUMNS = ("hardware", "kg", "life_years", "source")
YEAR_S = 31_557_600
_NAMES = ("hardware", "embodied_g", "life_s", "source")


class Hardware(NamedTuple):
    """A class of hardware: its embodied carbon in g and how long it is expected to serve in s."""

    name: str
    embodied_g: int
    life_s: int
    source: str


def embodied_mg(hardware: Hardware, reserved_milli_s: int) -> int:
    """Return the embodied carbon in mg of reserved time, in thousandths of a GPU times seconds.

    >>> embodied_mg(Hardware("", 1_000_000, 4 * YEAR_S, ""), 3600 * 1000) // 1000
    28
    """
    numerator = hardware.embodied_g * reserved_milli_s
    return (2 * numerator + hardware.life_s) // (2 * hardware.life_s)


def sci_mg(location_mg: int | None, embodied: int | None, count: float) -> float | None:
    """Return SCI in mg per unit: location-based carbon and embodied carbon over `count` units.

    What was bought (market-based) has no place in it. None if a part is unknown or nothing counts.
    """
    if location_mg is None or embodied is None or not count:
        return None
    return (location_mg + embodied) / count


def embodied_of_types(
    hardware: Mapping[str, Hardware], milli_s: Mapping[str, int], catalogue: Catalogue
) -> int | None:
    """Return mg for thousandths of a GPU times seconds by Slurm type; None if one is unknown."""
    total = 0
    for gpu_type, amount in milli_s.items():
        found = _hardware_of(hardware, gpu_type, catalogue)
        if amount and found is None:
            return None
        total += embodied_mg(found, amount) if found else 0
    return total


def load_hardware(path: str | Path | None = None) -> dict[str, Hardware]:
    """Return the hardware that comes with fairwatt, changed and extended by a site's file.

    Raises:
        ConfigError: a file cannot be read; the message names the line and the value.
    """
    files = [DEFAULT_FILE, *([Path(path)] if path else [])]
    return {item.name: item for file in files for item in _read(file)}


def stage_hardware(connection: sqlite3.Connection, items: Iterable[Hardware]) -> int:
    """Stage the hardware in place of all that was known; return how many rows differ."""
    return replace_rows(connection, "hardware_carbon", _NAMES, [tuple(item) for item in items])


def read_hardware(connection: sqlite3.Connection, version: int) -> dict[str, Hardware]:
    """Return the hardware of a version by its name."""
    rows = connection.execute(
        f"SELECT {', '.join(_NAMES)} FROM hardware_carbon WHERE {VALID}",  # noqa: S608
        {"version": version},
    )
    return {row[0]: Hardware(*row) for row in rows}


def _hardware_of(
    hardware: Mapping[str, Hardware], gpu_type: str, catalogue: Catalogue
) -> Hardware | None:
    """The type's own line, else that of its model; a slice counts as its part of the board."""
    if gpu_type in hardware:
        return hardware[gpu_type]
    part = catalogue.slice_type(gpu_type)
    model = part[0] if part else catalogue.model_of_type(gpu_type)
    return hardware.get(model.key) if model else None


def _read(file: Path) -> list[Hardware]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot be read: {error}", place=str(file), remedy="see carbon.embodied_file"
        ) from error
    return [_hardware(place, row) for place, row in table_rows(text, COLUMNS, str(file))]


def _hardware(place: str, row: Sequence[str]) -> Hardware:
    name, kilograms, years, source = (cell.strip() for cell in row)
    try:
        grams, life_s = round(float(kilograms) * 1000), round(float(years) * YEAR_S)
    except (ValueError, OverflowError):
        grams = life_s = -1
    if not name or not 0 <= grams <= 10**10 or not 0 < life_s <= 100 * YEAR_S or not source:
        raise ConfigError(
            "not a hardware", place=place, value=",".join(row),
            remedy="write model,kg,life_years,where the number is from",
        )  # fmt: skip
    return Hardware(name, grams, life_s, source)
