# SPDX-License-Identifier: Apache-2.0
"""Every case of the matrix, an intent in a form and spelling at an entry point, as shell text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.lab.matrix.forms import FORMS, OWN, SPELLINGS, WIRE, Form, field_text, option
from tests.lab.matrix.intents import INTENTS, SPELLED, Intent

__all__ = ["ENTRIES", "Case", "Places", "all_cases", "crontab", "shell"]

ENTRIES = (
    "sbatch",
    "array",
    "hetjob",
    "salloc",
    "srun",
    "srun + client filter",
    "--test-only",
    "scrontab",
    "API",
)
HELD = "sbatch --hold"
LATER = "--immediate --begin=now+1hour"
"""salloc and srun: Slurm makes the job, finds that it cannot start now, and the command ends."""

PLACEHOLDER = "wire" + "_" * 60


@dataclass(frozen=True)
class Case:
    """One submission of the matrix; `form` is an option, or for the API a field's option."""

    entry: str
    form: Form
    spelling: str
    intent: Intent

    @property
    def key(self) -> str:
        """What names the case in the record of results."""
        return " | ".join([self.entry, self.form.flag, self.spelling, self.intent.name])


@dataclass(frozen=True)
class Places:
    """What the shell text has to name: clients' slurm.conf with the filter, and the API shim."""

    client_conf: Path
    wire: Path


def all_cases() -> tuple[Case, ...]:
    """Every case, whether or not a release knows its form."""
    return (*_in_own_spelling(), *_in_others(), *_at_the_api())


def _in_own_spelling() -> Iterator[Case]:
    for entry in ENTRIES[:-1]:
        for form in FORMS:
            for intent in INTENTS:
                if option(form, intent) is not None:
                    yield Case(entry, form, OWN, intent)


def _in_others() -> Iterator[Case]:
    for form in FORMS:
        for spelling in SPELLINGS[1:]:
            for intent in INTENTS:
                if intent.name in SPELLED and option(form, intent, spelling) is not None:
                    yield Case("sbatch", form, spelling, intent)


def _at_the_api() -> Iterator[Case]:
    fields = {form.level: form for form in FORMS[1:5]}
    for form in fields.values():
        for spelling in WIRE:
            for intent in INTENTS:
                tried = spelling == WIRE[0] or intent.name in SPELLED
                if tried and not (intent.count is None and spelling.endswith("=")):
                    yield Case("API", form, spelling, intent)


def shell(case: Case, tag: str, places: Places) -> str:
    """The command of a case; its job has `tag` for a comment."""
    words = shlex.join(
        [*case.intent.options, *(option(case.form, case.intent, case.spelling) or ())]
    )
    job = f"--comment={tag} {words}"
    if case.entry == "array":
        return f"{HELD} --array=0-3 {job} --wrap=true"
    if case.entry == "hetjob":
        # Two alike; but what must be refused, and a node that both want, stand in the second only.
        first = "--comment=other" if case.intent.refused or case.intent.node else job
        return f"{HELD} {first} : {job} --wrap=true"
    if case.entry == "--test-only":
        return f"sbatch --test-only {job} --wrap=true"
    if case.entry in ("salloc", "srun"):
        return f"{case.entry} {LATER} {job} true"
    if case.entry == "srun + client filter":
        return f"SLURM_CONF={places.client_conf} srun {LATER} {job} true"
    if case.entry == "API":
        return _at_wire(case, tag, places)
    return f"{HELD} {job} --wrap=true"


def _at_wire(case: Case, tag: str, places: Places) -> str:
    words = [*case.intent.options, *case.form.beside, f"{case.form.flag}={PLACEHOLDER}:1"]
    text = shlex.quote(field_text(case.intent, case.spelling))
    preload = f'LD_PRELOAD="$LD_PRELOAD:{places.wire}"'
    return f"{preload} WIRE={text} {HELD} --comment={tag} {shlex.join(words)} --wrap=true"


def crontab(cases: dict[str, Case]) -> str:
    """The text of a crontab with these cases by their tags; they begin at New Year."""
    lines = []
    for tag, case in cases.items():
        words = [*case.intent.options, *(option(case.form, case.intent) or ())]
        lines += [f"#SCRON {word}" for word in (f"--comment={tag}", *words)]
        lines.append("0 0 1 1 * /bin/true")
    return "\n".join([*lines, ""])
