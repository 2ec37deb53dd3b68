# SPDX-License-Identifier: Apache-2.0
"""What slurmctld tells of a node, as three releases print it."""

from __future__ import annotations

import pytest

from fairwatt.core.errors import SlurmError
from fairwatt.prolog.mig.slurm_node import parse_node

LINE = (
    "NodeName=dyn01 Arch=x86_64 CoresPerSocket=1  CPUAlloc={used} CPUEfctv=8 CPUTot=8 CPULoad=2.9"
    " AvailableFeatures=sliced ActiveFeatures=sliced Gres={gres} NodeAddr=127.0.0.1"
    " NodeHostName=vm Version=24.11.5 OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=16000"
    " AllocMem=0 FreeMem=20350 Sockets=8 Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0"
    " Weight=1 Owner=N/A MCS_label=N/A Partitions=dyn  BootTime=1796039037"
    " SlurmdStartTime={start} LastBusyTime=1796053319 CfgTRES=cpu=8,mem=16000M,gres/gpu=7"
    " AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0{reason}"
)


def line(
    state: str = "IDLE",
    reason: str = "",
    gres: str = "gpu:a100_1g.5gb:7(S:0-1)",
    used: int = 0,
    start: str = "1796053314",
) -> str:
    return LINE.format(state=state, reason=reason, gres=gres, used=used, start=start)


def test_a_node_in_order() -> None:
    node = parse_node(line("IDLE+DYNAMIC_NORM"))
    assert (node.name, node.version, node.slurmd_start_ts) == ("dyn01", "24.11.5", 1796053314)
    assert node.gpus == {"a100_1g.5gb": 7}
    assert node.is_dynamic
    assert node.is_well
    assert not node.is_busy
    assert not node.is_drained
    assert node.foreign_reason is None


@pytest.mark.parametrize(
    ("reason", "foreign"),
    [
        (" Reason=fairwatt FWM201 re-slice to large [root@1796053316]", None),
        (" Reason=fan broken, see [ticket 17] [root@1796053316]", "fan broken, see [ticket 17]"),
        (" Reason=fairwatt FWH101 GPU-1: lost [root@2026-11-30T15:41:59]",
         "fairwatt FWH101 GPU-1: lost"),
        (" Reason=State=IDLE Gres=gpu:9 [ada@1]", "State=IDLE Gres=gpu:9"),
        ("", ""),
    ],
)  # fmt: skip
def test_whose_drain_it_is(reason: str, foreign: str | None) -> None:
    node = parse_node(line("IDLE+DRAIN", reason))
    assert node.is_drained
    assert node.foreign_reason == foreign
    assert parse_node(line("IDLE", reason)).foreign_reason is None, "an old reason drains nothing"


@pytest.mark.parametrize(
    ("state", "well"),
    [
        ("IDLE+DRAIN", True),
        ("MIXED", True),
        ("IDLE*+DRAIN", False),
        ("IDLE+NOT_RESPONDING", False),
        ("IDLE+DRAIN+INVALID_REG", False),
        ("UNKNOWN+DRAIN", False),
        ("DOWN", False),
    ],
)
def test_whether_slurmctld_agrees_with_it(state: str, well: bool) -> None:
    assert parse_node(line(state)).is_well is well


def test_busy_until_the_last_job_has_completed() -> None:
    assert parse_node(line("IDLE+COMPLETING+DRAIN")).is_busy
    assert parse_node(line("IDLE+DRAIN", used=2)).is_busy
    assert parse_node(line("MIXED+DRAIN")).is_busy


def test_odd_values() -> None:
    node = parse_node(line(gres="(null)", start="None"))
    assert node.gpus == {}
    assert node.slurmd_start_ts is None
    with pytest.raises(SlurmError, match="no known shape"):
        parse_node("NodeName=n1 State=IDLE")
