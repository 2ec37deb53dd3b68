# SPDX-License-Identifier: Apache-2.0
"""One line of a journal: the CRC-32 of its payload in eight hex digits, a space, the payload.

>>> unseal(seal(b"{}"))
b'{}'
"""

from __future__ import annotations

import zlib

from fairwatt.core.errors import SpoolError

__all__ = ["seal", "unseal"]


def seal(payload: bytes) -> bytes:
    """Return `payload`, which has no newline, as one line with its CRC, newline included."""
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
