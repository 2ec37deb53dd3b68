# SPDX-License-Identifier: Apache-2.0
"""One line of the agent's journal: an entry as JSON, sealed."""

from __future__ import annotations

import msgspec

from fairwatt.accounting.agent.records import Entry
from fairwatt.core.errors import SpoolError
from fairwatt.core.sealed_line import seal, unseal

__all__ = ["decode_line", "encode_line"]

_decoder = msgspec.json.Decoder(Entry)


def encode_line(entry: Entry) -> bytes:
    """Return the entry as a journal line, newline included."""
    return seal(msgspec.json.encode(entry))


def decode_line(line: bytes) -> Entry:
    """Read a journal line.

    Raises:
        SpoolError: the line is cut, changed, or no entry of this release.
    """
    try:
        return _decoder.decode(unseal(line))
    except msgspec.MsgspecError as error:
        raise SpoolError(f"not a journal entry: {error}", value=line[:60]) from error
