# SPDX-License-Identifier: Apache-2.0
"""Lint for a policy file: its text, its rules on trial requests, and its words on this site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from fairwatt.core.errors import PolicyError
from fairwatt.core.records import GpuAsk, JobRequest
from fairwatt.slurm_plugins.policy_file import PolicyFile, inspect_policy, read_policy
from fairwatt.slurm_plugins.policy_show import changed_options
from fairwatt.slurm_plugins.rule import Options
from fairwatt.slurm_plugins.rules.account_types import AccountTypesOptions
from fairwatt.slurm_plugins.rules.cpu_only import CpuOnlyOptions
from fairwatt.slurm_plugins.rules.interactive_limits import InteractiveOptions
from fairwatt.slurm_plugins.rules.routing import RoutingOptions
from fairwatt.slurm_plugins.rules.time_limits import TimeOptions
from fairwatt.slurm_plugins.site import Site
from fairwatt.slurm_plugins.words import Vocabulary

__all__ = ["Problem", "check_policy", "judges_cpu_jobs", "try_rules"]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something to mend; an `error` keeps the file from being used, a `warning` does not."""

    level: Literal["error", "warning"]
    text: str


def check_policy(path: Path, site: Site) -> tuple[PolicyFile, list[Problem]]:
    """Return a policy file as far as it can be used, and all that is wrong with it.

    Raises:
        ConfigError: the file cannot be read.
        PolicyError: a site's own rule cannot be loaded.
    """
    policy, faults = inspect_policy(read_policy(path), str(path))
    problems = [Problem(level="error", text=str(fault)) for fault in faults]
    problems += [Problem(level="error", text=text) for text in _failures(policy, site)]
    warnings = (
        *_unusual(policy),
        *_unknown_words(policy, site),
        *_empty_words(policy),
        *_unknown_in_rules(policy, site),
    )
    problems += [Problem(level="warning", text=text) for text in warnings]
    return policy, problems


def try_rules(policy: PolicyFile, site: Site) -> None:
    """Run every rule that is on, on trial requests, before it may judge a real job.

    Raises:
        PolicyError: a rule raises on one of them.
    """
    for text in _failures(policy, site):
        raise PolicyError(text, place=policy.place, remedy="mend the rule or switch it off")


def judges_cpu_jobs(policy: PolicyFile) -> list[str]:
    """The rules for jobs without GPUs that the site itself has switched on."""
    return [
        rule.name
        for rule in policy.rules
        if rule.mode != "off" and rule.spec.cpu_jobs and rule.spec.mode == "off"
    ]


def _failures(policy: PolicyFile, site: Site) -> Iterator[str]:
    """One line for each rule that raises."""
    requests = tuple(_trials(site))
    for rule in policy.rules:
        if rule.mode == "off":
            continue
        for request in requests:
            try:
                rule.spec.judge(request, site, rule.options)
            except Exception as error:
                told = f"{type(error).__name__}: {error}"
                yield f"rule {rule.name} fails on {_shown(request)}: {told}"
                break


def _shown(request: JobRequest) -> str:
    """What of a request is not the default."""
    default = msgspec.to_builtins(JobRequest())
    changed = {k: v for k, v in msgspec.to_builtins(request).items() if v != default[k]}
    return ", ".join(f"{name}={value}" for name, value in changed.items()) or "an empty request"


def _trials(site: Site) -> Iterator[JobRequest]:
    """Requests of every shape on this site: each partition, type and level, and none."""
    yield JobRequest()
    yield JobRequest(kind="interactive", num_tasks=4, cpus_per_task=2, time_limit_min=60)
    places = [None, *list(site.partitions)[:20]]
    for type_ in [None, *(name for name in site.types if name), "20gb"]:
        for partition in places:
            ask = GpuAsk(level="node", type=type_, count=2)
            yield JobRequest(gpus=(ask,), partition=partition, min_nodes=2, cpus_per_task=4)
    for level in ("job", "task", "socket"):
        ask = GpuAsk(level=level, type=None, count=1)
        yield JobRequest(gpus=(ask,), num_tasks=3, mem_per_node_mib=4096, exclusive=True)


def _unusual(policy: PolicyFile) -> Iterator[str]:
    for rule in policy.rules:
        if rule.mode == "off" and changed_options(rule):
            yield f"{policy.place}: rules.{rule.name} has options but is off: set mode"
    for name in judges_cpu_jobs(policy):
        yield (
            f"{policy.place}: rules.{name} also judges jobs without GPUs: "
            'the hook sends them only with jobs = "all" in fairwatt_hook.lua '
            "(variable of the role: fairwatt_controller_jobs)"
        )


def _unknown_words(policy: PolicyFile, site: Site) -> Iterator[str]:
    """What the site's own words name that nobody knows: a request passes over it."""
    vocabulary = Vocabulary(site, policy.words)
    for word, members in policy.words.items():
        for member in members:
            if vocabulary.read(member).unknown:
                yield f"{policy.place}: words.{word}: {member} is no GPU type or word known here"


def _empty_words(policy: PolicyFile) -> Iterator[str]:
    """Words that mean each other only, and so nothing."""
    for word in policy.words:
        reached, left = {word}, [word]
        while left:
            members = {each.casefold() for each in policy.words.get(left.pop(), ())} - reached
            reached |= members
            left += members
        if reached <= policy.words.keys():
            yield f"{policy.place}: words.{word} means nothing: only words that mean each other"


def _unknown_in_rules(policy: PolicyFile, site: Site) -> Iterator[str]:
    """Types and partitions that the rules which are on name, and this cluster does not have."""
    vocabulary = Vocabulary(site, policy.words)
    for rule in policy.rules:
        if rule.mode == "off":
            continue
        place = f"{policy.place}: rules.{rule.name}"
        for word in _words_of(rule.options):
            if vocabulary.read(word).unknown:
                yield f"{place}: {word} is no GPU type or word known here"
        for partition in _partitions_of(rule.options):
            if partition not in site.partitions:
                yield f"{place}: there is no partition {partition}"


def _words_of(options: Options) -> list[str]:
    """GPU types and words in a rule's options, in order, each once."""
    found: list[str] = []
    if isinstance(options, AccountTypesOptions):
        found = [word for words in options.accounts.values() for word in words]
    if isinstance(options, RoutingOptions):
        found = [word for route in options.routes for word in route.gpus]
    return list(dict.fromkeys(found))


def _partitions_of(options: Options) -> list[str]:
    """Partitions in a rule's options, in order, each once."""
    found: list[str | None] = []
    if isinstance(options, RoutingOptions):
        found = [route.partition for route in options.routes]
    if isinstance(options, CpuOnlyOptions):
        found = [options.partition]
    if isinstance(options, InteractiveOptions):
        found = [*options.partitions]
    if isinstance(options, TimeOptions):
        found = [*options.by_partition]
    return list(dict.fromkeys(name for name in found if name))
