# SPDX-License-Identifier: Apache-2.0
"""A reading while it is being made: one thread fills it, another looks at what is there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from msgspec.structs import replace

from fairwatt.prolog.health.reading import (
    GPU_PARTS,
    NVML_PARTS,
    BoardState,
    Gap,
    Gpu,
    Reading,
    Versions,
)

__all__ = ["Draft"]

_Key = tuple[str, str]


class Draft:
    """What NVML has answered so far; each item is put whole, so that no lock is needed."""

    def __init__(self, wanted: Collection[str]) -> None:
        self.wanted = [part for part in NVML_PARTS if part in wanted]
        self._gpus: tuple[Gpu, ...] | None = None
        self._states: dict[str, BoardState] = {}
        self._parts: dict[_Key, Any] = {}

    def put_gpus(self, gpus: tuple[Gpu, ...] | Gap) -> None:
        """The boards, without their parts; or why there are none."""
        if isinstance(gpus, Gap):
            self._parts["", "devices"] = gpus
        else:
            self._gpus = gpus

    def put_versions(self, versions: Versions | Gap) -> None:
        """The versions of driver and library."""
        self._parts["", "versions"] = versions

    def put_part(self, uuid: str, part: str, value: Any) -> None:  # noqa: ANN401 -- of reading.py
        """A part of one board, or the Gap why there is none."""
        self._parts[uuid, part] = value

    def put_state(self, uuid: str, state: BoardState) -> None:
        """A board that stopped answering while it was read."""
        self._states[uuid] = state

    def reading(self, base: Reading, why_not: str) -> Reading:
        """Return `base` with what is there; what is wanted and is not there yet is a Gap."""
        parts = dict(self._parts)
        gaps: dict[_Key, Gap] = {**base.gaps}
        gaps |= {key: value for key, value in parts.items() if isinstance(value, Gap)}
        late = Gap("timeout", why_not)
        if self._gpus is None:
            gaps.setdefault(("", "devices"), late)
        versions = parts.get(("", "versions"))
        if "versions" in self.wanted and versions is None:
            gaps["", "versions"] = late
        gpus = None if self._gpus is None else tuple(self._filled(parts, gaps, late))
        return replace(
            base,
            gpus=gpus,
            versions=versions if isinstance(versions, Versions) else None,
            gaps=gaps,
        )

    def _filled(self, parts: Mapping[_Key, Any], gaps: dict[_Key, Gap], late: Gap) -> list[Gpu]:
        gpus = []
        for gpu in self._gpus or ():
            known: dict[str, Any] = {}
            for part in GPU_PARTS:
                value = parts.get((gpu.uuid, part))
                if value is None and part in self.wanted:
                    gaps[gpu.uuid, part] = late
                elif not isinstance(value, Gap):
                    known[part] = value
            state = self._states.get(gpu.uuid, gpu.state)
            gpus.append(replace(gpu, state=state, **known))
        return gpus
