# SPDX-License-Identifier: Apache-2.0
"""Runs judged by their windows: by hand, from random healthy ones, and through the store."""

from __future__ import annotations

import json
import random
from datetime import date

import pytest

from fairwatt.accounting.failslow import Pace
from fairwatt.accounting.failslow_run import Rank, Window, judge_run, step_ms_of
from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.reports.failslow import alerts, pace_sentence, slow_devices_report
from fairwatt.accounting.reports.job import job_report
from fairwatt.accounting.reports.period import parse_period
from fairwatt.accounting.reports.scope import Role, Scope, scope_of
from fairwatt.accounting.runs import upsert_runs
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import open_store, transaction
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.events import DeviceHold, decode_event, encode_event
from tests.unit.accounting.samples import UTC, Node, dump, sacct_run, share, whole
from tests.unit.reports.tiny import named

STEP = 300_000
DAY_TS = 1_770_681_600
"""2026-02-10 00:00 UTC."""
ADMIN = Scope("root", Role.ADMIN)


def rank(number, kind="m", node="n1"):
    return Rank(f"GPU-{number}", "", node, kind, True)


def windows(*, util=900, watts=300.0, clock=1400, steps=6, first=0):
    """One window per step; each value may be a function of the step."""

    def at(value, step):
        value = value(step) if callable(value) else value
        return None if value is None else round(value)

    return [
        Window(
            step * STEP,
            (step + 1) * STEP,
            round(at(lambda s: 1000 * (watts(s) if callable(watts) else watts), step) * 300),
            at(util, step),
            at(clock, step),
        )
        for step in range(first, first + steps)
    ]


def run_of(*lines, **how):
    return {rank(n, **how): line for n, line in enumerate(lines)}


def stragglers(pace):
    return {r.rank.device: (r.metric, round(r.lag, 3)) for r in pace.ranks if r.metric}


class TestByHand:
    def test_a_low_clock(self):
        """1,120 of 1,400 MHz is a fifth below; power and utilisation are like the others'."""
        pace = judge_run(run_of(windows(), windows(), windows(), windows(clock=1120)))
        assert (pace.state, pace.compared, pace.steps, pace.step_ms) == (
            Pace.STRAGGLER, 4, 6, STEP,
        )  # fmt: skip
        assert stragglers(pace) == {"GPU-3": ("clock", 0.2)}
        slow = pace.ranks[3]
        assert (slow.slow_steps, slow.from_ms, slow.until_ms) == (6, 0, 6 * STEP)
        assert (slow.util_permille, slow.power_mw, slow.clock_mhz) == (900, 300_000, 1120)

    def test_low_power_at_like_utilisation(self):
        pace = judge_run(run_of(windows(), windows(), windows(watts=210)))
        assert stragglers(pace) == {"GPU-2": ("power", 0.3)}

    def test_a_light_stage_that_clocks_higher_is_not_slow(self):
        """A pipeline's light stage: as busy, 280 W beside 400 W, and let clock higher."""
        heavy = windows(watts=400, clock=1350)
        pace = judge_run(run_of(heavy, heavy, heavy, windows(watts=280, clock=1410)))
        assert (pace.state, stragglers(pace)) == (Pace.HEALTHY, {})

    def test_low_power_for_less_work_is_not_told_as_power(self):
        pace = judge_run(run_of(windows(), windows(), windows(watts=210, util=500)))
        assert stragglers(pace) == {"GPU-2": ("utilisation", round(4 / 9, 3))}

    def test_an_idle_gpu_is_not_slow(self):
        idle = windows(util=10, watts=60, clock=None)
        pace = judge_run(run_of(windows(), windows(), windows(), idle))
        assert (pace.state, pace.compared, stragglers(pace)) == (Pace.HEALTHY, 3, {})

    def test_ranks_that_end_early_leave_no_straggler_behind(self):
        early = [windows(steps=6) + windows(steps=6, first=6, util=0, watts=60, clock=None)] * 5
        pace = judge_run(run_of(*early, *[windows(steps=12)] * 3))
        assert stragglers(pace) == {}

    def test_load_that_moves_all_ranks_is_no_straggler(self):
        moved = windows(
            steps=9,
            util=lambda s: (400, 600, 900)[s % 3],
            watts=lambda s: (150, 250, 350)[s % 3],
        )
        pace = judge_run(run_of(*[moved] * 8))
        assert (pace.state, stragglers(pace)) == (Pace.VARYING, {})

    def test_other_models_are_other_peers(self):
        """Two models in one run, one with half the clock: each group is alike."""
        fast = {rank(n, "m"): windows() for n in range(3)}
        slow = {rank(n, "k"): windows(clock=700, watts=70) for n in range(3, 6)}
        assert judge_run(fast | slow).state is Pace.HEALTHY
        assert judge_run({**fast, rank(9, "k"): windows(clock=700)}).state is Pace.HEALTHY

    def test_too_few_ranks_or_windows(self):
        assert judge_run(run_of(windows(), windows(clock=700))).state is Pace.UNKNOWN
        assert judge_run(run_of(*[windows(steps=2)] * 8)).state is Pace.UNKNOWN
        assert judge_run(run_of(*[windows(util=None)] * 8)).state is Pace.UNKNOWN
        assert judge_run({rank(0): []}).state is Pace.UNKNOWN

    def test_instances_are_compared_by_utilisation_alone(self):
        """A slice has no clock or power reading of its own."""
        lines = {
            Rank("GPU-0", f"MIG-{n}", "n1", "1/7 of m", False): windows(clock=700 + 100 * n)
            for n in range(4)
        }
        pace = judge_run(lines)
        assert pace.state is Pace.HEALTHY
        assert {(r.power_mw, r.clock_mhz) for r in pace.ranks} == {(None, None)}

    def test_windows_cut_short_by_a_hook_are_put_together(self):
        """A third and two thirds of a step with 900 and 1,500 MHz: (900 + 2·1500)/3 = 1300."""
        parts = [
            Window(0, 100_000, 30_000_000, 900, 900),
            Window(100_000, 300_000, 60_000_000, 900, 1500),
        ]
        line = parts + windows(first=1, steps=5, clock=1300)
        pace = judge_run(run_of(line, windows(clock=1300), windows(clock=1300)))
        assert pace.state is Pace.HEALTHY
        assert pace.ranks[0].steps == 6

    def test_of_a_long_run_the_newest_week_is_judged(self):
        """2,016 windows of 5 min are a week; the slow ones lie before it, or half before it."""
        early = [windows(steps=2030, clock=lambda s: 700 if s < 14 else 1400)]
        assert judge_run(run_of(*early, *[windows(steps=2030)] * 2)).state is Pace.HEALTHY
        later = [windows(steps=2030, clock=lambda s: 700 if s < 28 else 1400)]
        pace = judge_run(run_of(*later, *[windows(steps=2030)] * 2))
        assert (pace.steps, pace.ranks[0].slow_steps) == (2016, 14)
        assert pace.ranks[0].from_ms == 14 * STEP

    def test_the_step_is_the_usual_window(self):
        lengths = [300_000, 299_600, 300_400, 12_000, 120_000, 300_000]
        assert step_ms_of(Window(0, ms, None, None, None) for ms in lengths) == 300_000
        assert step_ms_of([Window(0, 59_700, None, None, None)]) == 60_000
        assert step_ms_of([Window(0, 3_000, None, None, None)]) == 10_000
        assert step_ms_of([]) == 300_000


def test_a_thousand_healthy_runs_and_one_slow_gpu_in_each():
    """GPUs differ by 3 % in clock and 5 % in power, load moves all by ± 40 % in half of the runs.

    No alarm in 1,000; with 20 % off one clock (and a tenth off its power) always just that one.
    """
    rng = random.Random(11)
    for _ in range(1000):
        ranks, steps = rng.randint(3, 16), rng.randint(4, 24)
        moves = rng.random() < 0.5
        load = [rng.uniform(0.6, 1.4) if moves else 1.0 for _ in range(steps)]
        lines = []
        for _ in range(ranks):
            own_clock, own_power = rng.uniform(0.985, 1.015), rng.uniform(0.95, 1.05)
            lines.append(windows(
                steps=steps,
                util=lambda s, x=load: min(1000, max(60, 650 * x[s] * rng.gauss(1, 0.03))),
                watts=lambda s, x=load, own=own_power: 250 * x[s] * own * rng.gauss(1, 0.02),
                clock=lambda s, own=own_clock: 1400 * own * rng.gauss(1, 0.005),
            ))  # fmt: skip
        healthy = judge_run(run_of(*lines))
        assert healthy.state in (Pace.HEALTHY, Pace.VARYING), stragglers(healthy)
        victim = rng.randrange(ranks)
        lines[victim] = [
            w._replace(clock_mhz=round(0.8 * w.clock_mhz), energy_mj=round(0.9 * w.energy_mj))
            for w in lines[victim]
        ]
        assert list(stragglers(judge_run(run_of(*lines)))) == [f"GPU-{victim}"]


# -- through the store ----------------------------------------------------------------------------


@pytest.fixture
def db(tmp_path):
    return open_store(tmp_path / "a.db")


def put_run(db, job, start_ts, user="ada"):
    row = sacct_run(
        JobIDRaw=str(job), JobID=str(job), Submit=str(start_ts), Eligible=str(start_ts),
        Start=str(start_ts), End=str(start_ts + 1800), ElapsedRaw="1800", User=user,
    )  # fmt: skip
    with transaction(db) as connection:
        upsert_runs(connection, [row], load_catalogue(), UTC, 10_000_000)


def events(node, job, start_ms, clocks, *, steps=6, watts=300, util=900):
    """A run on whole boards GPU-0… of `clocks` MHz: start, windows of 5 min, end."""
    yield node.start(job, start_ms, *(whole(f"GPU-{n}") for n in range(len(clocks))))
    for step in range(steps):
        t0_ms = start_ms + step * STEP
        for n, clock in enumerate(clocks):
            part = share(job, start_ms, 18_000_000, watts * 300_000 - 18_000_000, util)
            yield node.window(f"GPU-{n}", t0_ms, t0_ms + STEP, part, clock=clock)
    yield node.end(job, start_ms, start_ms + steps * STEP)


def fill(db, clocks=(1400, 1400, 1400, 1050), jobs=4):
    """So many runs an hour after each other, of two users in turn."""
    node = Node()
    ingest(db, [node.up(*(f"GPU-{n}" for n in range(len(clocks))))])
    for number in range(jobs):
        start_ts = DAY_TS + 3600 * number
        put_run(db, 7 + number, start_ts, ("ada", "bob")[number % 2])
        ingest(db, list(events(node, 7 + number, 1000 * start_ts, clocks)))
    settle(db, "campus", UTC)
    return parse_period("7d", date(2026, 2, 10), "UTC")


def test_a_straggler_on_the_job_s_page(db):
    fill(db, jobs=1)
    tables = job_report(db.conn, ADMIN, "campus", 7)
    (pace,) = named(tables, "pace").records()
    assert (pace["state"], pace["ranks"], pace["compared"], pace["steps"], pace["step_s"]) == (
        "straggler", 4, 4, 6, 300,
    )  # fmt: skip
    assert pace["sentence"] == (
        "GPU-3 on gpu01 was slower than the others: its clock was 25.0 % below theirs in 6 "
        "windows of 5 min. Where ranks wait for each other, the whole job goes at its speed: "
        "tell your admins."
    )
    (slow,) = named(tables, "slow").records()
    assert (slow["device_uuid"], slow["metric"], slow["lag"], slow["slow_steps"]) == (
        "GPU-3", "clock", 0.25, 6,
    )  # fmt: skip
    assert (slow["from_ts"], slow["until_ts"]) == (DAY_TS, DAY_TS + 1800)


def test_settling_again_changes_nothing_and_a_run_that_goes_takes_its_pace_along(db):
    fill(db)
    before = dump(db)
    db.execute("INSERT INTO unsettled SELECT node, job_id, start_ms, 0 FROM node_run")
    assert settle(db, "campus", UTC) == 4
    assert dump(db) == before
    (runs,) = db.execute("SELECT \"table\" FROM pragma_foreign_key_list('rank_pace')").fetchone()
    db.execute(f"DELETE FROM {runs}")
    assert db.execute("SELECT COUNT(*) FROM rank_pace").fetchone() == (0,)


def test_a_lone_gpu_has_no_pace_but_counts_in_its_history(db):
    fill(db, clocks=(1400,), jobs=1)
    assert named(job_report(db.conn, ADMIN, "campus", 7), "pace").rows == []
    assert db.execute("SELECT device_uuid, clock_mhz, power_mw FROM rank_pace").fetchall() == [
        ("GPU-0", 1400, 300_000)
    ]


def test_a_part_of_a_board_is_no_whole_one(db):
    node = Node()
    put_run(db, 7, 3600)
    half = DeviceHold(device="GPU-0", instance="", numerator=1, denominator=2)
    start = node.start(7, 3_600_000, half)
    part = share(7, 3_600_000, 0, 1000, 900)
    ingest(db, [node.up("GPU-0"), start,
                node.window("GPU-0", 3_600_000, 3_900_000, part, clock=1400),
                node.end(7, 3_600_000, 3_900_000)])  # fmt: skip
    settle(db, "campus", UTC)
    row = db.execute("SELECT kind, whole, power_mw, clock_mhz FROM rank_pace").fetchone()
    assert row == ("1/2 of a100-40", 0, None, None)


def test_windows_of_agents_that_tell_no_clock_are_read_and_replayed(db):
    fill(db, clocks=(None, None, None), jobs=1)
    assert (
        named(job_report(db.conn, ADMIN, "campus", 7), "pace").records()[0]["state"] == "healthy"
    )
    old = (
        b'{"type":"window_closed","node":"n","boot_id":"b","seq":1,"device":"G","t0_ms":0,'
        b'"t1_ms":10,"measured_mj":0,"unallocated_idle_mj":0,"unallocated_active_mj":0,'
        b'"shares":[],"flags":0,"method":"counter"}'
    )
    event = decode_event(old)
    assert event.clock_mhz is None
    assert json.loads(encode_event(event)) == json.loads(old)
    assert ingest(db, [event]) == (1, 0)
    assert ingest(db, [event]) == (0, 1)


class TestSlowDevices:
    def test_four_runs_with_the_same_straggler(self, db):
        period = fill(db)
        tables = slow_devices_report(db.conn, ADMIN, period)
        (row,) = named(tables, "devices").records()
        assert (row["node"], row["device_uuid"], row["kind"], row["verdict"]) == (
            "gpu01", "GPU-3", "a100-40", "repeat offender",
        )  # fmt: skip
        assert (row["metric"], row["lag"]) == ("clock", 0.25)
        assert (row["slow_runs"], row["judged_runs"]) == (4, 4)
        assert (row["below_runs"], row["like_runs"]) == (4, 4)
        assert row["slow_ts"] == DAY_TS + 3 * 3600 + 1800
        assert named(tables, "nodes").rows == [("gpu01", 1, 1, 4)]
        assert [r["job_id"] for r in named(tables, "stragglers").records()] == [10, 9, 8, 7]
        heads = {r["topic"]: r["value"] for r in named(tables, "headlines").records()}
        assert heads == {
            "Repeat offenders": "1", "Runs with a straggler": "4", "Varying load": "0",
            "Not comparable": "0",
        }  # fmt: skip

    def test_what_a_health_check_can_take(self, db):
        period = fill(db)
        assert alerts(db.conn, ADMIN, period) == [
            {
                "code": "FWH390", "severity": "warn", "action": "alert", "node": "gpu01",
                "device": "GPU-3", "value": "25.0%", "since_ms": 1000 * (DAY_TS + 3 * 3600 + 1800),
                "text": "clock 25.0 % low; straggler of 4 of 4 runs; "
                "below like GPUs in 4 of 4 runs as busy",
            }
        ]  # fmt: skip
        assert alerts(db.conn, ADMIN, period)[0]["text"].isascii()

    def test_two_runs_are_no_habit(self, db):
        period = fill(db, jobs=2)
        (row,) = named(slow_devices_report(db.conn, ADMIN, period), "devices").records()
        assert (row["verdict"], row["slow_runs"]) == ("slow in a run", 2)
        assert alerts(db.conn, ADMIN, period) == []

    def test_only_what_one_may_see_counts(self, db):
        period = fill(db)
        tables = slow_devices_report(db.conn, scope_of(db.conn, "bob"), period)
        assert {r["user"] for r in named(tables, "stragglers").records()} == {"bob"}
        (row,) = named(tables, "devices").records()
        assert (row["slow_runs"], row["judged_runs"]) == (2, 2)
        nobody = slow_devices_report(db.conn, scope_of(db.conn, "eve"), period)
        assert all(not named(nobody, name).rows for name in ("devices", "nodes", "stragglers"))

    def test_another_period_has_none(self, db):
        fill(db)
        period = parse_period("7d", date(1990, 1, 1), "UTC")
        tables = slow_devices_report(db.conn, ADMIN, period)
        assert named(tables, "devices").rows == []
        assert named(tables, "headlines").records()[0]["sentence"] == (
            "None of 0 GPUs is slow again and again."
        )


def test_sentences():
    rows = [("n1", "GPU-a", "", "clock", 0.3, 5), ("n2", "GPU-b", "", "clock", 0.2, 4)]
    assert pace_sentence("straggler", 8, 60, rows).startswith(
        "2 GPUs on n1, n2 were slower than the others, GPU-a the most: its clock was 30.0 % below"
    )
    less = pace_sentence("straggler", 8, 300, [("n1", "GPU-a", "MIG-1", "utilisation", 0.4, 3)])
    assert less.startswith("MIG-1 on n1 was slower")
    assert less.endswith("Its share of the work, its input or its CPUs may be the reason.")
    assert pace_sentence("healthy", 8, 300, []) == "The 8 GPUs kept pace with each other."
    assert "changed on all GPUs together" in pace_sentence("varying load", 8, 300, [])
    assert "3 windows of 5 min" in pace_sentence("unknown", 2, 300, [])
