# SPDX-License-Identifier: Apache-2.0
"""What a rule answers."""

from __future__ import annotations

import msgspec

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.message import Note

__all__ = ["Outcome"]


class Outcome(msgspec.Struct, frozen=True):
    """A rule's answer: the request it wants, notes on what it changed, or why it refuses."""

    request: JobRequest
    notes: tuple[Note, ...] = ()
    rejection: Note | None = None
