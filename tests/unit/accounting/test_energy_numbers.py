# SPDX-License-Identifier: Apache-2.0
"""Cases of the energy reference from the device to the report, with their numbers to the joule."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest

from fairwatt.accounting.agent import nvml
from fairwatt.accounting.agent.daemon import observe
from fairwatt.accounting.agent.nvml import NvmlSource
from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.reports.carbon_basis import CarbonAsk
from fairwatt.accounting.reports.dept import dept_report
from fairwatt.accounting.reports.job import job_report
from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import Role, Scope
from fairwatt.accounting.rollup import rollup
from fairwatt.accounting.runs import upsert_runs
from fairwatt.accounting.sacct import parse_sacct
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import transaction
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.events import Flag
from fairwatt.core.records import Run
from fairwatt.core.units import MJ_PER_KWH
from tests.fakes.loaded import build_library, loaded_nvml, missing_tools
from tests.fakes.nvml_control import FakeNvml
from tests.unit.accounting.samples import (
    FIELDS,
    UTC,
    Node,
    line,
    new_store,
    sacct_run,
    share,
    whole,
)
from tests.unit.agent.keeper_bench import HOUR_MS, IDLE_MW, NOON_MS, Bench, board

EVERYTHING = Scope("root", Role.ADMIN)
HOUR_S = HOUR_MS // 1000


@pytest.fixture
def db(tmp_path):
    store = new_store(tmp_path)
    yield store
    store.close()


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path, board("GPU-1"))
    made.start()
    yield made
    made.crash()


def booked(db, *runs: Run, now_ts: int = NOON_MS // 1000 + 86_400) -> None:
    """Take over Slurm's word, join it to the nodes' and roll up."""
    with transaction(db) as connection:
        upsert_runs(connection, runs, load_catalogue(), UTC, now_ts)
    settle(db, "campus", UTC)
    rollup(db, "campus", UTC, "DEU", now_ts)


def slurms(job_id: int, start_ms: int, end_ms: int, **changes: str) -> Run:
    """Slurm's row of a job."""
    start_ts, end_ts = start_ms // 1000, end_ms // 1000
    return sacct_run(
        JobIDRaw=str(job_id), JobID=str(job_id), Submit=str(start_ts), Eligible=str(start_ts),
        Start=str(start_ts), End=str(end_ts), ElapsedRaw=str(end_ts - start_ts), **changes,
    )  # fmt: skip


def reported(db, job_id: int, name: str = "energy") -> list[dict]:
    """A table of a job's report."""
    tables = job_report(db.conn, EVERYTHING, "campus", job_id, carbon=CarbonAsk(zone="DEU"))
    return next(table for table in tables if table.name == name).records()


def told(bench: Bench) -> list:
    """Everything that the bench's agent would send."""
    return bench.events(msgspec.Struct)


@pytest.mark.parametrize("phase_ms", [0, 1, 50, 99])
def test_e6_three_seconds_on_a_counter_of_100_ms_steps(tmp_path, monkeypatch, phase_ms) -> None:
    """E6: 300 W for 3 s, no sample of the 10 s within: 900 J, give or take a step of 30 J."""
    if reason := missing_tools():
        pytest.skip(reason)
    build_library()
    fake = FakeNvml(tmp_path / "nvml.control")
    uuid, start_ms = "GPU-1", NOON_MS + phase_ms
    fake.set_clock(NOON_MS - 5_000)
    fake.add_gpu(0, uuid, 0, "NVIDIA A100-SXM4-40GB", 40_960, "ga100", idle_mw=IDLE_MW)
    fake.set_power(uuid, 300_000, at_ms=start_ms)
    fake.set_power(uuid, IDLE_MW, at_ms=start_ms + 3_000)
    bench = Bench(tmp_path, board(uuid))
    with loaded_nvml(fake.path):
        source = NvmlSource("n1", load_catalogue())

        def visit():
            fake.set_clock(bench.now_ms)
            return observe(source, [uuid], True, False)

        monkeypatch.setattr(nvml, "now_ms", lambda: bench.now_ms)
        monkeypatch.setattr(bench, "look", visit)
        bench.now_ms = NOON_MS - 1_000
        bench.start()
        for verb, bench.now_ms in (("prolog", start_ms), ("epilog", start_ms + 3_000)):
            bench.hook(verb, 1)
    (window,) = [w for w in bench.windows() if w.shares]
    bench.crash()
    assert window.t1_ms - window.t0_ms == 3_000
    assert abs(bench.job_mj(1) - 900_000) <= 30_000


def test_e7_steps_do_not_count_again(db) -> None:
    """E7: Slurm gives the job's 4.58 MJ to the job and to each of its steps."""
    energy = {"ConsumedEnergyRaw": "4580000"}
    rows = [
        line(JobIDRaw=f"7{step}", JobID=f"7{step}", **energy)
        for step in ("", ".batch", ".extern", ".0")
    ]
    runs, _ = parse_sacct("\n".join(rows) + "\n", FIELDS, "\x1f")
    booked(db, *runs, now_ts=2_000)
    assert db.execute("SELECT job_id, slurm_energy_j FROM run").fetchall() == [(7, 4_580_000)]


def test_e8_three_slices_from_the_counter_to_the_report(tmp_path, db) -> None:
    """E8: 300 W for 1 h, 60 W of it idle; 1g, 2g and 4g busy 100, 0 and 50 % by GPM."""
    bench = Bench(tmp_path, board("GPU-1", 1, 2, 4))
    bench.start()
    for job_id in (1, 2, 3):
        bench.hook("prolog", job_id, f"MIG-{job_id - 1}")
    for _ in range(360):
        bench.pass_time(10_000, 300_000)
        bench.keeper.sample(bench.look({"MIG-0": 1000, "MIG-1": 0, "MIG-2": 500}))
    for job_id in (1, 2, 3):
        bench.hook("epilog", job_id, f"MIG-{job_id - 1}")
    ingest(db, told(bench))
    bench.crash()
    booked(db, *(slurms(job_id, NOON_MS, NOON_MS + HOUR_MS) for job_id in (1, 2, 3)))
    joules = [round(reported(db, job_id)[0]["energy_mj"] / 1000) for job_id in (1, 2, 3)]
    assert joules == [318_857, 61_714, 699_429]
    assert sum(joules) == 1_080_000


def test_e12_while_it_is_suspended_a_job_holds_its_gpus(bench, db) -> None:
    """E12: 2 h of wall time, half an hour of it suspended: what its GPU idles is the job's."""
    bench.hook("prolog", 1)
    bench.pass_time(HOUR_MS, 250_000)
    bench.pass_time(HOUR_MS // 2, IDLE_MW)
    bench.pass_time(HOUR_MS // 2, 250_000)
    bench.hook("epilog", 1)
    ingest(db, told(bench))
    row = slurms(1, NOON_MS, NOON_MS + 2 * HOUR_MS, Suspended="00:30:00")
    booked(db, row._replace(elapsed_s=5_400))
    (energy,) = reported(db, 1)
    assert energy["idle_mj"] == 7_200 * IDLE_MW
    assert energy["energy_mj"] == 5_400 * 250_000 + 1_800 * IDLE_MW


def test_e22_a_run_on_a_module_used_60_kj(db) -> None:
    """E22: its CPU's 15 kJ are in the module's 60: the CPU's part is "included", not added."""
    node, end_ms = Node(), NOON_MS + 60_000
    cpu = node.window("gpu01/cpu0", NOON_MS, end_ms, idle=None, active=None, measured=None,
                      flags=int(Flag.INCLUDED), method="included")  # fmt: skip
    ingest(db, [
        node.up("GPU-1", t_ms=NOON_MS), node.start(1, NOON_MS, whole("GPU-1")),
        node.window("GPU-1", NOON_MS, end_ms, share(1, NOON_MS, 6_000_000, 54_000_000)),
        msgspec.structs.replace(cpu, kind="cpu"), node.end(1, NOON_MS, end_ms),
    ])  # fmt: skip
    booked(db, slurms(1, NOON_MS, end_ms))
    assert [row["energy_mj"] for row in reported(db, 1)] == [60_000_000]
    known = db.execute("SELECT sum(idle_mj + active_mj) FROM run_energy").fetchone()
    assert known == (60_000_000,)


def test_e26_where_slurm_measures_nothing_the_agent_does(bench, db) -> None:
    """E26: Slurm's 0 J of an NVIDIA GPU is no measurement; the report has the agent's 900 J."""
    bench.hook("prolog", 1)
    bench.pass_time(3_000, 300_000)
    bench.hook("epilog", 1)
    ingest(db, told(bench))
    booked(db, slurms(1, NOON_MS, NOON_MS + 3_000, ConsumedEnergyRaw="0"))
    assert db.execute("SELECT slurm_energy_j FROM run").fetchall() == [(None,)]
    assert [row["energy_mj"] for row in reported(db, 1)] == [900_000]


def test_e26_where_nobody_measured_it_is_unknown(db) -> None:
    """E26: no agent either: the report says unknown, not 0."""
    booked(db, slurms(1, NOON_MS, NOON_MS + 3_000, ConsumedEnergyRaw="0"))
    values = [row["value"] for row in reported(db, 1, "headlines")]
    assert "unknown" in values
    assert not any(value.startswith("0") for value in values if value.endswith(("J", "Wh")))


def test_e27_gpus_that_no_gres_field_tells_are_the_accounts(db) -> None:
    """E27: --gpus-per-node=1: squeue's %b says N/A, the allocated TRES say 1, of no type."""
    booked(
        db,
        slurms(1, NOON_MS, NOON_MS + HOUR_MS, ReqTRES="billing=1,cpu=1,mem=1G,node=1",
               AllocTRES="billing=1,cpu=1,gres/gpu=1,mem=1G,node=1"),
    )  # fmt: skip
    rows = db.execute("SELECT account, sum(device_s) FROM usage_daily GROUP BY 1").fetchall()
    assert rows == [("qcd", HOUR_S)]


def test_e36_a_thousand_idle_gpus_are_1440_kwh_of_nobody(db) -> None:
    """E36: 1,000 GPUs at 60 W for a day that no job held."""
    node, day_ms = Node(), NOON_MS // 86_400_000 * 86_400_000
    uuids = [f"GPU-{number}" for number in range(1_000)]
    ingest(db, [node.up(*uuids, t_ms=day_ms)])
    ingest(db, [
        node.window(uuid, day_ms, day_ms + 24 * HOUR_MS, idle=60_000 * 86_400, active=0)
        for uuid in uuids
    ])  # fmt: skip
    booked(db, now_ts=day_ms // 1000 + 2 * 86_400)
    db.execute("INSERT INTO account VALUES ('campus', 'root', NULL, 1, '', 0)")
    day = datetime.fromtimestamp(day_ms / 1000, UTC).date()
    period = Period(day, day + timedelta(days=1), "UTC")
    tables = dept_report(db.conn, EVERYTHING, "campus", "root", period)
    nobody = next(table for table in tables if table.name == "energy").records()[1]
    assert nobody["owner"].startswith("nobody")
    assert nobody["idle_mj"] + nobody["active_mj"] == 1_440 * MJ_PER_KWH
