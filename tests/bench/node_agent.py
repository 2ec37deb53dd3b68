# SPDX-License-Identifier: Apache-2.0
"""Weighs the agent: the installed one as it runs, and ten days of its loop in a few minutes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench.node_memory import children, cpu_s, memory_kib
from tests.bench.node_site import NodeSite
from tests.bench.node_taker import taker
from tests.fakes.nvml_control import environment
from tests.lab.cluster import OneHostCluster
from tests.lab.programs import answers_ping, command

__all__ = ["LiveAgent", "Weight", "soak", "soak_health"]

NOWHERE = "http://127.0.0.1:9"
FIRST_SAMPLES_S = 30.0
"""After its start the agent samples more often for a while."""


@dataclass(frozen=True)
class Weight:
    """A process over a stretch of time: MiB resident and its own, per cent of a core."""

    rss_mib: float
    anon_mib: float
    core_percent: float
    seconds: float


class LiveAgent:
    """`fairwatt agent` on 8 × 7 slices, with its health child, among a cluster's daemons."""

    def __init__(self, cluster: OneHostCluster, root: Path, collector_url: str) -> None:
        site = NodeSite(root)
        root.mkdir(parents=True)
        munge = str(cluster.paths.munge_socket)
        site.make(collector_url, **{"site.munge_socket": munge, "health.enabled": True})
        env = {"FAIRWATT_CONFIG": str(site.config_path), **environment(site.control_path)}
        daemon = cluster.spawn("agent-slices01", command("agent"), **env)
        daemon.ready(lambda: answers_ping(site.socket))
        self._agent = daemon.process.pid
        self._ready_s = time.monotonic()
        self._begun: dict[int, tuple[float, float]] = {}

    def begin(self) -> None:
        """Begin to count, once the agent has settled."""
        time.sleep(max(0.0, FIRST_SAMPLES_S - (time.monotonic() - self._ready_s)))
        pids = [self._agent, *children(self._agent)]
        self._begun = {pid: (time.monotonic(), cpu_s(pid)) for pid in pids}

    def weights(self, at_least_s: float) -> tuple[Weight, Weight | None]:
        """The agent, and its health child if it is the same as at the beginning."""
        begun_s = self._begun[self._agent][0]
        time.sleep(max(0.0, at_least_s - (time.monotonic() - begun_s)))
        child = [pid for pid in children(self._agent) if pid in self._begun]
        return self._weight(self._agent), self._weight(child[0]) if child else None

    def _weight(self, pid: int) -> Weight:
        begun_s, used_s = self._begun[pid]
        seconds = time.monotonic() - begun_s
        memory = memory_kib(pid)
        core = (cpu_s(pid) - used_s) / seconds * 100
        return Weight(memory["rss"] / 1024, memory["anon"] / 1024, core, seconds)


def soak(root: Path, ticks: int) -> list[dict[str, float]]:
    """Run the agent's loop for so many samplings (node_soak.py); return its marks."""
    with taker() as url:
        site = _site(root, url)
        paths = (str(site.config_path), str(site.control_path))
        return _marks(site, "tests.bench.node_soak", *paths, str(ticks))


def soak_health(root: Path, seconds: float) -> list[dict[str, float]]:
    """Run the health child for so many seconds of its own time (node_health_soak.py)."""
    return _marks(_site(root, NOWHERE), "tests.bench.node_health_soak", str(seconds))


def _site(root: Path, url: str) -> NodeSite:
    site = NodeSite(root)
    root.mkdir(parents=True)
    site.make(url)
    return site


def _marks(site: NodeSite, module: str, *args: str) -> list[dict[str, float]]:
    env = {
        **os.environ,
        **environment(site.control_path),
        "FAIRWATT_CONFIG": str(site.config_path),
        "MALLOC_ARENA_MAX": "1",  # as `fairwatt agent` sets it
    }
    argv = [sys.executable, "-m", module, *args]
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]
