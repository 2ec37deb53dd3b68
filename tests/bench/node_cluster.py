# SPDX-License-Identifier: Apache-2.0
"""A live cluster whose jobs take turns: no node hooks, ours, a bash peer's; each is timed.

slurm.conf names a small C program for every hook (node_stamp.c), which runs the variant whose turn
the job id says and notes how long it took.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairwatt.accounting.agent.segments import read_entries
from fairwatt.core.call import call
from fairwatt.core.events import Event, RunEnded, RunStarted
from fairwatt.core.segments import segment_numbers, segment_path
from tests.fakes.nvml_control import LIBRARY
from tests.lab.cluster import OneHostCluster
from tests.lab.hooks import PACKAGE_NODE_HOOKS
from tests.lab.slurm_conf import SlurmSettings
from tests.lab.system import HOST_RELEASE
from tests.lab.waiting import LabError, await_value

__all__ = ["HOOKS", "NONE", "OURS", "PEER", "QUERY_MS", "JobTimes", "NodeBenchCluster"]

NONE, OURS, PEER = range(3)
HOOKS = ("prolog", "epilog", "task-prolog")
QUERY_MS = 10
"""With one board and its driver loaded nvidia-smi was measured to take 13.6 ms (GitHub,
davidboulay/OpenKraken, pull request 3) and 10 to 20 ms (It4innovations/hyperqueue, 564); 640 ms
where nothing keeps the driver loaded (aristocratos/bpytop, issue 26). Ours has 2 or 4 boards."""
HERE = Path(__file__).parent
PLACES = (("gpu01", "gpu:a100:1"), ("mig01", "gpu:a100_1g.5gb:1"))
"""Where jobs run, and what they hold: a whole board, one slice of a board cut in seven."""


@dataclass
class JobTimes:
    """One job: its variant, ms from `srun` to the task's first instruction, ms of each hook."""

    variant: int
    start_ms: float
    whole_ms: float = 0.0
    hooks_ms: dict[str, float] = field(default_factory=dict)
    core_ms: dict[str, float] = field(default_factory=dict)

    @property
    def added_ms(self) -> float:
        """Prolog and Epilog together."""
        return self.hooks_ms["prolog"] + self.hooks_ms["epilog"]


class NodeBenchCluster(OneHostCluster):
    """Two nodes in use, each with its agent, at a site's settings.

    Args:
        root, release: as for OneHostCluster.
        collector_url: where the agents send their events.
        query_ms: what the driver takes for the peer's query of the library.
    """

    def __init__(
        self, root: Path, collector_url: str, release: str = HOST_RELEASE, query_ms: int = QUERY_MS
    ) -> None:
        super().__init__(
            root,
            hook="none",
            node_hooks=PACKAGE_NODE_HOOKS,
            settings={
                "agent.sample_s": 10.0,
                "agent.ship_s": 300.0,
                "agent.collector_url": collector_url,
            },
            release=release,
        )
        self._query_ms = query_ms
        self._times: dict[str, list[dict[str, int]]] = {}
        self._read: dict[str, int] = {}

    def start_agents(self) -> None:
        """Start the agents of the nodes in use."""
        for node, _ in PLACES:
            self.start_agent(node)

    def run_job(self, number: int) -> JobTimes:
        """Run one job to the end of its Epilog."""
        node, gres = PLACES[number // 3 % len(PLACES)]
        where = ["--partition=all", f"--nodelist={node}", f"--gres={gres}", "--cpus-per-task=1"]
        begin_ns = time.monotonic_ns()
        argv = ["srun", "-Q", *where, str(self.paths.etc / "prolog"), "clock"]
        done = self.run(argv, "ada", check=True)
        ended = await_value(
            lambda: self._last("epilog", number), what="Epilog", timeout_s=20, interval_s=0.002
        )
        job_id, variant = ended["job"], ended["variant"]
        times = JobTimes(variant, (int(done.stdout) - begin_ns) / 1e6)
        times.whole_ms = (ended["end"] - begin_ns) / 1e6
        for hook in HOOKS:
            row = self._last(hook, number)
            if row["job"] != job_id or row["status"]:
                raise LabError(f"{hook} of job {job_id}: {row}\n{self.log_text(f'slurmd-{node}')}")
            times.core_ms[hook] = row["core_us"] / 1e3
            times.hooks_ms[hook] = (row["end"] - row["begin"]) / 1e6
        return times

    def check_accounted(self, jobs: int) -> None:
        """Make sure that our hooks did their work: the journals have both ends of so many jobs.

        Raises:
            LabError: they have not.
        """
        ids = {row["job"] for row in self._rows("prolog") if row["variant"] == OURS}
        starts, ends = set(), set()
        for node, _ in PLACES:
            for event in _events(self.nodes[node].spool_dir / "journal"):
                if isinstance(event, RunStarted):
                    starts.add(event.job_id)
                elif isinstance(event, RunEnded) and event.closed_by == "epilog":
                    ends.add(event.job_id)
        if len(ids) < jobs or ids - starts or ids - ends:
            text = f"{len(ids)} jobs, {len(ids & starts)} starts, {len(ids & ends)} ends accounted"
            raise LabError(f"{text}\n{self.log_text('agent-mig01')}")

    def _rows(self, hook: str) -> list[dict[str, int]]:
        """The hook's lines so far; each is read once."""
        names = ("job", "variant", "begin", "end", "status", "core_us")
        known, begin = self._times.setdefault(hook, []), self._read.get(hook, 0)
        with (self.paths.etc / f"{hook}.times").open() as file:
            file.seek(begin)
            new, newline, _ = file.read().rpartition("\n")
        self._read[hook] = begin + len(new + newline)
        for line in new.splitlines():
            known.append(dict(zip(names, map(int, line.split()), strict=True)))
        return known

    def _last(self, hook: str, number: int) -> dict[str, int]:
        """The hook's line of the `number`th job (from 0), empty while it is not there."""
        rows = self._rows(hook)
        return rows[number] if len(rows) > number else {}

    def _write_configuration(self) -> SlurmSettings:
        slurm = super()._write_configuration()
        self._build(
            "node_smi.c", "smi", f"-L{LIBRARY.parent}", f"-l:{LIBRARY.name}", "-Wl,-rpath,$ORIGIN"
        )
        shutil.copy(LIBRARY, self.paths.etc)
        self._write_peer()
        for hook in HOOKS:
            self._take_turns(hook)
        return slurm

    def _take_turns(self, hook: str) -> None:
        etc = self.paths.etc
        variants = etc / f"{hook}.d"
        variants.mkdir(exist_ok=True)
        # The lab's wrapper, one more shell, is for folders that differ by node: no site has it.
        (variants / str(OURS)).symlink_to(etc / "node" / "hooks" / hook)
        (etc / f"{hook}.env").write_text(self._variables())
        if hook != "task-prolog":
            (variants / str(PEER)).symlink_to(etc / "peer.sh")
        self._build("node_stamp.c", hook, "-static")
        times = etc / f"{hook}.times"
        times.touch()
        times.chmod(0o666)  # TaskProlog runs as the user

    def _write_peer(self) -> None:
        etc = self.paths.etc
        shutil.copy(HERE / "node_peer.sh", etc / "peer.sh")
        (etc / "peer.sh").chmod(0o755)

    def _variables(self) -> str:
        """Where the variants find the node's things."""
        node = f"{self.paths.root}/nodes/@"
        values: Mapping[str, object] = {
            "FAIRWATT_AGENT_SOCKET": f"{node}/agent.sock",
            "FAIRWATT_INBOX_DIR": f"{node}/inbox",
            "FAIRWATT_JOB_DIR": f"{node}/jobs",
            "FAIRWATT_FAKE_NVML": f"{node}/nvml.control",
            "PEER_BOARDS": f"{node}/proc/driver/nvidia/gpus",
            "PEER_QUERY_MS": self._query_ms,
            "PEER_SMI": self.paths.etc / "smi",
            "SLURM_CONF": self.paths.slurm_conf,
        }
        return "".join(f"{name}={value}\n" for name, value in values.items())

    def _build(self, source: str, name: str, *options: str) -> None:
        target = self.paths.etc / name
        call(["cc", "-O2", "-o", str(target), str(HERE / source), *options], timeout_s=60)


def _events(journal: Path) -> Iterator[Event]:
    for number in segment_numbers(journal):
        for entry in read_entries(segment_path(journal, number)):
            if entry.event is not None:
                yield entry.event
