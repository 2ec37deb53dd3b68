# SPDX-License-Identifier: Apache-2.0
"""Reads sbatch's usual flags into the job_desc fields that the submit hook would see.

>>> job_fields(["--gres=gpu:20gb:1", "-n1"])
{'tres_per_node': 'gres/gpu:20gb:1', 'num_tasks': 1}
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import click

from fairwatt.core.errors import GrammarError
from fairwatt.core.records import UNLIMITED_MIN

__all__ = ["as_flags", "command_flags", "job_fields", "passed_over", "script_of"]

_NODES = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_TIME = re.compile(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]+))?(?::([0-9]+))?")
_TEXTS = {
    "partition": "-p",
    "account": "-A",
    "qos": "-q",
    "constraint": "-C",
    "nodelist": "-w",
    "exclude": "-x",
}
_FIELD = {
    "constraint": "features",
    "nodelist": "req_nodes",
    "exclude": "exc_nodes",
    "array": "array_inx",
}
_COMMANDS = ("sbatch", "srun", "salloc")
_COUNTS = ("num_tasks", "cpus_per_task", "ntasks_per_node", "ntasks_per_gpu")
_MEMORY = re.compile(r"([0-9]+)([KMGT]?)B?", re.IGNORECASE)
_MIB = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}
_GPU_FIELDS = {
    "gpus": "tres_per_job",
    "gpus_per_task": "tres_per_task",
    "gpus_per_socket": "tres_per_socket",
}

_parser = click.Command(
    "sbatch",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
    params=[
        click.Option(["--gres"]),
        click.Option(["-G", "--gpus"]),
        click.Option(["--gpus-per-node"]),
        click.Option(["--gpus-per-task"]),
        click.Option(["--gpus-per-socket"]),
        click.Option(["-n", "--ntasks", "num_tasks"], type=click.IntRange(1)),
        click.Option(["-c", "--cpus-per-task"], type=click.IntRange(1)),
        click.Option(["--ntasks-per-node"], type=click.IntRange(1)),
        click.Option(["--ntasks-per-gpu"], type=click.IntRange(1)),
        click.Option(["--tres-per-task"]),
        click.Option(["--cpus-per-gpu"], type=click.IntRange(1)),
        click.Option(["--mem"]),
        click.Option(["--mem-per-cpu"]),
        click.Option(["--mem-per-gpu"]),
        click.Option(["--exclusive"], is_flag=True),
        click.Option(["-a", "--array"]),
        click.Option(["--reservation"]),
        click.Option(["-N", "--nodes"]),
        click.Option(["-t", "--time"]),
        click.Option(["--time-min"]),
        *(click.Option([short, f"--{name}"]) for name, short in _TEXTS.items()),
    ],
)

_SHOWN = {
    "partition": "-p {}",
    "tres_per_job": "--gpus={}",
    "tres_per_node": "--gres={}",
    "tres_per_task": "--gpus-per-task={}",
    "tres_per_socket": "--gpus-per-socket={}",
    "num_tasks": "-n {}",
    "cpus_per_task": "-c {}",
    "ntasks_per_node": "--ntasks-per-node={}",
    "ntasks_per_gpu": "--ntasks-per-gpu={}",
    "nodes": "-N {}",
    "time_limit": "-t {}",
    "time_min": "--time-min={}",
    "account": "-A {}",
    "qos": "-q {}",
    "features": "-C {}",
    "req_nodes": "-w {}",
    "exc_nodes": "-x {}",
    "reservation": "--reservation={}",
    "cpus_per_tres": "--cpus-per-gpu={}",
    "min_mem_per_node": "--mem={}M",
    "min_mem_per_cpu": "--mem-per-cpu={}M",
    "mem_per_tres": "--mem-per-gpu={}M",
    "array_inx": "-a {}",
}


def job_fields(flags: Sequence[str]) -> dict[str, str | int | float]:
    """Return job_desc fields; flags that do not concern GPUs are passed over.

    Raises:
        click.UsageError: a flag lacks its value, or a number is none.
        GrammarError: --nodes, --time or an amount of memory cannot be read.
    """
    known = [flag for flag in flags if not flag.startswith("--exclusive=")]  # no whole nodes
    given = _parser.make_context("sbatch", known).params
    fields: dict[str, str | int | float] = {**_tres(given), **_memory(given)}
    for name in _COUNTS:
        if given[name] is not None:
            fields[name] = given[name]
    for name in (*_TEXTS, "reservation", "array"):
        if given[name]:
            fields[_FIELD.get(name, name)] = given[name]
    if given["nodes"]:
        fields["min_nodes"], fields["max_nodes"] = _nodes(given["nodes"])
    if given["time"]:
        fields["time_limit"] = _minutes(given["time"])
    if given["time_min"]:
        fields["time_min"] = _minutes(given["time_min"])
    if given["cpus_per_gpu"]:
        fields["cpus_per_tres"] = f"gres/gpu:{given['cpus_per_gpu']}"
    if given["exclusive"]:
        fields["shared"] = 0
    return fields


def _memory(given: dict[str, Any]) -> dict[str, str | int | float]:
    fields: dict[str, str | int | float] = {}
    if given["mem"]:
        fields["min_mem_per_node"] = _mib(given["mem"])
    if given["mem_per_cpu"]:
        fields["min_mem_per_cpu"] = _mib(given["mem_per_cpu"])
    if given["mem_per_gpu"]:
        fields["mem_per_tres"] = f"gres/gpu:{_mib(given['mem_per_gpu'])}"
    return fields


def _mib(value: str) -> int:
    match = _MEMORY.fullmatch(value)
    if match is None:
        raise GrammarError("not an amount", text=value, part=value, remedy="--mem=16G")
    return -int(-int(match[1]) * _MIB[match[2].upper()] // 1)


def _tres(given: dict[str, Any]) -> dict[str, str]:
    """GPU flags as the server's texts; --gres and --gpus-per-node share a field, as in Slurm."""
    per_node = [f"gres/{item}" for item in (given["gres"] or "").split(",") if item]
    if given["gpus_per_node"]:
        per_node += _gpus(given["gpus_per_node"])
    texts = {"tres_per_node": ",".join(per_node)}
    for flag, field in _GPU_FIELDS.items():
        texts[field] = ",".join(_gpus(given[flag] or ""))
    if given["tres_per_task"]:
        texts["tres_per_task"] = given["tres_per_task"]
    return {field: text for field, text in texts.items() if text}


def _gpus(value: str) -> list[str]:
    return [f"gres/gpu:{item}" for item in value.split(",") if item]


def _nodes(value: str) -> tuple[int, int]:
    match = _NODES.fullmatch(value)
    if match is None:
        raise GrammarError("not a number of nodes", text=value, part=value, remedy="-N2 or -N2-4")
    return int(match[1]), int(match[2] or match[1])


def _minutes(value: str) -> int:
    """Read Slurm's time forms (M, M:S, H:M:S, D-H, D-H:M, D-H:M:S) as minutes, rounded up."""
    if value.upper() in ("UNLIMITED", "INFINITE", "-1"):
        return UNLIMITED_MIN
    match = _TIME.fullmatch(value)
    if match is None:
        raise GrammarError("not a time", text=value, part=value, remedy="-t 30 or -t 1-12:00:00")
    days, first, second, third = (int(group or 0) for group in match.groups())
    if match[1] is not None or match[4] is not None:
        seconds = first * 3600 + second * 60 + third
    else:
        seconds = first * 60 + second
    return -(-(days * 86_400 + seconds) // 60)


def passed_over(flags: Sequence[str]) -> list[str]:
    """Return the flags that `job_fields` does not look at; some may be misspelt."""
    rest = _parser.make_context("sbatch", list(flags)).args
    return [flag for flag in rest if flag.startswith("-")]


def script_of(flags: Sequence[str]) -> str | None:
    """Return the first word that is no flag: where sbatch looks for the script."""
    rest = _parser.make_context("sbatch", list(flags)).args
    return next((word for word in rest if not word.startswith("-")), None)


def command_flags(line: str) -> list[str]:
    """Return the words of a submission's command line without the command.

    Raises:
        ValueError: it has an open quote.
    """
    words = shlex.split(line)
    return words[1:] if words and PurePath(words[0]).name in _COMMANDS else []


def as_flags(fields: Mapping[str, Any]) -> str:
    """Return the flags that make these job_desc fields, quoted for a shell.

    >>> as_flags({"partition": "mig", "tres_per_node": "gres/gpu:a100_3g.20gb:1"})
    '-p mig --gres=gpu:a100_3g.20gb:1'
    """
    known = {name: value for name, value in fields.items() if value not in (None, "")}
    least, most = known.pop("min_nodes", None), known.pop("max_nodes", None)
    if least is not None:
        known["nodes"] = least if most in (None, least) else f"{least}-{most}"
    shown = [
        _SHOWN[name].format(shlex.quote(_written(name, str(known[name]))))
        for name in _SHOWN
        if name in known
    ]
    return " ".join([*shown, *(["--exclusive"] if known.get("shared") == 0 else [])])


def _written(field: str, text: str) -> str:
    """A field's text as a user writes it in its flag: without the server's prefixes."""
    if field in ("cpus_per_tres", "mem_per_tres"):
        return re.split("[:=]", text)[-1]
    if not field.startswith("tres_per_"):
        return text
    prefix = r"gres[/:]" if field == "tres_per_node" else r"gres[/:]gpu[:=]?"
    # Counts per task come with "=" where the server wants it; the flag takes ":".
    items = (re.sub(f"^{prefix}", "", item).replace("=", ":") for item in text.split(","))
    return ",".join(item or "1" for item in items)
