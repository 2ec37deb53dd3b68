# SPDX-License-Identifier: Apache-2.0
"""How an intent is written: the options of the commands, and the text of a job's field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.lab.matrix.intents import Intent

__all__ = [
    "FIELDS",
    "FORMS",
    "OWN",
    "SPELLINGS",
    "WIRE",
    "Form",
    "Level",
    "field_text",
    "option",
]

Level = Literal["node", "job", "task", "socket", "counted"]

FIELDS: dict[Level, str] = {
    "node": "tres_per_node",
    "job": "tres_per_job",
    "task": "tres_per_task",
    "socket": "tres_per_socket",
}
"""The field of a job that each level is written to."""

OWN = "own"
SPELLINGS = (OWN, "gpu:", "gres:gpu:", "gres/gpu:", "=")
"""How an option's value is spelled; "own" is the spelling of Slurm's own manual."""

WIRE = ("gpu:", "gres:gpu:", "gres/gpu:", "gpu=", "gres:gpu=", "gres/gpu=")
"""How a client of the API may spell the field itself; "gpu:" is 20.11's."""


@dataclass(frozen=True)
class Form:
    """An option that asks for GPUs: where its value goes, and what must stand beside it.

    `bare`: its value has no name of the resource (`a100:2`). `since`: the first release with it.
    """

    flag: str
    level: Level
    beside: tuple[str, ...] = ()
    bare: bool = True
    since: str = "20.11"
    manual: str = "gpu:"


FORMS: tuple[Form, ...] = (
    Form("--gres", "node", bare=False),
    Form("--gpus", "job"),
    Form("--gpus-per-node", "node"),
    Form("--gpus-per-task", "task", ("-n1",)),
    Form("--gpus-per-socket", "socket", ("--sockets-per-node=1",)),
    Form("--tres-per-task", "task", ("-n1",), bare=False, since="23.11", manual="gres/gpu:"),
    Form("--ntasks-per-gpu", "counted"),
)


def option(form: Form, intent: Intent, spelling: str = OWN) -> tuple[str, ...] | None:
    """The form's words for an intent in a spelling; None where it cannot say that so."""
    if form.level == "counted":
        return _tasks(intent) if spelling == OWN else None
    value = _value(form, intent, spelling)
    if value is None or (spelling != OWN and value == _value(form, intent, OWN)):
        return None
    return (*form.beside, f"{form.flag}={value}")


def _tasks(intent: Intent) -> tuple[str, ...] | None:
    """Two tasks a GPU: the count of GPUs follows from the tasks."""
    if intent.type is not None or not intent.count:
        return None
    return (f"-n{2 * intent.count}", "--ntasks-per-gpu=2")


def _value(form: Form, intent: Intent, spelling: str) -> str | None:
    equals = spelling == "="
    words = field_text(intent, "gpu=" if equals else "gpu:")
    if equals and intent.count is None:
        return None
    if form.bare:
        if spelling in (OWN, "="):
            return words.removeprefix("gpu").lstrip(":=") or None
        return f"{spelling.removesuffix('gpu:')}{words}"
    prefix = form.manual if spelling in (OWN, "=") else spelling
    return f"{prefix.removesuffix('gpu:')}{words}"


def field_text(intent: Intent, spelling: str) -> str:
    """What a client of the API writes to the field: `gres/gpu:a100=2`."""
    head = spelling[:-1]
    words = [head, intent.type] if intent.type else [head]
    count = [] if intent.count is None else [str(intent.count)]
    return spelling[-1].join([":".join(words), *count])
