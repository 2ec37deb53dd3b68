# SPDX-License-Identifier: Apache-2.0
"""Slurm's job_desc fields to a JobRequest in normal form, and a changed request back to edits.

The only place where Slurm's spellings and its many ways of saying "not set" are known.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import msgspec

from fairwatt.core.errors import GrammarError
from fairwatt.core.gres import (
    Gres,
    Spelling,
    format_request,
    is_doubled,
    parse_request,
    server_reads,
)
from fairwatt.core.records import UNLIMITED_MIN, GpuAsk, JobRequest
from fairwatt.core.tres import parse_tres
from fairwatt.slurm_plugins import exported
from fairwatt.slurm_plugins.exported import TRES_PER_TASK, Level, as_option
from fairwatt.slurm_plugins.rule import Aspect

__all__ = [
    "ASPECTS",
    "WHOLE_MARK",
    "Fields",
    "Level",
    "Parsed",
    "changed_aspects",
    "edits",
    "flags",
    "overlaid",
    "parse",
]

Fields = Mapping[str, str | int | float]
LEVELS: dict[Level, str] = {
    "node": "tres_per_node",
    "job": "tres_per_job",
    "task": "tres_per_task",
    "socket": "tres_per_socket",
}
FLAGS: dict[Level, str] = {
    "job": "--gpus",
    "node": "--gpus-per-node",
    "task": "--gpus-per-task",
    "socket": "--gpus-per-socket",
}
ASPECTS: dict[Aspect, tuple[str, ...]] = {
    "gpus": tuple(LEVELS.values()),
    "place": ("partition", "req_nodes", "exc_nodes", "reservation", "features"),
    "size": (
        "num_tasks",
        "cpus_per_task",
        "ntasks_per_node",
        "min_nodes",
        "max_nodes",
        "min_cpus",
        "pn_min_cpus",
        "cpus_per_tres",
        "mem_per_tres",
        "min_mem_per_node",
        "min_mem_per_cpu",
        "shared",
    ),
    "time": ("time_limit", "time_min", "begin_time"),
    "owner": ("account", "qos"),
}
"""Which fields belong to which part of a request."""

_TEXTS = ("account", "partition", "qos", "features", "req_nodes", "exc_nodes", "reservation")
_LOWERED = ("account", "qos")
_NUMBERS = {
    "job_id": "job_id",
    "uid": "user_id",
    "num_tasks": "num_tasks",
    "min_cpus": "min_cpus",
    "min_cpus_per_node": "pn_min_cpus",
    "cpus_per_task": "cpus_per_task",
    "mem_per_node_mib": "min_mem_per_node",
    "mem_per_cpu_mib": "min_mem_per_cpu",
    "time_limit_min": "time_limit",
    # 0 is unset in the next ones.
    "ntasks_per_node": "ntasks_per_node",
    "min_nodes": "min_nodes",
    "max_nodes": "max_nodes",
    "begin_ts": "begin_time",
    "least_time_min": "time_min",
}
_ZERO_IS_UNSET = frozenset({"ntasks_per_node", "min_nodes", "max_nodes", "begin_time", "time_min"})
_PER_GPU = {"cpus_per_gpu": "cpus_per_tres", "mem_per_gpu_mib": "mem_per_tres"}
_EDITED_TEXTS = ("partition", "qos", "features", "exc_nodes")
_EDITED_NUMBERS = (
    "num_tasks",
    "min_cpus",
    "min_cpus_per_node",
    "cpus_per_task",
    "mem_per_node_mib",
    "mem_per_cpu_mib",
    "time_limit_min",
    "ntasks_per_node",
    "min_nodes",
    "max_nodes",
)

# NO_VAL and INFINITE of Slurm's 16-bit fields; every other number here has 32 bits.
_SHORT_FIELDS = frozenset(
    {"cpus_per_task", "ntasks_per_node", "ntasks_per_gpu", "pn_min_cpus", "shared"}
)
_UNSET_16 = 65534
_UNSET_32 = 4294967294

_CLEARED = ("gres:", "gres/")
"""What `scontrol update Gres=` makes of a field (22.05)."""

WHOLE_MARK = '"whole":1'
"""In our admin comment: the job takes whole nodes, which Slurm does not show of a record. Users
cannot write it: what they typed is in there with its quotes escaped."""

MAX_GPU_ENTRIES = 16
"""Every entry is judged while slurmctld waits; no real request names so many types."""


class Parsed(msgspec.Struct, frozen=True):
    """A request with the entries it was read from, per level."""

    request: JobRequest
    entries: dict[Level, tuple[Gres, ...]]
    texts: dict[Level, str]
    exported: frozenset[str] = frozenset()

    @property
    def doubled(self) -> frozenset[Level]:
        """The levels at which the word gpu stands twice: `--gpus=gpu:a100:2`."""
        return frozenset(level for level, text in self.texts.items() if is_doubled(text))


def overlaid(job: Fields, record: Fields | None) -> Fields:
    """The job as it will be: the record of a pending job with the requested changes laid over."""
    if record is None:
        return job
    changes = {name: value for name, value in job.items() if _is_set(name, value)}
    whole = {"shared": 0} if WHOLE_MARK in str(record.get("admin_comment", "")) else {}
    return {**record, **whole, **changes}


def changed_aspects(job: Fields) -> frozenset[Aspect]:
    """Return the parts of a request that a modification sets."""
    return frozenset(
        aspect
        for aspect, names in ASPECTS.items()
        if any(name in job and _is_set(name, job[name]) for name in names)
    )


def parse(fields: Fields, *, exc_known: bool = True) -> Parsed:
    """Read the fields of a job; `exc_known`: what it excludes by now is among them.

    Raises:
        GrammarError: a GRES string cannot be read; `part` is the faulty piece.
    """
    texts = {level: _tres_text(fields, name) for level, name in LEVELS.items()}
    entries = {level: _entries(text) for level, text in texts.items() if text}
    if not any(item.is_gpu for items in entries.values() for item in items):
        entries["job"] = (*entries.get("job", ()), *_implied(fields))
    gpus = _asks(entries)
    if len(gpus) > MAX_GPU_ENTRIES:
        raise GrammarError(
            "too many GPU entries",
            text=texts[gpus[0].level],
            part=f"entry {MAX_GPU_ENTRIES + 1}",
            remedy=f"name at most {MAX_GPU_ENTRIES}",
        )
    request = msgspec.structs.replace(_request(fields, gpus), exc_known=exc_known)
    return Parsed(request, entries, texts, exported.NAMES & fields.keys())


def edits(before: Parsed, after: JobRequest, spelling: Spelling) -> dict[str, str | int]:
    """The job_desc fields to write so that the job asks for `after`, in the server's spelling."""
    return {
        **_plain_edits(before.request, after),
        **_per_gpu_edits(before, after, spelling),
        **_gpu_edits(before, after, spelling),
    }


def _plain_edits(before: JobRequest, after: JobRequest) -> dict[str, str | int]:
    names = {name: name for name in _EDITED_TEXTS}
    names |= {name: _NUMBERS[name] for name in _EDITED_NUMBERS}
    return {
        field: value
        for name, field in names.items()
        if (value := getattr(after, name)) != getattr(before, name) and value is not None
    }


def _per_gpu_edits(before: Parsed, after: JobRequest, spelling: Spelling) -> dict[str, str | int]:
    changed: dict[str, str | int] = {}
    for name, field in _PER_GPU.items():
        value = getattr(after, name)
        if value is not None and value != getattr(before.request, name):
            changed[field] = format_request([Gres("gpu", None, value)], spelling)
            if exported.PER_GPU[name] in before.exported:
                changed[exported.PER_GPU[name]] = str(value)
    return changed


def _gpu_edits(before: Parsed, after: JobRequest, spelling: Spelling) -> dict[str, str | int]:
    changed: dict[str, str | int] = {}
    levels = {
        **before.entries,
        **{ask.level: () for ask in after.gpus if ask.level not in before.entries},
    }
    for level, items in levels.items():
        new = tuple(ask for ask in after.gpus if ask.level == level)
        old = tuple(ask for ask in before.request.gpus if ask.level == level)
        per_task = level == "task"
        kept = items
        if per_task and after.cpus_per_task != before.request.cpus_per_task:
            items = _with_cpus(items, after.cpus_per_task)
        respelt = old and not server_reads(before.texts[level], spelling)
        if new != old or items != kept or respelt:
            text = format_request(_replaced(items, new), spelling, per_task=per_task)
            if text != before.texts[level]:
                changed[LEVELS[level]] = text
        # Slurm leaves what sbatch exported as it is when the updater changes the job's type, and
        # steps would ask for the old one; without a type they take what the job has.
        steps = _untyped(new) if after.flavours else new
        variable = exported.BY_LEVEL[level]
        if variable in before.exported and (steps != old or level in before.doubled):
            changed[variable] = as_option(steps)
        if (
            per_task
            and TRES_PER_TASK in before.exported
            and (LEVELS["task"] in changed or steps != new)
        ):
            changed[TRES_PER_TASK] = format_request(
                _replaced(items, steps), spelling, per_task=True
            )
    return changed


def _untyped(asks: tuple[GpuAsk, ...]) -> tuple[GpuAsk, ...]:
    return tuple(msgspec.structs.replace(ask, type=None) for ask in asks)


def _with_cpus(items: tuple[Gres, ...], count: int | None) -> tuple[Gres, ...]:
    """The list with the CPUs per task that 23.11 and later repeat in it."""
    return tuple(
        replace(item, count=count, text=f"cpu={count}")
        if count is not None and item.name == "cpu" and not item.kind
        else item
        for item in items
    )


def flags(after: JobRequest, before: JobRequest) -> str:
    """The options with which a user asks for `after` himself."""
    shown = [
        f"{flag}={as_option(gpus)}"
        for level, flag in FLAGS.items()
        if (gpus := tuple(ask for ask in after.gpus if ask.level == level))
    ]
    if after.partition is not None and after.partition != before.partition:
        shown.append(f"-p {after.partition}")
    if after.features and after.features != before.features:
        shown.append(f"-C {shlex.quote(after.features)}")
    if after.exc_nodes and after.exc_nodes != before.exc_nodes:
        shown.append(f"-x {after.exc_nodes}")
    return " ".join(shown)


def _asks(entries: Mapping[Level, tuple[Gres, ...]]) -> tuple[GpuAsk, ...]:
    """The GPU entries; of those with the same type at one level Slurm takes the last above 0."""
    counts: dict[tuple[Level, str | None], int] = {}
    for level, items in entries.items():
        for item in items:
            if item.is_gpu:
                before = counts.get((level, item.type), 0)
                counts[level, item.type] = item.count or before
    return tuple(
        GpuAsk(level=level, type=type_, count=count) for (level, type_), count in counts.items()
    )


def _implied(fields: Fields) -> tuple[Gres, ...]:
    """The GPUs of a job that names none: `--ntasks-per-gpu` with `-n`, or what Slurm counted."""
    tasks, per_gpu = _number(fields, "num_tasks"), _number(fields, "ntasks_per_gpu")
    count = tasks // per_gpu if tasks and per_gpu else 0
    counted = _text(fields, "tres_counted")
    if not count and counted:
        count = parse_tres(counted).gpu_count
    return (Gres("gpu", None, count),) if count else ()


def _tres_text(fields: Fields, name: str) -> str:
    text = _text(fields, name) or ""
    return "" if text in _CLEARED else text


def _entries(text: str) -> tuple[Gres, ...]:
    if not text.isascii():
        raise GrammarError("not ASCII", text=text, part=text, remedy="write name[:type][:count]")
    return parse_request(text)


def _replaced(items: tuple[Gres, ...], gpus: tuple[GpuAsk, ...]) -> list[Gres]:
    """The list with its GPU entries replaced, the first of them in the place of the first."""
    at = next((i for i, item in enumerate(items) if item.is_gpu), 0)
    kept = [item for item in items if not item.is_gpu]
    new = [Gres("gpu", ask.type, ask.count) for ask in gpus]
    before = sum(not item.is_gpu for item in items[:at])
    return [*kept[:before], *new, *kept[before:]]


def _request(fields: Fields, gpus: tuple[GpuAsk, ...]) -> JobRequest:
    values: dict[str, Any] = {name: _text(fields, name) for name in _TEXTS}
    values["account"] = values["account"] or _text(fields, "default_account")
    for name in _LOWERED:  # slurmctld does it after the hook: `-A PHYSICS` is physics
        values[name] = values[name].lower() if values[name] else None
    for name, field in _NUMBERS.items():
        value = _number(fields, field)
        values[name] = (value or None) if field in _ZERO_IS_UNSET else value
    for name, field in _PER_GPU.items():
        values[name] = _per_gpu(_text(fields, field))
    return JobRequest(
        gpus=gpus,
        exclusive=fields.get("shared") == 0,
        kind=_kind(fields),
        cron=bool(_number(fields, "cron_job")),
        array=_text(fields, "array_inx"),
        part=_number(fields, "het_offset"),
        inherited=tuple((_text(fields, "inherited") or "").split(","))
        if _text(fields, "inherited")
        else (),
        **values,
    )


def _per_gpu(text: str | None) -> int | None:
    """Read `gres/gpu:20480` of --mem-per-gpu or --cpus-per-gpu."""
    counts = [item.count for item in parse_request(text or "") if item.is_gpu] if text else []
    return counts[0] if counts else None


def _kind(fields: Fields) -> Literal["batch", "interactive"] | None:
    """Batch jobs have a script, a file for standard input, or come from scrontab."""
    if any(fields.get(name) for name in ("has_script", "std_in", "cron_job")):
        return "batch"
    if "job_id" in fields:
        return None  # a record does not tell
    return "interactive"


def _is_set(name: str, value: str | float) -> bool:
    if isinstance(value, str):
        return True  # an empty string clears the field
    if name == "time_limit" and value == UNLIMITED_MIN:
        return True
    return 0 <= value < (_UNSET_16 if name in _SHORT_FIELDS else _UNSET_32)


def _text(fields: Fields, name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) and value else None


def _number(fields: Fields, name: str) -> int | None:
    value = fields.get(name)
    if value is None or isinstance(value, str) or not _is_set(name, value):
        return None
    return int(value) if isinstance(value, float) else value  # policyd's Ranged stays one
