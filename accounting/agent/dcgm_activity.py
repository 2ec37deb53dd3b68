# SPDX-License-Identifier: Apache-2.0
"""Activity of GPUs and MIG instances from a dcgm-exporter that the site runs anyway.

It is read from its page of metrics on loopback; fairwatt never starts profiling itself, which
raises a card's power. The exporter's numbers are of its last round (30 s by its default).
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

from fairwatt.core.errors import ConfigError
from fairwatt.core.http_get import HttpPlace, http_get, parse_url
from fairwatt.core.records import Device

__all__ = ["Activity", "DcgmActivity", "dcgm_place", "parse_activity"]

METRIC = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
LONGEST_PAGE = 8 << 20
LONGEST_ROW = 8_192
MOST_ROWS = 8_192
TIMEOUT_S = 5.0
OLDEST_S = 60.0
_LABEL = re.compile(r'\b(\w+)="((?:[^"\\]|\\.)*)"')
_ROW = re.compile(rf"^{METRIC}\{{([^\n]{{1,{LONGEST_ROW}}})$".encode(), re.MULTILINE)
_log = logging.getLogger(__name__)


class Activity(NamedTuple):
    """One row of the page: board, GPU instance (None: the board), thousandths."""

    uuid: str
    gi: int | None
    permille: int


def dcgm_place(url: str) -> HttpPlace | None:
    """Return where the setting agent.dcgm_url points to, None where it is empty.

    Raises:
        ConfigError: it is no http URL on loopback.
    """
    if not url:
        return None
    place = parse_url(url)
    if place is None or place.scheme != "http" or not place.is_loopback:
        raise ConfigError(
            "no page of a dcgm-exporter on this host",
            place="agent.dcgm_url",
            value=url,
            remedy="give http://127.0.0.1:PORT/metrics",
        )
    return place


def parse_activity(page: bytes) -> list[Activity]:
    """Return the rows of engine activity on a page of metrics; what cannot be is left out.

    With a job map the exporter repeats a row for each job: the rows are equal but for that.
    """
    lines = islice(_ROW.finditer(page), MOST_ROWS)
    rows = (_row(line[1].decode("utf-8", "replace")) for line in lines)
    return sorted({row for row in rows if row is not None}, key=str)


def _row(line: str) -> Activity | None:
    """Read what follows the metric's name; a label may hold any text of users."""
    inside, mark, value = line.rpartition("} ")
    labels = dict(_LABEL.findall(inside))
    gi = labels.get("GPU_I_ID", "")
    try:
        ratio = float(value.split()[0])
    except (ValueError, IndexError):
        return None
    if not mark or not labels.get("UUID") or not math.isfinite(ratio) or not 0 <= ratio <= 1.05:
        return None
    if gi and not (gi.isascii() and gi.isdigit() and len(gi) < 6):
        return None
    return Activity(labels["UUID"], int(gi) if gi else None, min(1000, round(1000 * ratio)))


class DcgmActivity:
    """Fetches the page in a thread of its own; a question gets the newest that has come.

    Args:
        place: see `dcgm_place`.
        clock: monotonic seconds.
    """

    def __init__(self, place: HttpPlace, clock: Callable[[], float] = time.monotonic) -> None:
        self._place = place
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._last: tuple[float, list[Activity]] = (-math.inf, [])
        self._fault = ""

    def newest(self, devices: Iterable[Device]) -> dict[str, dict[str, int]]:
        """Return thousandths by device, then MIG UUID ("" = board); begin to fetch the next."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self.fetch, name="dcgm", daemon=True)
            self._thread.start()
        fetched_s, rows = self._last
        if self._clock() - fetched_s > OLDEST_S:
            return {}
        known = {(row.uuid, row.gi): row.permille for row in rows}
        named = {device.uuid: _of_device(device, known) for device in devices}
        return {uuid: utils for uuid, utils in named.items() if utils}

    def fetch(self) -> None:
        """Read the page once; what is wrong is logged when it changes."""
        try:
            status, body = http_get(
                self._place, headers={}, timeout_s=TIMEOUT_S, longest=LONGEST_PAGE
            )
            rows = parse_activity(body) if status == 200 else []
            fault = "" if rows else f"status {status} and no {METRIC}"
        except OSError as error:
            rows, fault = [], str(error)
        if rows:
            self._last = (self._clock(), rows)
        if fault != self._fault:
            self._fault = fault
            _log.warning("agent.dcgm_url: %s", fault or "answers again")


def _of_device(device: Device, known: dict[tuple[str, int | None], int]) -> dict[str, int]:
    if not device.mig_enabled:
        board = known.get((device.uuid, None))
        return {} if board is None else {"": board}
    return {
        one.uuid: known[device.uuid, one.gi]
        for one in device.instances
        if (device.uuid, one.gi) in known
    }
