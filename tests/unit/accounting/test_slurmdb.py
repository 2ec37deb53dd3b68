# SPDX-License-Identifier: Apache-2.0
"""What is asked of sacct and sreport, against programs that answer in their place."""

from __future__ import annotations

import os
from zoneinfo import ZoneInfo

import pytest

from fairwatt.accounting.slurmdb import SlurmDb
from fairwatt.core.errors import CommandError

DAY_S = 86_400
FIELDS = "JobIDRaw JobID Cluster"


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Write a program that stands first on the search path."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def write(name, text):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    return write


def asked(tmp_path):
    """Start and end of each slice that was asked for."""
    lines = (tmp_path / "asked").read_text().split()
    return [[word.split("=")[1] for word in lines[n : n + 2]] for n in range(0, len(lines), 2)]


SACCT = """
case "$*" in *helpformat*) echo JobIDRaw; exit 0;; esac
for word; do case $word in --starttime=*|--endtime=*) echo "$word" >> {folder}/asked;; esac; done
{then}
"""


def test_an_empty_year_costs_few_calls(programs, tmp_path):
    programs("sacct", SACCT.format(folder=tmp_path, then="exit 0"))
    assert all(not runs for runs, _ in SlurmDb().ended(0, 366 * DAY_S))
    spans = asked(tmp_path)
    assert len(spans) <= 12
    assert (spans[0][0], spans[-1][1]) == ("1970-01-01T00:00:00", "1971-01-02T00:00:00")
    assert spans[1] == ["1970-01-02T00:00:01", "1970-01-04T00:00:01"]


@pytest.mark.parametrize(
    "message", ["Query result exceeds size limit", "Too wide of a date range in query"]
)
def test_what_is_too_much_is_asked_for_in_halves(programs, tmp_path, message):
    """Refused until the third try: 24, 12, then 6 hours."""
    then = f'''[ "$(wc -l < {tmp_path}/asked)" -gt 4 ] || {{ echo "{message}" >&2; exit 1; }}'''
    programs("sacct", SACCT.format(folder=tmp_path, then=then))
    next(SlurmDb().ended(0, 10 * DAY_S))
    assert [end for _, end in asked(tmp_path)] == [
        "1970-01-02T00:00:00",
        "1970-01-01T12:00:00",
        "1970-01-01T06:00:00",
    ]


def test_an_answer_that_no_slice_helps_is_told_at_once(programs, tmp_path):
    then = "echo 'Connection refused' >&2; exit 1"
    programs("sacct", SACCT.format(folder=tmp_path, then=then))
    with pytest.raises(CommandError, match="Connection refused"):
        next(SlurmDb().ended(0, DAY_S))
    assert len(asked(tmp_path)) == 1


def test_sreport_is_asked_for_a_day_of_the_site(programs, tmp_path):
    """Berlin's day in which summer time ends; amounts that are no numbers are left out."""
    programs("sreport", f"""
echo "$TZ $*" > {tmp_path}/asked
printf 'cpu|7200\\ngres/gpu|3600\\ngres/gpu:a100|3600\\nmem|N/A\\n'""")  # fmt: skip
    told = SlurmDb().allocated_s("campus", "2026-10-25", ZoneInfo("Europe/Berlin"))
    assert told == {"cpu": 7200, "gres/gpu": 3600, "gres/gpu:a100": 3600}
    words = (tmp_path / "asked").read_text()
    assert words.startswith("Europe/Berlin ")
    assert "cluster=campus start=2026-10-25T00:00:00 end=2026-10-26T00:00:00" in words
