# SPDX-License-Identifier: Apache-2.0
"""One JSON line each way between job_submit.lua and policyd.

Strings carry bytes as Latin-1 code points, and answers are pure ASCII, so that whatever bytes a
user typed come back as they were.
"""

from __future__ import annotations

import json
from typing import Literal

import msgspec

__all__ = [
    "PROTOCOL",
    "Answer",
    "Pong",
    "Query",
    "Terms",
    "decode_query",
    "encode",
    "is_id",
    "pieces",
    "split_id",
    "split_own",
    "with_terms",
]

PROTOCOL = 1
MAX_ID_BYTES = 64

_HEAD = b'{"v":1,"id":"'
_USER = b',"job":{"user_id":'
_LIMIT = b',"time_limit":'
_COMMENT = b'"admin_comment":"fairwatt:{\\"v\\":1,\\"id\\":\\"'
"""How the record of a decision begins within an answer. No user's text can look like it: in a
JSON string every quote has a backslash before it, and the first three here have none."""


class Query(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a client asks: the fields of a job to judge, or `ping`.

    `reused` asks nothing: the hook gave a job the answer `ref` again that it had before.
    """

    verb: Literal["submit", "modify", "ping", "reused"]
    v: int = PROTOCOL
    id: str = ""
    spelling: Literal["bare", "colon", "slash"] = "slash"
    job: dict[str, str | int | float] = {}
    record: dict[str, str | int | float] | None = None
    ref: int = 0


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the hook does: accept with edits, or reject; `say` goes to the user."""

    v: int
    id: str
    act: Literal["accept", "reject"]
    set: dict[str, str | int] = {}
    say: str | None = None


class Pong(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `ping`: `age_s` of the facts (None: none yet) and their generation.

    Since the start: jobs judged, how many of them from the memo (`reused`: by the hook itself),
    and the µs within which half and 99 % of the decisions were made (None: none yet).
    """

    ok: bool
    generation: int
    age_s: float | None
    nodes: int
    judged: int
    memo_hits: int = 0
    reused: int = 0
    p50_us: int | None = None
    p99_us: int | None = None


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
        line = json.dumps(msgspec.to_builtins(answer), separators=(",", ":")).encode("ascii")
    return line + b"\n"


def is_id(text: str) -> bool:
    """Whether this is an id as the hook makes them: digits and dashes, nothing to escape."""
    return 0 < len(text) <= MAX_ID_BYTES and not text.strip("0123456789-")


def split_id(line: bytes) -> tuple[bytes, bytes]:
    """A request's id, and all that follows it; both empty where the line does not begin so."""
    end = line.find(b'"', len(_HEAD) + 1, len(_HEAD) + MAX_ID_BYTES + 1)
    if end < 0 or not line.startswith(_HEAD):
        return b"", b""
    id_ = line[len(_HEAD) : end]
    return (id_, line[end:]) if not id_.strip(b"0123456789-") else (b"", b"")


def split_own(rest: bytes) -> tuple[int | None, int | None, bytes]:
    """User and time limit of what follows an id, and that without both.

    The user is None where it does not begin so; then nothing is taken out of it. The limit is None
    where there is none.
    """
    start = rest.find(_USER, 0, 64) + len(_USER)
    uid, end = _digits(rest, start)
    if start < len(_USER) or uid is None:
        return None, None, rest
    limit = None
    if rest.startswith(_LIMIT, end):
        limit, end_of_limit = _digits(rest, end + len(_LIMIT))
        end = end if limit is None else end_of_limit
    return uid, limit, rest[:start] + rest[end:]  # no JSON, so never equal to a whole request


def _digits(text: bytes, start: int) -> tuple[int | None, int]:
    """The number that stands before the next comma, and where that is."""
    end = text.find(b",", start, start + 12)
    digits = text[start:end]
    return (int(digits), end) if digits.isdigit() else (None, start)


class Terms(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the hook may give an answer again: for `s` seconds, under the number `ref`.

    To which user alone, and with which time limits; None: to any, and with that of the request.
    """

    s: int
    ref: int
    uid: int | None = None
    lo: int | None = None
    hi: int | None = None


def with_terms(line: bytes, terms: Terms) -> bytes:
    """Let the hook give an answer line again."""
    return b'%b,"keep":%b}\n' % (line[:-2], _encoder.encode(terms))


def pieces(answer: Answer) -> tuple[bytes, ...]:
    """An answer whose id is "", as pieces: `id.join(pieces)` is the line that names that id.

    The record of the decision in `admin_comment` gets the id too where it has a place for it.
    """
    line = encode(answer)
    ends = [len(_HEAD)]
    at = line.find(_COMMENT + b'\\"')
    if at > 0:
        ends.append(at + len(_COMMENT))
    return tuple(line[a:b] for a, b in zip([0, *ends], [*ends, len(line)], strict=True))
