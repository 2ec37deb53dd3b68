# SPDX-License-Identifier: Apache-2.0
"""A cluster whose hook asks a far end that can fail, and what a job must be after each fault."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.fakes.faulty_policyd import GIVEN, SAID, FaultyPolicyd
from tests.lab.cluster import OneHostCluster
from tests.lab.commands import Completed
from tests.lab.hooks import load_anew, write_settings

__all__ = ["ASKED", "DEADLINE_S", "Lab", "NOT_APPLIED", "Submission", "alike"]

NOT_APPLIED = "fairwatt: the site's GPU policy could not be applied"
ASKED = "gpu:a100:1"
DEADLINE_S = 0.2
CHANGING = ("JobId", "Time", "StdErr", "StdOut", "StdIn", "Comment", "SLUID", "LastSchedEval")


@dataclass
class Lab:
    """A cluster, the far end of its hook, and the settings that the hook has by now."""

    slurm: OneHostCluster
    far: FaultyPolicyd
    mode: str = ""

    @property
    def asked(self) -> str:
        """What a job asks for in this release's spelling."""
        return self.spelled(ASKED)

    def spelled(self, gres: str) -> str:
        """Write a request as this release does."""
        return ("gres:" if self.slurm.release < "23.11" else "gres/") + gres

    def settings(self, mode: str, **others: str) -> None:
        """Let the hook have these from the next job on."""
        write_settings(
            self.slurm.paths,
            fail_mode=mode,
            deadline_ms=DEADLINE_S * 1000,
            breaker_s=0.001,
            **others,
        )
        load_anew(self.slurm.paths)
        self.mode = mode

    def site(self, text: str) -> str:
        """Write a script of the site; return its path."""
        path = self.slurm.paths.etc / "site.lua"
        path.write_text(text)
        return str(path)

    def submit(self, *args: str) -> Submission:
        """Submit a job that will not start."""
        done = self.slurm.sbatch([f"--gres={ASKED}", "--begin=now+1hour", *args], "true")
        job = {} if done.job_id is None else self.show(done.job_id)
        return Submission(done, job)

    def show(self, job_id: int) -> dict[str, str]:
        """The job as scontrol shows it."""
        text = self.slurm.run(["scontrol", "--oneliner", "show", "job", str(job_id)]).stdout
        return dict(pair.split("=", 1) for pair in text.split() if "=" in pair)

    def log(self) -> str:
        """All of slurmctld's log."""
        return self.slurm.log_text("slurmctld")

    def counted(self, text: str = NOT_APPLIED) -> int:
        """Counted lines with `text` in slurmctld's log."""
        return len(re.findall(rf"{re.escape(text)}.*\[\d+ since this script", self.log()))

    def plain(self) -> dict[str, str]:
        """The same job as it is where policyd is away."""
        self.far.kill()
        job = self.submit().job
        self.far.start()
        return job

    def check_recovered(self) -> None:
        """The next job is judged, and its user told so once."""
        after = self.submit()
        assert after.done.stderr == f"sbatch: {SAID}\n"
        assert after.job["TresPerNode"] == self.spelled(GIVEN)


@dataclass(frozen=True)
class Submission:
    """What sbatch said and what slurmctld shows of the job, nothing where it was refused."""

    done: Completed
    job: dict[str, str]

    def check(self, lab: Lab, text: str = NOT_APPLIED) -> None:
        """As typed or refused, as the fail mode says, with one line of ours."""
        ours = [line for line in self.done.stderr.splitlines() if "fairwatt" in line]
        assert len(ours) == 1, self.done.stderr
        refused = lab.mode == "closed"
        assert ours[0].startswith(f"sbatch: {'error: ' if refused else ''}{text}")
        assert SAID not in self.done.stderr
        if refused:
            assert self.job == {}
        else:
            assert self.job["TresPerNode"] == lab.asked
            assert "AdminComment" not in self.job
            assert self.job["Partition"] == "gpu"


def alike(job: dict[str, str]) -> dict[str, str]:
    """A job without what differs from one submission to the next."""
    return {
        k: v for k, v in job.items() if not any(part in k for part in CHANGING) or k == "TimeLimit"
    }
