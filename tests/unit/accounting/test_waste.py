# SPDX-License-Identifier: Apache-2.0
"""The class of a run, by hand for each rule; and that missing evidence never claims more."""

from __future__ import annotations

import csv
import random
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.accounting.advice import Names, advise, gpu_flag
from fairwatt.accounting.waste import (
    Evidence,
    GpuUse,
    Limits,
    Offer,
    Rule,
    Verdict,
    Waste,
    judge,
    slowdown_permille,
    smaller,
)

HOUR_S = 3600
GIB = 1024
OFFERS = (Offer("h100_1g.10gb", 10 * GIB, 125), Offer("h100_3g.40gb", 40 * GIB, 428))
H100 = Evidence(
    state="COMPLETED", elapsed_s=HOUR_S, timelimit_s=2 * HOUR_S, nnodes=1, ncpus=8,
    cpu_time_s=8 * HOUR_S // 2, mem_mib=64 * GIB, mem_peak_mib=32 * GIB, gpu_count=1,
    gpu_mem_mib=80 * GIB, gpus=(GpuUse(900, 60 * GIB, 700),), util_known_permille=1000,
    offers=OFFERS,
)  # fmt: skip
CPU_ONLY = replace(H100, gpu_count=0, gpu_mem_mib=None, gpus=(), util_known_permille=None)
NAMES = Names("H100", "h100")


def gpus(*utils: int, mem: int = 60 * GIB, power: int = 700, **changes) -> Evidence:
    return replace(
        H100, gpu_count=len(utils), gpus=tuple(GpuUse(u, mem, power) for u in utils), **changes
    )


CASES = {
    "memory ran out": (
        replace(H100, state="OUT_OF_MEMORY"), Rule.OUT_OF_MEMORY, 1000,
        "Slurm ended it when its 64 GiB of memory were full.",
        "Ask for more memory: `--mem=96G`.",
    ),
    "memory ran out on two nodes": (
        replace(H100, state="OUT_OF_MEMORY", nnodes=2), Rule.OUT_OF_MEMORY, 1000,
        "Slurm ended it when its 64 GiB of memory were full.",
        "Ask for more memory: `--mem=48G`.",
    ),
    "GPU memory ran out": (
        gpus(900, mem=79 * GIB, state="FAILED"), Rule.GPU_MEMORY_FULL, 1000,
        "It failed with 79 of 80 GB of GPU memory in use.",
        "Use a smaller batch, or spread the model over more GPUs.",
    ),
    "the GPU did nothing": (
        gpus(4, mem=300), Rule.GPUS_IDLE, 996,
        "Its GPU was busy 0.4 % of the time.",
        "Check that the program is made for GPUs and finds them; else leave out `--gres`.",
    ),
    "a server without requests": (
        gpus(20, mem=30 * GIB), Rule.GPUS_IDLE, 980,
        "Its GPU was busy 2 % of the time.",
        "It held 30 GB of GPU memory and hardly computed: ask for the GPU only while the program "
        "computes.",
    ),
    "two of four": (
        replace(H100, gpu_count=4, gpus=(GpuUse(900, 9000), GpuUse(800, 9000), GpuUse(0, 400),
                                         GpuUse(9, 500))), Rule.GPUS_UNUSED, 500,
        "2 of its 4 GPUs were never used.",
        "Ask for as many as the program uses: `--gres=gpu:h100:2`.",
    ),
    # 120 of 1000 busy on an eighth of the GPU: 880 + 120 * 8 = 1840
    "a slice would do": (
        gpus(120, mem=7 * GIB), Rule.SMALLER_GPU, 875,
        "It used 7 of 80 GB and 12 % of an H100.",
        "`--gres=gpu:h100_1g.10gb:1` would have done, at worst in 1.8 times the time.",
    ),
    # 9 GiB and a fifth more is too much for 10 GiB: 700 + 300 / 0.428 = 1400
    "a larger slice would do": (
        gpus(300, mem=9 * GIB), Rule.SMALLER_GPU, 572,
        "It used 9 of 80 GB and 30 % of an H100.",
        "`--gres=gpu:h100_3g.40gb:1` would have done, at worst in 1.4 times the time.",
    ),
    "a slow GPU": (
        gpus(900, 900, 900, slow_permille=220), Rule.SLOW_GPU, 220,
        "One of its GPUs was 22 % slower than the others, which waited for it.",
        "The program is not at fault: tell the admins.",
    ),
    "optimizer state on the host": (
        gpus(310, mem=72 * GIB, mem_mib=256 * GIB, mem_peak_mib=120 * GIB), Rule.STATE_ON_HOST,
        690,
        "The GPU memory was nearly full, 120 GiB lay in the node's memory, and the GPUs were busy "
        "31 % of the time.",
        "Spread the model over more GPUs, so that its state stays on them: `--gres=gpu:h100:2`.",
    ),
    "a starved loader": (
        gpus(220, cpu_time_s=8 * HOUR_S * 97 // 100), Rule.CPUS_FULL, 780,
        "Its 8 CPU cores were busy 97 % of the time and its GPUs 22 %: the GPUs waited for data.",
        "Give the GPUs more cores to be fed by: `--cpus-per-gpu=16`.",
    ),
    "waiting for each other": (
        gpus(950, 950, 950, 950, power=210, nnodes=2), Rule.GPUS_WAIT, 50,
        "Its 4 GPUs on 2 nodes were busy 95 % of the time, but drew at most 21 % of what work "
        "draws: they mostly waited for each other.",
        "Use fewer nodes, or nodes on one switch: `--switches=1`.",
    ),
    "memory nearly ran out": (
        replace(H100, mem_peak_mib=62 * GIB), Rule.HOST_FULL, 0,
        "It used 62 GiB of 64 GiB of memory.",
        "A little more and Slurm would have ended it: `--mem=80G`.",
    ),
    "everything else far too large": (
        replace(H100, ncpus=64, cpu_time_s=64 * 36, mem_mib=256 * GIB, mem_peak_mib=4 * GIB,
                timelimit_s=48 * HOUR_S), Rule.WORKED, 0,
        "Its GPU was busy 90 % of the time. It used 0.6 of 64 cores, 4.0 GiB of 256 GiB of memory "
        "and 60 min of 2 days.",
        "`--cpus-per-gpu=2 --mem=6G --time=02:00:00` would have done.",
    ),
    "everything far too large": (
        gpus(300, ncpus=64, cpu_time_s=64 * 36, mem_mib=256 * GIB, mem_peak_mib=4 * GIB,
             timelimit_s=48 * HOUR_S), Rule.HOST_LARGE, 0,
        "It used 0.6 of 64 cores, 4.0 GiB of 256 GiB of memory and 60 min of 2 days.",
        "`--cpus-per-gpu=2 --mem=6G --time=02:00:00` would have done.",
    ),
    "cores of a job without GPUs": (
        replace(CPU_ONLY, ncpus=64, cpu_time_s=64 * 36), Rule.HOST_LARGE, None,
        "It used 0.6 of 64 cores.", "`--ntasks=1 --cpus-per-task=2` would have done.",
    ),
    "busy": (gpus(850), Rule.WORKED, 0, "Its GPU was busy 85 % of the time.", None),
    "busy cores": (CPU_ONLY, Rule.WORKED, None, "Its cores were busy 50 % of the time.", None),
    "four minutes": (
        replace(gpus(0), elapsed_s=299), Rule.SHORT, None,
        "It ran for less than 5 min, too short to tell.", None,
    ),
    "no reading": (
        replace(H100, gpus=(GpuUse(),), util_known_permille=0), Rule.UNSEEN, None,
        "How busy its GPUs were is not known.", None,
    ),
    "half of the time known": (
        replace(gpus(900), util_known_permille=500), Rule.UNCLEAR, None,
        "How busy its GPUs were is known for a part of the time only.", None,
    ),
    "no cause seen": (
        gpus(300), Rule.UNCLEAR, None,
        "Its GPU was busy 30 % of the time; what held them back was not seen.", None,
    ),
    "not started": (
        Evidence(state="PENDING"), Rule.UNSEEN, None, "How busy its cores were is not known.",
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_run_by_hand(name) -> None:
    run, rule, wasted, seen, advice = CASES[name]
    verdict = judge(run)
    assert verdict == Verdict(rule, wasted)
    told = advise(run, verdict, NAMES)
    assert (told.evidence, told.advice) == (seen, advice)


def test_every_rule_has_a_case_and_every_class_a_rule() -> None:
    assert {case[1] for case in CASES.values()} == set(Rule)
    assert {rule.kind for rule in Rule} == set(Waste)


def test_e33_without_the_gpu_memory_nothing_is_told_of_it() -> None:
    """E33: an unread GPU memory is unknown, not 0: no smaller GPU is offered, no GPU "unused"."""
    run = gpus(120)
    unread = replace(run, gpus=(GpuUse(120, None, 700),))
    assert smaller(unread) is None
    assert judge(unread).kind is Waste.UNKNOWN
    assert advise(unread, judge(unread), NAMES).advice is None
    two = replace(H100, gpu_count=2, gpus=(GpuUse(900), GpuUse(0)))
    assert judge(two).rule is not Rule.GPUS_UNUSED


def test_much_memory_and_little_work_is_offered_no_slice() -> None:
    assert judge(gpus(120, mem=70 * GIB)).rule is not Rule.SMALLER_GPU


def test_the_policy_takes_sizes_where_it_reads_them() -> None:
    run = gpus(120, mem=7 * GIB)
    told = advise(run, judge(run), replace(NAMES, by_size=True))
    assert told.advice is not None
    assert told.advice.startswith("`--gres=gpu:10gb:1` would have done")


def test_a_site_sets_its_own_limits() -> None:
    assert judge(gpus(45, mem=60 * GIB), Limits(idle_permille=40)).kind is Waste.UNKNOWN
    assert judge(gpus(45, mem=60 * GIB)).kind is Waste.IDLE


@pytest.mark.parametrize(
    ("gres_type", "count", "nodes", "flag"),
    [
        ("a100", 4, 1, "`--gres=gpu:a100:4`"),
        ("a100", 4, 2, "`--gres=gpu:a100:2`"),
        ("a100", 3, 2, "`--gpus=a100:3`"),
        (None, 2, 1, "`--gres=gpu:2`"),
        ("untyped", 3, 2, "`--gpus=3`"),
    ],
)
def test_the_flag_counts_by_node(gres_type, count, nodes, flag) -> None:
    assert gpu_flag(gres_type, count, nodes) == flag


def test_the_slowdown_is_the_work_on_a_smaller_gpu() -> None:
    assert slowdown_permille(0, OFFERS[0]) == 1000
    assert slowdown_permille(1000, OFFERS[0]) == 8000


# -- what holds for all evidence ---------------------------------------------------------------

maybe = lambda most: st.none() | st.integers(0, most)  # noqa: E731
uses = st.builds(GpuUse, maybe(1000), maybe(82_000), maybe(1000))
evidence = st.builds(
    Evidence,
    state=st.sampled_from(["COMPLETED", "FAILED", "OUT_OF_MEMORY", "RUNNING", "TIMEOUT"]),
    elapsed_s=maybe(200_000), timelimit_s=maybe(200_000), nnodes=st.none() | st.integers(1, 3),
    ncpus=st.none() | st.integers(1, 64), cpu_time_s=maybe(6_400_000), mem_mib=maybe(300_000),
    mem_peak_mib=maybe(300_000), gpu_count=maybe(3),
    gpu_mem_mib=st.sampled_from([None, 40_960, 81_920]),
    gpus=st.lists(uses, max_size=3).map(tuple),
    util_known_permille=st.sampled_from([None, 500, 800, 1000]), slow_permille=maybe(400),
    offers=st.sampled_from([(), OFFERS]),
)  # fmt: skip
STRENGTH = list(Rule)


@given(evidence)
def test_every_evidence_has_one_class_and_words_for_it(run) -> None:
    verdict = judge(run)
    assert verdict.kind in Waste
    assert verdict.waste_permille is None or 0 <= verdict.waste_permille <= 1000
    told = advise(run, verdict, NAMES)
    assert told.evidence.endswith(".")
    assert "None" not in f"{told.evidence} {told.advice or ''}"
    if verdict.kind is Waste.UNKNOWN:
        assert told.advice is None
    if run.elapsed_s is None or run.elapsed_s < 300:
        assert verdict.kind is Waste.UNKNOWN


@given(evidence, st.data())
def test_less_evidence_never_makes_a_stronger_claim(run, data) -> None:
    """Whatever is taken away, no rule holds that did not hold before."""
    name = data.draw(st.sampled_from([f.name for f in fields(Evidence) if f.name != "state"]))
    empty = {"gpus": (), "offers": ()}
    less = replace(run, **{name: empty.get(name)})
    if name == "gpus" and run.gpus:
        place = data.draw(st.integers(0, len(run.gpus) - 1))
        part = data.draw(st.sampled_from([f.name for f in fields(GpuUse)]))
        poorer = replace(run.gpus[place], **{part: None})
        less = replace(run, gpus=(*run.gpus[:place], poorer, *run.gpus[place + 1 :]))
    before, after = judge(run).rule, judge(less).rule
    if after.kind is not Waste.UNKNOWN:
        assert STRENGTH.index(after) >= STRENGTH.index(before)


# -- labelled runs -----------------------------------------------------------------------------


def drawn(rng: random.Random, label: Waste) -> Evidence:
    """A run as such runs look: around its label's middle, with everything else as it may be."""
    count, nodes = rng.choice([(1, 1), (2, 1), (4, 1), (8, 2)])
    # Frameworks reserve most of the memory at the start, whatever they need.
    util, memory = rng.gauss(850, 100), rng.uniform(0.1, 0.95)
    cpu, peak, power = rng.uniform(0.12, 0.8), rng.uniform(0.27, 0.9), rng.uniform(400, 950)
    slow, state = None, "COMPLETED"
    match label:
        case Waste.IDLE:
            util = abs(rng.gauss(8, 12))
        case Waste.INPUT:
            util, cpu, memory = rng.uniform(80, 450), rng.uniform(0.88, 1), rng.uniform(0.2, 0.75)
        case Waste.OFFLOAD:
            util, cpu, memory, peak = rng.uniform(100, 450), rng.uniform(0.45, 0.8), 0.9, 0.9
        case Waste.COMMUNICATION:
            count, nodes, power = 16, 4, rng.gauss(200, 40)
        case Waste.STRAGGLER:
            slow = round(rng.uniform(100, 300))
        case Waste.MEMORY:
            state = "OUT_OF_MEMORY"
        case Waste.OVER:
            count, nodes, util, memory = 1, 1, rng.uniform(60, 250), rng.uniform(0.02, 0.08)
    use = [
        GpuUse(
            round(min(1000, max(0, util + rng.gauss(0, 15)))),
            round(memory * 80 * GIB),
            round(min(1000, max(0, power))),
        )
        for _ in range(count)
    ]
    given_mib = 128 * GIB * count
    return replace(
        H100, state=state, nnodes=nodes, ncpus=8 * count, gpu_count=count, gpus=tuple(use),
        cpu_time_s=round(8 * count * HOUR_S * cpu), mem_mib=given_mib,
        mem_peak_mib=round(given_mib * peak), slow_permille=slow,
    )  # fmt: skip


LABELS = [kind for kind in Waste if kind is not Waste.UNKNOWN]


@pytest.mark.parametrize("label", LABELS)
def test_labelled_runs_are_found(label) -> None:
    """Of 500 runs of each label at least nine in ten are found; of healthy ones 19 in 20."""
    rng = random.Random(str(label))
    found = Counter(judge(drawn(rng, label)).kind for _ in range(500))
    assert found[label] >= (475 if label is Waste.HEALTHY else 450), found


# -- public data -------------------------------------------------------------------------------

TRACES = Path(__file__).parents[4] / "shared" / "traces" / "acme"


@pytest.mark.parametrize(
    ("cluster", "idle", "unclear"),
    [("seren", 316, 10), ("kalos_full", 260, 22), ("philly", 345, 162)],
)
def test_the_utilisation_of_public_clusters(cluster, idle, unclear) -> None:
    """Samples of Acme and Philly, a thousand each: a third idle, most of the rest at work."""
    path = TRACES / f"util_gpu_{cluster}.csv"
    if not path.is_file():
        pytest.skip("public traces are not beside the checkout")
    with path.open() as file:
        steps = [(float(row["arr1"]), float(row["arr0"])) for row in csv.DictReader(file)]
    busy = [next(v for part, v in steps if part >= (k + 0.5) / 10 - 1e-9) for k in range(1000)]
    kinds = Counter(judge(gpus(round(10 * v), mem=None)).kind for v in busy)
    assert kinds == {
        Waste.IDLE: idle,
        Waste.UNKNOWN: unclear,
        Waste.HEALTHY: 1000 - idle - unclear,
    }
