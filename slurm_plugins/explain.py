# SPDX-License-Identifier: Apache-2.0
"""What each rule would do to a request, in words and as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.config import Config
from fairwatt.core.errors import FairwattError, PolicyError
from fairwatt.core.gres import Spelling
from fairwatt.slurm_plugins import facts
from fairwatt.slurm_plugins.engine import Decision, Policy, Step, decide
from fairwatt.slurm_plugins.history import PastJob, read_job
from fairwatt.slurm_plugins.message import shown
from fairwatt.slurm_plugins.policy_file import load_policy
from fairwatt.slurm_plugins.sbatch_flags import as_flags, job_fields, passed_over, script_of
from fairwatt.slurm_plugins.sbatch_script import MAX_SCRIPT_BYTES, is_script, script_flags
from fairwatt.slurm_plugins.site import Facts, Site, load_facts

__all__ = [
    "DEMO_SITE",
    "Explanation",
    "as_text",
    "explain_job",
    "find_facts",
    "past_job",
    "submission",
]

_NOTHING = "nothing   the job asks for no GPU, and no rule that is on looks at such jobs"

DEMO_SITE = Path(__file__).with_name("demo_site.toml")


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A job's fields, the decision on them, and where the facts came from.

    `recorded` is what the hook left of its own decision in the job's admin comment, if it is one.
    """

    job: Mapping[str, Any]
    decision: Decision
    facts: str
    recorded: Mapping[str, Any] | None = None


def find_facts(site_file: Path | None, config: Config) -> tuple[Facts, str]:
    """Return facts and their origin: the file, else Slurm if it answers, else the demo site.

    Raises:
        ConfigError: the file cannot be used.
    """
    if site_file is not None:
        return load_facts(site_file), str(site_file)
    try:
        conf, backend = config["site.slurm_conf"] or None, config["site.slurm_backend"]
        return facts.from_slurm(conf, backend), "Slurm"
    except FairwattError:
        return load_facts(DEMO_SITE), "the demo site that comes with fairwatt (no Slurm answers)"


def submission(words: Sequence[str]) -> tuple[dict[str, str | int | float], list[str]]:
    """Return the job_desc fields of sbatch's words, and the flags that are not looked at.

    As for sbatch, flags of the command line go before those of the script.

    Raises:
        click.UsageError: a flag lacks its value, or a number is none.
        GrammarError: a value or the script cannot be read.
        PolicyError: the script is not there.
    """
    flags = list(words)
    script = script_of(words)
    if script is not None and "/" in script and not Path(script).exists():
        raise PolicyError("no such script", place="the command line", value=script)
    if script is not None and is_script(script):
        text = Path(script).read_bytes()[:MAX_SCRIPT_BYTES].decode("utf-8", "replace")
        flags = [*script_flags(text), *words[: words.index(script)]]
    return {**job_fields(flags), "has_script": 1}, passed_over(flags)


def past_job(job_id: str, config: Config) -> PastJob:
    """Return a job as it was submitted, as far as Slurm's accounting knows.

    Raises:
        CommandError: the accounting does not answer.
        PolicyError: it does not know the job.
    """
    found = read_job(job_id, config["site.slurm_conf"] or None)
    if found is None:
        raise PolicyError("no such job", place="Slurm's accounting", value=job_id)
    return found


def explain_job(
    job: Mapping[str, str | int | float],
    site_file: Path | None,
    config: Config,
    recorded: Mapping[str, Any] | None = None,
) -> Explanation:
    """Judge a job by the configured rules.

    Raises:
        ConfigError: the site file cannot be used.
        CatalogueError: a catalogue file is wrong.
    """
    known, origin = find_facts(site_file, config)
    site = Site(known, load_catalogue(config["site.catalogue_dir"] or None))
    policy = Policy(site, load_policy(Path(config["policyd.policy_file"])).rules)
    decision = decide(job, policy, spelling=Spelling.SLASH)
    return Explanation(job=job, decision=decision, facts=origin, recorded=recorded)


def as_text(explanation: Explanation) -> str:
    """Return the explanation as lines for people."""
    decision = explanation.decision
    lines = [f"asked     {as_flags(explanation.job) or 'nothing that concerns GPUs'}"]
    if explanation.recorded is not None:
        lines += _recorded_lines(explanation.recorded)
    lines += [line for step in decision.steps for line in _step_lines(step)]
    if decision.steps:
        lines += [f"{'(all rules)':<22} {'':<8} {note.code} {note.text}" for note in decision.told]
    lines += _quiet(decision.steps)
    if not decision.steps:
        lines += decision.say or [
            "nothing   the job asks for no GPU, and no rule that is on looks at such jobs"
        ]
    lines.append(f"result    {_result(decision)}")
    lines.append(f"facts     {explanation.facts}")
    return "\n".join(lines)


def _recorded_lines(recorded: Mapping[str, Any]) -> list[str]:
    """What was decided when the job was submitted; users cannot write it, but stay careful."""
    given = shown(str(recorded.get("given", "?")), 200)
    lines = [f"at submit given {given}"]
    notes = recorded.get("notes")
    for each in notes if isinstance(notes, list) else []:
        if isinstance(each, list) and len(each) == 2:
            lines.append(f"at submit {shown(str(each[0]))} {shown(str(each[1]), 400)}")
    return [*lines, "today"]


def _step_lines(step: Step) -> list[str]:
    head = f"{step.rule:<22} {step.mode:<8}"
    told = [f"{note.code} {note.text}" for note in step.notes]
    if step.rejection is not None:
        told.append(f"{step.rejection.code} refused: {step.rejection.text}")
    return [f"{head} {text}" for text in told]


def _quiet(steps: tuple[Step, ...]) -> list[str]:
    """One line for the rules that say nothing, one for those that are off."""
    silent = [step.rule for step in steps if not _step_lines(step) and step.mode != "off"]
    off = [step.rule for step in steps if step.mode == "off"]
    lines = [f"no change {', '.join(silent)}"] if silent else []
    return [*lines, f"off       {', '.join(off)}"] if off else lines


def _result(decision: Decision) -> str:
    if not decision.accepted:
        return "refused"
    edits = {name: value for name, value in decision.edits.items() if name != "admin_comment"}
    changes = as_flags(edits)
    return f"accepted, as if written {changes}" if changes else "accepted, unchanged"
