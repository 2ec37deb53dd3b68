# SPDX-License-Identifier: Apache-2.0
"""The codes of the checking itself: FWH9xx is never a fault of the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["OWN_CODES", "OwnCode"]


class OwnCode(NamedTuple):
    """What a code says, and what an admin does about it."""

    title: str
    remedy: str


OWN_CODES: Mapping[str, OwnCode] = {
    "FWH901": OwnCode("a check broke", "Report it with the agent's log; the other checks go on."),
    "FWH902": OwnCode(
        "the board or driver does not offer it",
        "Nothing: the check cannot be made here. It raises no alert.",
    ),
    "FWH903": OwnCode(
        "an error instead of an answer", "See the text; where NVML says it, see nvidia-smi."
    ),
    "FWH904": OwnCode(
        "no answer in time",
        "See whether nvidia-smi hangs too; look at the kernel log. Jobs go on.",
    ),
    "FWH905": OwnCode(
        "the site's file is wrong",
        "Mend the line it names; a file that is not there: write it, or correct health.file.",
    ),
    "FWH906": OwnCode(
        "Slurm cannot be asked about this node",
        "See whether slurmctld answers `scontrol ping` here; it is tried again.",
    ),
    "FWH907": OwnCode(
        "too many nodes are drained already",
        "Look for what these nodes have in common, then drain by hand what must be.",
    ),
    "FWH908": OwnCode(
        "the checks do not run",
        "See the agent's log; it starts them anew by itself. Jobs go on.",
    ),
}
"""By code; health.md lists them."""
