# SPDX-License-Identifier: Apache-2.0
"""`fairwatt slow`: the tables, JSON, and one line for each alert."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

import pytest
import time_machine
from click.testing import CliRunner

from fairwatt.accounting.commands import slow
from fairwatt.accounting.store import open_store
from tests.unit.accounting.test_failslow_run import fill


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run `fairwatt slow` as root on 10 February 2026, over a store with one repeat offender."""
    db = open_store(tmp_path / "a.db")
    fill(db)
    db.close()
    config = tmp_path / "fairwatt.toml"
    config.write_text(
        f"[site]\ntimezone = 'UTC'\ncluster = 'campus'\n"
        f"[collector]\ndatabase = '{tmp_path / 'a.db'}'\n"
    )
    monkeypatch.setenv("FAIRWATT_CONFIG", str(config))
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def command(*args):
        with time_machine.travel(datetime(2026, 2, 10, 20, tzinfo=UTC), tick=False):
            done = CliRunner().invoke(slow, args)
        assert done.exit_code == 0, done.output
        return done.output

    return command


def test_tables(run):
    text = run()
    assert "repeat offender" in text
    assert "Latest stragglers" in text


def test_json(run):
    body = json.loads(run("--json", "--since", "2026-02-10"))
    assert body["devices"]["rows"][0]["device_uuid"] == "GPU-3"
    assert (
        "Repeat offender: straggler of 3 runs"
        in (body["devices"]["columns"]["verdict"]["definition"])
    )


def test_alerts_are_a_line_each(run):
    (line,) = run("--alerts").splitlines()
    assert (json.loads(line)["code"], json.loads(line)["node"]) == ("FWH390", "gpu01")


def test_who_is_not_root_sees_the_own_runs_only(run, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    assert run("--alerts") == ""
