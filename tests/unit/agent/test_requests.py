# SPDX-License-Identifier: Apache-2.0
"""What hooks may say, and what is refused with one clear message."""

from __future__ import annotations

import pytest

from fairwatt.accounting.agent.requests import job_id_of, parse_request, whole_number
from fairwatt.core.errors import SpoolError


def test_a_prolog_message() -> None:
    line = b'{"v": 1, "verb": "prolog", "t_ms": 5, "env": {"SLURM_JOB_ID": "12"}, "more": 1}'
    request = parse_request(line)
    assert (request.verb, request.t_ms, job_id_of(request)) == ("prolog", 5, 12)


def test_ping_needs_nothing() -> None:
    assert parse_request(b'{"v":1,"verb":"ping"}').env == {}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"v":2,"verb":"prolog","t_ms":5,"env":{"SLURM_JOB_ID":"1"}}',
        b'{"v":1,"verb":"rm -rf"}',
        b'{"v":1,"verb":"prolog","t_ms":5,"env":{"SLURM_JOB_ID":7}}',
        b'{"v":1,"verb":"prolog","t_ms":5,"env":{}}',
        b'{"v":1,"verb":"epilog","env":{"SLURM_JOB_ID":"1"}}',
        b'{"v":1,"verb":"epilog","t_ms":-1,"env":{"SLURM_JOB_ID":"1"}}',
        b'{"v":1,"verb":"prolog","t_ms":9223372036854775807,"env":{"SLURM_JOB_ID":"1"}}',
        b'{"v":1,"verb":"prolog","t_ms":99999999999999999999,"env":{"SLURM_JOB_ID":"1"}}',
        b'{"v":1,"verb":"epilog","t_ms":1,"env":{"SLURM_JOB_ID":"../etc"}}',
        b'{"v":1,"verb":"epilog","t_ms":1,"env":{"SLURM_JOB_ID":"99999999999999999999"}}',
        b'{"v":1,"verb":"epilog","t_ms":1,"env":{"SLURM_JOB_ID":"4294967295"}}',
    ],
)
def test_anything_else_is_refused(line: bytes) -> None:
    with pytest.raises(SpoolError):
        parse_request(line)


@pytest.mark.parametrize(("text", "number"), [("7", 7), ("", None), ("-1", None), ("٣", None)])
def test_whole_numbers_are_plain_digits(text: str, number: int | None) -> None:
    assert whole_number({"A": text}, "A", "B") == number
    assert whole_number({"A": text, "B": "9"}, "A", "B") == (9 if number is None else number)
