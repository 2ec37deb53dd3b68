# SPDX-License-Identifier: Apache-2.0
"""One line of the journal: the CRC-32 of the JSON in eight hex digits, a space, the JSON."""

from __future__ import annotations

import zlib

import msgspec

from fairwatt.accounting.agent.records import Entry
from fairwatt.core.errors import SpoolError

__all__ = ["decode_line", "encode_line", "seal", "unseal"]

_decoder = msgspec.json.Decoder(Entry)


def seal(payload: bytes) -> bytes:
    """Return `payload` as one line with its CRC, newline included."""
    return b"%08x %s\n" % (zlib.crc32(payload), payload)


def unseal(line: bytes) -> bytes:
    """Return the payload of a line.

    Raises:
        SpoolError: the line is cut or changed.
    """
    crc, _, payload = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or crc != b"%08x" % zlib.crc32(payload):
        raise SpoolError("line is cut or its checksum is wrong", value=line[:60])
    return payload


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
