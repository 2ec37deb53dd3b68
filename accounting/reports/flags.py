# SPDX-License-Identifier: Apache-2.0
"""Quality flags and methods of a measurement in words."""

from __future__ import annotations

from fairwatt.core.events import Flag

__all__ = ["flag_words", "method_words"]

_FLAGS = {
    Flag.RESET: "the counter restarted; only the part since then is counted",
    Flag.IMPLAUSIBLE: "a reading was beyond what the board can draw; that part is unknown",
    Flag.INTEGRATED: "no energy counter; power samples were added up",
    Flag.GAP: "the agent was away or the clock set back for a while; the counter covers it, "
    "utilisation does not",
    Flag.NO_UTIL: "utilisation not read; where slices share the board, split by their size",
    Flag.LOST: "the GPU could not be read at the end",
    Flag.DISAGREES: "the energy counter and the power sensor contradict each other",
    Flag.WRAPPED: "the counter passed its end and went on from 0, which is counted in full",
    Flag.AMBIGUOUS: "the counter was not read for so long that it may have passed its end unseen",
    Flag.SPREAD: "which cores or memory the job held is not known; assumed by its number of CPUs",
    Flag.INCLUDED: "part of the GPU module's energy, and not counted again",
    Flag.THINNED: "the node's spool was full; amounts are exact, when within hours is not known",
}
_METHODS = {
    "counter": "GPU energy counter",
    "integrated": "power samples added up",
    "invented": "invented",
    "none": "not measured",
    "rapl": "CPU's own energy counter (RAPL)",
    "pm_counters": "Cray's energy counters",
    "ipmi": "power by the node's controller (IPMI)",
    "redfish": "power by the node's controller (Redfish)",
    "included": "within the GPU module",
}


def flag_words(flags: int) -> str:
    """Return the flags as clauses joined by semicolons; no flag gives the empty text."""
    known = [words for flag, words in _FLAGS.items() if flags & flag]
    return "; ".join([*known, *(["an unknown flag"] if flags & ~sum(_FLAGS) else [])])


def method_words(method: str) -> str:
    """Return how an energy was found (`a+b`: both); an unknown one as it is."""
    return " and ".join(_METHODS.get(part, part.replace("_", " ")) for part in method.split("+"))
