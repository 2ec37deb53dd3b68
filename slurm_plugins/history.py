# SPDX-License-Identifier: Apache-2.0
"""Past submissions as job_desc fields, from Slurm's accounting: what `replay` and `explain` judge.

sacct tells what a job asked for after the hook, and the command line it came by. What a user
wrote is put together from the hook's own record in the admin comment, the command line's flags,
and the rest of the row; #SBATCH lines of the script are not in the accounting.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import click

from fairwatt.core.call import call
from fairwatt.core.errors import FairwattError
from fairwatt.core.tres import parse_tres
from fairwatt.slurm_plugins.engine import COMMENT_PREFIX
from fairwatt.slurm_plugins.sbatch_flags import command_flags, job_fields

__all__ = ["DAY_S", "PastJob", "parse_rows", "read_day", "read_job"]

DAY_S = 86_400
TIMEOUT_S = 120.0
_DELIMITER = "\x1f"
_FIELDS = (
    *("JobIDRaw", "Submit", "UID", "Account", "Partition", "QOS", "TimelimitRaw", "ReqNodes"),
    *("ReqTRES", "Constraints", "Reservation", "AdminComment", "SubmitLine"),
)
_GPU_FIELDS = ("tres_per_job", "tres_per_node", "tres_per_task", "tres_per_socket")
_NOTHING = frozenset({"", "None", "Unknown", "(null)", "UNLIMITED", "Partition_Limit"})
_MIB = 1 << 20


@dataclass(frozen=True)
class PastJob:
    """One submission: its fields as the hook would see them, and the hook's record of it.

    `recorded` is the JSON of the admin comment, None where the hook left none.
    """

    job_id: str
    submit_ts: int | None
    fields: Mapping[str, str | int | float]
    recorded: Mapping[str, Any] | None


def read_day(start_ts: int, slurm_conf: str | None) -> list[PastJob]:
    """Return the jobs submitted in the 24 hours from `start_ts`.

    Raises:
        CommandError: sacct does not answer.
    """
    span = ["-a", "-S", _moment(start_ts), "-E", _moment(start_ts + DAY_S)]
    jobs = parse_rows(_sacct(span, slurm_conf))
    return [job for job in jobs if job.submit_ts and 0 <= job.submit_ts - start_ts < DAY_S]


def _moment(ts: int) -> str:
    """Epoch seconds as Slurm takes them, in any time zone; without the prefix it reads none."""
    return f"uts{ts}"


def read_job(job_id: str, slurm_conf: str | None) -> PastJob | None:
    """Return a job's latest submission, None: the accounting does not know it.

    Raises:
        CommandError: sacct does not answer.
    """
    jobs = list(parse_rows(_sacct(["-j", job_id], slurm_conf)))
    return max(jobs, key=lambda job: job.submit_ts or 0) if jobs else None


def parse_rows(text: str) -> Iterator[PastJob]:
    """Read sacct's rows; what is no row (a job's own line ends) is passed over."""
    for line in text.splitlines():
        values = line.split(_DELIMITER)
        if len(values) == len(_FIELDS):
            yield _past_job(dict(zip(_FIELDS, values, strict=True)))


def _sacct(span: Sequence[str], slurm_conf: str | None) -> str:
    argv = ["sacct", *span, "-X", "-P", "-n", "--noconvert", f"--delimiter={_DELIMITER}"]
    env = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC"}
    if slurm_conf:
        env["SLURM_CONF"] = slurm_conf
    return call([*argv, "-o", ",".join(_FIELDS)], timeout_s=TIMEOUT_S, env=env).stdout


def _past_job(row: Mapping[str, str]) -> PastJob:
    recorded = _recorded(row["AdminComment"])
    typed = _typed(row["SubmitLine"])
    fields = {**_columns(row), **_asked(recorded), **_kind(row["SubmitLine"])}
    if any(name in typed for name in _GPU_FIELDS):
        fields = {name: value for name, value in fields.items() if name not in _GPU_FIELDS}
    if recorded and "partition" not in typed:
        fields.pop("partition", None)  # it may have been ours
    return PastJob(row["JobIDRaw"], _number(row["Submit"]), {**fields, **typed}, recorded)


def _kind(line: str) -> dict[str, str | int | float]:
    """What tells a batch job: it has a script, unless srun or salloc asked for it."""
    program = PurePath(line.split(maxsplit=1)[0]).name if line.strip() else ""
    return {} if program in ("srun", "salloc") else {"has_script": 1}


def _columns(row: Mapping[str, str]) -> dict[str, str | int | float]:
    texts = {
        "account": row["Account"],
        "partition": row["Partition"],
        "qos": row["QOS"],
        "features": row["Constraints"],
        "reservation": row["Reservation"],
    }
    numbers = {
        "user_id": _number(row["UID"]),
        "time_limit": _number(row["TimelimitRaw"]),
        "min_nodes": _number(row["ReqNodes"]),
    }
    found: dict[str, str | int | float] = {
        name: text for name, text in texts.items() if text not in _NOTHING
    }
    found |= {name: number for name, number in numbers.items() if number is not None}
    return found | _requested(row["ReqTRES"])


def _requested(text: str) -> dict[str, str | int | float]:
    """GPUs and CPUs of ReqTRES; the level at which GPUs were asked for is not in it."""
    try:
        tres = parse_tres("" if text in _NOTHING else text)
    except FairwattError:
        return {}
    gpus = [
        f"gres/gpu:{type_}:{n}" if type_ else f"gres/gpu:{n}" for type_, n in tres.gpus.items()
    ]
    found: dict[str, str | int | float] = {"tres_per_job": ",".join(gpus)} if gpus else {}
    if tres.cpus:
        found["min_cpus"] = tres.cpus
    if tres.mem_bytes:
        found["min_mem_per_node"] = tres.mem_bytes // _MIB // (tres.nodes or 1)
    return found


def _recorded(comment: str) -> Mapping[str, Any] | None:
    if not comment.startswith(COMMENT_PREFIX):
        return None
    try:
        found = json.loads(comment.removeprefix(COMMENT_PREFIX))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _asked(recorded: Mapping[str, Any] | None) -> dict[str, str | int | float]:
    asked = recorded.get("asked") if recorded else None
    if not isinstance(asked, str) or not asked:
        return {}
    return {"tres_per_job": ",".join(f"gres/{item}" for item in asked.split(","))}


def _typed(line: str) -> dict[str, str | int | float]:
    """The fields of the command line's own flags; {} where it cannot be read."""
    try:
        return dict(job_fields(command_flags(line)))
    except (FairwattError, click.UsageError, ValueError):
        return {}


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
