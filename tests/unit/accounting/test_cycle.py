# SPDX-License-Identifier: Apache-2.0
"""The collector's cycle goes on whatever fails in it."""

from __future__ import annotations

import logging
import queue
import threading

import pytest

from fairwatt.accounting.accounts import AccountTree
from fairwatt.accounting.cycle import (
    Repeater,
    import_and_refresh,
    pause_s,
    prepare_store,
    site_of,
)
from fairwatt.accounting.ingest import ingest
from fairwatt.core import config as config_module
from fairwatt.core.errors import CommandError, ConfigError
from tests.unit.accounting.samples import Node, sacct_run, share, whole

WAIT_S = 5


class Steps:
    """Counts calls and lets a test wait for them."""

    def __init__(self, fail=()):
        self.calls = queue.Queue()
        self.fail = list(fail)

    def __call__(self):
        error = self.fail.pop(0) if self.fail else None
        self.calls.put(error)
        if error:
            raise error

    def wait(self, count=1):
        for _ in range(count):
            self.calls.get(timeout=WAIT_S)


@pytest.fixture
def repeater():
    made = []

    def make(imports, refreshes, interval_s, settle_s=0.0):
        made.append(Repeater(imports, refreshes, interval_s, settle_s))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()
    assert not any(thread.name == "fairwatt-cycle" for thread in threading.enumerate())


def test_it_imports_again_and_again(repeater):
    imports = Steps()
    repeater(imports, Steps(), 0.01)
    imports.wait(3)


def test_news_is_settled_without_an_import(repeater):
    imports, refreshes = Steps(), Steps()
    running = repeater(imports, refreshes, 0)
    running.wake()
    refreshes.wait()
    assert imports.calls.empty()


def test_rounds_leave_nine_tenths_of_the_time_to_deliveries():
    assert [pause_s(took_s) for took_s in (0.0, 0.25, 3.0)] == [1.0, 2.25, 27.0]
    assert pause_s(0.0, gather_s=0.0) == 0.0


def test_a_fault_is_logged_once_and_tried_again(repeater, caplog):
    caplog.set_level(logging.INFO)
    away = CommandError(["sacct"], 1, "connection refused")
    imports = Steps(fail=[away, away, away])
    repeater(imports, Steps(), 0.01)
    imports.wait(5)
    assert [record.getMessage() for record in caplog.records] == [
        "Slurm is away: sacct: exit status 1: connection refused; it is tried again",
        "accounting works again",
    ]


def test_the_thread_outlives_a_surprise(repeater, caplog):
    imports = Steps(fail=[ZeroDivisionError()])
    repeater(imports, Steps(), 0.01)
    imports.wait(2)
    assert "accounting round failed" in caplog.text


def config(tmp_path, text=""):
    path = tmp_path / "fairwatt.toml"
    path.write_text(
        '[site]\ncluster = "campus"\ntimezone = "Europe/Berlin"\n'
        f'[collector]\ndatabase = "{tmp_path}/a.db"\n{text}'
    )
    return config_module.load(path)


class Away:
    def running_job_ids(self):
        return None

    def accounts(self):
        raise CommandError(["sacctmgr"], 1, "away")


class Small(Away):
    def accounts(self):
        return AccountTree((), ())

    def open(self, now_ts):
        return [], []

    def ended(self, since_ts, until_ts):
        yield [sacct_run()], []


def test_one_round_from_events_to_days(tmp_path):
    site = site_of(config(tmp_path))
    db = prepare_store(site)
    node = Node()
    window = node.window("GPU-a", 1_060_000, 1_160_000, share(7, 1_060_000, 1, 2), idle=4)
    ingest(db, [node.up("GPU-a"), node.start(7, 1_060_000, whole("GPU-a")), window])
    assert import_and_refresh(db, site, source=Small()).changed == 1
    assert db.execute("SELECT day, idle_mj, active_mj FROM usage_daily").fetchall() == [
        ("1970-01-01", 1, 2)
    ]
    assert db.execute("SELECT idle_mj FROM unallocated_daily").fetchall() == [(4,)]


def test_nodes_are_settled_while_slurm_is_away(tmp_path):
    site = site_of(config(tmp_path))
    db = prepare_store(site)
    ingest(db, [Node().window("GPU-a", 0, 5, idle=4)])
    with pytest.raises(CommandError):
        import_and_refresh(db, site, source=Away())
    assert db.execute("SELECT idle_mj FROM unallocated_daily").fetchall() == [(4,)]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('[carbon]\nzone = "XYZ"\n', r"carbon\.zone"),
        ('[carbon]\nfactors_file = "/nowhere.csv"\n', r"/nowhere\.csv: cannot be read"),
    ],
)
def test_bad_settings_are_named_at_the_start(tmp_path, text, match):
    with pytest.raises(ConfigError, match=match):
        site_of(config(tmp_path, text))
