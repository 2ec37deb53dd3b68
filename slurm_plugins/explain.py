# SPDX-License-Identifier: Apache-2.0
"""What each rule would do to a request, in words and as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.config import Config
from fairwatt.core.errors import FairwattError
from fairwatt.core.gres import Spelling
from fairwatt.slurm_plugins import facts
from fairwatt.slurm_plugins.engine import Decision, Policy, Step, decide
from fairwatt.slurm_plugins.policy_file import load_policy
from fairwatt.slurm_plugins.sbatch_flags import as_flags
from fairwatt.slurm_plugins.site import Facts, Site, load_facts

__all__ = ["DEMO_SITE", "Explanation", "as_text", "explain_job", "find_facts"]

DEMO_SITE = Path(__file__).with_name("demo_site.toml")


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A job's fields, the decision on them, and where the facts came from."""

    job: Mapping[str, Any]
    decision: Decision
    facts: str


def find_facts(site_file: Path | None, config: Config) -> tuple[Facts, str]:
    """Return facts and their origin: the file, else Slurm if it answers, else the demo site.

    Raises:
        ConfigError: the file cannot be used.
    """
    if site_file is not None:
        return load_facts(site_file), str(site_file)
    try:
        return facts.from_slurm(config["site.slurm_conf"] or None), "Slurm"
    except FairwattError:
        return load_facts(DEMO_SITE), "the demo site that comes with fairwatt (no Slurm answers)"


def explain_job(
    job: Mapping[str, str | int | float], site_file: Path | None, config: Config
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
    return Explanation(job=job, decision=decision, facts=origin)


def as_text(explanation: Explanation) -> str:
    """Return the explanation as lines for people."""
    decision = explanation.decision
    lines = [f"asked     {as_flags(explanation.job) or 'nothing that concerns GPUs'}"]
    lines += [line for step in decision.steps for line in _step_lines(step)]
    if not decision.steps:
        lines += decision.say or ["nothing   the job asks for no GPU, so no rule looks at it"]
    lines.append(f"result    {_result(decision)}")
    lines.append(f"facts     {explanation.facts}")
    return "\n".join(lines)


def _step_lines(step: Step) -> list[str]:
    head = f"{step.rule:<15} {step.mode:<8}"
    if step.mode == "off":
        return [f"{head} (switched off)"]
    told = [f"{note.code} {note.text}" for note in step.notes]
    if step.rejection is not None:
        told.append(f"{step.rejection.code} refused: {step.rejection.text}")
    return [f"{head} {text}" for text in told or ["nothing to do"]]


def _result(decision: Decision) -> str:
    if not decision.accepted:
        return "refused"
    changes = as_flags(decision.edits)
    return f"accepted, as if written {changes}" if changes else "accepted, unchanged"
