# SPDX-License-Identifier: Apache-2.0
"""A job's energy beside its GPUs: CPUs, memory and the rest of its nodes, by node and kind."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from typing import Any

from fairwatt.accounting.reports.columns import column
from fairwatt.accounting.reports.flags import flag_words
from fairwatt.accounting.reports.scope import Scope, select
from fairwatt.accounting.reports.uncertainty import method_line
from fairwatt.core.records import Table
from fairwatt.core.units import format_kwh

__all__ = ["host_tables"]

KINDS = {"cpu": "CPUs", "dram": "memory", "node": "rest of the node"}
_PARTS = """
    SELECT t.restart_cnt, e.node, d.kind, e.idle_mj, e.active_mj, e.util_permille,
           e.measured_s, e.method, e.flags
    FROM run t JOIN run_energy e ON e.run_id = t.run_id JOIN device d USING (device_uuid)
    WHERE {scope} AND d.kind <> 'gpu' AND t.run_id IN (SELECT value FROM json_each(:run_ids))
    ORDER BY t.submit_ts DESC, t.restart_cnt DESC, e.node, d.kind, e.device_uuid LIMIT 500000"""
_COLUMNS = (
    column("restart_cnt", "Restart", "integer", "How often the job had been requeued."),
    column("node", "Node", "text", "Where it ran."),
    column("part", "Part", "text", "CPUs, memory, or all that the node draws beside its parts."),
    column("idle_mj", "Idle part", "energy_mj", "What was drawn for what the job had reserved."),
    column("active_mj", "Active part", "energy_mj", "What the job's work added."),
    column("energy_mj", "Energy", "energy_mj", "Idle and active part together."),
    column("used", "Used", "ratio", "Cores kept busy, or memory filled, of what was given."),
    column("measured_s", "Measured", "duration_s", "For how long it was measured."),
    column("method", "Method", "text", "How the energy was found, and between what it lies."),
    column("quality", "Remarks", "text", "What to know about the number."),
)


def host_tables(
    db: sqlite3.Connection,
    scope: Scope,
    run_ids: Collection[int],
    gpu_mj: int | None,
    version: int,
) -> list[Table]:
    """Return the table of host energy, none where nothing of the kind was measured.

    `gpu_mj` is what the job's GPUs used; the note tells the sum.
    """
    parts = select(db, scope, _PARTS, {"run_ids": json.dumps(list(run_ids))})
    if not parts:
        return []
    groups: dict[tuple[int, str, str], list[tuple[Any, ...]]] = {}
    for restart, node, kind, *amounts in parts:
        groups.setdefault((restart, node, kind), []).append(tuple(amounts))
    rows = [_row(restart, node, kind, found) for (restart, node, kind), found in groups.items()]
    return [
        Table(
            name="host_energy",
            title="Energy beside the GPUs",
            columns=_COLUMNS,
            rows=rows,
            data_version=version,
            notes=_notes(rows, gpu_mj),
        )
    ]


def _row(restart: int, node: str, kind: str, parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The packages of one node together; a part without any measurement adds nothing."""
    known = [part for part in parts if part[0] is not None]
    idle_mj = sum(part[0] for part in known) if known else None
    active_mj = sum(part[1] for part in known) if known else None
    flags = 0
    for part in parts:
        flags |= part[5]
    energy_mj = None if idle_mj is None or active_mj is None else idle_mj + active_mj
    methods = "+".join(sorted({name for part in parts for name in part[4].split("+")}))
    missing = bool(known) and len(known) < len(parts)
    remarks = [*(["one part is not known"] if missing else []), flag_words(flags)]
    return (
        restart,
        node,
        KINDS.get(kind, kind),
        idle_mj,
        active_mj,
        energy_mj,
        _used(known),
        max(part[3] for part in parts),
        method_line(methods, energy_mj, kind),
        "; ".join(remark for remark in remarks if remark),
    )


def _used(parts: Sequence[tuple[Any, ...]]) -> float | None:
    """Mean over the packages by time; a package on which the job has no core says nothing."""
    known = [(part[2], part[3]) for part in parts if part[2] is not None]
    span_s = sum(measured_s for _, measured_s in known)
    return sum(util * s for util, s in known) / span_s / 1000 if span_s else None


def _notes(rows: Sequence[tuple[Any, ...]], gpu_mj: int | None) -> list[str]:
    known = [row[5] for row in rows if row[5] is not None]
    if not known:
        return []
    host = f"Beside the GPUs: {format_kwh(sum(known))}"
    if gpu_mj is None:
        return [f"{host}."]
    return [f"{host}; with them: {format_kwh(sum(known) + gpu_mj)}."]
