# SPDX-License-Identifier: Apache-2.0
"""docs/submit-matrix.md from the recorded results; `python -m tests.lab.matrix.page` writes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tests.lab.matrix.cases import ENTRIES, Case, all_cases
from tests.lab.matrix.expect import own, why
from tests.lab.matrix.forms import FORMS, OWN, SPELLINGS, Form, option
from tests.lab.matrix.intents import INTENTS, Intent
from tests.lab.matrix.outcomes import NO_OPTION
from tests.lab.matrix.results import load, of_release
from tests.lab.matrix.updates import UPDATES
from tests.lab.paths import REPOSITORY

__all__ = ["PAGE", "as_markdown", "write"]

PAGE = REPOSITORY / "docs" / "submit-matrix.md"

_HEAD = """# One intent, one decision

Whatever form a request has, the policy decides by what is meant. This page shows it: {cases}
submissions to live Slurm {releases}.
Each cluster has the partitions `gpu` (the default: A100 and H100 boards), `mig` (MIG slices of 5
and 20 GB on mig01) and `all`. The right outcome of each intent was written down by hand
(`tests/lab/matrix/intents.py`); `make test-matrix` submits all again and compares. The page is
written from its results; do not edit it by hand.

`FWnnn` is a refusal, see [messages.md](messages.md); "one GPU" means one per node, job, task or
socket, as the option says.
"""
_INTENTS = """## What a request becomes

With sbatch, in the spelling of Slurm's manual. A cell is what the job asks for afterwards.
"""
_ENTRIES = """## Where a request enters

Every intent in every form, as above: how many come out as the intent says. What is missing, and
why, is in the next table.
"""
_EXCEPTIONS = """## What clients do before the policy can see it

The policy sees what arrives at slurmctld. These are all the outcomes that differ from what the
intent says, with the reason.
"""
_SPELLINGS = """## Spellings

An option's value may be written in more ways than the manual's. A spelling that Slurm's client
lets through means the same, or is refused; it is never taken for something else.
"""
_API = """## Clients of the API

slurmrestd and programs on Slurm's library send the text of a field as their user wrote it. Each
spelling means the same on every release, and the job gets the spelling of its server.
"""
_UPDATES = """## Changes of a pending job

`scontrol update` by the job's owner is judged on the job as it will be.
"""


def as_markdown() -> str:
    """The page's text."""
    releases, _ = load()
    per_release = {name: of_release(name) for name in releases}
    names = f"{', '.join(releases[:-1])} and {releases[-1]}"
    cases = sum(len(each) for each in per_release.values())
    parts = [
        _HEAD.format(cases=f"{cases:,}", releases=names),
        _INTENTS,
        _table(["Intent", "Options", *(f"`{form.flag}`" for form in FORMS)],
               (_intent_row(intent, per_release) for intent in INTENTS)),
        _ENTRIES,
        _table(["Entry point", *releases], (_entry_row(e, per_release) for e in ENTRIES[:-1])),
        _EXCEPTIONS,
        _table(["Entry point", "Option", "Intents", "Releases", "Outcome", "Why"],
               _exceptions(per_release)),
        _SPELLINGS,
        _table(["Option", "Written as", *releases], _spelling_rows(per_release)),
        _API,
        _table(["Field", "Spelling", *releases], _api_rows(per_release)),
        _UPDATES,
        _table(["Job", "Change", "Outcome"], _update_rows(per_release)),
    ]  # fmt: skip
    return "\n".join(parts)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join([f"| {' | '.join(_cell(each) for each in line)} |" for line in lines] + [""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


PerRelease = Mapping[str, Mapping[str, str]]


def _intent_row(intent: Intent, per_release: PerRelease) -> list[str]:
    words = " ".join(intent.options)
    cells = [_intent_cell(Case("sbatch", form, OWN, intent), per_release) for form in FORMS]
    return [intent.name, f"`{words}`" if words else "", *cells]


def _intent_cell(case: Case, per_release: PerRelease) -> str:
    if option(case.form, case.intent) is None:
        return "–"
    found = {name: each[case.key] for name, each in per_release.items() if case.key in each}
    known = {name: text for name, text in found.items() if text != NO_OPTION}
    return _by_release({name: _short(text) for name, text in known.items()})


def _by_release(texts: Mapping[str, str]) -> str:
    """One text where releases agree, else each with its releases."""
    groups: dict[str, list[str]] = {}
    for name, text in texts.items():
        groups.setdefault(text, []).append(name)
    if len(groups) == 1:
        return next(iter(groups))
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in groups.items())


def _short(text: str) -> str:
    """`gpu:a100:2 per node in gpu` without the level, which the column says."""
    return re.sub(r" (?:per \w+|counted by Slurm)(?= in )", "", text)


def _entry_row(entry: str, per_release: PerRelease) -> list[str]:
    cells = []
    for outcomes in per_release.values():
        cases = [
            case
            for case in all_cases()
            if case.entry == entry and case.spelling == OWN and case.key in outcomes
        ]
        same = sum(outcomes[case.key] == own(case) for case in cases)
        cells.append(f"{same} of {len(cases)}" if cases else "no such program")
    return [entry, *cells]


def _exceptions(per_release: PerRelease) -> Iterable[list[str]]:
    """Outcomes other than the intent's own, alike ones in one row."""
    rows: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for case in all_cases():
        if case.spelling != OWN:
            continue
        found = {name: each[case.key] for name, each in per_release.items() if case.key in each}
        for name, outcome in found.items():
            if outcome != own(case):
                kind = re.sub(r" in \w+( without \S+)?( with \S+)?$", "", outcome)
                reason = why(case, outcome, name) or ""
                seen = rows.setdefault((case.entry, case.form.flag, kind, reason), {})
                seen.setdefault(case.intent.name, []).append(name)
    return _joined_rows(rows)


def _joined_rows(rows: Mapping[tuple[str, ...], Mapping[str, list[str]]]) -> Iterable[list[str]]:
    """One row for all entry points and options of which the same holds."""
    joined: dict[tuple[str, str, str, str], dict[str, list[str]]] = {}
    for (entry, flag, kind, reason), intents in rows.items():
        releases = ", ".join(sorted({name for names in intents.values() for name in names}))
        what = "all" if len(intents) > 18 else "; ".join(intents)
        entries = joined.setdefault((what, releases, kind, reason), {})
        entries.setdefault(entry, []).append(flag)
    for (what, releases, kind, reason), entries in joined.items():
        by_flags: dict[str, list[str]] = {}
        for entry, flags in entries.items():
            by_flags.setdefault(" ".join(f"`{flag}`" for flag in flags), []).append(entry)
        for flags, names in by_flags.items():
            yield [", ".join(names), flags, what, releases, kind, reason]


def _spelling_rows(per_release: PerRelease) -> Iterable[list[str]]:
    for form in FORMS:
        for spelling in SPELLINGS[1:]:
            cases = [c for c in all_cases() if _is(c, "sbatch", form, spelling)]
            if cases:
                yield [f"`{form.flag}`", _example(form, spelling), *_tally(cases, per_release)]


def _example(form: Form, spelling: str) -> str:
    words = option(form, Intent("", "a100", 2), spelling) or ()
    return f"`{words[-1]}`"


def _is(case: Case, entry: str, form: Form, spelling: str) -> bool:
    return (case.entry, case.form, case.spelling) == (entry, form, spelling)


def _tally(cases: list[Case], per_release: PerRelease) -> list[str]:
    """Per release: the same decision, or what else came how often."""
    cells = []
    for outcomes in per_release.values():
        kinds: dict[str, int] = {}
        for case in cases:
            outcome = outcomes.get(case.key, "not tried")
            kind = re.sub(r" in \w+( without \S+)?( with \S+)?$", "", outcome)
            kind = "the same" if outcome == own(case) else kind
            kinds[kind] = kinds.get(kind, 0) + 1
        shown = [f"{kind} ({count})" for kind, count in sorted(kinds.items())]
        cells.append(next(iter(kinds)) if len(kinds) == 1 else ", ".join(shown))
    return cells


def _api_rows(per_release: PerRelease) -> Iterable[list[str]]:
    rows: dict[tuple[Form, str], list[Case]] = {}
    for case in all_cases():
        if case.entry == "API":
            rows.setdefault((case.form, case.spelling), []).append(case)
    for (form, spelling), cases in rows.items():
        example = {"=": f"{spelling[:-1]}:a100=2", ":": f"{spelling}a100:2"}[spelling[-1]]
        cells = [
            f"{sum(outcomes.get(c.key) == own(c) for c in cases)} of {len(cases)}"
            for outcomes in per_release.values()
        ]
        yield [f"`tres_per_{form.level}`", f"`{example}`", *cells]


def _update_rows(per_release: PerRelease) -> Iterable[list[str]]:
    for update in UPDATES:
        found = {name: each.get(update.key, "") for name, each in per_release.items()}
        change = f"`JobId=N{update.of} {update.change}`"
        yield [f"`{update.job}`", change, _by_release(found)]


def write() -> None:
    """Write the page."""
    PAGE.write_text(as_markdown(), encoding="utf-8")


if __name__ == "__main__":
    write()
