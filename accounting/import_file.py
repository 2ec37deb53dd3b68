# SPDX-License-Identifier: Apache-2.0
"""Imports runs from a file that an admin exported with sacct: a history that slurmdbd has lost.

A row that is known and says nothing new changes nothing. How far a file was read is written
together with its rows, so that an interrupted import goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import hashlib
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
from sqlite_utils import Database

from fairwatt.accounting.import_reader import LENGTH_BYTES, Block, Fault, Frame, read_export
from fairwatt.accounting.run_rows import Texts
from fairwatt.accounting.runs import upsert_columns
from fairwatt.accounting.step_memory import store_peaks
from fairwatt.accounting.store import get_meta, set_meta, transaction
from fairwatt.accounting.sync import keep_rejected
from fairwatt.core.call import start_child
from fairwatt.core.catalogue import Catalogue
from fairwatt.core.errors import SlurmError

__all__ = ["STDIN", "FileImport", "import_file"]

STDIN = "-"
ROWS_PER_WRITE = 4_000
SIGNED_BYTES = 1_048_576
PIPE_BYTES = 1_048_576
MANY_RUNS = 100_000
INDEXES = ("run_user", "run_account")
"""Filled in no order they take half as much again: after so many runs they are packed."""

_BULK_PRAGMAS = {"cache_size": -65_536, "wal_autocheckpoint": 16_384}
"""64 MiB of pages in memory, 128 MiB of log between checkpoints."""


class FileImport(NamedTuple):
    """What an import did so far: rows read, runs new or changed, rows that were no runs.

    `open` are runs that had not ended (the sync from Slurm has them), `steps` rows of job steps,
    of which `peaks` told their memory; `resumed_at` is where the file was gone on with, in bytes.
    """

    seen: int = 0
    changed: int = 0
    rejected: int = 0
    open: int = 0
    steps: int = 0
    resumed_at: int = 0
    peaks: int = 0


def import_file(
    db: Database,
    path: str,
    *,
    cluster: str,
    catalogue: Catalogue,
    zone: ZoneInfo,
    now_ts: int,
    on_progress: Callable[[int], object] = lambda _place: None,
) -> FileImport:
    """Import an export of sacct, plain or gzip, with its header, in any order of columns.

    Args:
        db: the store.
        path: of the file, or STDIN, which is not gone on with after an interruption.
        cluster: of rows without the column Cluster.
        catalogue: knows what part of a board a GPU type is.
        zone: in which changed days are marked.
        now_ts: the time.
        on_progress: told the place in the file, in bytes, after each write.

    Raises:
        SlurmError: no file, no header, a column is missing or there twice, a time without its
            zone, a file that is cut off, damaged or changed meanwhile; what was written before
            stays.
        StoreError: the store cannot be written.
    """
    # What cannot be read again, as `<(zcat FILE)`, is read here and not gone on with.
    key = None if _is_stream(path) else _signature(path, cluster)
    start = int(get_meta(db.conn, key) or 0) if key else 0
    done = FileImport(resumed_at=start)
    texts = Texts(db.conn, catalogue)
    with _in_bulk(db.conn), _blocks(path, cluster, start) as blocks:
        for batch in _batches(blocks):
            with transaction(db) as connection:
                done = _write(connection, batch, done, texts, zone, now_ts)
                if key:
                    set_meta(connection, key, str(batch[-1].place))
            on_progress(batch[-1].raw_place)
    if key:
        _check_unchanged(db, path, cluster, key)
    with transaction(db) as connection:
        connection.execute("DELETE FROM meta WHERE key = ?", (key,))
        if done.changed >= MANY_RUNS:
            for index in INDEXES:
                connection.execute(f"REINDEX {index}")
    return done


def _is_stream(path: str) -> bool:
    return path == STDIN or (Path(path).exists() and not Path(path).is_file())


def _check_unchanged(db: Database, path: str, cluster: str, key: str) -> None:
    """Its last row may have been half a row while it was read."""
    if _signature(path, cluster) == key:
        return
    with transaction(db) as connection:
        connection.execute("DELETE FROM meta WHERE key = ?", (key,))
    raise SlurmError(
        "it was changed while it was read", place=path,
        remedy="import it again when it is complete: what is imported changes nothing then",
    )  # fmt: skip


def _signature(path: str, cluster: str) -> str:
    """What a file is known by after an interruption: its size, its age and its beginning.

    And the cluster: an import that was ended because it named a wrong one begins anew.
    """
    file = Path(path)
    try:
        with file.open("rb") as stream:
            facts = file.stat()
            digest = hashlib.sha256(stream.read(SIGNED_BYTES))
    except OSError as error:
        raise SlurmError(f"cannot be read: {error.strerror}", place=path) from error
    digest.update(f"{facts.st_size} {facts.st_mtime_ns} {cluster}".encode())
    return f"import.{digest.hexdigest()[:24]}"


def _batches(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Blocks that are written together."""
    batch: list[Block] = []
    for block in blocks:
        batch.append(block)
        if sum(one.height for one in batch) >= ROWS_PER_WRITE:
            yield batch
            batch = []
    if batch:
        yield batch


def _write(
    connection: sqlite3.Connection,
    batch: Iterable[Block],
    done: FileImport,
    texts: Texts,
    zone: ZoneInfo,
    now_ts: int,
) -> FileImport:
    for block in batch:
        changes = upsert_columns(connection, block.columns, texts, zone, now_ts)
        keep_rejected(connection, "file", block.rejected)
        clusters = set(block.columns["cluster"])
        if block.peaks and len(clusters) == 1:
            store_peaks(connection, clusters.pop(), block.peaks)
        done = FileImport(
            seen=done.seen + changes.seen,
            changed=done.changed + changes.changed,
            rejected=done.rejected + len(block.rejected),
            open=done.open + block.open,
            steps=done.steps + block.steps,
            peaks=done.peaks + len(block.peaks),
            resumed_at=done.resumed_at,
        )
    return done


@contextmanager
def _blocks(path: str, cluster: str, place: int) -> Iterator[Iterator[Block]]:
    """The file's blocks: read by a child, so that reading and writing have a core each."""
    if path == STDIN:
        yield read_export(sys.stdin.buffer, "standard input", cluster)
        return
    if _is_stream(path):
        with Path(path).open("rb") as stream:
            yield read_export(stream, path, cluster)
        return
    argv = [sys.executable, "-P", "-m", "fairwatt.accounting.import_reader"]
    child = start_child([*argv, path, cluster, str(place)])
    try:
        assert child.stdout is not None  # noqa: S101 - start_child gives pipes
        yield _received(child.stdout, path)
        if child.wait() != 0:
            raise SlurmError(f"reading it ended with exit status {child.returncode}", place=path)
    finally:
        child.kill()
        with child:
            pass


def _received(stream: IO[bytes], path: str) -> Iterator[Block]:
    decoder = msgspec.msgpack.Decoder(Frame)
    # Room for what the child reads while we write a batch.
    with contextlib.suppress(OSError):
        fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    while head := _exactly(stream, LENGTH_BYTES):
        body = _exactly(stream, int.from_bytes(head, "big"))
        if not body:
            raise SlurmError("the reading process ended in the middle", place=path)
        frame = decoder.decode(body)
        if isinstance(frame, Fault):
            raise SlurmError(
                frame.problem, place=frame.place, value=frame.value, remedy=frame.remedy
            )
        yield frame


def _exactly(stream: IO[bytes], count: int) -> bytes:
    """So many bytes of an unbuffered pipe, b"" where it ends before."""
    parts: list[bytes] = []
    while count and (part := stream.read(count)):
        parts.append(part)
        count -= len(part)
    return b"" if count else b"".join(parts)


@contextmanager
def _in_bulk(connection: sqlite3.Connection) -> Iterator[None]:
    """Room for the indexes' pages, fewer checkpoints; and no search for cycles, which are none."""
    was_on = gc.isenabled()
    gc.disable()
    before = [(name, connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in _BULK_PRAGMAS]
    for name, value in _BULK_PRAGMAS.items():
        connection.execute(f"PRAGMA {name} = {value}")
    try:
        yield
    finally:
        for name, value in before:
            connection.execute(f"PRAGMA {name} = {value}")
        if was_on:
            gc.enable()
