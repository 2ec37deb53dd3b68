# SPDX-License-Identifier: Apache-2.0
"""What admin and user do on a booted site: submit, ask doctor, look into the store."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ansible.booted import Node
from tests.ansible.fake_gpus import NVML_ENV
from tests.ansible.sites import BootedSite
from tests.ansible.slurm_site import USER

__all__ = ["FAIRWATT", "STORE", "Doctor", "Submitted", "doctor", "stored", "submit", "tres_of"]

FAIRWATT = "/opt/fairwatt/current/bin/fairwatt"
STORE = "/var/lib/fairwatt/fairwatt.db"
_COPY = """
import sqlite3, sys
with sqlite3.connect(sys.argv[2]) as copy:
    sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True).backup(copy)
"""


@dataclass(frozen=True)
class Submitted:
    """What sbatch answered; `job_id` is None where the job was refused."""

    job_id: int | None
    said: str


def submit(site: BootedSite, *options: str, run: str = "true") -> Submitted:
    """Submit a job as the site's plain user on the controller; wait until it has ended."""
    argv = ["sbatch", "--wait", *options, f"--wrap={run}"]
    done = site.controller.run(argv, user=USER, timeout_s=90)
    found = re.search(r"Submitted batch job (\d+)", done.stdout)
    return Submitted(int(found[1]) if found else None, done.stderr)


def tres_of(site: BootedSite, job_id: int) -> str:
    """What slurmctld has as the job's GPUs per node."""
    shown = site.controller.out("scontrol", "--oneliner", "show", "job", str(job_id))
    return next(w.partition("=")[2] for w in shown.split() if w.startswith("TresPerNode="))


@dataclass(frozen=True)
class Doctor:
    """What `fairwatt doctor --json` said."""

    ok: bool
    errors: Sequence[str]
    text: str


def doctor(node: Node) -> Doctor:
    """Ask doctor on a node, as root and with the fake device in reach."""
    env = NVML_ENV if node.path(NVML_ENV["FAIRWATT_FAKE_NVML"]).exists() else {}
    done = node.run([FAIRWATT, "doctor", "--json"], env=env)
    answer: dict[str, Any] = json.loads(done.stdout)
    errors = [
        f"{finding['check']}: {finding['problem']}"
        for finding in answer["findings"]
        if finding["level"] == "error"
    ]
    assert (done.returncode == 0) == answer["ok"], done
    return Doctor(answer["ok"], errors, f"{node.name}: {done.stdout}")


def stored(site: BootedSite, folder: Path) -> sqlite3.Connection:
    """A copy of the store as it is now, with rows by name; the caller closes it."""
    inside = "/root/store-copy.db"
    site.accounting.out("python3", "-c", _COPY, STORE, inside)
    copy = folder / "store.db"
    copy.write_bytes(site.accounting.path(inside).read_bytes())
    site.accounting.out("rm", inside)
    db = sqlite3.connect(copy)
    db.row_factory = sqlite3.Row
    return db
