# SPDX-License-Identifier: Apache-2.0
"""A board's idle power: the catalogue's, until its own is learnt from windows nobody held. Pure.

What is learnt holds for the windows that follow, never for past ones. Which idle power a window
was split by can be told from the window: the sum of its idle parts over its length.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fairwatt.accounting.agent.idle_looks import low_mw
from fairwatt.accounting.agent.records import Entry, IdleLook, IdleLooks
from fairwatt.accounting.agent.windows import BoardPower
from fairwatt.core.catalogue import Catalogue
from fairwatt.core.errors import CatalogueError
from fairwatt.core.events import RunStarted, WindowClosed
from fairwatt.core.records import Device

__all__ = [
    "LEAST_LOOKS",
    "basis_of",
    "can_be_idle",
    "learnt_mw",
    "listed_power",
    "mean_mw",
    "with_look",
]

LEAST_LOOKS = 20
LEAST_MS, MOST_MS = 30_000, 3_600_000
"""Of a shorter window the counter's steps are too large a part."""
CLOCK_SLACK_MS = 1_000
"""So far may the wall clock and one that nobody sets be apart over a window."""
QUIET_PERMILLE = 10
QUIET_MIB = 64
"""A process with a CUDA context takes more, the driver's own services less."""


def basis_of(device: Device, driver: str) -> str:
    """Return what a learnt idle power is good for: another basis is another power.

    >>> basis_of(Device(node="n", uuid="GPU-1", name="A", model="a", minor=0, nvml_index=0,
    ...     memory_mib=1, mig_enabled=True, compute_slices=7, instances=()), "550.54")
    'a, MIG, driver 550.54'
    """
    mode = "MIG" if device.mig_enabled else "whole"
    return f"{device.model or device.name}, {mode}, driver {driver}"


def listed_power(device: Device | None, catalogue: Catalogue) -> BoardPower:
    """Return what the catalogue says of a board; unknown where its model is."""
    if device is None or device.model is None:
        return BoardPower()
    try:
        model = catalogue.model(device.model)
    except CatalogueError:
        return BoardPower()
    idle_mw = model.idle_mig_mw if device.mig_enabled else model.idle_mw
    return BoardPower(max(0, idle_mw), model.max_mw)


def learnt_mw(looks: IdleLooks | None, basis: str, listed: BoardPower) -> int | None:
    """Return the idle power learnt on this basis; None: not yet, or not to be believed."""
    if looks is None or looks.basis != basis or len(looks.means_mw) < LEAST_LOOKS:
        return None
    low = low_mw(looks.means_mw)
    return low if low is not None and _plausible(low, listed) else None


def can_be_idle(device: Device, runs: Sequence[RunStarted]) -> bool:
    """Say whether no run that holds nothing of a board may use it all the same.

    A run whose devices are unknown may; and where GPU and CPU are one module, each run does.
    """
    return not any(run.mapped_by == "unmapped" or device.module_energy is True for run in runs)


def mean_mw(
    window: WindowClosed, utils: Mapping[str, int], elapsed_ms: int, listed: BoardPower
) -> int | None:
    """Return a board's mean power in a window that nobody held; None: it teaches nothing.

    Args:
        window: as it was closed.
        utils: mean utilisation in it in thousandths, as far as known.
        elapsed_ms: its length by a clock that nobody sets.
        listed: what the catalogue says of the board.
    """
    dt_ms = window.t1_ms - window.t0_ms
    if window.measured_mj is None or window.flags or window.shares:
        return None
    if not LEAST_MS <= dt_ms <= MOST_MS or abs(elapsed_ms - dt_ms) > CLOCK_SLACK_MS:
        return None
    if max(utils.values(), default=0) > QUIET_PERMILLE:
        return None
    if any(one.max_mib > QUIET_MIB for one in window.memory):
        return None
    power_mw = 1000 * window.measured_mj // dt_ms
    return power_mw if _plausible(power_mw, listed) else None


def with_look(entries: Collection[Entry], look: IdleLook) -> list[Entry]:
    """Return the entries of one window with what it taught: one line of the journal."""
    (entry,) = entries
    return [Entry(event=entry.event, reading=entry.reading, look=look)]


def _plausible(power_mw: int, listed: BoardPower) -> bool:
    """Between half and twice the catalogue's, and far from work."""
    if not listed.idle_mw or listed.max_mw is None:
        return False
    most_mw = listed.idle_mw + (listed.max_mw - listed.idle_mw) // 4
    return listed.idle_mw <= 2 * power_mw and power_mw <= min(2 * listed.idle_mw, most_mw)
