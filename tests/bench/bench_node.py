# SPDX-License-Identifier: Apache-2.0
"""What the node's part costs: the hooks around each job of a live cluster, and the agent.

Jobs run one after the other and take turns: no hooks, ours, a bash peer that does the usual. So
whatever else the host does meets all three. Then the agent of 8 GPUs × 7 slices is weighed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from tests.bench.node_agent import LiveAgent, Weight, soak, soak_health
from tests.bench.node_cluster import HOOKS, NONE, OURS, PEER, QUERY_MS, JobTimes, NodeBenchCluster
from tests.bench.node_taker import taker
from tests.lab.available import why_unavailable
from tests.lab.paths import temporary_root
from tests.lab.system import HOST_RELEASE, OTHER_RELEASES, why_missing

JOBS = 500
TICKS = 100_000
LIVE_S = 60.0
VARIANTS = {NONE: "no hooks", OURS: "fairwatt", PEER: "bash peer"}

SAMPLE_S = 4.5
"""A sampling on average: after each hook they are more often than once in 10 s."""
HOOKS_P99_MS = 50.0
OF_PEER = 0.5
RSS_MIB = 30.0
CORE_PERCENT = 0.2
LEAK_KIB = 2048
"""Most that may come between a tenth of the samplings and all: 23 bytes for each, less than the
smallest object that could be forgotten in one."""


Marks = Sequence[dict[str, float]]


@dataclass(frozen=True)
class Goal:
    """A figure and what it must not exceed."""

    name: str
    value: float
    most: float
    digits: int = 1

    @property
    def reached(self) -> bool:
        """Whether it is good."""
        return self.value <= self.most

    def __str__(self) -> str:
        word = "pass" if self.reached else "FAIL"
        return f"{self.name}={self.value:.{self.digits}f}(≤{self.most:g} {word})"


def percentile(values: Sequence[float], percent: int) -> float:
    """The value below which so many per cent lie."""
    return quantiles(values, n=100, method="inclusive")[percent - 1]


class Figures:
    """All jobs by variant."""

    def __init__(self, rows: Sequence[JobTimes], query_ms: int) -> None:
        self.query_ms = query_ms
        self.by_variant = {v: [row for row in rows if row.variant == v] for v in VARIANTS}

    def of(self, variant: int, what: Callable[[JobTimes], float]) -> list[float]:
        """One figure of each job of a variant."""
        return [what(row) for row in self.by_variant[variant]]

    def ratio(self, what: Callable[[JobTimes], float], percent: int) -> float:
        """Ours as part of the peer's."""
        ours, peer = self.of(OURS, what), self.of(PEER, what)
        return percentile(ours, percent) / percentile(peer, percent)

    @property
    def ratio_free_query(self) -> float:
        """Ours as part of the peer's, medians, if the driver answered it at once."""
        peer = median(self.of(PEER, _added)) - 2 * self.query_ms
        return median(self.of(OURS, _added)) / peer

    def turn_ratios(self) -> tuple[float, float, float]:
        """Ours ÷ the peer's of neighbouring jobs: quartiles."""
        pairs = zip(self.of(OURS, _added), self.of(PEER, _added), strict=False)
        low, middle, high = quantiles((a / b for a, b in pairs), n=4)
        return low, middle, high


def _added(row: JobTimes) -> float:
    return row.added_ms


def show_hooks(got: Figures) -> None:
    """Print what each variant's hooks took, and how long its jobs took to start and to end."""
    print(f"\n  {'ms':<22}" + "".join(f"{name:>26}" for name in VARIANTS.values()))
    print(f"  {'':<22}" + f"{'p50    p99    max':>26}" * len(VARIANTS))
    rows: dict[str, Callable[[JobTimes], float]] = {
        "prolog + epilog": _added,
        **{hook: lambda row, hook=hook: row.hooks_ms[hook] for hook in HOOKS},
        "on a core, both": lambda row: row.core_ms["prolog"] + row.core_ms["epilog"],
        "srun to first step": lambda row: row.start_ms,
        "srun to epilog's end": lambda row: row.whole_ms,
    }
    for name, what in rows.items():
        cells = [got.of(variant, what) for variant in VARIANTS]
        print(
            f"  {name:<22}"
            + "".join(
                f"{percentile(v, 50):>12.1f}{percentile(v, 99):>7.1f}{max(v):>7.1f}" for v in cells
            )
        )
    low, middle, high = got.turn_ratios()
    print(
        f"  ours ÷ peer, jobs that ran one after the other: {middle:.2f} ({low:.2f}-{high:.2f});"
        f" if the driver took 0 ms for the peer's query, not {got.query_ms}:"
        f" {got.ratio_free_query:.2f}"
    )


def show_delay(got: Figures) -> None:
    """Print how much later a job starts and its node is free, compared with no hooks."""
    for name, what in (
        ("starts", lambda r: r.start_ms),
        ("has its node free", lambda r: r.whole_ms),
    ):
        base = median(got.of(NONE, what))
        later = {VARIANTS[v]: median(got.of(v, what)) - base for v in (OURS, PEER)}
        text = ", ".join(f"{who} {ms:+.1f} ms" for who, ms in later.items())
        print(f"  a job {name} later by (medians): {text}")


def show_weight(name: str, weight: Weight | None) -> None:
    """Print what a process of the live cluster took."""
    if weight is None:
        print(f"  {name:<24} did not run all the time")
        return
    print(
        f"  {name:<24}{weight.rss_mib:>6.1f} MiB resident, {weight.anon_mib:.1f} of it its own,"
        f" {weight.core_percent:.3f} % of a core over {weight.seconds:.0f} s"
    )


def show_soak(marks: Marks, *counts: str) -> None:
    """Print the marks of an accelerated run, with those of its counts."""
    for mark in marks:
        told = "".join(f"{mark[name]:>8.0f} {name}," for name in counts)
        print(
            f"  {told} {mark['virtual_s'] / 86400:>5.1f} days: {mark['rss'] / 1024:.2f} MiB,"
            f" {core_percent(mark):.3f} % of a core"
        )


def core_percent(mark: dict[str, float]) -> float:
    """Processor time as part of the time that went by on the process's own clock."""
    return mark["cpu_s"] / mark["virtual_s"] * 100 if mark["virtual_s"] else 0.0


def measure_hooks(
    root: Path, release: str, jobs: int, live_s: float, query_ms: int
) -> tuple[Figures, Weight, Weight | None]:
    """Run the jobs on a live cluster, with the agent of the large node beside them."""
    with taker() as url, NodeBenchCluster(root / "c", url, release, query_ms) as cluster:
        cluster.start_agents()
        agent = LiveAgent(cluster, root / "slices01", url)
        for number in range(6):  # first runs compile and load
            cluster.run_job(number)
        agent.begin()
        rows = [cluster.run_job(number) for number in range(6, 6 + jobs * len(VARIANTS))]
        cluster.check_accounted(jobs)
        return Figures(rows, query_ms), *agent.weights(live_s)


def goals_of_hooks(got: Figures) -> list[Goal]:
    """What the hooks must reach."""
    return [
        Goal("hooks_p99_ms", percentile(got.of(OURS, _added), 99), HOOKS_P99_MS),
        Goal("hooks_p99_of_peer", got.ratio(_added, 99), OF_PEER, 2),
        Goal("hooks_p50_of_peer", got.ratio(_added, 50), OF_PEER, 2),
    ]


def goals_of_agent(live: Weight, marks: Marks, child: Marks) -> list[Goal]:
    """What the agent must reach."""
    last = marks[-1]
    return [
        Goal("agent_rss_mib", max(live.rss_mib, last["rss"] / 1024), RSS_MIB),
        Goal("agent_core_percent", live.core_percent, CORE_PERCENT, 3),
        Goal("agent_soak_core_percent", core_percent(last), CORE_PERCENT, 3),
        Goal("agent_leak_kib", last["rss"] - marks[0]["rss"], LEAK_KIB, 0),
        Goal("health_leak_kib", child[-1]["rss"] - child[0]["rss"], LEAK_KIB, 0),
    ]


def measure(release: str, jobs: int, ticks: int, live_s: float, query_ms: int) -> bool:
    """Run all, print tables and the last line; whether every goal was reached."""
    with temporary_root() as root:
        got, live, health = measure_hooks(root, release, jobs, live_s, query_ms)
        print(f"\nSlurm {release}, {jobs} jobs each; half hold a GPU, half one of seven slices")
        show_hooks(got)
        show_delay(got)
        print("\nagent of 8 GPUs × 7 slices, a sampling every 10 s")
        show_weight("fairwatt agent", live)
        show_weight("its health child", health)
        marks = soak(root / "soak", ticks)
        show_soak(marks, "ticks", "jobs")
        child = soak_health(root / "health", ticks * SAMPLE_S)
        show_soak(child, "rounds")
    goals = goals_of_hooks(got) + goals_of_agent(live, marks, child)
    median_ms = percentile(got.of(OURS, _added), 50)
    figures = " ".join(map(str, goals))
    print(
        f"\nbench-node: hooks_p50_ms={median_ms:.1f} {figures}"
        f" hooks_p50_of_peer_with_free_query={got.ratio_free_query:.2f}{_of_child(health)}"
    )
    return all(goal.reached for goal in goals)


def _of_child(health: Weight | None) -> str:
    if health is None:
        return " health=none"
    return f" health_rss_mib={health.rss_mib:.1f} health_core_percent={health.core_percent:.3f}"


def main() -> int:
    """Print tables and the line that CI reads; 2 where no cluster can run, 1 below a goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS, help="of each variant")
    parser.add_argument("--query-ms", type=int, default=QUERY_MS, help="of the peer's driver")
    parser.add_argument("--ticks", type=int, default=TICKS)
    parser.add_argument("--live-s", type=float, default=LIVE_S)
    parser.add_argument("--release", choices=(HOST_RELEASE, *OTHER_RELEASES), default=HOST_RELEASE)
    asked = parser.parse_args()
    reason = why_unavailable()
    if reason is None and asked.release != HOST_RELEASE:
        reason = why_missing(asked.release)
    if reason is not None:
        print(f"bench-node cannot run: {reason}")
        return 2
    good = measure(asked.release, asked.jobs, asked.ticks, asked.live_s, asked.query_ms)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
