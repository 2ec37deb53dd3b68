# SPDX-License-Identifier: Apache-2.0
"""Reads sbatch's usual flags into the job_desc fields that the submit hook would see.

>>> job_fields(["--gres=gpu:20gb:1", "-n1"])
{'tres_per_node': 'gres/gpu:20gb:1', 'num_tasks': 1}
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from fairwatt.core.errors import GrammarError

__all__ = ["job_fields"]

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
_FIELD = {"constraint": "features", "nodelist": "req_nodes", "exclude": "exc_nodes"}
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
        click.Option(["--reservation"]),
        click.Option(["-N", "--nodes"]),
        click.Option(["-t", "--time"]),
        *(click.Option([short, f"--{name}"]) for name, short in _TEXTS.items()),
    ],
)


def job_fields(flags: Sequence[str]) -> dict[str, str | int | float]:
    """Return job_desc fields; flags that do not concern GPUs are passed over.

    Raises:
        click.UsageError: a flag lacks its value, or a number is none.
        GrammarError: --nodes or --time cannot be read.
    """
    given = _parser.make_context("sbatch", list(flags)).params
    fields: dict[str, str | int | float] = {**_tres(given)}
    for name in ("num_tasks", "cpus_per_task", "ntasks_per_node", "ntasks_per_gpu"):
        if given[name] is not None:
            fields[name] = given[name]
    for name in (*_TEXTS, "reservation"):
        if given[name]:
            fields[_FIELD.get(name, name)] = given[name]
    if given["nodes"]:
        fields["min_nodes"], fields["max_nodes"] = _nodes(given["nodes"])
    if given["time"]:
        fields["time_limit"] = _minutes(given["time"])
    return fields


def _tres(given: dict[str, Any]) -> dict[str, str]:
    """GPU flags as the server's texts; --gres and --gpus-per-node share a field, as in Slurm."""
    per_node = [f"gres/{item}" for item in (given["gres"] or "").split(",") if item]
    if given["gpus_per_node"]:
        per_node += _gpus(given["gpus_per_node"])
    texts = {"tres_per_node": ",".join(per_node)}
    for flag, field in _GPU_FIELDS.items():
        texts[field] = ",".join(_gpus(given[flag] or ""))
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
    match = _TIME.fullmatch(value)
    if match is None:
        raise GrammarError("not a time", text=value, part=value, remedy="-t 30 or -t 1-12:00:00")
    days, first, second, third = (int(group or 0) for group in match.groups())
    if match[1] is not None or match[4] is not None:
        seconds = first * 3600 + second * 60 + third
    else:
        seconds = first * 60 + second
    return -(-(days * 86_400 + seconds) // 60)
