# SPDX-License-Identifier: Apache-2.0
"""DuckDB, which is optional, and the folder for what an export has on its way."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from fairwatt.core.errors import StoreError

__all__ = ["connect", "duckdb_module", "engine", "quoted"]

SCRATCH = ".export-"

_OFFLINE: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "threads": "2",
}


def quoted(text: str) -> str:
    """Return a text as SQL."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def duckdb_module() -> Any:  # noqa: ANN401 - an optional module
    """Return DuckDB's module.

    Raises:
        StoreError: it is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise StoreError(
            "DuckDB is not installed", place="export",
            remedy="install the extra: pip install 'fairwatt[parquet]'",
        ) from error  # fmt: skip
    return duckdb


def connect() -> Any:  # noqa: ANN401 - an optional module
    """Return a database in memory that downloads nothing."""
    return duckdb_module().connect(":memory:", config=_OFFLINE)


@contextmanager
def engine(folder: Path) -> Iterator[tuple[Any, Path]]:
    """DuckDB, and a folder for what is on its way, on the disk that has to hold it anyway."""
    _remove_leftovers(folder)
    scratch = Path(mkdtemp(prefix=SCRATCH, dir=folder))
    try:
        with _held(scratch), closing(connect()) as duck:
            duck.execute("SET memory_limit = '1GB'")
            duck.execute(f"SET temp_directory = {quoted(str(scratch / 'spill'))}")
            yield duck, scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _held(scratch: Path) -> Iterator[bool]:
    """Lock a folder while it is used; False: another process does."""
    descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _remove_leftovers(folder: Path) -> None:
    """What exports that were killed left."""
    for scratch in folder.glob(f"{SCRATCH}*"):
        with suppress(OSError), _held(scratch) as is_left:
            if is_left:
                shutil.rmtree(scratch, ignore_errors=True)
