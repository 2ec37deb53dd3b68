# SPDX-License-Identifier: Apache-2.0
"""What hooks say to the agent: one JSON line, over the socket or as a file in the inbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from fairwatt.core.errors import SpoolError

__all__ = ["HookRequest", "encode_answer", "job_id_of", "parse_request", "whole_number"]

MAX_JOB_ID = 0xFFFF_FFFF
MAX_T_MS = 1 << 43
"""The year 2248: a later time is a mistake, and a run that began then would never end."""


class HookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One message; `t_ms` (UTC epoch milliseconds) is when the hook ran and names the run."""

    v: Literal[1]
    verb: Literal["prolog", "epilog", "ping", "status"]
    t_ms: int | None = None
    env: dict[str, str] = {}


_decoder = msgspec.json.Decoder(HookRequest)


def parse_request(line: bytes) -> HookRequest:
    """Read one message.

    Raises:
        SpoolError: it is none, or a prolog or epilog without time or job id.
    """
    try:
        request = _decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise SpoolError(
            f"not a hook's message: {error}",
            value=line[:80],
            remedy="use the hooks of the same fairwatt release as the agent",
        ) from error
    if request.verb in ("prolog", "epilog") and (
        request.t_ms is None or not 0 < request.t_ms < MAX_T_MS or job_id_of(request) is None
    ):
        raise SpoolError(
            f"{request.verb} without time or SLURM_JOB_ID",
            value=line[:80],
            remedy="call the hook from Slurm's Prolog or Epilog",
        )
    return request


def job_id_of(request: HookRequest) -> int | None:
    """Return the job id, None if there is none."""
    number = whole_number(request.env, "SLURM_JOB_ID")
    return number if number and number < MAX_JOB_ID else None


def whole_number(env: Mapping[str, str], *names: str) -> int | None:
    """Return the first of these variables that holds a whole number ≥ 0; else None."""
    for name in names:
        text = env.get(name, "")
        if text.isascii() and text.isdigit() and len(text) <= 18:
            return int(text)
    return None


def encode_answer(**values: Any) -> bytes:  # noqa: ANN401 -- any JSON value
    """Return one JSON line."""
    return msgspec.json.encode(values) + b"\n"
