# SPDX-License-Identifier: Apache-2.0
"""Reads an export of sacct into blocks of runs: `fairwatt import sacct` has it done by a child.

So one core reads while the other writes. As a program it takes FILE, CLUSTER and PLACE, and prints
one frame a block: four bytes of length, then the block as MessagePack.
"""

from __future__ import annotations

import codecs
import gc
import gzip
import re
import sys
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from fairwatt.accounting.sacct import (
    FIELDS,
    LAST_FIELD,
    OPTIONAL_FIELDS,
    TERMINAL_STATES,
    Rejected,
)
from fairwatt.accounting.sacct_columns import OPEN_STATES, Columns, Table, columns_of
from fairwatt.accounting.sacct_rows import Layout, chunks, read_header, rows_of_chunks
from fairwatt.accounting.step_memory import StepPeak, step_peak
from fairwatt.core.errors import SlurmError

__all__ = ["EXPORT_COMMAND", "LENGTH_BYTES", "Block", "Fault", "Frame", "read_export"]

EXPORT_COMMAND = (
    "SLURM_TIME_FORMAT=%s TZ=UTC sacct --allusers --duplicates --allocations --noconvert"
    " --parsable2 --delimiter=$'\\x1f' --starttime=2025-01-01 --endtime=now"
    f" --state={','.join(TERMINAL_STATES)}"
    f" --format={','.join((*FIELDS, 'DBIndex', 'AdminComment', LAST_FIELD))}"
)
"""What makes a file that is always read, with Slurm 22.05 to 26.05."""

NEEDED = ("JobIDRaw", "JobID", "Submit", "Start", "End", "State", "NodeList", "AllocTRES")
TIMES = ("Submit", "Eligible", "Start", "End")
BLOCK_BYTES = 524_288
LONGEST_ROW_BYTES = 8 * 1024 * 1024
"""A comment may have a megabyte; what is longer is no row."""
LENGTH_BYTES = 4

_KNOWN = {name.lower(): name for name in (*FIELDS, *OPTIONAL_FIELDS, LAST_FIELD)}
_ZONED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:[+-][0-9]{2}:?[0-9]{2}|Z)")
_UNZONED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+")


class Block(msgspec.Struct, tag=True):
    """Some rows of the file.

    `peaks` are the steps that tell their memory (column TRESUsageInTot).
    `place` is behind them in the unpacked file, `raw_place` in the file as it is, in bytes.
    `open` are runs that had not ended (the sync from Slurm has them), `steps` rows of job steps.
    """

    columns: Columns
    height: int
    rejected: list[Rejected]
    open: int
    steps: int
    peaks: list[StepPeak]
    place: int
    raw_place: int


class Fault(msgspec.Struct, tag=True):
    """Why the file cannot be read on: the arguments of a SlurmError."""

    problem: str
    place: str | None
    value: str | None
    remedy: str | None


Frame = Block | Fault


def read_export(file: BinaryIO, name: str, cluster: str, place: int = 0) -> Iterator[Block]:
    """Yield the runs of an export, plain or gzip, with its header, in any order of columns.

    Args:
        file: opened for reading bytes.
        name: of the file, for messages.
        cluster: of rows without the column Cluster.
        place: of an earlier block, to go on behind it.

    Raises:
        SlurmError: no header, a column is missing or there twice, a time without its zone, or a
            file that cannot be read to its end.
    """
    source = _Source(file, name)
    layout = _layout(source.header, name)
    source.skip(place)
    for texts in source.rows(layout):
        yield _block(texts, layout, source, name, cluster)


class _Counted:
    """A file's bytes, and how many of them were read; those looked at are read again."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._seen = b""
        self.place = 0

    def begins_with(self, head: bytes) -> bool:
        """Whether these are the first bytes; to be asked before reading."""
        self._seen = self._file.read(len(head))
        return self._seen == head

    def read(self, count: int = -1) -> bytes:
        """Return so many bytes or fewer, b"" at the end."""
        raw, self._seen = self._seen or self._file.read(count), b""
        self.place += len(raw)
        return raw


class _Source:
    """A file's header and rows, with the place in its (unpacked) bytes that is read."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._name = name
        self._raw = _Counted(file)
        # It goes on behind the end of a member: exports of several months are often joined.
        is_packed = self._raw.begins_with(b"\x1f\x8b")
        raw = cast(BinaryIO, self._raw)
        self._file = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if is_packed else raw
        self._held = b""
        while b"\n" not in self._held and self._more():
            pass
        head, _, self._held = self._held.partition(b"\n")
        self.header = head.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
        self.header = self.header.removesuffix("\r")
        self._newline = "\r\n" if head.endswith(b"\r") else "\n"
        self.place = len(head) + 1

    @property
    def raw_place(self) -> int:
        """The place in the file as it is."""
        return self._raw.place

    def skip(self, place: int) -> None:
        """Go on at a place where a row begins."""
        while self.place < place and (self._held or self._more()):
            cut = min(len(self._held), place - self.place)
            self.place, self._held = self.place + cut, self._held[cut:]

    def _more(self) -> bool:
        block = self._block()
        self._held += block
        self._check_length()
        return bool(block)

    def _check_length(self) -> None:
        if len(self._held) > LONGEST_ROW_BYTES:
            raise SlurmError(
                f"a row is longer than {LONGEST_ROW_BYTES >> 20} MiB",
                place=f"{self._name}, byte {getattr(self, 'place', 0)}",
                remedy=f"export it with: {EXPORT_COMMAND}",
            )

    def rows(self, layout: Layout) -> Iterator[list[str]]:
        """Yield the rows' texts block by block; `place` is then behind the last of them."""
        while True:
            block = self._block()
            data = self._held + block
            end = len(data) if not block else data.rfind(b"\n") + 1
            text = data[:end].decode("utf-8", "replace").removesuffix(self._newline)
            texts = list(chunks(text.split(self._newline), layout)) if end else []
            if block and texts:
                end = _cut_back(data, end, texts.pop().count("\n") + 1)
            self.place, self._held = self.place + end, data[end:]
            self._check_length()
            yield self._without_headers(texts) if self.header in text else texts
            if not block:
                return

    def _without_headers(self, texts: Sequence[str]) -> list[str]:
        """Of joined exports each has a header, which would be read as the end of a job's name."""
        parts = (text.removesuffix(f"\n{self.header}") for text in texts)
        return [part for part in parts if part != self.header]

    def _block(self) -> bytes:
        try:
            return self._file.read(BLOCK_BYTES)
        except (EOFError, zlib.error, OSError) as error:
            raise SlurmError(
                f"cannot be read to its end: {error}",
                place=f"{self._name}, byte {self.raw_place}",
                remedy="copy or export it again; what is imported already changes nothing then",
            ) from error


def _cut_back(data: bytes, end: int, lines: int) -> int:
    """The place so many lines before `end`, which is behind a newline."""
    for _ in range(lines):
        end = data.rfind(b"\n", 0, end - 1) + 1
    return end


def _layout(header: str, name: str) -> Layout:
    try:
        layout = read_header(header)
    except SlurmError as error:
        raise SlurmError(
            "does not begin with the header of sacct --parsable2",
            place=f"{name}, line 1",
            value=error.value,
            remedy=f"export it with: {EXPORT_COMMAND}",
        ) from error
    fields = [_KNOWN.get(field_.lower(), field_) for field_ in layout.fields]
    missing = [field_ for field_ in NEEDED if field_ not in fields]
    if missing:
        raise SlurmError(
            f"lacks the columns {', '.join(missing)}",
            place=f"{name}, line 1",
            remedy=f"export it with: {EXPORT_COMMAND}",
        )
    twice = sorted({field_ for field_ in fields if field_ and fields.count(field_) > 1})
    if twice:
        raise SlurmError(
            f"has the columns {', '.join(twice)} twice",
            place=f"{name}, line 1",
            remedy="export each column once",
        )
    return replace(layout, fields=fields)


def _block(
    texts: Sequence[str], layout: Layout, source: _Source, name: str, cluster: str
) -> Block:
    """Read some rows; steps and open runs are only counted."""
    rows, unreadable = rows_of_chunks(texts, layout)
    table = Table(rows, layout.fields)
    # "7.batch": a step is told by its own row.
    steps = {number for number, job in enumerate(table["JobIDRaw"]) if "." in job}
    peaks = _peaks(table, steps, name)
    table = table.without(steps) if steps else table
    is_open = {number for number, state in enumerate(table["State"]) if state in OPEN_STATES}
    table = table.without(is_open) if is_open else table
    _read_times(table, name)
    table["Cluster"] = [cell or cluster for cell in table["Cluster"]]
    columns, rejected = columns_of(table, layout.delimiter)
    rejected += [
        Rejected(one, f"no reading with {len(layout.fields)} fields") for one in unreadable
    ]
    return Block(
        columns=columns,
        height=table.height - len(rejected) + len(unreadable),
        rejected=rejected,
        open=len(is_open),
        steps=len(steps),
        peaks=peaks,
        place=source.place,
        raw_place=source.raw_place,
    )


def _peaks(table: Table, steps: Collection[int], name: str) -> list[StepPeak]:
    """The memory of steps, where the export has it."""
    if not steps or "TRESUsageInTot" not in table:
        return []
    raws, starts, used = table["JobIDRaw"], table["Start"], table["TRESUsageInTot"]
    told = (step_peak(raws[n], _seconds(starts[n], name, raws[n]), used[n]) for n in sorted(steps))
    return [peak for peak in told if peak is not None]


def _seconds(cell: str, name: str, job: str) -> str:
    return cell if cell.isdecimal() else _epoch(cell, "Start", name, job)


def _read_times(table: Table, name: str) -> None:
    """Turn times with a zone into epoch seconds; nearly always they are that already."""
    for field_ in TIMES:
        cells = table[field_]
        if not all(map(str.isdecimal, cells)):
            table[field_] = [
                cell if cell.isdecimal() else _epoch(cell, field_, name, job)
                for cell, job in zip(cells, table["JobIDRaw"], strict=True)
            ]


def _epoch(text: str, field_: str, name: str, job: str) -> str:
    if _ZONED.fullmatch(text):
        try:
            return str(int(datetime.fromisoformat(text).timestamp()))
        except ValueError:
            return text
    if _UNZONED.fullmatch(text):
        raise SlurmError(
            "a local time without its zone: an hour a year is told twice",
            place=f"{name}, column {field_} of job {job[:20]}",
            value=text,
            remedy="export it with SLURM_TIME_FORMAT=%s (or %FT%T%z), as in: " + EXPORT_COMMAND,
        )
    return text


def _frames(path: str, cluster: str, place: int) -> Iterator[Frame]:
    try:
        with Path(path).open("rb") as file:
            yield from read_export(file, path, cluster, place)
    except SlurmError as error:
        shown = None if error.value is None else str(error.value)
        yield Fault(error.problem, error.place, shown, error.remedy)
    except OSError as error:
        yield Fault(f"cannot be read: {error.strerror}", path, None, None)


def main() -> None:
    """Print the frames of a file; ends when nobody reads them any more."""
    gc.disable()  # Millions of tuples and no cycles: looking for some costs a fifth of the time.
    path, cluster, place = sys.argv[1:4]
    out = sys.stdout.buffer
    for frame in _frames(path, cluster, int(place)):
        body = msgspec.msgpack.encode(frame)
        try:
            out.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)
            out.flush()
        except BrokenPipeError:
            return


if __name__ == "__main__":
    main()
