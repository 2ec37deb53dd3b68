# SPDX-License-Identifier: Apache-2.0
"""Small builders for the accounting tests: events, sacct rows, dumps of a store."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from fairwatt.accounting.carbon.factors import load_factors
from fairwatt.accounting.sacct import parse_sacct
from fairwatt.accounting.store import open_store, transaction
from fairwatt.core.events import (
    AgentStarted,
    DecisionMade,
    DeviceHold,
    RuleNote,
    RunEnded,
    RunStarted,
    Share,
    WindowClosed,
)
from fairwatt.core.records import Device, Run
from tests.unit.carbon.stored import store_factors, store_pue

UTC = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")
BOOT = "boot-1"

DEFAULTS = {
    "JobIDRaw": "7", "JobID": "7", "Cluster": "campus", "UID": "1000", "User": "ada",
    "Account": "qcd", "Partition": "gpu", "QOS": "normal", "Submit": "1000", "Eligible": "1000",
    "Start": "1060", "End": "1160", "ElapsedRaw": "100", "Suspended": "00:00:00",
    "State": "COMPLETED", "ExitCode": "0:0", "NNodes": "1", "NCPUS": "4", "ReqTRES": "cpu=4",
    "AllocTRES": "cpu=4,mem=4G,gres/gpu=1,gres/gpu:a100=1", "TimelimitRaw": "10",
    "TotalCPU": "00:00.000", "ConsumedEnergyRaw": "0", "NodeList": "gpu01", "DBIndex": "",
    "AdminComment": "", "JobName": "train",
}  # fmt: skip


FIELDS = list(DEFAULTS)


def line(**changes: str) -> str:
    """One sacct row with the unit separator."""
    row = {**DEFAULTS, **changes}
    return "\x1f".join(row[name] for name in row)


def sacct_run(**changes: str) -> Run:
    """The run of one row."""
    runs, rejected = parse_sacct(line(**changes) + "\n", FIELDS, "\x1f")
    assert not rejected, rejected
    return runs[0]


def new_store(tmp_path, zone: str = "DEU", pue: float = 1.2):
    """A store with carbon factors."""
    db = open_store(tmp_path / "store.db")
    with transaction(db) as connection:
        store_factors(connection, load_factors())
        store_pue(connection, pue, 0)
    assert zone
    return db


class Node:
    """Numbers the events of one node."""

    def __init__(self, name: str = "gpu01") -> None:
        self.name = name
        self.seq = 0

    def _head(self) -> dict[str, Any]:
        self.seq += 1
        return {"node": self.name, "boot_id": BOOT, "seq": self.seq}

    def up(self, *uuids: str, model: str | None = "a100-40", t_ms: int = 0) -> AgentStarted:
        devices = tuple(
            Device(
                node=self.name,
                uuid=uuid,
                name="NVIDIA A100",
                model=model,
                minor=minor,
                nvml_index=minor,
                memory_mib=40960,
                mig_enabled=False,
                compute_slices=7,
            )
            for minor, uuid in enumerate(uuids)
        )
        return AgentStarted(**self._head(), t_ms=t_ms, devices=devices, version="1")

    def start(self, job: int, t_ms: int, *holds: DeviceHold, **facts: Any) -> RunStarted:
        values = {"restart_cnt": None, "sluid": None, "uid": 1000, "account": "qcd", **facts}
        return RunStarted(
            **self._head(), t_ms=t_ms, job_id=job, holds=holds, mapped_by="minor", **values
        )

    def end(self, job: int, start_ms: int, t_ms: int) -> RunEnded:
        return RunEnded(
            **self._head(), t_ms=t_ms, job_id=job, run_start_ms=start_ms, closed_by="epilog"
        )

    def window(
        self, device: str, t0_ms: int, t1_ms: int, *shares: Share, idle: int | None = 0,
        active: int | None = 0, measured: int | None = -1, flags: int = 0,
        method: str = "counter", clock: int | None = None,
    ) -> WindowClosed:  # fmt: skip
        total = sum(share.idle_mj + share.active_mj for share in shares)
        if measured == -1:
            measured = total + (idle or 0) + (active or 0)
        return WindowClosed(
            **self._head(), device=device, t0_ms=t0_ms, t1_ms=t1_ms, measured_mj=measured,
            unallocated_idle_mj=idle, unallocated_active_mj=active, shares=shares, flags=flags,
            method=method, clock_mhz=clock,
        )  # fmt: skip


def decision(seq: int, **changes: Any) -> DecisionMade:
    """A submission of uid 1000 that was given a slice for its memory."""
    values = {
        "node": "ctl", "boot_id": "policyd-1", "t_ms": 1_000_000, "cluster": "campus",
        "id": f"id-{seq}", "verb": "submit", "uid": 1000, "job_id": None, "account": "qcd",
        "partition": "gpu", "asked": "gpu:20gb:1", "given": "gpu:m_3g.20gb:1", "accepted": True,
        "edits": {"tres_per_node": "gres/gpu:m_3g.20gb:1"},
        "notes": (RuleNote("memory_fit", "enforce", "FW101", "because"),),
        "rules": {"memory_fit": "enforce"}, "job": {"tres_per_node": "gres/gpu:20gb:1"},
        "took_us": 40,
    }  # fmt: skip
    return DecisionMade(seq=seq, **{**values, **changes})


def share(
    job: int, start_ms: int, idle: int, active: int, util: int | None = None, mig=""
) -> Share:
    return Share(
        job_id=job, run_start_ms=start_ms, instance=mig, idle_mj=idle, active_mj=active,
        util_permille=util,
    )  # fmt: skip


def whole(device: str) -> DeviceHold:
    return DeviceHold(device=device, instance="", numerator=1, denominator=1)


def dump(db, *, without: tuple[str, ...] = ("meta",)) -> list[str]:
    """All rows of all tables as SQL, but for those that tell when something was done."""
    return [
        text
        for text in db.conn.iterdump()
        if not any(f'INTO "{name}"' in text for name in without)
    ]
