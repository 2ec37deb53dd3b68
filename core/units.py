# SPDX-License-Identifier: Apache-2.0
"""Units of the house: integers in mJ, mg, s and ms; text for people only here.

>>> format_kwh(1_080_000_000)
'300 Wh'
>>> mj_to_kwh(3_600_000_000)
1.0
"""

from __future__ import annotations

__all__ = [
    "MJ_PER_KWH",
    "UNKNOWN",
    "carbon_mg",
    "format_carbon",
    "format_duration",
    "format_kwh",
    "mj_to_kwh",
    "split_largest_remainder",
]

MJ_PER_KWH = 3_600_000_000
"""Millijoules in one kilowatt-hour."""

UNKNOWN = "unknown"
"""How a NULL amount is shown; never as 0."""


def mj_to_kwh(energy_mj: int) -> float:
    """Return an energy in mJ as kWh."""
    return energy_mj / MJ_PER_KWH


def carbon_mg(energy_mj: int, pue_milli: int, g_per_kwh_milli: int) -> int:
    """Return the operational carbon in mg (half up) of an energy at the meter of the device.

    Args:
        energy_mj: IT energy in mJ.
        pue_milli: power usage effectiveness × 1000.
        g_per_kwh_milli: grid factor in mg CO2e per kWh (= g/kWh × 1000).
    """
    numerator = energy_mj * pue_milli * g_per_kwh_milli
    return (2 * numerator + MJ_PER_KWH * 1000) // (2 * MJ_PER_KWH * 1000)


def split_largest_remainder(total: int, weights: list[int]) -> list[int]:
    """Split `total` ≥ 0 in proportion to integer weights ≥ 0 so that the parts sum to it exactly.

    Ties go to the earlier weight; all-zero weights share equally. The empty list gives [].
    """
    if not weights:
        return []
    whole = sum(weights)
    if whole == 0:
        weights, whole = [1] * len(weights), len(weights)
    parts = [total * weight // whole for weight in weights]
    remainders = [total * weight % whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda i: (-remainders[i], i))
    for i in order[: total - sum(parts)]:
        parts[i] += 1
    return parts


def format_kwh(energy_mj: int | None) -> str:
    """Return an energy in mJ for people, three significant digits of Wh, or `unknown`."""
    if energy_mj is None:
        return UNKNOWN
    return _scaled(energy_mj / 3_600_000, ("Wh", "kWh", "MWh", "GWh"))


def format_carbon(co2_mg: int | None) -> str:
    """Return a mass of CO2e in mg for people, or `unknown`."""
    if co2_mg is None:
        return UNKNOWN
    return _scaled(co2_mg / 1000, ("g", "kg", "t", "kt"))


def format_duration(duration_s: int | None) -> str:
    """Return seconds as `1 d 03:04:05` or `03:04:05`, or `unknown`."""
    if duration_s is None:
        return UNKNOWN
    days, rest = divmod(duration_s, 86_400)
    hours, rest = divmod(rest, 3_600)
    clock = f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"
    return f"{days} d {clock}" if days else clock


def _scaled(value: float, units: tuple[str, ...]) -> str:
    size = abs(value)
    if not value:
        return f"0 {units[0]}"
    if size < 0.005:
        return f"< 0.01 {units[0]}" if value > 0 else f"> -0.01 {units[0]}"
    step = 0
    while step < len(units) - 1 and size >= 999.5:
        size /= 1000
        step += 1
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{value / 1000**step:.{digits}f} {units[step]}"
