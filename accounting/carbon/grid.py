# SPDX-License-Identifier: Apache-2.0
"""Carbon of energy: each slot × PUE × the grid's factor then, exact until the one rounding.

A figure has one method, that of the first layer. Where it has a gap the next layer fills it, and
the energy concerned is told: the mean of the day, coarser steps, the mean of the month, the
country's year, at last the nearest year.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from fairwatt.accounting.carbon.factors import DAY_S, MONTH_S
from fairwatt.accounting.carbon.slots import SLOT_S
from fairwatt.core.units import MJ_PER_KWH

__all__ = ["Contract", "Emission", "Grid", "Row", "Span", "fill", "layers_of", "timeline"]

HALF = 2
"""A mean stands for its day or month if so much (one part in HALF) of it is known."""


class Row(NamedTuple):
    """A stored factor: its step in s, the rank of its origin (lower wins), when, mg/kWh."""

    step_s: int
    rank: int
    from_ts: int
    until_ts: int
    mg_per_kwh: int


class Span(NamedTuple):
    """What holds in [from_ts, until_ts): a factor in mg/kWh, and whether it fills a gap."""

    from_ts: int
    until_ts: int
    mg_per_kwh: int
    is_fallback: bool


class Contract(NamedTuple):
    """A dated part of the electricity bought; `share_permille` None: the rest (residual mix)."""

    from_ts: int
    until_ts: int
    share_permille: int | None
    mg_per_kwh: int


class Emission(NamedTuple):
    """Carbon of an energy in mg, and how many mJ of it have a gap's factor or no contract."""

    co2_mg: int
    fallback_mj: int
    market_mg: int
    market_unknown_mj: int


class _Weight(NamedTuple):
    """A slot's Σ of mg/kWh × PUE‰ × s, the market's × 1000, and s of gaps and of no contract."""

    location: int
    market: int
    fallback_s: int
    unknown_s: int


@dataclass(frozen=True)
class Grid:
    """The site's grid under one version: factors without a gap, PUE and contracts by time."""

    version: int
    zone: str
    method: str
    spans: tuple[Span, ...]
    pues: tuple[tuple[int, int], ...]
    contracts: tuple[Contract, ...] = ()
    _weights: dict[int, _Weight] = field(default_factory=dict, compare=False, repr=False)

    def pue_at(self, ts: int) -> int:
        """Return the PUE × 1000 that was set at a time; the first one also counts before it."""
        return self.pues[max(0, bisect_right(self.pues, ts, key=lambda pue: pue[0]) - 1)][1]

    def market_at(self, ts: int, location_mg: int) -> int | None:
        """Return the contractual factor in mg/kWh × 1000; None if no contract is known.

        What the contracts leave open has the residual mix, or the grid's own factor without one.
        """
        valid = [c for c in self.contracts if c.from_ts <= ts < c.until_ts]
        if not valid:
            return None
        shares = [c for c in valid if c.share_permille is not None]
        open_permille = 1000 - sum(c.share_permille or 0 for c in shares)
        rest = next((c.mg_per_kwh for c in valid if c.share_permille is None), location_mg)
        bought = sum((c.share_permille or 0) * c.mg_per_kwh for c in shares)
        return bought + max(0, open_permille) * rest

    def carbon(self, energy_mj_by_slot: Mapping[int, int]) -> Emission:
        """Return the emission of energies by slot; nothing is rounded before the sum."""
        location = market = fallback = unknown = 0
        for slot_ts, energy_mj in energy_mj_by_slot.items():
            weight = self._weight(slot_ts)
            location += energy_mj * weight.location
            market += energy_mj * weight.market
            fallback += energy_mj * weight.fallback_s
            unknown += energy_mj * weight.unknown_s
        whole = SLOT_S * MJ_PER_KWH * 1000
        return Emission(
            _half_up(location, whole),
            _half_up(fallback, SLOT_S),
            _half_up(market, whole * 1000),
            -(-unknown // SLOT_S),
        )

    def mean_factor(self, energy_mj_by_slot: Mapping[int, int]) -> float:
        """Return the mean factor in mg/kWh, weighted by energy (by time where there is none)."""
        return _mean(energy_mj_by_slot, self._factor_seconds) / SLOT_S

    def mean_pue(self, energy_mj_by_slot: Mapping[int, int]) -> float:
        """Return the mean PUE × 1000, weighted by energy (by time where there is none)."""
        return _mean(energy_mj_by_slot, self.pue_at)

    def _factor_seconds(self, slot_ts: int) -> int:
        return sum((b - a) * span.mg_per_kwh for a, b, span in self._parts(slot_ts))

    def _weight(self, slot_ts: int) -> _Weight:
        weight = self._weights.get(slot_ts)
        if weight is None:
            weight = self._weights[slot_ts] = self._weigh(slot_ts)
        return weight

    def _weigh(self, slot_ts: int) -> _Weight:
        location = market = fallback_s = unknown_s = 0
        for a_ts, b_ts, span in self._parts(slot_ts):
            pue_s = self.pue_at(a_ts) * (b_ts - a_ts)
            location += span.mg_per_kwh * pue_s
            fallback_s += (b_ts - a_ts) * span.is_fallback
            bought = self.market_at(a_ts, span.mg_per_kwh)
            market += (bought or 0) * pue_s
            unknown_s += (b_ts - a_ts) * (bought is None)
        return _Weight(location, market, fallback_s, unknown_s)

    def _parts(self, slot_ts: int) -> list[tuple[int, int, Span]]:
        """Cut a slot wherever a factor, the PUE or a contract changes."""
        end_ts = slot_ts + SLOT_S
        first, last = _index(self.spans, slot_ts), _index(self.spans, end_ts - 1)
        marks = {slot_ts, end_ts}
        marks |= {span.from_ts for span in self.spans[max(0, first) : last + 1]}
        marks |= {ts for ts, _ in self.pues}
        marks |= {ts for c in self.contracts for ts in (c.from_ts, c.until_ts)}
        cuts = sorted(ts for ts in marks if slot_ts <= ts <= end_ts)
        return [
            (a, b, self.spans[max(0, _index(self.spans, a))]) for a, b in itertools.pairwise(cuts)
        ]


def layers_of(
    preferred: Sequence[Row], country: Sequence[Row], finest_s: int | None = None
) -> list[list[Row]]:
    """Return the layers of factors in the order in which they are asked.

    Args:
        preferred: the factors of the report's zone and method, of any step.
        country: those of the country, for what is left.
        finest_s: the first layer's step in s, even if `preferred` has none of it here; None: the
            finest of `preferred`.
    """
    if not preferred and not country:
        return []
    steps = {row.step_s for row in preferred} | ({finest_s} if finest_s else set())
    by_step = {s: _one_per_time(row for row in preferred if row.step_s == s) for s in steps}
    finest = by_step[min(steps)] if steps else []
    # What is stored comes before a mean of the same length that is made here.
    ordered = [(step_s, 0, rows) for step_s, rows in by_step.items()]
    if steps and min(steps) < DAY_S:
        ordered.append((DAY_S, 1, _means(finest, _day_of, DAY_S)))
        ordered.append((MONTH_S, 1, _means(finest, _month_of, MONTH_S)))
    layers = [rows for _, _, rows in sorted(ordered, key=lambda layer: layer[:2])]
    by_place = [
        _one_per_time(row for row in country if row.step_s == step_s)
        for step_s in sorted({row.step_s for row in country})
    ]
    coarsest = by_place[-1] if by_place else by_step[max(steps)] or finest
    return [*layers, *by_place, _nearest(coarsest)]


def timeline(layers: Iterable[Sequence[Row]], from_ts: int, until_ts: int) -> tuple[Span, ...]:
    """Return what holds from `from_ts` until `until_ts`; all but the first layer are fallbacks."""
    spans: list[Span] = []
    gaps = [(from_ts, until_ts)]
    for number, rows in enumerate(layers):
        found, gaps = fill(gaps, rows, is_fallback=number > 0)
        spans += found
        if not gaps:
            break
    return tuple(sorted(spans))


def fill(
    gaps: Sequence[tuple[int, int]], rows: Sequence[Row], *, is_fallback: bool
) -> tuple[list[Span], list[tuple[int, int]]]:
    """Fill gaps with rows (both ordered and apart); return what was filled and what is left."""
    spans: list[Span] = []
    left: list[tuple[int, int]] = []
    for gap_ts, end_ts in gaps:
        at = gap_ts
        start = max(0, bisect_right(rows, gap_ts, key=lambda row: row.from_ts) - 1)
        for row in itertools.islice(rows, start, None):
            if row.from_ts >= end_ts:
                break
            a_ts, b_ts = max(at, row.from_ts), min(end_ts, row.until_ts)
            if a_ts >= b_ts:
                continue
            if a_ts > at:
                left.append((at, a_ts))
            spans.append(Span(a_ts, b_ts, row.mg_per_kwh, is_fallback))
            at = b_ts
        if at < end_ts:
            left.append((at, end_ts))
    return spans, left


def _one_per_time(rows: Iterable[Row]) -> list[Row]:
    """Keep one row where several origins overlap: the lower rank, then the earlier one."""
    kept: list[Row] = []
    by_rank = sorted(rows, key=lambda row: (row.rank, row.from_ts))
    for _, group in itertools.groupby(by_rank, key=lambda row: row.rank):
        starts = [row.from_ts for row in kept]
        ends = [row.until_ts for row in kept]
        fresh = [
            row
            for row in group
            if (n := bisect_right(ends, row.from_ts)) == len(kept) or starts[n] >= row.until_ts
        ]
        kept = sorted([*kept, *fresh], key=lambda row: row.from_ts)
    return kept


def _means(
    rows: Sequence[Row], bounds_of: Callable[[int], tuple[int, int]], step_s: int
) -> list[Row]:
    """Return the time-weighted mean of each day or month that is known well enough."""
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    for row in rows:
        bounds = bounds_of(row.from_ts)
        length_s = min(row.until_ts, bounds[1]) - row.from_ts
        known_s, total = sums.get(bounds, (0, 0))
        sums[bounds] = known_s + length_s, total + length_s * row.mg_per_kwh
    return [
        Row(step_s, 0, from_ts, until_ts, _half_up(total, known_s))
        for (from_ts, until_ts), (known_s, total) in sorted(sums.items())
        if known_s * HALF >= until_ts - from_ts
    ]


def _day_of(ts: int) -> tuple[int, int]:
    return ts - ts % DAY_S, ts - ts % DAY_S + DAY_S


def _month_of(ts: int) -> tuple[int, int]:
    day = datetime.fromtimestamp(ts, UTC)
    first = day.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return int(first.timestamp()), int(following.timestamp())


def _nearest(rows: Sequence[Row]) -> list[Row]:
    """Each factor until the next one begins; the first one also before it."""
    far = 2**62
    starts = [-far, *(row.from_ts for row in rows[1:]), far] if rows else []
    return [
        row._replace(from_ts=a_ts, until_ts=b_ts)
        for row, (a_ts, b_ts) in zip(rows, itertools.pairwise(starts), strict=True)
    ]


def _mean(weights: Mapping[int, int], value_at: Callable[[int], int]) -> float:
    used = weights if any(weights.values()) else dict.fromkeys(weights, 1)
    weighted = sum(mj * value_at(ts) for ts, mj in used.items())
    return weighted / sum(used.values())


def _half_up(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


def _index(spans: Sequence[Span], ts: int) -> int:
    return bisect_right(spans, ts, key=lambda span: span.from_ts) - 1
