# SPDX-License-Identifier: Apache-2.0
"""What a rule is: a pure function with a name, options and a default mode.

A site's own rule is a RuleSpec behind an entry point of the group `fairwatt.rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.message import Message
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.site import Site

__all__ = [
    "WORDS",
    "ActiveRule",
    "Aspect",
    "Fail",
    "Mode",
    "Options",
    "RuleSpec",
    "WordedOptions",
    "own_options",
]

Mode = Literal["off", "audit", "warn", "enforce"]
Fail = Literal["open", "closed"]
Aspect = Literal["gpus", "place", "size", "time", "owner"]
"""Parts of a request. gpus: GPU entries; place: partition, nodes, reservation, features; size:
tasks, CPUs, memory, nodes; time: limit, begin; owner: account, QOS."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every rule's options; itself: a rule without any. Fields need a default."""


WORDS = "words"
"""The table of the policy file, and the option of each rule that reads it."""


class WordedOptions(Options, frozen=True):
    """Options of a rule that reads types as people write them.

    `words` are the site's own words with what each means. All such rules have the same: those of
    the policy file's table `[words]`, never of the rule's own.
    """

    words: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


def own_options(options: type[Options]) -> tuple[str, ...]:
    """The names that a rule's own table in the policy file may set."""
    names = options.__struct_fields__
    return tuple(n for n in names if not (n == WORDS and issubclass(options, WordedOptions)))


@dataclass(frozen=True)
class RuleSpec:
    """One rule.

    Args:
        name: its table in the policy file, `[rules.NAME]`.
        title: one sentence for people, what it does.
        judge: `(request, site, options) -> Outcome`; pure, changes nothing of its own output.
        options: a subclass of Options.
        mode: the mode where the policy file gives none.
        fail: what an error in the rule means for the job: it goes on, or is refused.
        cpu_jobs: whether jobs without GPUs are judged too.
        whole_nodes: whether of these at least those are that take whole nodes, GPUs included.
        watches: a change of a pending job is judged if it touches one of these parts.
        messages: all that it may say.
    """

    name: str
    title: str
    judge: Callable[[JobRequest, Site, Any], Outcome]
    options: type[Options] = Options
    mode: Mode = "off"
    fail: Fail = "open"
    cpu_jobs: bool = False
    whole_nodes: bool = False
    watches: frozenset[Aspect] = field(default=frozenset({"gpus", "place"}))
    messages: tuple[Message, ...] = ()


class ActiveRule(msgspec.Struct, frozen=True):
    """A rule as the policy file sets it."""

    spec: RuleSpec
    mode: Mode
    fail: Fail
    options: Options

    @property
    def name(self) -> str:
        """The rule's name."""
        return self.spec.name
