# SPDX-License-Identifier: Apache-2.0
"""Waste, units of GPU time and idle policies in reports, on a store of a few rows."""

from __future__ import annotations

from datetime import date

import pytest

from fairwatt.accounting.reports.dept import dept_report
from fairwatt.accounting.reports.job import job_report
from fairwatt.accounting.reports.me import me_report
from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import Role, Scope
from tests.unit.reports.tiny import CLUSTER, HOUR_MILLI_S, add_run, add_usage, named

FEBRUARY = Period(date(2026, 2, 1), date(2026, 3, 1), "UTC")
DAY_TS = 1_769_904_000  # 2026-02-01 in UTC
ADMIN = Scope("root", Role.ADMIN)
ANN = Scope("ann", Role.RESEARCHER)
A100 = "billing=24,cpu=8,mem=64G,gres/gpu=1,gres/gpu:a100=1"


def ended_run(store, job_id=7, **changes):
    """An hour on one A100 with 8 cores and 64 GiB."""
    values = {
        "job_id": job_id, "submit_ts": DAY_TS, "start_ts": DAY_TS + 60, "end_ts": DAY_TS + 3660,
        "elapsed_s": 3600, "timelimit_s": 7200, "nnodes": 1, "ncpus": 8, "cpu_time_s": 14_400,
        "req_tres": A100, "alloc_tres": A100, "account": "a1",
    }  # fmt: skip
    return add_run(store, **{**values, **changes})


def measured(store, run_id, util, used_mib=None, device="GPU-1"):
    store.execute(
        "INSERT INTO run_energy (run_id, device_uuid, node, model, idle_mj, active_mj,"
        " util_permille, measured_s, flags, method)"
        " VALUES (?, ?, 'n1', 'a100-40', 100, 900, ?, 3600, 0, 'counter')",
        (run_id, device, util),
    )
    store.execute(
        "INSERT INTO run_hour (run_id, hour_ts, idle_mj, active_mj) VALUES (?, ?, 100, 900)",
        (run_id, DAY_TS),
    )
    if used_mib is not None:
        store.execute(
            "INSERT INTO run_gpu_memory VALUES (?, ?, ?, ?)", (run_id, device, used_mib, used_mib)
        )


def resources(store, **job):
    tables = job_report(store.conn, ADMIN, CLUSTER, job.get("job_id", 7))
    return {row["resource"]: row for row in named(tables, "resources").records()}


class TestJob:
    def test_asked_given_and_used(self, store):
        run_id = ended_run(store)
        measured(store, run_id, 900, 20 * 1024)
        store.execute("INSERT INTO run_memory VALUES (?, ?)", (run_id, 16 * 1024))
        rows = resources(store)
        told = {name: (row["given_amount"], row["used_amount"]) for name, row in rows.items()}
        assert told == {
            "GPUs": (1000, 900),
            "GPU memory": (40_960, 20_480),
            "CPU cores": (28_800, 14_400),
            "Memory": (65_536, 16_384),
            "Time": (7200, 3600),
        }
        assert rows["Memory"]["used_share"] == pytest.approx(0.25)
        assert all(row["why"] == "" for row in rows.values())

    def test_unknown_has_its_reason(self, store):
        """E33: no reading of the GPU's memory is unknown with its reason, never 0."""
        run_id = ended_run(store, cpu_time_s=None)
        measured(store, run_id, None)
        rows = resources(store)
        told = {name: (row["used"], row["why"]) for name, row in rows.items() if row["why"]}
        assert told == {
            "GPUs": ("unknown", "The node reads no utilisation of this GPU or slice."),
            "GPU memory": ("unknown", "The node's agent did not read it."),
            "CPU cores": ("unknown", "Slurm did not gather it (JobAcctGatherType)."),
            "Memory": ("unknown", "Slurm did not gather it (JobAcctGatherType)."),
        }
        assert named(job_report(store.conn, ADMIN, CLUSTER, 7), "advice").records() == [
            {"class": "unknown", "evidence": "How busy its GPUs were is not known.",
             "advice": "", "wasted_hours": None}
        ]  # fmt: skip

    def test_gpu_time_in_three_units(self, store):
        """Half an hour on two slices of 3/7, suspended a quarter of it: held, but not billed."""
        tres = "billing=24,cpu=8,gres/gpu=2,gres/gpu:a100_3g.20gb=2"
        ended_run(store, alloc_tres=tres, elapsed_s=1350, suspended_s=450, end_ts=DAY_TS + 1860)
        (row,) = named(job_report(store.conn, ADMIN, CLUSTER, 7), "gpu_time").records()
        assert row == {
            "restart_cnt": 0, "device_hours": 1.0, "fge_hours": 0.429, "billing_hours": 9.0,
        }  # fmt: skip

    def test_advice_names_what_it_would_have_saved(self, store):
        run_id = ended_run(store)
        measured(store, run_id, 20, 400)
        (row,) = named(job_report(store.conn, ADMIN, CLUSTER, 7), "advice").records()
        assert (row["class"], row["wasted_hours"]) == ("idle", 0.98)

    @pytest.mark.parametrize(
        ("policy", "energy"),
        [("reserved", (100, 1000)), ("active", (140, 1040)), ("none", (0, 900))],
    )
    def test_the_energy_by_idle_policy(self, store, policy, energy):
        run_id = ended_run(store)
        measured(store, run_id, 900)
        store.execute(
            "INSERT INTO node_run (node, job_id, start_ms, mapped_by, run_id)"
            " VALUES ('n1', 7, 0, 'test', ?)",
            (run_id,),
        )
        store.execute(
            "INSERT INTO use_cell VALUES ('n1', 7, 0, 'GPU-1', ?, 40, 0, 0, 0)", (DAY_TS,)
        )
        table = named(job_report(store.conn, ADMIN, CLUSTER, 7, idle_policy=policy), "energy")
        (row,) = table.records()
        assert (row["idle_mj"], row["energy_mj"]) == energy
        assert table.notes[0].startswith(f"Idle policy {policy}: ")


class TestMe:
    def test_the_largest_savings_come_first(self, store):
        for job_id, util, waste in ((7, 20, 980), (8, 900, 0), (9, 10, 990)):
            run_id = ended_run(store, job_id, submit_ts=DAY_TS + job_id)
            measured(store, run_id, util, 400)
            store.execute("INSERT INTO run_waste VALUES (?, 'idle', ?)", (run_id, waste))
        other = ended_run(store, 10, user="bob")
        store.execute("INSERT INTO run_waste VALUES (?, 'idle', 999)", (other,))
        table = named(me_report(store.conn, ANN, FEBRUARY), "savings")
        assert [(row["job_id"], row["wasted_hours"]) for row in table.records()] == [
            (9, 0.99), (7, 0.98),
        ]  # fmt: skip
        assert table.records()[0]["evidence"] == "Its GPU was busy 1 % of the time."

    @pytest.mark.parametrize(
        ("policy", "energy"), [("reserved", 500), ("active", 530), ("none", 400)]
    )
    def test_the_period_by_idle_policy(self, store, policy, energy):
        add_usage(store, hours=1, idle_mj=100, active_mj=400, billing_s=7200)
        moved(store, "run", "a", "ann", 30)
        tables = me_report(store.conn, ANN, FEBRUARY, idle_policy=policy)
        (row,) = named(tables, "summary").records()
        assert row["energy_mj"] == energy
        assert row["billing_hours"] == 2.0
        assert sum(day["energy_mj"] or 0 for day in named(tables, "days").records()) == energy
        assert policy in named(tables, "summary").notes[-1]


def moved(store, owner, account, user, moved_mj):
    store.execute(
        "INSERT INTO moved_daily VALUES ('2026-02-01', ?, ?, ?, ?, 'x', ?)",
        (CLUSTER, owner, account, user, moved_mj),
    )


def unallocated(store, idle_mj, active_mj):
    store.execute(
        "INSERT INTO unallocated_daily (day, cluster, model, idle_mj, active_mj, co2_mg)"
        " VALUES ('2026-02-01', ?, 'm', ?, ?, 0)",
        (CLUSTER, idle_mj, active_mj),
    )


class TestDepartment:
    def test_hours_by_class_and_what_is_unknown(self, store):
        """10 h: 4 idle of which 3.9 wasted, 5 healthy; 1 is left and unknown."""
        add_usage(store, account="a1", hours=10)
        for kind, held, wasted in (("idle", 4, 3.9), ("healthy", 5, 0)):
            store.execute(
                "INSERT INTO waste_daily VALUES ('2026-02-01', ?, 'a1', 'ann', ?, 1, ?, ?)",
                (CLUSTER, kind, held * HOUR_MILLI_S, int(wasted * HOUR_MILLI_S)),
            )
        store.execute(
            "INSERT INTO waste_daily VALUES ('2026-02-01', ?, 'b', 'cid', 'idle', 1, 7, 7)",
            (CLUSTER,),
        )
        table = named(dept_report(store.conn, ADMIN, CLUSTER, "a", FEBRUARY), "waste_classes")
        assert [(r["class"], r["fge_hours"], r["wasted_hours"]) for r in table.records()] == [
            ("idle", 4.0, 3.9), ("healthy", 5.0, 0.0), ("unknown", 1.0, None),
        ]  # fmt: skip
        assert table.notes[0] == (
            "Of 10.0 full-GPU hours 3.9 (39.0 %) were wasted, most of it (3.9 h) in runs of the "
            "class idle: the GPUs did next to nothing. 10.0 % of the hours could not be judged."
        )

    def test_the_largest_part_need_not_be_most(self, store):
        add_usage(store, account="a1", hours=10)
        for kind, wasted in (("idle", 2), ("straggler", 1.5), ("input-bound", 1)):
            store.execute(
                "INSERT INTO waste_daily VALUES ('2026-02-01', ?, 'a1', 'ann', ?, 1, ?, ?)",
                (CLUSTER, kind, 3 * HOUR_MILLI_S, int(wasted * HOUR_MILLI_S)),
            )
        table = named(dept_report(store.conn, ADMIN, CLUSTER, "a", FEBRUARY), "waste_classes")
        assert table.notes[0].startswith(
            "Of 10.0 full-GPU hours 4.5 (45.0 %) were wasted, the largest part (2.0 h) in runs of "
        )

    def test_nothing_is_known_without_nodes(self, store):
        add_usage(store, account="a1", hours=10)
        table = named(dept_report(store.conn, ADMIN, CLUSTER, "a", FEBRUARY), "waste_classes")
        assert table.notes[0] == (
            "How well the GPUs were used is not known: no node measured these runs."
        )

    @pytest.mark.parametrize("policy", ["reserved", "active", "none"])
    def test_every_policy_gives_the_same_sum(self, store, policy):
        """200 idle and 300 active of runs, 100 and 7 of nobody, of which 40 on held boards."""
        add_usage(store, account="a1", hours=1, idle_mj=150, active_mj=200)
        add_usage(store, account="b", user="cid", hours=1, idle_mj=50, active_mj=100)
        unallocated(store, 100, 7)
        moved(store, "run", "a1", "ann", 60)
        moved(store, "run", "b", "cid", -20)
        moved(store, "unallocated", "", "", -40)
        tables = dept_report(store.conn, ADMIN, CLUSTER, "root", FEBRUARY, None, policy)
        energy = named(tables, "energy")
        assert sum(row[1] + row[2] for row in energy.rows) == 607
        assert energy.notes[-1].startswith(f"Idle policy {policy}: ")
        side_by_side = named(tables, "policies").records()
        for name in ("reserved", "active", "none"):
            assert sum(row[f"{name}_mj"] for row in side_by_side) == 607
        idle = next(row for row in side_by_side if row["owner"] == "idle")
        assert list(idle.values())[1:] == [0, 0, 200]  # nothing by the policy is no unknown
        said = named(tables, "headlines").records()[3]["sentence"]
        assert ("idle policy" in said) == (policy != "reserved")
        carbon = named(tables, "carbon")
        assert carbon.rows[-2][1] == 500  # together: what was reserved, whatever the policy
        assert ("as reserved" in carbon.notes[-1]) == (policy != "reserved")
        by_account = {r["account"]: r["energy_mj"] for r in named(tables, "accounts").records()}
        assert (by_account["a"], by_account["b"]) == {
            "reserved": (350, 150), "active": (410, 130), "none": (200, 100),
        }[policy]  # fmt: skip
        assert sum(row["energy_mj"] or 0 for row in named(tables, "months").records()) == sum(
            by_account[name] or 0 for name in ("a", "b")
        )
