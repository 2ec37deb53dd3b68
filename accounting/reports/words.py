# SPDX-License-Identifier: Apache-2.0
"""Numbers as plain sentences for people who do not live in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairwatt.accounting.reports.columns import column
from fairwatt.core.units import UNKNOWN, format_carbon, format_kwh

__all__ = [
    "HEADLINES",
    "Headline",
    "carbon_sentence",
    "dept_headlines",
    "duration_words",
    "hours_words",
    "job_headlines",
    "me_headlines",
    "percent",
    "points_between",
]

Headline = tuple[str, str, str]

HEADLINES = (
    column("topic", "Topic", "text", "What the line is about."),
    column("value", "Value", "text", "The number, with its unit."),
    column("sentence", "In words", "text", "The same in one plain sentence."),
)


_BY_POLICY = {
    "active": " Idle parts are with whoever worked (idle policy active).",
    "none": " Idle parts of held GPUs are not in it (idle policy none).",
}
_NONE_HELD = "No GPU was held in this period."
_UNSIZED = "GPUs were held whose size the catalogue does not know."


def percent(ratio: float | None) -> str:
    """Return a ratio as per cent with one digit, or `unknown`."""
    return UNKNOWN if ratio is None else f"{ratio:.1%}".replace("%", " %")


def points_between(used: float, entitled: float) -> float:
    """Return the percentage points between two ratios as they are shown, with one digit."""
    return round(100 * used, 1) - round(100 * entitled, 1)


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


def hours_words(hours: float) -> str:
    """Return hours as every place of a page says them: one digit below a hundred, then none."""
    return f"{hours:,.1f}" if hours < 100 else f"{hours:,.0f}"


def dept_headlines(summary: Mapping[str, Any], parent: str | None) -> list[Headline]:
    """Return (topic, value, sentence) for the department's five headlines."""
    return [
        ("Share of GPU time" if parent else "GPU time", *_share(summary, parent)),
        ("GPUs kept busy", *_use(summary)),
        ("Median wait", *_wait(summary)),
        ("GPU energy", *_energy(summary)),
        ("Emissions, CO2e", *_carbon(summary)),
    ]


def me_headlines(summary: Mapping[str, Any]) -> list[Headline]:
    """Return (topic, value, sentence) for the researcher's five headlines."""
    runs, failed = summary["runs_ended"], summary["runs_failed"]
    use = (
        f"{runs:,} runs ended, {failed:,} of them failed or timed out."
        if runs
        else "No run ended in this period."
    )
    busy = summary["busy"]
    worked = (
        "No utilisation is known for this period."
        if busy is None
        else f"While your GPUs were watched they were busy {percent(busy)} of the time."
    )
    return [
        ("GPU time", _hours(summary["fge_hours"]), use),
        ("GPUs kept busy", percent(busy), worked),
        ("Median wait", *_wait(summary)),
        ("GPU energy", *_energy(summary)),
        ("Emissions, CO2e", *_carbon(summary)),
    ]


def job_headlines(facts: Mapping[str, Any]) -> list[Headline]:
    """Return (topic, value, sentence) for the newest run of a job and the job's energy."""
    wait_s, elapsed_s, busy = facts["wait_s"], facts["elapsed_s"], facts["busy"]
    gpus = facts["gpus"] or "no GPU"
    started = facts["start_ts"] is not None
    none_held = started and facts["holds_none"] and facts["energy_mj"] is None
    return [
        ("Run time", duration_words(elapsed_s) if started else "–",
         f"On {gpus}." if started else "It has not started."),
        ("Wait", duration_words(wait_s) if started else "–",
         "When it became eligible is not known." if started and wait_s is None
         else "From the moment it was eligible until it started." if started
         else "It has not started."),
        ("GPUs kept busy", "–" if none_held else percent(busy),
         "It held no GPU." if none_held else _job_busy(busy)),
        ("GPU energy", "–" if none_held else format_kwh(facts["energy_mj"]),
         _job_energy(facts)),
        ("Emissions, CO2e", format_carbon(facts["co2_mg"]),
         _job_carbon(facts)),
    ]  # fmt: skip


def _job_energy(facts: Mapping[str, Any]) -> str:
    if facts["energy_mj"] is None:
        return _why_no_energy(facts)
    rest = _BY_POLICY.get(facts.get("idle_policy", ""), "")
    if facts["is_part"]:
        return f"A part only: not all of the job's GPUs, runs or time were measured.{rest}"
    return f"All runs of this job together.{rest}"


def _job_carbon(facts: Mapping[str, Any]) -> str:
    if facts["co2_mg"] is None:
        return "Without measured energy none can be given."
    has_gpus, has_host = facts["energy_mj"] is not None, facts.get("has_host")
    parts = [*(["its GPUs"] if has_gpus else []), *(["its part of the nodes"] if has_host else [])]
    rest = ""
    if not has_gpus and not facts["holds_none"]:
        rest = " Its GPUs were not measured and are not in it."
    elif facts["is_part"]:
        rest = " A part only, as of the energy."
    return (
        f"Electricity of {' and '.join(parts) or 'the job'} and the machine room's overhead, by "
        f"what the grid emitted (location-based).{rest}"
    )


def _why_no_energy(facts: Mapping[str, Any]) -> str:
    if facts["start_ts"] is None:
        return "It has not started."
    if facts["holds_none"] and facts.get("has_host"):
        return "It held no GPU. What its CPUs and memory used is shown below."
    if facts["holds_none"]:
        return "It held no GPU, and its nodes do not measure their CPUs."
    if facts["end_ts"] is None:
        return "It still runs: its nodes tell every few minutes."
    return "No node measured this job."


def _job_busy(busy: float | None) -> str:
    if busy is None:
        return "No utilisation was read; slices of a board often have none."
    if busy < 0.2:
        return "The GPUs were idle most of the time."
    return "Mean utilisation while the GPUs were held."


def _hours(full_gpu_hours: float | None) -> str:
    return UNKNOWN if full_gpu_hours is None else f"{hours_words(full_gpu_hours)} h"


def _share(summary: Mapping[str, Any], parent: str | None) -> tuple[str, str]:
    name, entitled, used = summary["account"], summary["entitled"], summary["used"]
    if parent is None:
        value = _hours(summary["fge_hours"])
        if summary["fge_hours"] is None:
            return value, _UNSIZED
        return value, f"All accounts together held GPUs for {value[:-2]} full-GPU hours."
    if used is None:
        return UNKNOWN, f"How much of {parent}'s GPU time {name} used cannot be told."
    of = "the whole cluster's" if parent == "root" else f"{parent}'s"
    if entitled is None:
        return percent(
            used
        ), f"{name} used {percent(used)} of {of} GPU time; its share is unknown."
    if entitled == 0:
        return percent(used), f"{name} used {percent(used)} of {of} GPU time without a share."
    points = points_between(used, entitled)
    if abs(points) < 0.5:
        verdict = "as much as its share"
    else:
        more = "more" if points > 0 else "less"
        verdict = f"{abs(points):.1f} percentage points {more} than its share"
    return percent(used), (
        f"{name} used {percent(used)} of {of} GPU time and is entitled to {percent(entitled)}: "
        f"{verdict}."
    )


def _use(summary: Mapping[str, Any]) -> tuple[str, str]:
    whole = summary["fge_hours"]
    if whole is None:
        return UNKNOWN, _UNSIZED
    if not whole:
        return UNKNOWN, _NONE_HELD
    busy, idle, unknown = (
        summary[key] / whole for key in ("busy_hours", "idle_hours", "unknown_hours")
    )
    if unknown > 0.999:
        return UNKNOWN, "How busy the GPUs were is not known."
    return percent(busy), (
        f"Of {hours_words(whole)} full-GPU hours, {percent(busy)} kept the GPUs busy and "
        f"{percent(idle)} were held but idle; for {percent(unknown)} it was not measured."
    )


def _wait(summary: Mapping[str, Any]) -> tuple[str, str]:
    p50, p90 = summary["wait_p50_s"], summary["wait_p90_s"]
    if p50 is None:
        return UNKNOWN, "No run started in this period."
    return duration_words(p50), (
        f"Half of the runs started within {duration_words(p50)}, nine in ten within "
        f"{duration_words(p90)}."
    )


def _energy(summary: Mapping[str, Any]) -> tuple[str, str]:
    energy_mj, measured = summary["energy_mj"], summary["measured"]
    if energy_mj is None:
        return UNKNOWN, "No GPU energy was measured in this period."
    if measured is None:
        held = summary["device_hours"] > 0
        words = "For how much of the GPU time is not known." if held else _NONE_HELD
        return format_kwh(energy_mj), words
    rest = "" if measured > 0.9995 else " Runs without a measurement are not in the number."
    rest += _BY_POLICY.get(summary.get("idle_policy", ""), "")
    return format_kwh(energy_mj), (
        f"{percent(measured)} of the GPU time was measured on the nodes.{rest}"
    )


def _carbon(summary: Mapping[str, Any]) -> tuple[str, str]:
    co2_mg = summary.get("all_co2_mg", summary["co2_mg"])
    if co2_mg is None:
        return UNKNOWN, "Without measured energy and a grid factor no emissions can be given."
    bought = summary.get("market_mg")
    market = "" if bought is None else f" By the electricity bought: {format_carbon(bought)}."
    whose = "the GPUs" if summary.get("host_mj") is None else "the GPUs and their nodes"
    return format_carbon(co2_mg), (
        f"Electricity of {whose} and the machine room's overhead, by what the grid emitted "
        f"(location-based){_each(summary)}.{market}"
    )


def _each(summary: Mapping[str, Any]) -> str:
    """What an hour emitted, of the hours that were measured: the others are in no sum."""
    co2_mg, whole, measured = summary["co2_mg"], summary["fge_hours"], summary["measured"]
    if not co2_mg or not whole or not measured:
        return ""
    grams = co2_mg / 1000 / (whole * measured)
    alone = "" if summary.get("host_mj") is None else "of the GPUs alone "
    return f"; {alone}{grams:,.0f} g per measured full-GPU hour"


def carbon_sentence(whole: Mapping[str, Any], nobody: Mapping[str, Any] | None) -> str:
    """Return what a carbon table says, from its line for all and the one for nobody."""
    if whole["co2_mg"] is None:
        return "Without measured energy and a grid factor no emissions can be given."
    parts = [f"{format_carbon(whole['co2_mg'])} CO2e by the grid of the place"]
    if whole["market_mg"] is not None:
        parts.append(f"{format_carbon(whole['market_mg'])} by the electricity that was bought")
    if whole["embodied_mg"] is not None:
        parts.append(f"{format_carbon(whole['embodied_mg'])} from making the GPUs")
    said = " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]
    if nobody is None or not nobody["co2_mg"]:
        return f"{said}."
    rest = format_carbon(nobody["co2_mg"])
    return f"{said}. What nobody held emitted {rest}, on the whole cluster."
