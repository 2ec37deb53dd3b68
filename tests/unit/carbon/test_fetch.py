# SPDX-License-Identifier: Apache-2.0
"""Factors come in slices: idempotent, resumable, one version a run, never while a report waits."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwatt.accounting.carbon.factors import Factor, FactorFile, load_factors
from fairwatt.accounting.carbon.fetch import (
    FetchTimer,
    fetch,
    fetch_recent,
    fetch_timer,
    last_known_ts,
)
from fairwatt.accounting.carbon.grid_store import IMPORTED, add_factors, open_grid, stage_factors
from fairwatt.accounting.carbon.site import CarbonSite
from fairwatt.accounting.carbon.sources.uk import UkSource
from fairwatt.accounting.carbon.versions import current_version, store_choice
from fairwatt.accounting.checks import checks
from fairwatt.accounting.store import open_store, transaction
from fairwatt.core.config import load
from fairwatt.core.errors import SourceError
from tests.unit.carbon.factor import factor_at
from tests.unit.carbon.stored import store_pue

DAY_S = 86_400
BEGIN = 1_700_000_000 // DAY_S * DAY_S
HOUR_S = 3600


class Service:
    """Has a factor for every hour but those in `gaps`; fails when it is told to."""

    name, zone, method, source, licence = "here", "ZZ", "flow-traced", "a service", "free"
    slice_s = 2 * DAY_S

    def __init__(self, gaps=(), fail_at=()):
        self.gaps, self.fail_at, self.asked = set(gaps), list(fail_at), []
        self.grams = 100

    def fetch(self, from_ts, until_ts):
        self.asked.append((from_ts, until_ts))
        if self.fail_at and len(self.asked) in self.fail_at:
            raise SourceError("the service failed", place="here")
        hours = range(from_ts, until_ts - HOUR_S + 1, HOUR_S)
        return [
            Factor(self.zone, ts, ts + HOUR_S, self.grams * 1000)
            for ts in hours
            if ts not in self.gaps
        ]


@pytest.fixture
def db(tmp_path):
    db = open_store(tmp_path / "a.db")
    with transaction(db) as connection:
        store_pue(connection, 1.0, 0)
    yield db
    db.close()


def stored(db):
    return db.execute("SELECT * FROM grid_factor ORDER BY from_ts, since_version").fetchall()


def test_a_history_is_one_version_and_asking_again_changes_nothing(db):
    service = Service()
    done = fetch(db, service, BEGIN, BEGIN + 7 * DAY_S, waits_s=())
    assert (done.read, done.changed, done.version) == (168, 168, 1)
    assert len(service.asked) == 4
    assert all(a % service.slice_s == 0 for a, _ in service.asked[1:])
    before = stored(db)
    again = fetch(db, service, BEGIN, BEGIN + 7 * DAY_S, waits_s=())
    assert (again.asked, again.changed, again.version) == (0, 0, None)
    asked = fetch(db, service, BEGIN, BEGIN + 7 * DAY_S, again=True, waits_s=())
    assert (asked.read, asked.changed, asked.version) == (168, 0, None)
    assert stored(db) == before


def test_what_came_before_a_fault_stays_and_the_next_run_goes_on(db):
    service = Service(fail_at=[3])
    with pytest.raises(SourceError):
        fetch(db, service, BEGIN, BEGIN + 8 * DAY_S, waits_s=())
    assert len(stored(db)) in (72, 96)
    assert current_version(db.conn) == 1
    first = len(stored(db))
    service.asked.clear()
    service.fail_at = []
    done = fetch(db, service, BEGIN, BEGIN + 8 * DAY_S, waits_s=())
    assert (done.changed, done.version) == (192 - first, 2)
    assert len(service.asked) <= 4
    assert len(stored(db)) == 192


def test_a_slice_that_fails_is_tried_again_after_a_while(db):
    service, slept = Service(fail_at=[1, 2]), []
    done = fetch(db, service, BEGIN, BEGIN + DAY_S, waits_s=(5, 30), sleep=slept.append)
    assert (done.read, slept) == (24, [5, 30])


def test_a_slice_with_a_gap_is_asked_again_and_no_other(db):
    gap = BEGIN + 3 * DAY_S
    service = Service(gaps=[gap])
    fetch(db, service, BEGIN, BEGIN + 8 * DAY_S, waits_s=())
    service.asked.clear()
    service.gaps = set()
    done = fetch(db, service, BEGIN, BEGIN + 8 * DAY_S, waits_s=())
    assert len(service.asked) == 1
    assert service.asked[0][0] <= gap < service.asked[0][1]
    assert (done.changed, done.version) == (1, 2)


def test_a_revised_figure_replaces_the_old_one_which_stays_in_its_version(db):
    service = Service()
    fetch(db, service, BEGIN, BEGIN + DAY_S, waits_s=())
    with transaction(db) as connection:
        store_choice(connection, "ZZ", "ZZ", service.method, 5)
    service.grams = 150
    done = fetch(db, service, BEGIN, BEGIN + DAY_S, again=True, waits_s=())
    assert done.version == current_version(db.conn) == 3
    assert factor_at(open_grid(db.conn), BEGIN) == (150_000, False)
    assert factor_at(open_grid(db.conn, "ZZ", 1), BEGIN)[0] == 100_000


def test_what_is_staged_is_not_seen_before_it_is_published(db):
    service = Service()
    fetch(db, service, BEGIN, BEGIN + DAY_S, waits_s=())
    more = tuple(service.fetch(BEGIN + DAY_S, BEGIN + 2 * DAY_S))
    with transaction(db) as connection:
        store_choice(connection, "ZZ", "ZZ", service.method, 5)
        stage_factors(connection, FactorFile("a service", "free", "flow-traced", 0, more), "here")
    assert factor_at(open_grid(db.conn), BEGIN + DAY_S + 1)[1] is True


def test_the_timer_asks_from_the_last_known_hour_on(db):
    now = int(time.time())
    service = Service()
    begin = now // DAY_S * DAY_S - 10 * DAY_S
    fetch(db, service, begin, begin + 2 * DAY_S, waits_s=())
    service.asked.clear()
    fetch_recent(db, service)
    assert service.asked[0][0] == begin + 2 * DAY_S
    assert now - HOUR_S <= last_known_ts(db.conn, service) <= now
    service.asked.clear()
    fetch_recent(db, service)
    assert service.asked[0][0] >= now // DAY_S * DAY_S - 3 * DAY_S - service.slice_s


def test_the_future_is_not_asked_for(db):
    service = Service()
    fetch(db, service, int(time.time()) - HOUR_S, int(time.time()) + 10 * DAY_S, waits_s=())
    assert max(b for _, b in service.asked) <= int(time.time())


def test_the_timer_outlives_faults_and_says_each_once(caplog):
    called, enough = [], threading.Event()

    def run():
        called.append(1)
        if len(called) >= 3:
            enough.set()
        raise SourceError("the service failed", place="here")

    timer = FetchTimer(run, 0.005)
    timer.start()
    assert enough.wait(5)
    timer.stop()
    assert sum("the service failed" in record.message for record in caplog.records) == 1


def test_a_timer_without_an_interval_never_begins():
    timer = FetchTimer(lambda: pytest.fail("called"), 0)
    timer.start()
    timer.stop()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 8), st.integers(1, 3)), min_size=1, max_size=6
    )
)
def test_imports_in_any_order_leave_no_overlap_and_twice_is_once(tmp_path_factory, parts):
    """Whatever overlaps whatever: the last import of a time counts, twice is once."""
    db = open_store(tmp_path_factory.mktemp("import") / "a.db")
    expected = {}
    for number, (start, count, length) in enumerate(parts):
        rows = tuple(
            Factor("ZZ", (start + n * length) * 900, (start + (n + 1) * length) * 900, number + 1)
            for n in range(count)
        )
        file = FactorFile("s", "l", "m", number, rows)
        with transaction(db) as connection:
            add_factors(connection, file, IMPORTED, "test", number)
        with transaction(db) as connection:
            assert add_factors(connection, file, IMPORTED, "test", number) == (0, None)
        step = {1: 900, 2: 1800, 3: 3600}[length]
        for row in rows:
            a_ts, b_ts = row.from_ts, row.until_ts
            for key in [k for k in expected if k[0] == step and k[1] < b_ts and k[2] > a_ts]:
                del expected[key]
            expected[step, row.from_ts, row.until_ts] = number + 1
    found = db.execute(
        "SELECT step_s, from_ts, until_ts, mg_per_kwh FROM grid_factor WHERE until_version IS NULL"
    ).fetchall()
    db.close()
    assert {row[:3]: row[3] for row in found} == expected


def test_the_collectors_timer_brings_factors_and_wakes_the_rounds(tmp_path):
    """Its own connection, the lock free while the service is asked, news told once."""
    open_store(tmp_path / "a.db").close()
    lock, news, told = threading.Lock(), threading.Event(), []

    class Watched(Service):
        def fetch(self, from_ts, until_ts):
            told.append(lock.locked())
            return super().fetch(from_ts, until_ts)

    site = CarbonSite("DEU", load_factors(), 1.3, source=Watched(), fetch_s=3600.0)
    timer = fetch_timer(tmp_path / "a.db", site, lock, news.set)
    timer.start()
    assert news.wait(10)
    timer.stop()
    assert told
    assert not any(told)
    db = open_store(tmp_path / "a.db")
    assert last_known_ts(db.conn, site.source) > time.time() - 2 * HOUR_S
    db.close()


def test_without_a_service_the_collector_asks_nobody(tmp_path):
    site = CarbonSite("DEU", load_factors(), 1.3, fetch_s=3600.0)
    assert site.interval_s == 0
    timer = fetch_timer(tmp_path / "none.db", site, threading.Lock(), lambda: pytest.fail("news"))
    timer.start()
    timer.stop()
    assert not (tmp_path / "none.db").exists()


def test_doctor_tells_when_the_service_has_been_silent(tmp_path):
    values = {"collector.database": str(tmp_path / "a.db"), "carbon.source": "uk",
              "carbon.zone": "GBR"}  # fmt: skip
    config = load(None)
    config = replace(config, values={**config.values, **values})
    (check,) = [check for check in checks if check.name == "accounting.factors"]
    assert check.run(config) == []
    db = open_store(tmp_path / "a.db")
    assert "no factors of GB" in check.run(config)[0].problem
    old, new = (int(time.time()) // 1800 * 1800 - days * DAY_S for days in (5, 1))
    for ts, found in ((old, 1), (new, 0)):
        file = FactorFile("s", "l", UkSource.method, 0, (Factor("GB", ts, ts + 1800, 1),))
        with transaction(db) as connection:
            add_factors(connection, file, "uk", "test", 0)
        assert len(check.run(config)) == found
    db.close()
