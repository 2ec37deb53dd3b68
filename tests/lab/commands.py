# SPDX-License-Identifier: Apache-2.0
"""Runs Slurm's client commands in the cluster's environment, as root or as a local user."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tests.lab.paths import Paths
from tests.lab.system import System
from tests.lab.users import find_user
from tests.lab.waiting import LabError, await_value

__all__ = ["ENDED", "Completed", "SlurmCommands", "SubmitResult"]

ENDED = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"}
    | {"OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"}
)
SACCT_FIELDS = (
    "JobID,JobIDRaw,DBIndex,User,Account,Partition,Submit,Start,End,ElapsedRaw,State,ExitCode,"
    "ReqTRES,AllocTRES,NodeList,AdminComment,Comment,SubmitLine,JobName"
)
SEPARATOR = "\x1f"


@dataclass(frozen=True)
class Completed:
    """What a finished command left."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class SubmitResult(Completed):
    """What sbatch left; `job_id` is None where it refused."""

    job_id: int | None


class SlurmCommands:
    """Slurm's commands against one cluster."""

    def __init__(self, paths: Paths, env: Mapping[str, str], system: System) -> None:
        self._paths = paths
        self._env = env
        self._system = system

    def environment(self, user: str | None = None) -> dict[str, str]:
        """The variables that a command of that user (None: root) runs with."""
        name = user or "root"
        home = self._paths.home / user if user else self._paths.home
        return {**self._env, "USER": name, "LOGNAME": name, "HOME": str(home)}

    def run(
        self,
        argv: Sequence[str],
        user: str | None = None,
        *,
        stdin: str = "",
        timeout_s: float = 60,
        check: bool = False,
    ) -> Completed:
        """Run `argv` in the user's home; with `check`, a status other than 0 is a LabError."""
        env = self.environment(user)
        uid = find_user(user).uid if user else None
        inside = None if uid is None else self._system.as_user(argv, uid, env["HOME"])
        if inside is not None:
            argv, uid, env = inside, None, self._system.user_env(env)
        done = subprocess.run(
            list(argv),
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            env=env,
            cwd=env["HOME"],
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )
        if check and done.returncode != 0:
            raise LabError(f"{argv} failed with status {done.returncode}\n{done.stderr}")
        return Completed(done.returncode, done.stdout, done.stderr)

    def sbatch(self, args: Sequence[str], script: str, user: str = "ada") -> SubmitResult:
        """Submit `script` (a `#!/bin/sh` line is put before it if it has none)."""
        text = script if script.startswith("#!") else f"#!/bin/sh\n{script}\n"
        done = self.run(["sbatch", *args], user, stdin=text)
        found = re.search(r"^Submitted batch job (\d+)", done.stdout, re.MULTILINE)
        job_id = int(found[1]) if found else None
        return SubmitResult(done.returncode, done.stdout, done.stderr, job_id)

    def job_states(self, job_id: int | str) -> list[str]:
        """The states of a job, or of all tasks of an array, as slurmctld knows them."""
        done = self.run(["squeue", "--noheader", "--states=all", f"--jobs={job_id}", "-o", "%T"])
        return done.stdout.split()

    def wait_job(
        self, job_id: int | str, states: Collection[str] = ENDED, timeout_s: float = 60
    ) -> list[str]:
        """Wait until every task of the job is in one of `states`; return the states."""

        def look() -> list[str] | None:
            now = self.job_states(job_id)
            return now if now and set(now) <= set(states) else None

        return await_value(
            look,
            what=f"job {job_id} in {'/'.join(sorted(states))}",
            timeout_s=timeout_s,
            detail=lambda: self.run(["scontrol", "show", "job", str(job_id)]).stdout,
            interval_s=0.1,
        )

    def sacct_rows(
        self, *args: str, fields: str = SACCT_FIELDS, env: Mapping[str, str] | None = None
    ) -> list[dict[str, str]]:
        """Rows of `sacct -D -X` with `args`, every run of a requeued job apart.

        Times are epoch seconds. A job name with a line break in it spoils its row.
        """
        settings = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC", **(env or {})}
        argv = ["env", *(f"{name}={value}" for name, value in settings.items())]
        argv += ["sacct", "-D", "-X", "-P", "-n", "--noconvert", f"--delimiter={SEPARATOR}"]
        done = self.run([*argv, f"--format={fields}", *args], check=True)
        names = fields.split(",")
        return [
            dict(zip(names, line.split(SEPARATOR), strict=True))
            for line in done.stdout.splitlines()
        ]

    def wait_recorded(self, job_id: int | str, timeout_s: float = 60) -> list[dict[str, str]]:
        """Wait until sacct knows every run of the job in full, its end included; return the rows.

        slurmctld asks for database indexes every 5 s only; until then the row of a short job is
        there without partition, name, request and command line, and an array task without its
        number.
        """

        def look() -> list[dict[str, str]] | None:
            rows = self.sacct_rows(f"--jobs={job_id}")
            full = all(row["End"] != "Unknown" and row["SubmitLine"] for row in rows)
            return rows if rows and full else None

        return await_value(
            look, what=f"job {job_id} in sacct", timeout_s=timeout_s, interval_s=0.1
        )
