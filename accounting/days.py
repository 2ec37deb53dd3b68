# SPDX-License-Identifier: Apache-2.0
"""Local days and hours of a site: where days of 23, 24 or 25 hours begin and end, in UTC.

>>> day_bounds("2026-10-25", ZoneInfo("Europe/Berlin"))
(1792879200, 1792969200)
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fairwatt.core.errors import ConfigError

__all__ = ["cut", "day_bounds", "day_of", "days_between", "hour_floor", "hour_pieces", "site_zone"]

HOUR_S = 3600


def site_zone(name: str) -> ZoneInfo:
    """Return the IANA zone of `site.timezone`.

    Raises:
        ConfigError: there is no such zone.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(
            "unknown time zone",
            place="site.timezone",
            value=name,
            remedy="give an IANA name such as Europe/Berlin (Debian package tzdata)",
        ) from error


def day_of(ts: int, zone: ZoneInfo) -> str:
    """Return the local day (YYYY-MM-DD) in which an epoch second lies."""
    return datetime.fromtimestamp(ts, zone).date().isoformat()


@functools.lru_cache(maxsize=4096)
def day_bounds(day: str, zone: ZoneInfo) -> tuple[int, int]:
    """Return the first second of a local day and of the next one."""
    this = date.fromisoformat(day)
    return _midnight(this, zone), _midnight(this + timedelta(days=1), zone)


def days_between(start_ts: int, end_ts: int, zone: ZoneInfo) -> list[str]:
    """Return the local days that [start, end) touches; at least the day of `start_ts`."""
    first = datetime.fromtimestamp(start_ts, zone).date()
    last = datetime.fromtimestamp(max(start_ts, end_ts - 1), zone).date()
    return [(first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1)]


def hour_floor(ts: int, zone: ZoneInfo) -> int:
    """Return the start of the local hour, so that day borders are hour borders in every zone."""
    offset = datetime.fromtimestamp(ts, zone).utcoffset() or timedelta()
    shift = int(offset.total_seconds()) % HOUR_S
    return (ts + shift) // HOUR_S * HOUR_S - shift


def hour_pieces(t0_ms: int, t1_ms: int, zone: ZoneInfo) -> Iterator[tuple[int, int, int]]:
    """Cut [t0, t1) at local hours: yields (hour start in s, from ms, to ms)."""
    at = t0_ms
    while at < t1_ms:
        hour_ts = hour_floor(at // 1000, zone)
        end = min(t1_ms, _next_hour(hour_ts, at, zone) * 1000)
        yield hour_ts, at, end
        at = end


def cut(total: int, start: int, end: int, a: int, b: int) -> int:
    """Return the part of `total`, spread evenly over [start, end), that falls in [a, b).

    Pieces that tile [start, end) sum to `total` exactly. An empty span gives all of it to the
    piece that holds its start.
    """
    if end <= start:
        return total if a <= start < b else 0
    if a <= start and end <= b:
        return total
    lower, upper = min(max(a, start), end), min(max(b, start), end)
    width = end - start
    return total * (upper - start) // width - total * (lower - start) // width


def _midnight(day: date, zone: ZoneInfo) -> int:
    return int(datetime.combine(day, time(), zone).timestamp())


def _next_hour(hour_ts: int, at_ms: int, zone: ZoneInfo) -> int:
    """The next hour border; a shift of half an hour (Lord Howe) may put it nearer."""
    following = hour_floor(hour_ts + HOUR_S, zone)
    return following if following * 1000 > at_ms else hour_ts + HOUR_S
