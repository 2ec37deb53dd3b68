# SPDX-License-Identifier: Apache-2.0
"""What the linter can find, each kind with its stable code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CODES", "Finding", "Severity"]

Severity = Literal["error", "warn", "note"]

CODES = {
    "FWM101": "a GPU in MIG mode has no instances",
    "FWM102": "a GPU instance has no compute instance",
    "FWM103": "a GPU is not cut as declared",
    "FWM104": "a declared GPU is not there",
    "FWM105": "a layout cannot be had on its GPU",
    "FWM106": "MIG mode changes with the next reset",
    "FWM111": "a GRES type is no part of any detected name",
    "FWM112": "a GRES type fits devices of several kinds",
    "FWM113": "more configured than there is",
    "FWM114": "more there than configured",
    "FWM115": "no GPUs in Gres=, or no such node",
    "FWM116": "gres.conf and Gres= differ",
    "FWM121": "a MIG line without both capability files",
    "FWM122": "a MIG line with files of no instance, or of two",
    "FWM123": "a device is there twice",
    "FWM124": "a line for a whole GPU that is cut",
    "FWM125": "a line's type is not that of its instance",
    "FWM131": "AutoDetect does not see MIG",
    "FWM132": "AutoDetect and hand-written lines together",
    "FWM133": "hand-written MIG lines give no UUIDs",
}
"""Code and what it means; a code never changes its meaning."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: where it stands, what, and the line to write instead.

    "error" means jobs or the node suffer, "warn" that they will at the next change, "note" is
    only for information. `place` is `file:line` or a device.
    """

    code: str
    severity: Severity
    place: str
    text: str
    write: str | None = None

    def __str__(self) -> str:
        head = f"{self.place}: {self.code} {self.severity}: {self.text}"
        if self.write is None:
            return head
        return "\n".join([head, *(f"    write: {line}" for line in self.write.splitlines())])
