# SPDX-License-Identifier: Apache-2.0
"""Shards and MPS: which part of a board, from gres.conf, the prolog and scontrol's answer."""

from __future__ import annotations

import pytest

from fairwatt.accounting.agent.device_map import Place
from fairwatt.accounting.agent.sharing import (
    Part,
    corrected,
    counts_of_node,
    mps_part,
    parts_of_job,
)
from fairwatt.core.conf_lines import ConfLine
from fairwatt.core.events import DeviceHold
from fairwatt.core.gres_conf import GresConf, GresDevice

FOUR = GresConf(tuple(GresDevice("a100", (f"/dev/nvidia{n}",)) for n in range(4)))

COUNTS = {"shard": [4] * 4, "mps": [100] * 4}

# As printed by `scontrol show job -d` of the releases named, shortened.
ANSWER = """JobId=7 JobName=train
   UserId=ada(47101) GroupId=ada(47101) MCS_label=N/A
   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   JOB_GRES={total}
{lines}   MinCPUsNode=1 MinMemoryCPU=1000M MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   Command=(null)
   WorkDir={workdir}
"""


def answer(*lines: tuple[str, str], workdir: str = "/home/ada") -> str:
    text = "".join(f"     Nodes={nodes} CPU_IDs=0 Mem=1000 GRES={gres}\n" for nodes, gres in lines)
    return ANSWER.format(total=lines[0][1].split("(")[0], lines=text, workdir=workdir)


def lines(*texts: str) -> list[ConfLine]:
    words = [dict(word.split("=", 1) for word in text.split()) for text in texts]
    return [
        ConfLine("gres.conf", {key.lower(): value for key, value in pairs.items()})
        for pairs in words
    ]


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        (["Name=shard Count=16"], [4, 4, 4, 4]),
        (["Name=shard Count=10"], [2, 2, 3, 3]),  # Slurm: 10/4, 8/3, 6/2, 3/1
        ([f"Name=shard Count={n + 1} File=/dev/nvidia{n}" for n in range(3)], [1, 2, 3, 0]),
        (["Name=shard Count=8 File=/dev/nvidia[2-3]"], [0, 0, 4, 4]),
        (["NodeName=n[1-2] Name=shard Count=4"], [1, 1, 1, 1]),
        (["NodeName=n3 Name=shard Count=4"], [0, 0, 0, 0]),
        (["Name=gpu File=/dev/nvidia0"], [0, 0, 0, 0]),
    ],
)
def test_shards_by_position(conf, expected) -> None:
    assert counts_of_node(lines(*conf), "n1", FOUR, 4)["shard"] == expected


def test_autodetected_boards_have_shards_too() -> None:
    assert counts_of_node(lines("Name=shard Count=6"), "n1", None, 2) == {
        "shard": [3, 3],
        "mps": [0, 0],
    }


@pytest.mark.parametrize(
    ("text", "part"),
    [("50", Part(50, 100)), ("100", Part(100, 100))]
    + [(bad, None) for bad in ("", "0", "101", "-5", "5.5", "²", "9" * 50)],
)
def test_mps_by_percentage(text: str, part) -> None:
    assert mps_part({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": text}) == part


@pytest.mark.parametrize(
    ("gres", "parts"),
    [
        ("shard:3(3/4,0/4,0/4,0/4)", {0: Part(3, 4)}),  # 24.11, 26.05
        ("shard:2(0/4,1/4,1/2,0/4)", {1: Part(1, 4), 2: Part(1, 2)}),
        ("shard:3(IDX:1)", {1: Part(3, 4)}),  # 22.05
        ("shard:a100:3(IDX:1)", {1: Part(3, 4)}),
        ("shard:6(IDX:0-1)", {0: Part(6, 8), 1: Part(6, 8)}),
        ("mps:50(0/100,50/100,0/100,0/100)", {1: Part(50, 100)}),
        ("mps:25(IDX:2)", {2: Part(25, 100)}),
        ("gpu:a100:2(IDX:1-2)", {1: Part(1, 1), 2: Part(1, 1)}),
        ("gpu:a100:1(IDX:0),shard:1(IDX:3)", {0: Part(1, 1), 3: Part(1, 4)}),
        ("shard:1(IDX:9)", None),  # beyond the node's GPUs
        ("gpu:a100:1(IDX:0),shard:1(IDX:0)", None),  # one board twice
        ("license:5", None),
        ("", None),
    ],
)
def test_parts_as_scontrol_tells_them(gres: str, parts) -> None:
    assert parts_of_job(answer(("n1", gres)), "n1", COUNTS) == parts


def test_the_node_s_own_line_of_several() -> None:
    text = answer(("n1", "shard:1(0/4,1/4)"), ("n[2-9]", "shard:1(1/4,0/4)"))
    assert parts_of_job(text, "n1", COUNTS) == {1: Part(1, 4)}
    assert parts_of_job(text, "n3", COUNTS) == {0: Part(1, 4)}
    assert parts_of_job(text, "n10", COUNTS) is None


@pytest.mark.parametrize(
    "workdir",
    [
        "/x\n     Nodes=n1 CPU_IDs=0 Mem=1 GRES=shard:1(1/9)",
        "/x\n   JOB_GRES=shard:1\n",
    ],
)
def test_a_line_forged_in_a_user_s_text_makes_the_answer_worthless(workdir: str) -> None:
    text = answer(("n1", "shard:3(3/4)"), workdir=workdir)
    assert parts_of_job(text, "n1", COUNTS) is None


def hold(device: str, instance: str = "") -> DeviceHold:
    return DeviceHold(device=device, instance=instance, numerator=1, denominator=7)


def test_only_boards_are_corrected_and_all_of_them_or_none() -> None:
    places = [Place(0, "gpu", "GPU-0"), Place(1, "gpu", "GPU-1"), Place(2, "mig", "MIG-2")]
    held = [hold("GPU-1"), hold("GPU-0", "MIG-2")]
    (one, other) = corrected(held, places, {1: Part(2, 4)}) or ()
    assert (one.numerator, one.denominator, other) == (2, 4, held[1])
    assert corrected([hold("GPU-0")], places, {1: Part(2, 4)}) is None
    assert corrected([hold("GPU-9")], places, {1: Part(2, 4)}) is None
