# SPDX-License-Identifier: Apache-2.0
"""How sure an energy is: the sensor's error by method, from data with their sources.

>>> method_line("counter", 2 * 3_600_000_000)
'GPU energy counter, good to ± 5 %: 1.90 kWh to 2.10 kWh'
"""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

from fairwatt.accounting.reports.flags import method_words
from fairwatt.core.units import format_kwh

__all__ = ["band", "method_line", "percent_of"]

# Not importlib.resources: it cannot read an editable install of packages without __init__.py.
DATA = Path(__file__).parents[1] / "data" / "uncertainty.toml"


def percent_of(method: str, kind: str = "gpu") -> int | None:
    """Return the error of a method (`a+b`: the larger) in percent; None where it is not known.

    `kind` is the kind of device: a method may be better for one than for another.
    """
    known = _percents()
    found = [known.get(f"{part}-{kind}", known.get(part)) for part in method.split("+")]
    sure = [percent for percent in found if percent is not None]
    return max(sure) if len(sure) == len(found) else None


def band(energy_mj: int, method: str, kind: str = "gpu") -> tuple[int, int] | None:
    """Return the least and the most that was really drawn, in mJ; None where it is not known."""
    percent = percent_of(method, kind)
    if percent is None:
        return None
    return energy_mj * (100 - percent) // 100, -(-energy_mj * (100 + percent) // 100)


def method_line(method: str, energy_mj: int | None, kind: str = "gpu") -> str:
    """Return how an energy was found and between what it lies, for people."""
    words = method_words(method)
    found = None if energy_mj is None else band(energy_mj, method, kind)
    if found is None:
        return words
    least, most = (format_kwh(amount_mj) for amount_mj in found)
    return f"{words}, good to ± {percent_of(method, kind)} %: {least} to {most}"


@functools.cache
def _percents() -> dict[str, int]:
    tables = tomllib.loads(DATA.read_text(encoding="utf-8"))
    return {name: table["percent"] for name, table in tables.items()}
