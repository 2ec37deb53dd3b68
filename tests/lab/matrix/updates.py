# SPDX-License-Identifier: Apache-2.0
"""`scontrol update` by the owner: judged on the job as it will be, not on the change alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.lab.matrix.outcomes import of_record, refusal
from tests.lab.matrix.run import Answer

__all__ = ["UPDATES", "Update", "command", "outcome_of"]

A100, H100 = "--gres=gpu:a100:1", "--gres=gpu:h100:1"
SLICE, UNTYPED = "--gres=gpu:20gb:1", "--gpus=1"
COUNTED = "-n4 --ntasks-per-gpu=2"
_A100 = "gpu:a100:1 per node in gpu"
_SLICE = "gpu:a100_3g.20gb:1 per node in mig"
_COUNTED = "gpu:2 counted by Slurm in gpu"


@dataclass(frozen=True)
class Update:
    """A pending job and a change of it: the record that must be there afterwards.

    `refused`: the code of the refusal; the record is then as before. `of` is what stands after
    the job's number. `early`: what Slurm itself makes of it before a release.
    """

    job: str
    change: str
    after: str
    refused: str | None = None
    of: str = ""
    early: tuple[str, str] | None = None

    @property
    def key(self) -> str:
        """What names the update in the record of results."""
        return f"update | {self.job} | {self.of}{' ' if self.of else ''}{self.change}"

    def expected(self, release: str) -> str:
        """The outcome that must come of it."""
        if self.early is not None and release < self.early[0]:
            return self.early[1]
        return f"{self.refused}, stays {self.after}" if self.refused else self.after


def _spelled() -> Iterator[Update]:
    for key in ("Gres", "TresPerNode"):
        for value in ("gpu:A100:2", "gres:gpu:A100:2", "gres/gpu:A100:2", "gpu:A100=2"):
            yield Update(H100, f"{key}={value}", "gpu:a100:2 per node in gpu")


UPDATES: tuple[Update, ...] = (
    *_spelled(),
    Update(H100, "Gres=gpu:a100", _A100),
    Update(H100, "Gres=gpu:nvidia_a100:1", _A100),
    Update(H100, "Gres=gpu:20gb:1", _A100),
    Update(H100, "Gres=gpu:1", "gpu:1 per node in gpu",
           early=("23.02", "refused by Slurm, stays gpu:h100:1 per node in gpu")),
    Update(A100, "Gres=gpu:h10:1", _A100, "FW302"),
    Update(A100, "Gres=gpu:a100:5", _A100, "FW305"),
    Update(A100, "Gres=gpu:200gb:1", _A100, "FW102"),
    Update(A100, "Gres=gpu:a100_3g.20gb:1", _A100, "FW303"),
    Update(A100, "Gres=gpu:a100_3g.20gb:1 Partition=mig", _SLICE),
    Update(A100, "Gres=gpu:20gb:1 Partition=mig", _SLICE),
    Update(A100, "Gres=", "no GPU in gpu", early=("25.05", "gpu:1 counted by Slurm in gpu")),
    Update(A100, "Partition=mig", _A100, "FW303"),
    Update(A100, "Partition=all", "gpu:a100:1 per node in all"),
    Update(A100, "ReqNodeList=h01", _A100, "FW309"),
    Update(A100, "ReqNodeList=gpu02", _A100),
    Update(A100, "ExcNodeList=gpu01,gpu02", _A100, "FW309"),
    Update(A100, "ExcNodeList=gpu01", f"{_A100} without gpu01"),
    Update(A100, "TimeLimit=5", _A100),
    Update(SLICE, "Partition=gpu", _SLICE, "FW303"),
    Update(SLICE, "Partition=all", "gpu:a100_3g.20gb:1 per node in all"),
    Update(SLICE, "Gres=gpu:1", _SLICE, "FW203"),
    Update(UNTYPED, "Partition=mig", "gpu:1 per job in gpu", "FW203"),
    Update(UNTYPED, "Partition=all", "gpu:1 per job in gpu", "FW206"),
    Update(UNTYPED, "Partition=all ExcNodeList=mig01", "gpu:1 per job in all without mig01"),
    Update(COUNTED, "Partition=mig", _COUNTED, "FW203"),
    Update(COUNTED, "Partition=all", _COUNTED, "FW206"),
    Update("--gpus=h100:1", "TresPerJob=gpu:A100:2", "gpu:a100:2 per job in gpu"),
    Update("-n1 --gpus-per-task=h100:1", "TresPerTask=gpu:A100:2", "gpu:a100:2 per task in gpu"),
    Update("--sockets-per-node=1 --gpus-per-socket=h100:1", "TresPerSocket=gpu:A100:2",
           "gpu:a100:2 per socket in gpu",
           early=("23.02", "refused by Slurm, stays gpu:h100:1 per socket in gpu")),
    Update(f"--array=0-3 {H100}", "Gres=gpu:A100:2", "gpu:a100:2 per node in gpu"),
    Update(f"--array=0-3 {A100}", "Partition=mig", _A100, "FW303"),
    Update(f"--array=0-3 {A100}", "Gres=gpu:A100:2", f"{_A100} | gpu:a100:2 per node in gpu",
           of="_2"),
    Update(f"{A100} : {A100}", "Gres=gpu:A100:2", f"{_A100} | gpu:a100:2 per node in gpu",
           of="+1"),
    Update(f"{A100} : {A100}", "Gres=gpu:h10:1", _A100, "FW302", of="+1"),
)  # fmt: skip


def command(update: Update, tag: str, log: str) -> str:
    """Submit the job, change it, and show the codes in slurmctld's log: 22.05 says them there."""
    parts = " : ".join(f"--comment={tag} {part}" for part in update.job.split(" : "))
    return (
        f"id=$(sbatch --parsable --hold {parts} --wrap=true 2>/dev/null); "
        f"from=$(stat -c %s {log}); "
        f"scontrol update JobId=${{id}}{update.of} {update.change}; status=$?; "
        f"tail -c +$((from + 1)) {log} | grep -o 'fairwatt FW[0-9]*'; (exit $status)"
    )


def outcome_of(answer: Answer, found: list[dict[str, str]]) -> str:
    """What came of an update: the record, and before it the refusal."""
    record = " | ".join(sorted({of_record(each) for each in found}))
    return record if answer.status == 0 else f"{refusal(answer.said)}, stays {record}"
