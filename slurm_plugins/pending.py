# SPDX-License-Identifier: Apache-2.0
"""Slurm's answer to `squeue --json`, of 22.05 to 26.05, as the jobs that the updater looks at.

Every text may have been written by a user.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairwatt.core.slurm_json import Count, Words, count, raw_jobs, words

__all__ = ["QueuedJob", "decode_jobs"]


class QueuedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One record of slurmctld: a job, one task of an array, or the tasks that wait together.

    `fields` is the job as a modify hook sees it. `address` is what scontrol takes for exactly
    this record; None where its list of tasks is too long to be shown whole.
    """

    job_id: int
    address: str | None
    states: tuple[str, ...]
    reason: str
    comment: str
    fields: Mapping[str, str | int]
    eligible_ts: int | None = None
    submit_ts: int | None = None
    held: bool = False
    restarts: int = 0
    batch: bool = True
    in_array: bool = False
    many_tasks: bool = False
    in_hetjob: bool = False
    cron: bool = False


class _Raw(msgspec.Struct):
    """The fields that are read; others are passed over."""

    job_id: int
    job_state: Words
    state_reason: str | None = ""
    admin_comment: str | None = ""
    eligible_time: Count = None
    submit_time: Count = None
    priority: Count = None
    restart_cnt: Count = None
    batch_flag: bool | int | None = True
    array_job_id: Count = None
    array_task_id: Count = None
    array_task_string: str | None = ""
    het_job_id: Count = None
    flags: Words = None
    shared: Words = None
    tres_per_node: str | None = ""
    tres_per_job: str | None = ""
    tres_per_task: str | None = ""
    tres_per_socket: str | None = ""
    partition: str | None = ""
    features: str | None = ""
    required_nodes: str | None = ""
    excluded_nodes: str | None = ""
    account: str | None = ""
    qos: str | None = ""
    resv_name: str | None = ""
    cpus_per_tres: str | None = ""
    memory_per_tres: str | None = ""
    user_id: Count = None
    tasks: Count = None
    tasks_per_node: Count = None
    cpus: Count = None
    cpus_per_task: Count = None
    node_count: Count = None
    max_nodes: Count = None
    time_limit: Count = None
    time_minimum: Count = None
    memory_per_cpu: Count = None
    memory_per_node: Count = None


# Slurm's JSON has its own names for what the hook's fields show.
_TEXTS = {
    "tres_per_node": "tres_per_node",
    "tres_per_job": "tres_per_job",
    "tres_per_task": "tres_per_task",
    "tres_per_socket": "tres_per_socket",
    "partition": "partition",
    "features": "features",
    "required_nodes": "req_nodes",
    "excluded_nodes": "exc_nodes",
    "account": "account",
    "qos": "qos",
    "resv_name": "reservation",
    "cpus_per_tres": "cpus_per_tres",
    "memory_per_tres": "mem_per_tres",
}
_COUNTS = {
    "user_id": "user_id",
    "tasks": "num_tasks",
    "tasks_per_node": "ntasks_per_node",
    "cpus": "min_cpus",
    "cpus_per_task": "cpus_per_task",
    "node_count": "min_nodes",
    "max_nodes": "max_nodes",
    "time_limit": "time_limit",
    "time_minimum": "time_min",
    "memory_per_cpu": "min_mem_per_cpu",
    "memory_per_node": "min_mem_per_node",
}


def decode_jobs(text: str, *, containing: str = "") -> tuple[list[QueuedJob], int]:
    """Return the jobs and how many records could not be read.

    Records without the text `containing` are passed over unread, for most are nobody's concern.

    Raises:
        SlurmError: the answer as a whole has no known shape.
    """
    mark = containing.encode()
    jobs = [_job(each) for each in raw_jobs(text) if mark in bytes(each)]
    read = [job for job in jobs if job is not None]
    return read, len(jobs) - len(read)


def _job(body: msgspec.Raw) -> QueuedJob | None:
    try:
        raw = msgspec.json.decode(body, type=_Raw)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    array, task = count(raw.array_job_id) or 0, count(raw.array_task_id)
    tasks = (raw.array_task_string or "").partition("%")[0]
    return QueuedJob(
        job_id=raw.job_id,
        address=_address(raw.job_id, array, task, tasks),
        states=words(raw.job_state),
        reason=raw.state_reason or "",
        comment=raw.admin_comment or "",
        fields=_fields(raw),
        eligible_ts=count(raw.eligible_time) or None,
        submit_ts=count(raw.submit_time) or None,
        held=count(raw.priority) == 0,
        restarts=count(raw.restart_cnt) or 0,
        batch=bool(raw.batch_flag),
        in_array=array > 0,
        many_tasks=array > 0 and task is None,
        in_hetjob=bool(count(raw.het_job_id)),
        cron="CRON_JOB" in words(raw.flags),
    )


def _address(job_id: int, array: int, task: int | None, tasks: str) -> str | None:
    """The number of an array stands for all of its tasks, started ones too: name them."""
    if not array:
        return str(job_id)
    if task is not None:
        return f"{array}_{task}"
    whole = tasks and set(tasks) <= set("0123456789,-:")  # Slurm cuts a long list: "1,3,..."
    return f"{array}_[{tasks}]" if whole else None


def _fields(raw: _Raw) -> dict[str, str | int]:
    texts = ((name, getattr(raw, source)) for source, name in _TEXTS.items())
    numbers = ((name, count(getattr(raw, source))) for source, name in _COUNTS.items())
    fields: dict[str, str | int] = {"job_id": raw.job_id, "has_script": int(bool(raw.batch_flag))}
    fields |= {name: text for name, text in texts if text}
    fields |= {name: number for name, number in numbers if number is not None}
    if "none" in words(raw.shared):
        fields["shared"] = 0
    return fields
