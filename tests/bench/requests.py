# SPDX-License-Identifier: Apache-2.0
"""Jobs as users send them: few scripts per user, sent again and again, and some only once."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

__all__ = ["BenchJob", "jobs", "wire_line"]

USERS = 500
SCRIPTS_PER_USER = 4
ONCE = 0.1
"""So many jobs have a time limit of their own, as those of parameter scans have."""

PLAIN = (
    ("gpu:1", "", 12),
    ("gpu:1", "gpu", 8),
    ("gpu:2", "", 5),
    ("gpu:4", "all", 4),
    ("gpu:a100:1", "", 10),
    ("gpu:a100:1", "only-ga", 5),
    ("gpu:a100:2", "gpu", 6),
    ("gpu:a100:4", "all", 8),
    ("gpu:h100:1", "", 8),
    ("gpu:h100:8", "gpu", 6),
    ("gpu:a40:1", "", 5),
    ("gpu:l40s:2", "all", 4),
    ("gpu:a100:1", "dept003", 5),
    ("gpu:a100_1g.5gb:1", "mig", 6),
    ("gpu:a100_3g.20gb:1", "mig", 3),
    ("gpu:h100_3g.40gb:1", "mig", 4),
    ("gpu:h100_1g.10gb:2", "all", 2),
)
"""GRES, partition, weight: requests that Slurm takes by itself too."""

NEEDS = (
    ("gpu:20gb:1", "", 8),
    ("gpu:40gb:1", "", 5),
    ("gpu:80gb:2", "gpu", 3),
    ("gpu:A100:1", "gpu", 2),
    ("gpu:a100|h100:1", "", 4),
    ("gpu:hopper:1", "gpu", 2),
    ("gpu:v100:1", "", 1),
    ("gpu:h100:1", "only-ga", 2),
)
"""Requests that only our hook understands, or refuses."""

LIMITS_MIN = (30, 60, 120, 240, 480, 720, 1440, 2880, 4320, 7200)
CPUS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class BenchJob:
    """One submission; an empty partition is the default, `gres` is as `sbatch --gres` takes it."""

    uid: int
    gres: str
    partition: str
    limit_min: int
    cpus: int

    @property
    def tres(self) -> str:
        """What Slurm 22.05 has in tres_per_node."""
        return f"gres:{self.gres}"

    def row(self) -> str:
        """As the C client reads it."""
        return f"{self.uid} {self.tres} {self.partition or '-'} {self.limit_min} {self.cpus}"


def jobs(count: int, *, needs: bool, seed: int = 4) -> list[BenchJob]:
    """So many jobs in the order in which they come; `needs`: also what only our hook reads."""
    dice = random.Random(seed)
    choices = (*PLAIN, *NEEDS) if needs else PLAIN
    scripts = [
        [_script(dice, uid, choices) for _ in range(SCRIPTS_PER_USER)]
        for uid in range(1, USERS + 1)
    ]
    return [_submission(dice, scripts) for _ in range(count)]


def wire_line(job: BenchJob, serial: int) -> bytes:
    """The job as the hook sends it on Slurm 22.05, but for fields that nobody set."""
    fields: dict[str, str | int] = {"user_id": job.uid, "time_limit": job.limit_min}
    fields["tres_per_node"] = job.tres
    if job.partition:
        fields["partition"] = job.partition
    fields |= {"std_in": "/dev/null", "cpus_per_task": job.cpus}
    fields |= {"min_cpus": 1, "has_script": 1}
    query = {
        "v": 1,
        "id": f"1764518400000000-{serial}",
        "verb": "submit",
        "spelling": "colon",
        "job": fields,
    }
    return json.dumps(query, separators=(",", ":")).encode() + b"\n"


def _script(dice: random.Random, uid: int, choices: tuple[tuple[str, str, int], ...]) -> BenchJob:
    (gres, partition, _), *_ = dice.choices(choices, [weight for *_, weight in choices])
    return BenchJob(uid, gres, partition, dice.choice(LIMITS_MIN), dice.choice(CPUS))


def _submission(dice: random.Random, scripts: list[list[BenchJob]]) -> BenchJob:
    """Active users send most: the rank of a user falls off as in a Pareto law."""
    rank = min(len(scripts) - 1, int(dice.paretovariate(0.8)) - 1)
    job = dice.choice(scripts[rank])
    if dice.random() < ONCE:
        limit_min = dice.randrange(1, 7 * 1440)
        return BenchJob(job.uid, job.gres, job.partition, limit_min, job.cpus)
    return job
