# SPDX-License-Identifier: Apache-2.0
"""A node's boards as rows for people; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fairwatt.prolog.mig.generate import boards_declared, gres_counts, unlike
from fairwatt.prolog.mig.here import Here

__all__ = ["Row", "rows", "text"]


@dataclass(frozen=True)
class Row:
    """One board: its declared layout, its instances, the GRES types it gives, the difference."""

    device: str
    uuid: str
    name: str
    model: str | None
    declared: str | None
    mig: bool
    instances: tuple[str, ...]
    types: dict[str, int]
    differs: str | None


def rows(here: Here) -> list[Row]:
    """Return one row per board, by device minor."""
    boards, faults = boards_declared(here.declared, here.live, here.catalogue)
    spelling = here.spelling(must_match=here.style == "nvml")
    problem = str(faults[0]) if faults else None
    return [
        Row(
            device=f"/dev/nvidia{board.gpu.minor}",
            uuid=board.gpu.uuid,
            name=board.gpu.name,
            model=board.model.key if board.model else None,
            declared=board.layout.name if board.layout else None,
            mig=board.gpu.mig,
            instances=tuple(
                f"{each.profile or 'unknown'}@{'?' if each.start is None else each.start}"
                for each in board.gpu.instances
            ),
            types=gres_counts([board], spelling),
            differs=unlike(board) or (problem if board.layout is None else None),
        )
        for board in boards
    ]


def text(found: Iterable[Row]) -> str:
    """Return the rows as lines."""
    return "\n".join(line for row in found for line in _lines(row))


def _lines(row: Row) -> Iterator[str]:
    yield f"{row.device}  {row.name}  {row.uuid}"
    yield f"    declared: {row.declared or 'nothing'}"
    yield f"    MIG {'on' if row.mig else 'off'}: {' '.join(row.instances) or 'one whole GPU'}"
    types = ", ".join(f"{count} x {type_}" for type_, count in row.types.items())
    yield f"    for Slurm: {types or 'nothing'}"
    if row.differs:
        yield f"    differs: {row.differs}"
