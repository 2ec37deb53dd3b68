# SPDX-License-Identifier: Apache-2.0
"""The department's report by hand."""

from __future__ import annotations

from datetime import date

import pytest

from fairwatt.accounting.carbon.embodied import YEAR_S, Hardware
from fairwatt.accounting.reports.dept import dept_report
from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import scope_of
from fairwatt.accounting.store import transaction
from fairwatt.core.errors import NotFoundError
from tests.unit.carbon.stored import store_hardware
from tests.unit.reports.tiny import (
    CLUSTER,
    HOUR_MILLI_S,
    KWH,
    add_member,
    add_run,
    add_usage,
    named,
)

FEBRUARY = Period(date(2026, 2, 1), date(2026, 3, 1), "UTC")


@pytest.fixture
def used(store):
    """a: 50 h (a1 30, a2 20), b 20 h, c 20 h, d 10 h: the golden vector of use."""
    add_usage(
        store, account="a1", user="ann", hours=30, device_s=36 * 3600, runs_ended=3,
        util_known_milli_s=20 * HOUR_MILLI_S, used_milli_s=15 * HOUR_MILLI_S,
        failed_milli_s=6 * HOUR_MILLI_S, idle_mj=2 * KWH, active_mj=7 * KWH,
        unmeasured_milli_s=3 * HOUR_MILLI_S, co2_mg=3_600_000,
    )  # fmt: skip
    add_usage(store, account="a2", user="bob", day="2026-02-28", hours=20, device_s=20 * 3600,
              util_known_milli_s=20 * HOUR_MILLI_S, used_milli_s=10 * HOUR_MILLI_S,
              idle_mj=KWH, co2_mg=400_000)  # fmt: skip
    add_usage(store, account="b", user="cid", hours=20)
    add_usage(store, account="c", user="dee", hours=20)
    add_usage(store, account="d", user="eve", hours=10)
    add_usage(store, account="a1", user="ann", day="2026-03-01", hours=1000)
    add_usage(store, account="a1", user="ann", cluster="other", hours=1000)
    return store


def report(store, account="a", user="head", **how):
    return dept_report(store.conn, scope_of(store.conn, user, **how), CLUSTER, account, FEBRUARY)


def test_summary_by_hand(used):
    row = named(report(used), "summary").records()[0]
    assert row["entitled"] == pytest.approx(0.4)
    assert row["used"] == pytest.approx(0.5)
    assert (row["fge_hours"], row["device_hours"], row["runs_ended"]) == (50, 56, 3)
    assert (row["busy_hours"], row["idle_hours"], row["unknown_hours"]) == (25, 15, 10)
    assert row["failed_hours"] == 6
    assert row["energy_mj"] == 10 * KWH
    assert row["co2_mg"] == 4_000_000
    assert row["measured"] == pytest.approx(47 / 50)


def test_sentences_say_the_direction_and_the_units(used):
    words = [row["sentence"] for row in named(report(used), "headlines").records()]
    assert words[0] == (
        "a used 50.0 % of the whole cluster's GPU time and is entitled to 40.0 %: "
        "10.0 percentage points more than its share."
    )
    assert "50.0 % kept the GPUs busy and 30.0 % were held but idle; for 20.0 % it was" in words[1]
    assert words[2] == "No run started in this period."
    assert words[3].startswith("94.0 % of the GPU time was measured")
    # 4 kg of the 47 hours that were measured; the other 3 are in no sum of grams.
    assert words[4].startswith("Electricity of the GPUs and the machine room's overhead, ")
    assert "; 85 g per measured full-GPU hour." in words[4]


def test_few_hours_are_not_said_to_be_none(store):
    add_usage(store, account="a1", hours=0.25, util_known_milli_s=HOUR_MILLI_S // 4)
    words = named(report(store, "root", user="x", admin=True), "headlines").records()
    assert words[0]["value"] == "0.2 h"
    assert words[0]["sentence"] == "All accounts together held GPUs for 0.2 full-GPU hours."
    assert words[1]["sentence"].startswith("Of 0.2 full-GPU hours")


def test_unmeasured_hours_do_not_make_an_hour_cleaner(store):
    """600 g of the 6 of 8 h that were measured: 100 g an hour, not 75; hardware as it is."""
    add_usage(store, account="a1", gpu_type="a100", hours=8, device_s=8 * 3600,
              unmeasured_milli_s=2 * HOUR_MILLI_S, active_mj=KWH, co2_mg=600_000)  # fmt: skip
    with transaction(store) as connection:
        store_hardware(connection, [Hardware("a100-40", 318_000, 4 * YEAR_S, "a book")], 1)
    row = named(report(store), "carbon").records()[0]
    assert row["sci_mg"] == round(100_000 + row["embodied_mg"] / 8)


def test_share_and_use_of_the_children(used):
    table = named(report(used), "accounts")
    rows = {row["account"]: row for row in table.records()}
    assert list(rows) == ["a1", "a2"]
    assert rows["a1"]["entitled"] == 0.75
    assert rows["a1"]["used"] == 0.6
    assert rows["a1"]["difference"] == pytest.approx(-0.15)
    assert rows["a2"]["energy_mj"] == KWH
    assert "Share deviation 15.0 % among 2 accounts" in table.notes[0]


def test_both_splits_of_the_hours_make_the_whole(used):
    rows = named(report(used), "waste").records()
    for split in ("utilisation", "outcome"):
        assert sum(row["share"] for row in rows if row["split"] == split) == pytest.approx(1)


def test_days_of_the_series_sum_to_the_summary(used):
    rows = named(report(used), "series").records()
    assert sum(row["fge_hours"] for row in rows) == 50
    assert len({row["step"] for row in rows}) == 28


def test_the_users_directly_in_an_account_are_siblings_of_its_children(used):
    add_usage(used, account="a", user="head", hours=10)
    add_member(used, "post", "a", 0, shares=1)
    rows = named(report(used), "accounts").records()
    assert [(row["account"], row["entitled"]) for row in rows] == [
        ("a1", 0.6), ("a2", 0.2), ("a (directly)", 0.2),
    ]  # fmt: skip


def test_too_few_others_hide_their_sum(store):
    """With two foreign users, each could work out the other's use: the share stays unknown."""
    add_usage(store, account="a1", user="ann", hours=5)
    add_usage(store, account="b", user="cid", hours=3)
    add_usage(store, account="c", user="dee", hours=2)
    assert named(report(store), "summary").records()[0]["used"] is None
    admin = named(report(store, user="root", admin=True), "summary").records()[0]
    assert admin["used"] == 0.5
    add_usage(store, account="d", user="eve", hours=10)
    assert named(report(store), "summary").records()[0]["used"] == 0.25


def test_unknown_energy_is_unknown_not_zero(store):
    add_usage(store, account="a1", hours=5, unmeasured_milli_s=5 * HOUR_MILLI_S)
    row = named(report(store), "summary").records()[0]
    assert row["energy_mj"] is None
    assert row["co2_mg"] is None
    values = [line["value"] for line in named(report(store), "headlines").records()]
    assert values[3:] == ["unknown", "unknown"]


def test_energy_without_a_factor_has_unknown_carbon(store):
    add_usage(store, account="a1", hours=5, idle_mj=KWH)
    assert named(report(store), "summary").records()[0]["co2_mg"] is None


def test_an_empty_department(store):
    tables = report(store)
    row = named(tables, "summary").records()[0]
    assert (row["fge_hours"], row["used"], row["energy_mj"], row["wait_p50_s"]) == (
        0,
        None,
        0,
        None,
    )
    assert named(tables, "waste").records()[0]["share"] is None


def test_unallocated_energy_is_its_own_line(used):
    used.execute(
        "INSERT INTO unallocated_daily (day, cluster, model, idle_mj, active_mj, co2_mg)"
        " VALUES ('2026-02-03', ?, 'm', 5, 1, 9), ('2026-03-01', ?, 'm', 70, 70, 70)",
        (CLUSTER, CLUSTER),
    )
    rows = named(report(used), "energy").records()
    assert (rows[0]["idle_mj"], rows[0]["active_mj"]) == (3 * KWH, 7 * KWH)
    assert (rows[1]["idle_mj"], rows[1]["active_mj"], rows[1]["co2_mg"]) == (5, 1, 9)


def test_months_come_from_whole_months(used):
    rows = named(report(used), "months").records()
    assert [(row["month"], row["fge_hours"]) for row in rows] == [("2026-02", 50)]


def test_waits_by_child(store):
    start_ts = FEBRUARY.start_ts
    add_run(
        store, account="a2", eligible_ts=start_ts, start_ts=start_ts + 90, end_ts=start_ts + 99
    )
    rows = named(report(store), "waits").records()
    assert [(row["account"], row["runs"], row["p50_s"]) for row in rows] == [("a2", 1, 90)]


@pytest.mark.parametrize("account", ["b", "root", "missing"])
def test_out_of_scope_is_not_found(used, account):
    with pytest.raises(NotFoundError):
        report(used, account)


def test_a_researcher_sees_no_department_at_all(used):
    with pytest.raises(NotFoundError):
        report(used, "a1", user="ann")


def test_the_root_account_has_no_share(used):
    words = named(report(used, "root", user="x", admin=True), "headlines").records()
    assert words[0]["topic"] == "GPU time"
    assert words[0]["value"] == "100 h"


def test_a_gpu_type_that_the_catalogue_does_not_know_is_unknown_not_zero(store):
    add_usage(store, account="a1", device_s=7200, gpu_type="new")
    tables = report(store)
    row = named(tables, "summary").records()[0]
    unknown = ("fge_hours", "busy_hours", "idle_hours", "failed_hours", "energy_mj", "co2_mg")
    assert [row[key] for key in unknown] == [None] * len(unknown)
    assert row["device_hours"] == 2
    assert named(tables, "gpu_types").records()[0]["fge_hours"] is None
    words = [line["sentence"] for line in named(tables, "headlines").records()]
    assert "No GPU was held" not in " ".join(words)
    assert words[1] == "GPUs were held whose size the catalogue does not know."
    assert named(tables, "summary").notes[0].startswith("2.0 device hours are of GPU types that")


def test_beside_known_types_an_unknown_one_is_told_of(used):
    before = named(report(used), "summary").records()[0]
    add_usage(used, account="a1", device_s=3600, gpu_type="new", idle_mj=KWH)
    after = named(report(used), "summary")
    assert after.records()[0]["fge_hours"] == before["fge_hours"] == 50
    assert after.records()[0]["energy_mj"] == before["energy_mj"] + KWH
    assert after.notes[0].startswith("1.0 device hours")


def test_the_whole_cluster_is_the_sum_of_its_accounts_known_to_slurm_or_not(used):
    """A run may have no account, or one that was purged from slurmdbd."""
    add_usage(used, account="", user="lost", hours=6, idle_mj=KWH)
    add_usage(used, account="purged", user="cid", hours=4)
    start_ts = FEBRUARY.start_ts
    for account, wait_s in ((None, 30), ("purged", 50)):
        add_run(used, account=account, eligible_ts=start_ts, start_ts=start_ts + wait_s,
                job_id=wait_s, end_ts=start_ts + 99)  # fmt: skip
    tables = report(used, "root", user="x", admin=True)
    (whole,) = used.execute(
        "SELECT sum(gpu_milli_s) FROM usage_daily WHERE day < '2026-03' AND cluster = ?",
        (CLUSTER,),
    ).fetchone()
    assert named(tables, "summary").records()[0]["fge_hours"] == whole / HOUR_MILLI_S == 110
    rows = {row["account"]: row for row in named(tables, "accounts").records()}
    assert (rows["no known account"]["fge_hours"], rows["no known account"]["entitled"]) == (
        10, None,
    )  # fmt: skip
    assert sum(row["fge_hours"] for row in rows.values()) == 110
    waits = {row["account"]: row for row in named(tables, "waits").records()}
    assert (waits["no known account"]["runs"], waits["no known account"]["max_s"]) == (2, 50)
    assert named(report(used), "summary").records()[0]["fge_hours"] == 50
