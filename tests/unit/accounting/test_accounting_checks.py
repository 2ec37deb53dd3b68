# SPDX-License-Identifier: Apache-2.0
"""What `fairwatt doctor` says of the accounting host, well and unwell."""

from __future__ import annotations

import time

import pytest

from fairwatt.accounting.checks import checks
from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.store import open_store, set_meta, transaction
from fairwatt.core import config as config_module
from fairwatt.core.doctor import run_checks
from tests.unit.accounting.samples import Node

HEAD = (
    "# source: a\n# licence: b\n# method: c\n# retrieved: 2025-01-01\nzone,from,until,g_per_kwh\n"
)


@pytest.fixture
def config(tmp_path):
    (tmp_path / "f.csv").write_text(HEAD + "DEU,2024-01-01,2099-01-01,300\n")
    path = tmp_path / "fairwatt.toml"
    path.write_text(
        '[host]\ncollector = "no"\n'
        f'[collector]\ndatabase = "{tmp_path}/a.db"\n[carbon]\nfactors_file = "{tmp_path}/f.csv"\n'
    )
    return config_module.load(path)


def found(config):
    return [(name, item.level, item.problem) for name, item in run_checks(checks, config)]


def test_another_host_has_no_store_and_no_fault(config):
    ((name, level, problem),) = found(config)
    assert (name, level) == ("accounting.database", "info")
    assert "no store at" in problem


def test_a_fresh_store_was_never_filled(config, tmp_path):
    open_store(tmp_path / "a.db").close()
    assert [(name, level) for name, level, _ in found(config)] == [("accounting.import", "error")]


def imported(tmp_path, ago_s):
    db = open_store(tmp_path / "a.db")
    with transaction(db) as connection:
        set_meta(connection, "sync.cluster.until_ts", str(int(time.time()) - ago_s))
    return db


def test_all_is_well(config, tmp_path):
    db = imported(tmp_path, 10)
    ingest(db, [Node().up("GPU-a")])
    assert found(config) == []


def test_a_late_import_is_told(config, tmp_path):
    imported(tmp_path, 3600)
    ((name, level, problem),) = found(config)
    assert (name, level) == ("accounting.import", "error")
    assert "60 min old" in problem


def test_rows_left_out_silent_nodes_and_strange_runs_are_told(config, tmp_path):
    db = imported(tmp_path, 10)
    node = Node()
    ingest(db, [node.start(7, 1_000_000)])
    db.execute("UPDATE event SET received_ts = received_ts - 7200")
    db.execute("INSERT INTO rejected_row VALUES ('sacct', 'x', 'y')")
    assert [(name, level) for name, level, _ in found(config)] == [
        ("accounting.import", "warn"),
        ("accounting.nodes", "warn"),
        ("accounting.nodes", "warn"),
    ]


def test_factors_that_end_are_told(config, tmp_path):
    imported(tmp_path, 10)
    (tmp_path / "f.csv").write_text(HEAD + "DEU,2024-01-01,2025-01-01,300\n")
    ((name, level, problem),) = found(config)
    assert (name, level) == ("accounting.factors", "warn")
    assert "end on 2024-12-31" in problem


def test_a_damaged_store_is_an_error(config, tmp_path):
    (tmp_path / "a.db").write_bytes(b"junk" * 1000)
    assert {level for _, level, _ in found(config)} == {"error"}
