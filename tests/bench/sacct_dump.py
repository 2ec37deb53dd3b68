# SPDX-License-Identifier: Apache-2.0
"""Months of an invented cluster as sacct would export it: the same runs for us and for slurm2sql.

Typed GPUs, MIG slices, arrays, requeues, het jobs, cancelled waiting jobs, names with the
delimiter and newlines; users, scripts and nodes repeat as they do in life.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path

__all__ = ["EXPORT_FIELDS", "Mix", "invented_rows", "write_export", "write_raw"]

EXPORT_FIELDS = (
    *("JobIDRaw", "JobID", "Cluster", "UID", "User", "Account", "Partition", "QOS"),
    *("Submit", "Eligible", "Start", "End", "ElapsedRaw", "Suspended", "State", "ExitCode"),
    *("NNodes", "NCPUS", "ReqTRES", "AllocTRES", "TimelimitRaw", "TotalCPU"),
    *("ConsumedEnergyRaw", "NodeList", "SLUID", "DBIndex", "Restarts", "AdminComment", "JobName"),
)
"""The columns that fairwatt asks sacct 26.05 for, in its order."""

JOBS_PER_DAY = 14_000  # 14 a node, as on a site of 1,400 nodes with 20,000
FIRST_TS = 1_735_689_600  # 2025-01-01
FIRST_JOB = 4_000_000
USERS, ACCOUNTS, SCRIPTS, NODES = 2_000, 150, 6, 1_000
ODD_NAMES = (
    "a|b", 'two\nlines "q"', "tab\tand;|;mark", "=HYPERLINK('x')", "größe-µ-日本", "<script>",
)  # fmt: skip
GPU_TYPES = (
    ("a100", "gpu", 1, 30), ("a100", "gpu", 4, 8), ("h100", "gpu", 1, 10), ("h100", "gpu", 8, 4),
    ("a100_1g.5gb", "mig", 1, 10), ("a100_3g.20gb", "mig", 1, 6), ("", "cpu", 0, 32),
)  # fmt: skip
VERBS = ("train", "eval", "relax", "md", "prep", "sweep")
FIRST_RECORD = 3_789_366_436_361_092_096
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@dataclass(frozen=True)
class Mix:
    """How much of what, as parts of one."""

    array_tasks: float = 0.35
    requeued: float = 0.02
    cancelled_waiting: float = 0.05
    het: float = 0.01
    odd_name: float = 0.01


@dataclass(frozen=True)
class _Script:
    """What a user sends again and again."""

    name: str
    user: int
    partition: str
    req: str
    alloc: str
    cpus: int
    nodes: int
    limit_min: int


def invented_rows(count: int, seed: int = 1, mix: Mix | None = None) -> Iterator[dict[str, str]]:
    """Yield `count` rows in the order of their submission, each a dict by column name."""
    rng = random.Random(seed)
    scripts, weights = _scripts(rng)
    spans = _Spans(rng, mix or Mix(), scripts, list(accumulate(weights)))
    yield from islice(spans.rows(), count)


def write_export(rows: Iterator[dict[str, str]], path: Path, delimiter: str = "\x1f") -> None:
    """Write what `sacct --parsable2 --delimiter=…` prints, header first."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(delimiter.join(EXPORT_FIELDS) + "\n")
        for row in rows:
            file.write(delimiter.join([row[name] for name in EXPORT_FIELDS]) + "\n")


def write_raw(
    rows: Iterator[dict[str, str]], path: Path, columns: Sequence[str], delimiter: str = ";|;"
) -> None:
    """Write the same runs in the columns that another tool asks for; what we lack stays empty."""
    makers = [_MADE.get(name, _field(name)) for name in columns]
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(delimiter.join(columns) + "\n")
        for row in rows:
            file.write(delimiter.join([make(row) for make in makers]) + "\n")


def _field(name: str) -> Callable[[dict[str, str]], str]:
    return lambda row: row.get(name, "")


def _clock(seconds: int) -> str:
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def _iso(name: str) -> Callable[[dict[str, str]], str]:
    def text(row: dict[str, str]) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(int(row[name])))

    return text


_MADE: dict[str, Callable[[dict[str, str]], str]] = {
    "Elapsed": lambda row: _clock(int(row["ElapsedRaw"])),
    "Timelimit": lambda row: _clock(60 * int(row["TimelimitRaw"])),
    "CPUTime": lambda row: _clock(int(row["ElapsedRaw"]) * int(row["NCPUS"])),
    "Group": lambda row: row["Account"],
    "AllocCPUS": lambda row: row["NCPUS"],
    "ReqCPUS": lambda row: row["NCPUS"],
    "AllocNodes": lambda row: row["NNodes"],
    "ReqNodes": lambda row: row["NNodes"],
    "ReqMem": lambda row: "16000M",
    "Submit": _iso("Submit"),
    "Start": _iso("Start"),
    "End": _iso("End"),
    "SubmitLine": lambda row: "sbatch train.sh",
}


def _scripts(rng: random.Random) -> tuple[list[_Script], list[float]]:
    """A few scripts of each user; the weight of a user falls with the rank (Zipf)."""
    kinds, odds = GPU_TYPES, [kind[3] for kind in GPU_TYPES]
    scripts, weights = [], []
    for user in range(USERS):
        for number in range(SCRIPTS):
            gpu_type, partition, count, _ = rng.choices(kinds, odds)[0]
            cpus, nodes = rng.choice((1, 2, 4, 8, 16, 32)), rng.choice((1,) * 15 + (2, 4))
            head = f"billing={cpus + 20 * count * nodes},cpu={cpus * nodes}"
            tail = f"mem={rng.choice((4, 8, 16, 64)) * nodes}G,node={nodes}"
            gpus = f",gres/gpu={count * nodes}" if count else ""
            typed = f",gres/gpu:{gpu_type}={count * nodes}" if count else ""
            scripts.append(
                _Script(
                    f"{rng.choice(VERBS)}_{user % 97}",
                    user, partition, f"{head}{gpus},{tail}", f"{head}{typed}{gpus},{tail}",
                    cpus * nodes, nodes, rng.choice((10, 60, 240, 1440, 4320)),
                )
            )  # fmt: skip
            weights.append(1 / (user + 5) ** 0.9 / (number + 1))
    return scripts, weights


class _Spans:
    """Draws submissions, so many a day, and turns each into one row or several."""

    def __init__(
        self,
        rng: random.Random,
        mix: Mix,
        scripts: Sequence[_Script],
        cumulated: Sequence[float],
    ) -> None:
        self.rng, self.mix, self.scripts, self.cumulated = rng, mix, scripts, cumulated
        self.job_id = FIRST_JOB
        self.record = 1
        self.step_s = 86_400 / JOBS_PER_DAY

    def rows(self) -> Iterator[dict[str, str]]:
        """Yield rows without end."""
        submit_ts = float(FIRST_TS)
        while True:
            script = self.rng.choices(self.scripts, cum_weights=self.cumulated)[0]
            made = list(self._submission(script, int(submit_ts)))
            submit_ts += len(made) * self.step_s
            yield from made

    def _submission(self, script: _Script, submit_ts: int) -> Iterator[dict[str, str]]:
        draw = self.rng.random()
        name = self.rng.choice(ODD_NAMES) if self.rng.random() < self.mix.odd_name else script.name
        first = self.job_id
        if draw < self.mix.array_tasks / 25:
            for task in range(self.rng.randint(10, 40)):
                yield self._run(script, name, f"{first}_{task}", submit_ts)
                self.job_id += 1
        elif draw > 1 - self.mix.het:
            for part in range(2):
                yield self._run(script, name, f"{first}+{part}", submit_ts)
                self.job_id += 1
        elif draw > 1 - self.mix.het - self.mix.requeued:
            one = self._run(script, name, str(first), submit_ts, state="REQUEUED")
            yield one
            yield self._run(script, name, str(first), int(one["End"]), restarts=1)
            self.job_id += 1
        else:
            yield self._run(script, name, str(first), submit_ts)
            self.job_id += 1

    def _run(
        self,
        script: _Script,
        name: str,
        shown: str,
        submit_ts: int,
        *,
        state: str = "",
        restarts: int = 0,
    ) -> dict[str, str]:
        rng = self.rng
        self.record += 16
        waiting = not state and not restarts and rng.random() < self.mix.cancelled_waiting
        start_ts = submit_ts + int(rng.expovariate(1 / 900))
        length_s = min(60 * script.limit_min, 1 + int(rng.lognormvariate(6.5, 1.8)))
        end_ts = start_ts if waiting else start_ts + length_s
        state = state or rng.choices(_STATES, _STATE_ODDS)[0]
        first_node = rng.randrange(NODES - script.nodes)
        return {
            "JobIDRaw": str(self.job_id), "JobID": shown, "Cluster": "campus",
            "UID": str(20_000 + script.user), "User": f"u{script.user:04d}",
            "Account": f"grp{script.user % ACCOUNTS:03d}", "Partition": script.partition,
            "QOS": "normal", "Submit": str(submit_ts), "Eligible": str(submit_ts),
            "Start": str(start_ts), "End": str(end_ts),
            "ElapsedRaw": "0" if waiting else str(length_s), "Suspended": "00:00:00",
            "State": f"CANCELLED by {20_000 + script.user}" if waiting else state,
            "ExitCode": "1:0" if state == "FAILED" else "0:0", "NNodes": str(script.nodes),
            "NCPUS": str(script.cpus), "ReqTRES": script.req,
            "AllocTRES": "" if waiting else script.alloc, "TimelimitRaw": str(script.limit_min),
            "TotalCPU": _cpu_clock(0 if waiting else int(length_s * script.cpus * rng.random())),
            "ConsumedEnergyRaw": "0",
            "NodeList": "None assigned" if waiting else _nodes(first_node, script.nodes),
            "SLUID": _sluid(self.record), "DBIndex": str(FIRST_RECORD + self.record),
            "Restarts": str(restarts), "AdminComment": "", "JobName": name,
        }  # fmt: skip


_STATES = ("COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "PREEMPTED", "NODE_FAIL")
_STATE_ODDS = (80, 12, 4, 2, 1, 1)


def _nodes(first: int, count: int) -> str:
    return f"n{first:04d}" if count == 1 else f"n[{first:04d}-{first + count - 1:04d}]"


def _cpu_clock(seconds: int) -> str:
    """As sacct writes TotalCPU: with milliseconds below an hour."""
    if seconds < 3600:
        return f"{seconds // 60:02d}:{seconds % 60:02d}.{seconds * 7 % 1000:03d}"
    return _clock(seconds)


def _sluid(record: int) -> str:
    number, letters = FIRST_RECORD + record, []
    for _ in range(13):
        number, rest = divmod(number, 32)
        letters.append(CROCKFORD[rest])
    return "s" + "".join(reversed(letters))
