# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG text drawn on the server: no script, no inline style, readable without colour.

Each chart is drawn twice, wide and narrow; the style sheet shows the one that fits. Colours
come from the classes s0-s5, and every second series carries a hatch besides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

__all__ = [
    "SERIES_COUNT",
    "Bullet",
    "Series",
    "bars",
    "bullet_legend",
    "bullets",
    "legend",
    "nice_scale",
    "patterns",
    "split_bar",
    "timeline",
]

SERIES_COUNT = 6
_WIDE, _HALF, _NARROW = 920, 500, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 30, 30
_HATCHES = (
    "",
    '<path d="M0 6L6 0" class="hatch"/>',
    '<circle cx="3" cy="3" r="1.1" class="dot"/>',
    '<path d="M0 0L6 6" class="hatch"/>',
    '<path d="M0 3H6" class="hatch"/>',
    '<path d="M3 0V6" class="hatch"/>',
)


@dataclass(frozen=True)
class Series:
    """One series of a bar chart: a value for each label, None where unknown."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Bullet:
    """One line of share against use, both 0-1 or unknown."""

    name: str
    entitled: float | None
    used: float | None


def bars(labels: Sequence[str], series: Sequence[Series], *, unit: str, label: str) -> Markup:
    """Return stacked bars over labels; `label` is read out instead of the picture."""
    return _both(lambda width: _bars(labels, series, unit, label, width))


def bullets(lines: Sequence[Bullet], *, label: str) -> Markup:
    """Return for each line a bar for use and a mark for entitlement, on one scale in per cent."""
    return _both(lambda width: _bullets(lines, label, width), _HALF)


def split_bar(parts: Sequence[tuple[str, float]], *, label: str) -> Markup:
    """Return one bar divided among parts, each with its name and per cent where it fits."""
    return _both(lambda width: _split_bar(parts, label, width), _HALF)


def timeline(spans: Sequence[tuple[str, int, int]], *, label: str) -> Markup:
    """Return spans (name, start, end) on one axis of time; empty spans keep a thin mark."""
    return _both(lambda width: _timeline(spans, label, width))


def _both(draw: Callable[[int], Markup], wide: int = _WIDE) -> Markup:
    return Markup("").join([draw(wide), draw(_NARROW)])


def _svg(width: int, height: int, label: str, body: Sequence[Markup]) -> Markup:
    size = "narrow" if width == _NARROW else "wide"
    return Markup(
        '<svg class="chart {}" viewBox="0 0 {} {}" role="img" aria-label="{}" '
        'xmlns="http://www.w3.org/2000/svg">{}</svg>'
    ).format(size, width, height, label, Markup("").join(body))


def patterns() -> Markup:
    """Return the hatches, once per page; charts and legends refer to them."""
    marks = [
        Markup(
            '<pattern id="h{}" width="6" height="6" patternUnits="userSpaceOnUse">{}</pattern>'
        ).format(number, Markup(mark))  # noqa: S704 - a constant of this module
        for number, mark in enumerate(_HATCHES)
        if mark
    ]
    return Markup(
        '<svg class="patterns" width="0" height="0" aria-hidden="true"><defs>{}</defs></svg>'
    ).format(Markup("").join(marks))


def _block(x: float, y: float, width: float, height: float, number: int, tip: str) -> Markup:
    """One filled rectangle with its hatch and a tool tip."""
    kind = number % SERIES_COUNT
    box = Markup('x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"').format(
        x, y, max(0.0, width), max(0.0, height)
    )
    hatch = Markup('<rect {} fill="url(#h{})"/>').format(box, kind) if kind else Markup("")
    return Markup('<g><title>{}</title><rect {} class="s{}"/>{}</g>').format(tip, box, kind, hatch)


def _text(x: float, y: float, text: str, anchor: str = "start", css: str = "") -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}" class="{}">{}</text>').format(
        x, y, anchor, css, text
    )


def _bars(
    labels: Sequence[str], series: Sequence[Series], unit: str, label: str, width: int
) -> Markup:
    height = 300 if width == _WIDE else 250
    plot_w, plot_h = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    sums = [sum(s.values[i] or 0 for s in series) for i in range(len(labels))]
    top, ticks = nice_scale(max(sums, default=0))
    body = [_grid(width, plot_h, top, ticks, unit)]
    step = plot_w / max(1, len(labels))
    gap = min(6.0, step * 0.22)
    for index, name in enumerate(labels):
        x, base = _LEFT + index * step + gap / 2, float(_TOP + plot_h)
        for number, line in enumerate(series):
            value = line.values[index]
            if value:
                part = plot_h * value / top
                base -= part
                tip = f"{name}, {line.name}: {value:,.1f} {unit}"
                body.append(_block(x, base, step - gap, part, number, tip))
    body.append(_labels(labels, step, height, width))
    return _svg(width, height, label, body)


def _grid(width: int, plot_h: float, top: float, ticks: Sequence[float], unit: str) -> Markup:
    lines = []
    for tick in ticks:
        y = _TOP + plot_h * (1 - tick / top)
        shown = f"{tick:,.0f}" if top >= 5 else f"{tick:,.1f}" if top >= 0.5 else f"{tick:,.2f}"
        lines.append(
            Markup('<line x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}" class="grid"/>').format(
                _LEFT, width - _RIGHT, y, y
            )
        )
        lines.append(_text(_LEFT - 8, y + 4, shown, "end"))
    lines.append(_text(_LEFT - 8, 13, unit, "end", "unit"))
    return Markup("").join(lines)


def _labels(labels: Sequence[str], step: float, height: int, width: int) -> Markup:
    """Name as many bars as fit without touching."""
    longest = max((len(name) for name in labels), default=1)
    every = max(1, math.ceil((longest * 7.2 + 10) / step))
    return Markup("").join(
        _text(_LEFT + (index + 0.5) * step, height - 10, name, "middle")
        for index, name in enumerate(labels)
        if index % every == 0 and _LEFT + (index + 0.5) * step + longest * 3.6 < width
    )


def _bullets(lines: Sequence[Bullet], label: str, width: int) -> Markup:
    row_h, left = 46, (165 if width == _HALF else 2)
    top_space = 0 if width == _HALF else 18
    row_h += top_space
    span = width - left - 70
    high = max([0.05, *(v for b in lines for v in (b.entitled, b.used) if v is not None)])
    body = []
    for index, line in enumerate(lines):
        y = index * row_h + 8 + top_space
        name = _short(line.name, 20 if width == _HALF else 40)
        body.append(
            _text(left - 12, y + 20, name, "end", "name")
            if width == _HALF
            else _text(left, y - 4, name, "start", "name")
        )
        if line.used is None:
            body.append(_text(left, y + 20, "unknown"))
        else:
            length = span * line.used / high
            body.append(_block(left, y + 4, length, 24, 0, f"used {line.used:.1%}"))
            body.append(
                _text(
                    left + max(length, _mark_x(line, span, high)) + 8,
                    y + 21,
                    f"{line.used:.1%}".replace("%", " %"),
                    "start",
                    "value",
                )
            )
        if line.entitled is not None:
            x = left + span * line.entitled / high
            body.append(
                Markup(
                    '<g><title>{}</title><rect x="{:.1f}" y="{}" width="4" height="36" '
                    'class="mark"/></g>'
                ).format(f"entitled to {line.entitled:.1%}", x - 2, y - 2)
            )
    return _svg(width, len(lines) * row_h + 10, label, body)


def _mark_x(line: Bullet, span: float, high: float) -> float:
    """Keep the number clear of an entitlement mark just behind the bar's end."""
    if line.entitled is None or line.used is None:
        return 0.0
    mark, end = span * line.entitled / high, span * line.used / high
    return mark + 2 if 0 <= mark - end < 56 else 0.0


def _split_bar(parts: Sequence[tuple[str, float]], label: str, width: int) -> Markup:
    whole = sum(value for _, value in parts) or 1.0
    x, body = 0.0, []
    for number, (name, value) in enumerate(parts):
        length = width * value / whole
        share = f"{value / whole:.0%}".replace("%", " %")
        if length > 0:
            body.append(_block(x, 0, max(0.0, length - 2), 44, number, f"{name}: {share}"))
        if length > 44:
            body.append(
                Markup(
                    '<rect x="{:.1f}" y="11" width="46" height="22" rx="4" class="plate"/>'
                ).format(x + 8)
            )
            body.append(_text(x + 31, 27, share, "middle", "value"))
        x += length
    return _svg(width, 44, label, body)


def _timeline(spans: Sequence[tuple[str, int, int]], label: str, width: int) -> Markup:
    first = min((start for _, start, _ in spans), default=0)
    last = max((end for _, _, end in spans), default=0)
    whole = max(1, last - first)
    body = []
    for number, (name, start, end) in enumerate(spans):
        x = (width - 4) * (start - first) / whole
        length = max(4.0, (width - 4) * (end - start) / whole)
        body.append(_block(min(x, width - 4), 0, length, 34, number, name))
    return _svg(width, 34, label, body)


def nice_scale(largest: float) -> tuple[float, list[float]]:
    """Return the top of an axis and its ticks: steps of 1, 2 or 5 times a power of ten."""
    if largest <= 0:
        return 1.0, [0.0, 1.0]
    raw = largest / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    count = math.ceil(largest / step - 1e-9)
    return step * count, [step * number for number in range(count + 1)]


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def bullet_legend() -> Markup:
    """Return the meaning of a bullet's bar and mark."""
    mark = Markup('<rect x="5" y="0" width="4" height="14" class="mark"/>')
    return Markup('<ul class="legend">{}{}</ul>').format(
        _legend_item(_block(0, 0, 14, 14, 0, "used"), "used"),
        _legend_item(mark, "entitled to"),
    )


def legend(names: Sequence[str]) -> Markup:
    """Return the series' names with their colours and hatches, as a list."""
    items = [
        _legend_item(_block(0, 0, 14, 14, number, name), name) for number, name in enumerate(names)
    ]
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(items))


def _legend_item(mark: Markup, name: str) -> Markup:
    return Markup(
        '<li><svg class="swatch" viewBox="0 0 14 14" aria-hidden="true">{}</svg>{}</li>'
    ).format(mark, name)
