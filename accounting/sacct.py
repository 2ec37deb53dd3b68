# SPDX-License-Identifier: Apache-2.0
"""Reads the text of `sacct -X -P` into runs, whatever users put into their job names.

Pure: `slurmdb.py` runs the command. Expected: epoch times (SLURM_TIME_FORMAT=%s, TZ=UTC), no
header, JobName last, and a delimiter that no field contains.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from fairwatt.accounting.sacct_columns import OPEN_STATES, Rejected, runs_of
from fairwatt.core.records import Run

__all__ = [
    "FIELDS",
    "LAST_FIELD",
    "OPEN_STATES",
    "OPTIONAL_FIELDS",
    "TERMINAL_STATES",
    "Rejected",
    "choose_fields",
    "parse_sacct",
]

FIELDS = (
    *("JobIDRaw", "JobID", "Cluster", "UID", "User", "Account", "Partition", "QOS"),
    *("Submit", "Eligible", "Start", "End", "ElapsedRaw", "Suspended", "State", "ExitCode"),
    *("NNodes", "NCPUS", "ReqTRES", "AllocTRES", "TimelimitRaw", "TotalCPU"),
    *("ConsumedEnergyRaw", "NodeList"),
)
# SLUID and Restarts are offered by 24.11, not by 22.05; a site may lack others.
OPTIONAL_FIELDS = ("SLUID", "DBIndex", "Restarts", "AdminComment")
LAST_FIELD = "JobName"

TERMINAL_STATES = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "REQUEUED", "RESIZING", "REVOKED", "TIMEOUT"),
)


def choose_fields(helpformat: str) -> list[str]:
    """Return the fields to ask for, of those that `sacct --helpformat` lists; JobName is last."""
    offered = {word.lower() for word in helpformat.split()}
    optional = [field for field in OPTIONAL_FIELDS if field.lower() in offered]
    return [*FIELDS, *optional, LAST_FIELD]


def parse_sacct(
    text: str, fields: Sequence[str], delimiter: str
) -> tuple[list[Run], list[Rejected]]:
    """Return the runs of a sacct output and the rows that cannot be read.

    A row begins at a line that starts with a job number and the delimiter; everything up to
    the next such line belongs to it, newlines included.
    """
    lines = text.removesuffix("\n").split("\n") if text else []
    start = re.compile("[0-9]+" + re.escape(delimiter))
    rows = [chunk.split(delimiter, len(fields) - 1) for chunk in _chunks(lines, start)]
    whole = [row for row in rows if len(row) == len(fields)]
    short = [
        Rejected(delimiter.join(row), f"{len(row)} of {len(fields)} fields")
        for row in rows
        if len(row) < len(fields)
    ]
    runs, rejected = runs_of(whole, fields, delimiter)
    return runs, [*short, *rejected]


def _chunks(lines: Iterable[str], start: re.Pattern[str]) -> Iterator[str]:
    held: list[str] = []
    for line in lines:
        if held and start.match(line):
            yield "\n".join(held) if len(held) > 1 else held[0]
            held = [line]
        else:
            held.append(line)
    if held:
        yield "\n".join(held)
