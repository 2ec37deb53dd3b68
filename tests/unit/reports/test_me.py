# SPDX-License-Identifier: Apache-2.0
"""A researcher's own page: sums and the last jobs."""

from __future__ import annotations

from datetime import date

from fairwatt.accounting.reports.me import LAST_JOBS, me_report
from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import scope_of
from tests.unit.reports.tiny import HOUR_MILLI_S, KWH, add_run, add_usage, named

FEBRUARY = Period(date(2026, 2, 1), date(2026, 3, 1), "UTC")


def report(store, user="ann", **how):
    return me_report(store.conn, scope_of(store.conn, user, **how), FEBRUARY)


def test_sums_by_hand(store):
    add_usage(store, hours=2, device_s=7200, runs_ended=4, runs_failed=1, idle_mj=KWH,
              active_mj=KWH, co2_mg=800_000, util_known_milli_s=HOUR_MILLI_S,
              used_milli_s=HOUR_MILLI_S // 4)  # fmt: skip
    add_usage(store, user="bob", hours=50)
    row = named(report(store), "summary").records()[0]
    assert (row["runs_ended"], row["runs_failed"], row["fge_hours"]) == (4, 1, 2)
    assert (row["busy"], row["energy_mj"], row["co2_mg"]) == (0.25, 2 * KWH, 800_000)
    days = named(report(store), "days").records()
    assert (len(days), days[0]["fge_hours"], days[1]["fge_hours"]) == (28, 2, 0)


def test_even_an_admin_s_own_page_shows_own_jobs_only(store):
    add_run(store, job_id=1, user="ann")
    add_run(store, job_id=2, user="bob")
    add_usage(store, user="bob", hours=50)
    tables = report(store, "ann", admin=True)
    assert [row["job_id"] for row in named(tables, "jobs").records()] == [1]
    assert named(tables, "summary").records()[0]["fge_hours"] == 0


def test_jobs_are_the_last_ones_newest_first(store):
    for number in range(LAST_JOBS + 5):
        add_run(store, job_id=number, submit_ts=number)
    jobs = [row["job_id"] for row in named(report(store), "jobs").records()]
    assert jobs == list(range(LAST_JOBS + 4, 4, -1))


def test_a_job_without_measurement_is_unknown_a_job_without_gpu_has_none(store):
    add_run(store, job_id=1, alloc_tres="cpu=1")
    add_run(store, job_id=2, alloc_tres=None, submit_ts=2)
    rows = {row["job_id"]: row for row in named(report(store), "jobs").records()}
    assert (rows[1]["gpus"], rows[1]["energy_mj"], rows[1]["util"]) == ("none", None, None)
    assert rows[2]["gpus"] is None


def test_first_visit_before_the_first_job(store):
    words = [row["sentence"] for row in named(report(store, "nobody"), "headlines").records()]
    assert words[0] == "No run ended in this period."
