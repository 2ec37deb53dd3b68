# SPDX-License-Identifier: Apache-2.0
"""Submissions per second on a live controller: no plugin, trivial Lua, our hook, side by side.

Three clusters are up at once and take turns, so that whatever else the host does meets all three.
Four clients submit in parallel. The client is C on libslurm, where Debian's libslurm-dev is
installed: a new sbatch process per job would cost more than all of slurmctld and hide the hook.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

from fairwatt.core.call import call
from fairwatt.core.unix_socket import ask_line
from tests.lab.available import why_unavailable
from tests.lab.cluster import OneHostCluster
from tests.lab.paths import REPOSITORY, temporary_root

CLIENTS = 4
ROUNDS = 10
GRES = "gres:gpu:a100:1"
SITE_DEADLINE_MS = 10
VARIANTS = ("none", "trivial", "fairwatt")
HEADER = Path("/usr/include/slurm/slurm.h")
NO_NODE_HOOKS = REPOSITORY / "tests" / "lab" / "recorder"

SBATCH_LOOP = """\
import subprocess, sys, time
times, first = [], time.monotonic_ns()
for _ in range(int(sys.argv[1])):
    start = time.monotonic_ns()
    subprocess.run(["sbatch", "-Q", "--begin=now+365days", "-o", "/dev/null", "--wrap=true",
                    "--gres=" + sys.argv[2].split(":", 1)[1]], check=True)
    times.append(time.monotonic_ns() - start)
print(first, time.monotonic_ns(), *times, sep="\\n")
"""


@dataclass
class Sample:
    """What one variant reached: submissions per second in each round, all latencies in µs."""

    rates: list[float] = field(default_factory=list)
    times_us: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Median over the rounds."""
        return median(self.rates)

    def percentile_us(self, percent: int) -> float:
        """Latency below which so many per cent of the submissions stayed."""
        return quantiles(self.times_us, n=100)[percent - 1]


def build_client(folder: Path) -> list[str]:
    """Return the client's argv, built into a folder that every user may read."""
    if not HEADER.exists() or shutil.which("cc") is None:
        print("no libslurm-dev or no C compiler: a loop of sbatch processes is measured instead")
        script = folder / "submit_client.py"
        script.write_text(SBATCH_LOOP)
        return ["/usr/bin/python3", str(script)]
    program = folder / "submit-client"
    source = Path(__file__).with_name("submit_client.c")
    call(["cc", "-O2", "-Wall", "-o", str(program), str(source), "-lslurm"], timeout_s=60)
    return [str(program)]


def submit(cluster: OneHostCluster, client: list[str], each: int) -> tuple[float, list[float]]:
    """Let the clients submit in parallel; return submissions per second and latencies in µs."""
    argv = [*client, str(each), GRES]

    def one(_: int) -> list[int]:
        done = cluster.run(argv, user="ada", timeout_s=600, check=True)
        return [int(line) for line in done.stdout.split()]

    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(one, range(CLIENTS)))
    span_ns = max(end for _, end, *_ in answers) - min(start for start, *_ in answers)
    times = [ns / 1000 for _, _, *each_ns in answers for ns in each_ns]
    return len(times) / (span_ns / 1e9), times


def ask_policyd(cluster: OneHostCluster) -> dict[str, int]:
    """What policyd answers to a ping."""
    line = ask_line(cluster.paths.policyd_socket, b'{"verb":"ping"}\n', 5.0)
    answer: dict[str, int] = json.loads(line)
    return answer


def measure(total: int, log: Callable[[str], None]) -> dict[str, Sample]:
    """Measure every variant with at least `total` submissions, in turns."""
    each = -(-total // (CLIENTS * ROUNDS))
    samples = {name: Sample() for name in VARIANTS}
    with temporary_root() as root, ExitStack() as stack:
        client = build_client(root)
        clusters = {}
        for name in VARIANTS:
            hooks = NO_NODE_HOOKS if name == "fairwatt" else None
            made = OneHostCluster(
                root / name,
                with_fairwatt=name == "fairwatt",
                hook=name,
                deadline_ms=SITE_DEADLINE_MS,
                node_hooks=hooks,
            )
            clusters[name] = stack.enter_context(made)
        clusters["fairwatt"].start_policyd()
        for name in VARIANTS:
            submit(clusters[name], client, 20)  # fills caches, opens the connection
        for number in range(ROUNDS):
            for name in (VARIANTS, VARIANTS[::-1])[number % 2]:
                rate, times = submit(clusters[name], client, each)
                samples[name].rates.append(rate)
                samples[name].times_us += times
        judged = ask_policyd(clusters["fairwatt"])["judged"]
        sent = len(samples["fairwatt"].times_us) + 20 * CLIENTS
        log(f"jobs of ours that policyd judged: {judged} of {sent}")
    return samples


def main() -> int:
    """Print a table and the line that CI reads; 2 where no cluster can run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--submits", type=int, default=2400, help="per variant")
    total = parser.parse_args().submits
    reason = why_unavailable()
    if reason is not None:
        print(f"bench-hook cannot run: {reason}")
        return 2
    samples = measure(total, print)
    print(f"{'hook':<10} {'submits':>8} {'per s':>8} {'p50 µs':>8} {'p99 µs':>8} {'max µs':>8}")
    for name, sample in samples.items():
        shown = [sample.rate, *(sample.percentile_us(p) for p in (50, 99)), max(sample.times_us)]
        figures = " ".join(f"{value:>8.0f}" for value in shown)
        print(f"{name:<10} {len(sample.times_us):>8} {figures}")
    ours, trivial = samples["fairwatt"], samples["trivial"]
    pairs = sorted(a / b for a, b in zip(ours.rates, trivial.rates, strict=True))
    print(f"ratio of the rounds: {pairs[0]:.2f} to {pairs[-1]:.2f}")
    print(
        f"bench-hook: ratio={ours.rate / trivial.rate:.3f} "
        f"p50_us={ours.percentile_us(50):.0f} p99_us={ours.percentile_us(99):.0f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
