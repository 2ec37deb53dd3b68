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

GRES = (
    ("gpu:1", 14),
    ("gpu:2", 4),
    ("gpu:4", 3),
    ("gpu:a100:1", 12),
    ("gpu:a100:2", 6),
    ("gpu:a100:4", 8),
    ("gpu:h100:1", 8),
    ("gpu:h100:8", 6),
    ("gpu:a40:1", 5),
    ("gpu:l40s:2", 4),
    ("gpu:20gb:1", 8),
    ("gpu:40gb:1", 5),
    ("gpu:80gb:2", 3),
    ("gpu:a100_1g.5gb:1", 5),
    ("gpu:h100_3g.40gb:1", 3),
    ("gpu:A100:1", 2),
    ("gpu:v100:1", 1),
)
PARTITIONS = (("", 50), ("gpu", 25), ("all", 10), ("dept003", 5), ("only-ga", 5), ("mig", 5))
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

    def row(self) -> str:
        """As the C client reads it."""
        return f"{self.uid} {self.gres} {self.partition or '-'} {self.limit_min} {self.cpus}"


def jobs(count: int, seed: int = 4) -> list[BenchJob]:
    """So many jobs in the order in which they come; the same for the same seed."""
    dice = random.Random(seed)
    scripts = [
        [_script(dice, uid) for _ in range(SCRIPTS_PER_USER)] for uid in range(1, USERS + 1)
    ]
    return [_submission(dice, scripts) for _ in range(count)]


def wire_line(job: BenchJob, serial: int) -> bytes:
    """The job as the hook sends it on Slurm 22.05, but for fields that nobody set."""
    fields: dict[str, str | int] = {"tres_per_node": f"gres:{job.gres}"}
    if job.partition:
        fields["partition"] = job.partition
    fields |= {"std_in": "/dev/null", "user_id": job.uid, "cpus_per_task": job.cpus}
    fields |= {"min_cpus": 1, "time_limit": job.limit_min, "has_script": 1}
    query = {
        "v": 1,
        "id": f"1764518400000000-{serial}",
        "verb": "submit",
        "spelling": "colon",
        "job": fields,
    }
    return json.dumps(query, separators=(",", ":")).encode() + b"\n"


def _script(dice: random.Random, uid: int) -> BenchJob:
    return BenchJob(
        uid, _one(dice, GRES), _one(dice, PARTITIONS), dice.choice(LIMITS_MIN), dice.choice(CPUS)
    )


def _submission(dice: random.Random, scripts: list[list[BenchJob]]) -> BenchJob:
    """Active users send most: the rank of a user falls off as in a Pareto law."""
    rank = min(len(scripts) - 1, int(dice.paretovariate(0.8)) - 1)
    job = dice.choice(scripts[rank])
    if dice.random() < ONCE:
        limit_min = dice.randrange(1, 7 * 1440)
        return BenchJob(job.uid, job.gres, job.partition, limit_min, job.cpus)
    return job


def _one(dice: random.Random, choices: tuple[tuple[str, int], ...]) -> str:
    names, weights = zip(*choices, strict=True)
    return str(dice.choices(names, weights)[0])
