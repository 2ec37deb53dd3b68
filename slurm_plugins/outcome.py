# SPDX-License-Identifier: Apache-2.0
"""What a rule returns, and the shape every rule has."""

from __future__ import annotations

from typing import Protocol

import msgspec

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.messages import Note
from fairwatt.slurm_plugins.site import Site

__all__ = ["Outcome", "Rule"]


class Outcome(msgspec.Struct, frozen=True):
    """A rule's answer: the request it wants, notes on what it changed, or why it refuses."""

    request: JobRequest
    notes: tuple[Note, ...] = ()
    rejection: Note | None = None


class Rule(Protocol):
    """A pure function; applied to its own output it changes nothing."""

    def __call__(self, request: JobRequest, site: Site) -> Outcome:
        """Judge one request against the site's facts."""
        ...
