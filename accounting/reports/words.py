# SPDX-License-Identifier: Apache-2.0
"""Numbers as plain sentences for people who do not live in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairwatt.core.units import UNKNOWN, format_carbon, format_kwh

__all__ = ["duration_words", "headline_rows", "percent"]


def percent(ratio: float | None) -> str:
    """Return a ratio as per cent with one digit, or `unknown`."""
    return UNKNOWN if ratio is None else f"{ratio:.1%}".replace("%", " %")


def duration_words(duration_s: int | None) -> str:
    """Return seconds rounded to what people say: `40 s`, `12 min`, `3 h 10 min`, `2 d 4 h`."""
    if duration_s is None:
        return UNKNOWN
    if duration_s < 60:
        return f"{duration_s} s"
    minutes = (duration_s + 30) // 60
    hours, minutes = divmod(minutes, 60)
    days, left = divmod(hours, 24)
    if days:
        return f"{days} d {left} h" if left else f"{days} d"
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{minutes} min"


def headline_rows(summary: Mapping[str, Any], parent: str | None) -> list[tuple[str, str, str]]:
    """Return (topic, value, sentence) for the department's five headlines."""
    return [
        ("share", *_share(summary, parent)),
        ("use", *_use(summary)),
        ("wait", *_wait(summary)),
        ("energy", *_energy(summary)),
        ("carbon", *_carbon(summary)),
    ]


def _share(summary: Mapping[str, Any], parent: str | None) -> tuple[str, str]:
    name, entitled, used = summary["account"], summary["entitled"], summary["used"]
    if parent is None:
        return f"{summary['fge_hours']:,.0f} h", (
            f"All accounts together held GPUs for {summary['fge_hours']:,.0f} full-GPU hours."
        )
    if used is None:
        return UNKNOWN, f"How much of {parent}'s GPU time {name} used cannot be told."
    of = "the whole cluster's" if parent == "root" else f"{parent}'s"
    if entitled is None:
        return percent(
            used
        ), f"{name} used {percent(used)} of {of} GPU time; its share is unknown."
    if entitled == 0:
        return percent(used), f"{name} used {percent(used)} of {of} GPU time without a share."
    points = 100 * (used - entitled)
    if abs(points) < 0.5:
        verdict = "as much as its share"
    else:
        verdict = f"{abs(points):.1f} points {'more' if points > 0 else 'less'} than its share"
    return percent(used), (
        f"{name} used {percent(used)} of {of} GPU time and is entitled to {percent(entitled)}: "
        f"{verdict}."
    )


def _use(summary: Mapping[str, Any]) -> tuple[str, str]:
    whole = summary["fge_hours"]
    if not whole:
        return UNKNOWN, "No GPU was held in this period."
    busy, idle, unknown = (
        summary[key] / whole for key in ("busy_hours", "idle_hours", "unknown_hours")
    )
    if unknown > 0.999:
        return UNKNOWN, "How busy the GPUs were is not known."
    return percent(busy), (
        f"Of {whole:,.0f} full-GPU hours, {percent(busy)} kept the GPUs busy and {percent(idle)} "
        f"were held but idle; for {percent(unknown)} nobody knows."
    )


def _wait(summary: Mapping[str, Any]) -> tuple[str, str]:
    p50, p90 = summary["wait_p50_s"], summary["wait_p90_s"]
    if p50 is None:
        return UNKNOWN, "No run started in this period."
    return duration_words(p50), (
        f"Half of the runs started within {duration_words(p50)}; one in ten waited longer than "
        f"{duration_words(p90)}."
    )


def _energy(summary: Mapping[str, Any]) -> tuple[str, str]:
    energy_mj, measured = summary["energy_mj"], summary["measured"]
    if energy_mj is None:
        return UNKNOWN, "No GPU energy was measured in this period."
    if measured is None:
        return format_kwh(energy_mj), "No GPU was held in this period."
    rest = "" if measured > 0.9995 else " Runs without a measurement are not in the number."
    return format_kwh(energy_mj), (
        f"{percent(measured)} of the GPU time was measured on the nodes.{rest}"
    )


def _carbon(summary: Mapping[str, Any]) -> tuple[str, str]:
    co2_mg, whole = summary["co2_mg"], summary["fge_hours"]
    if co2_mg is None:
        return UNKNOWN, "Without measured energy and a grid factor no emissions can be given."
    each = f", {co2_mg / 1000 / whole:,.0f} g per full-GPU hour" if whole else ""
    return format_carbon(co2_mg), (
        f"Emissions of the electricity, location-based, with the machine room's overhead{each}."
    )
