# SPDX-License-Identifier: Apache-2.0
"""Which chart shows which table, with the sentence that says what to see in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from fairwatt.accounting.reports.words import (
    duration_words,
    hours_words,
    percent,
    points_between,
)
from fairwatt.core.records import Table
from fairwatt.core.units import format_carbon, format_kwh, mj_to_kwh
from fairwatt.dashboard import charts
from fairwatt.dashboard.charts import Bullet, Series

__all__ = ["Figure", "of_dept", "of_job", "of_me"]


_NO_LEGEND = Markup("")


@dataclass(frozen=True)
class Figure:
    """A chart of one table: heading, takeaway in a sentence, drawing, legend names."""

    table: str
    heading: str
    sentence: str
    drawing: Markup
    legend: Markup = _NO_LEGEND


def of_me(tables: Sequence[Table]) -> dict[str, Figure]:
    """Return the charts of the researcher's page."""
    days = _named(tables)["days"].records()
    return {"days": _day_bars(days)} if any(day["fge_hours"] for day in days) else {}


def of_job(tables: Sequence[Table]) -> dict[str, Figure]:
    """Return the timeline of the newest run, if it has begun to wait."""
    run = _named(tables)["runs"].records()[0]
    spans = _spans(run)
    if not spans:
        return {}
    sentence = "; ".join(f"{name} {duration_words(end - start)}" for name, start, end in spans)
    sentence = f"{sentence[0].upper()}{sentence[1:]}."
    names = [name for name, _, _ in spans]
    drawing = charts.timeline(spans, label=sentence)
    return {"runs": Figure("runs", "Timeline", sentence, drawing, charts.legend(names))}


def of_dept(tables: Sequence[Table]) -> dict[str, Figure]:
    """Return the charts of a department's page; a table without GPU use has none."""
    named = _named(tables)
    if not named["summary"].records()[0]["fge_hours"]:
        return {}
    return {
        "accounts": _share_bullets(named["accounts"].records()),
        "series": _use_bars(named["series"]),
        "waste": _waste_bar(named["waste"].records()),
        "months": _month_bars(named["months"].records()),
    }


def _day_bars(days: Sequence[Mapping[str, Any]]) -> Figure:
    whole = sum(day["fge_hours"] or 0 for day in days)
    busiest = max(days, key=lambda day: day["fge_hours"] or 0)
    sentence = (
        f"{hours_words(whole)} full-GPU hours in {len(days)} days; most on {busiest['day']} "
        f"({hours_words(busiest['fge_hours'])} h)."
    )
    series = [Series("full-GPU hours", [day["fge_hours"] for day in days])]
    labels = [day["day"][5:] for day in days]
    drawing = charts.bars(labels, series, unit="h", label=sentence)
    return Figure("days", "Full-GPU hours per day", sentence, drawing)


def _spans(run: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    marks = (
        ("not eligible for", run["submit_ts"], run["eligible_ts"]),
        ("waited", run["eligible_ts"], run["start_ts"]),
        ("ran", run["start_ts"], run["end_ts"]),
    )
    return [
        (name, start, end)
        for name, start, end in marks
        if start is not None and end is not None and (end > start or name == "ran")
    ]


def _share_bullets(accounts: Sequence[Mapping[str, Any]]) -> Figure:
    lines = [Bullet(row["account"], row["entitled"], row["used"]) for row in accounts]
    known = [row for row in accounts if row["difference"] is not None]
    if len(accounts) < 2 or not known:
        sentence = f"All hours were used by {accounts[0]['account']} itself."
    else:
        widest = max(known, key=lambda row: abs(row["difference"]))
        direction = "more" if widest["difference"] > 0 else "less"
        sentence = (
            f"Of the GPU time on this page {widest['account']} used {percent(widest['used'])} "
            f"and is entitled to {percent(widest['entitled'])}, "
            f"{abs(points_between(widest['used'], widest['entitled'])):.1f} percentage points "
            f"{direction}: "
            "the farthest from its share."
        )
    drawing = charts.bullets(lines, label=sentence)
    return Figure("accounts", "Share and use", sentence, drawing, charts.bullet_legend())


def _use_bars(table: Table) -> Figure:
    rows = table.records()
    steps = list(dict.fromkeys(row["step"] for row in rows))
    names = _largest_first(rows)
    by_key = {(row["step"], row["account"]): row["fge_hours"] for row in rows}
    shown, rest = names[: charts.SERIES_COUNT - 1], names[charts.SERIES_COUNT - 1 :]
    series = [Series(name, [by_key.get((step, name)) for step in steps]) for name in shown]
    if rest:
        sums = [sum(by_key.get((step, name)) or 0 for name in rest) for step in steps]
        series.append(Series(f"{len(rest)} others", sums))
    totals = {step: sum(by_key.get((step, name)) or 0 for name in names) for step in steps}
    top = max(totals, key=totals.__getitem__)
    unit = table.columns[0].title.lower()
    when = {"day": "on", "week": "in the week of"}.get(unit, "in")
    sentence = (
        f"{hours_words(sum(totals.values()))} full-GPU hours in all; most {when} {top} "
        f"({hours_words(totals[top])} h)."
    )
    if unit != "day":
        sentence += f" The first and the last {unit} may be cut by the period."
    labels = [step if len(step) == len("2026-02") else step[5:] for step in steps]
    drawing = charts.bars(labels, series, unit="h", label=sentence)
    return Figure(
        "series", table.title, sentence, drawing, charts.legend([line.name for line in series])
    )


def _largest_first(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    sums: dict[str, float] = {}
    for row in rows:
        sums[row["account"]] = sums.get(row["account"], 0.0) + (row["fge_hours"] or 0)
    return sorted((name for name in sums if sums[name]), key=lambda name: -sums[name])


def _waste_bar(rows: Sequence[Mapping[str, Any]]) -> Figure:
    parts = [(row["part"], row["fge_hours"]) for row in rows if row["split"] == "utilisation"]
    share = {row["part"]: row["share"] for row in rows}
    sentence = (
        f"{percent(share['busy'])} of the hours kept the GPUs busy. "
        f"{percent(share['run failed or timed out'])} of all hours were in runs that failed or "
        "timed out."
    )
    drawing = charts.split_bar(parts, label=sentence)
    names = charts.legend([name for name, _ in parts])
    return Figure("waste", "How the hours were used", sentence, drawing, names)


def _month_bars(rows: Sequence[Mapping[str, Any]]) -> Figure:
    energy_mj = sum(row["energy_mj"] or 0 for row in rows)
    co2_mg = sum(row["co2_mg"] or 0 for row in rows)
    values = [None if r["energy_mj"] is None else mj_to_kwh(r["energy_mj"]) for r in rows]
    measured = [value for value in values if value is not None]
    sentence = (
        f"{format_kwh(energy_mj)} and {format_carbon(co2_mg)} CO2e of the GPUs in "
        f"{len(measured)} months; "
        "months without a measurement have no bar."
        if measured
        else "No energy was measured in these months."
    )
    drawing = charts.bars(
        [row["month"] for row in rows], [Series("energy", values)], unit="kWh", label=sentence
    )
    return Figure("months", "GPU energy month by month", sentence, drawing)


def _named(tables: Sequence[Table]) -> dict[str, Table]:
    return {table.name: table for table in tables}
