# SPDX-License-Identifier: Apache-2.0
"""One JSON line each way between job_submit.lua and policyd.

Strings carry bytes as Latin-1 code points, and answers are pure ASCII, so that whatever bytes a
user typed come back as they were.
"""

from __future__ import annotations

import json
from typing import Literal

import msgspec

__all__ = ["PROTOCOL", "Answer", "Pong", "Query", "decode_query", "encode"]

PROTOCOL = 1


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asks: the fields of a job to judge, or `ping`."""

    verb: Literal["submit", "modify", "ping"]
    v: int = PROTOCOL
    id: str = ""
    spelling: Literal["bare", "colon", "slash"] = "slash"
    job: dict[str, str | int | float] = {}
    record: dict[str, str | int | float] | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the hook does: accept with edits, or reject; `say` goes to the user."""

    v: int
    id: str
    act: Literal["accept", "reject"]
    set: dict[str, str] = {}
    say: str | None = None


class Pong(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `ping`: `age_s` of the facts (None: none yet) and their generation.

    `judged` counts the jobs since the start.
    """

    ok: bool
    generation: int
    age_s: float | None
    nodes: int
    judged: int


_decoder = msgspec.json.Decoder(Query)
_encoder = msgspec.json.Encoder()


def decode_query(line: bytes) -> Query:
    """Read one request line.

    Raises:
        msgspec.MsgspecError: it is no request of ours.
    """
    return _decoder.decode(line)


def encode(answer: msgspec.Struct) -> bytes:
    """Return an answer as one line of ASCII JSON."""
    line = _encoder.encode(answer)
    if not line.isascii():
        line = json.dumps(msgspec.to_builtins(answer)).encode("ascii")
    return line + b"\n"
