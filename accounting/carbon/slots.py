# SPDX-License-Identifier: Apache-2.0
"""Energy by quarter of an hour: fine enough for every grid factor that is published.

Hours of every time zone begin at a quarter of a UTC hour, so that both kinds of hours are four
whole slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fairwatt.accounting.days import cut

__all__ = ["SLOTS", "SLOT_S", "slots_of"]

SLOT_S = 900
SLOTS = 4
"""Slots in an hour."""

Energy = Mapping[int, int]
"""Energy in mJ by the start of its slot, UTC epoch seconds."""


def slots_of(
    hour_ts: int, energy_mj: int, start_ts: int | None, end_ts: int | None
) -> Iterator[tuple[int, int]]:
    """Yield (slot start, mJ) of an hour's energy, spread over what [start, end) has of the hour.

    The parts sum to the whole. Where the two do not meet (a prolog may run before Slurm's
    start), and without a start, it is spread over the whole hour.
    """
    until_ts = hour_ts + SLOTS * SLOT_S
    a_ts = max(hour_ts, start_ts or hour_ts)
    b_ts = min(until_ts, until_ts if end_ts is None else end_ts)
    if start_ts is None or a_ts >= b_ts:
        a_ts, b_ts = hour_ts, until_ts
    for slot_ts in range(hour_ts, until_ts, SLOT_S):
        part_mj = cut(energy_mj, a_ts, b_ts, slot_ts, slot_ts + SLOT_S)
        if part_mj:
            yield slot_ts, part_mj
