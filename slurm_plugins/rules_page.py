# SPDX-License-Identifier: Apache-2.0
"""docs/rules.md, written from the rules themselves: what you write, what the cluster does.

`python -m fairwatt.slurm_plugins.rules_page` prints it; a test compares.
"""

from __future__ import annotations

import inspect
import json
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fairwatt.core.catalogue import load_catalogue
from fairwatt.slurm_plugins.engine import Decision, Policy, decide
from fairwatt.slurm_plugins.explain import DEMO_SITE
from fairwatt.slurm_plugins.rule import (
    WORDS,
    ActiveRule,
    Options,
    RuleSpec,
    WordedOptions,
    own_options,
)
from fairwatt.slurm_plugins.rulebook import BUILT_IN
from fairwatt.slurm_plugins.sbatch_flags import as_flags, job_fields
from fairwatt.slurm_plugins.site import Site, load_facts

__all__ = ["EXAMPLES", "as_markdown", "example_decision"]

_EXAMPLES_FILE = Path(__file__).with_name("rule_examples.toml")


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request on the demo site: sbatch's flags, the rule's options, more job_desc fields.

    `words` are the site's own.
    """

    flags: str
    options: Mapping[str, Any] = {}
    words: Mapping[str, tuple[str, ...]] = {}
    fields: Mapping[str, str | int] = {}


EXAMPLES: Mapping[str, tuple[Example, ...]] = msgspec.convert(
    tomllib.loads(_EXAMPLES_FILE.read_text(encoding="utf-8")), dict[str, tuple[Example, ...]]
)
"""Examples by the name of their rule."""


def example_decision(rule: str, example: Example) -> Decision:
    """Judge an example on the demo site by the default policy with that rule enforced."""
    site = Site(load_facts(DEMO_SITE), load_catalogue())
    rules = tuple(_active(spec, rule, example) for spec in BUILT_IN)
    fields = {**job_fields(shlex.split(example.flags)), "has_script": 1, **example.fields}
    return decide(fields, Policy(site, rules))


def as_markdown() -> str:
    """Return docs/rules.md."""
    return "\n".join([_HEAD, *(line for spec in BUILT_IN for line in _section(spec))])


def _active(spec: RuleSpec, rule: str, example: Example) -> ActiveRule:
    if spec.name != rule:
        return ActiveRule(spec, spec.mode, spec.fail, spec.options())
    given = {WORDS: example.words} if issubclass(spec.options, WordedOptions) else {}
    options = msgspec.convert({**example.options, **given}, spec.options)
    return ActiveRule(spec, "enforce", spec.fail, options)


def _section(spec: RuleSpec) -> Iterator[str]:
    yield f"## {spec.name}\n"
    yield f"{spec.title} By default: mode `{spec.mode}`, after an error in the rule `{spec.fail}`."
    if spec.cpu_jobs:
        yield "It also judges jobs without GPUs."
    yield ""
    yield from _options(spec.options)
    yield "| You write | Options | The cluster does | It says |"
    yield "|---|---|---|---|"
    yield from (_row(spec.name, example) for example in EXAMPLES.get(spec.name, ()))
    yield ""


def _options(options: type[Options]) -> Iterator[str]:
    names = own_options(options)
    if not names:
        return
    yield inspect.cleandoc(options.__doc__ or "") + "\n"
    yield "```toml"
    defaults = msgspec.to_builtins(options())
    for name in names:
        value = defaults[name]
        yield f"{name} = {_toml(value)}" if value is not None else f"# {name} is not set"
    yield "```\n"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value)


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() else json.dumps(name)


def _row(rule: str, example: Example) -> str:
    decision = example_decision(rule, example)
    options = ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in example.options.items())
    words = ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in example.words.items())
    extra = " ".join(f"({name} {value})" for name, value in example.fields.items())
    cells = (
        f"`{_cell(example.flags)}`" + (f" {extra}" if extra else ""),
        " ".join(
            f"`{_cell(text)}`" for text in (options, f"[{WORDS}] {words}" if words else "") if text
        ),
        _done(decision),
        "<br>".join(_cell(line.removeprefix("fairwatt ")) for line in decision.say),
    )
    return f"| {' | '.join(cells)} |"


def _done(decision: Decision) -> str:
    if not decision.accepted:
        return "refused"
    edits = {name: value for name, value in decision.edits.items() if name != "admin_comment"}
    return f"`{_cell(as_flags(edits))}`" if edits else "as written"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_HEAD = """# Rules: what you write, what the cluster does

Every submission goes through these rules in this order. A site orders them, switches each to
`off`, `audit` (decide and record), `warn` (tell, change nothing) or `enforce`, and sets options in
`/etc/fairwatt/policy.toml`:

```toml
order = ["account_types"]      # these first, the others as below

[words]                        # words of your own, each with a list of types or other words
training = ["h100", "a100"]    # best first; in small letters

[rules.known_types]
mode = "warn"
fail = "open"                  # what an error in the rule means for the job: open or closed
```

Your own words mean the same in requests (rule `need`), in the lists of `account_types` and in the
routes of `routing`.

`fairwatt policy check` finds faults with file and line, `fairwatt policy replay NEW.toml` tells
what a changed policy would have done to the jobs of the last days, `systemctl reload
fairwatt-policyd` takes it over; a faulty file changes nothing. A site's own rule is a Python entry
point of the group `fairwatt.rules` that names a `fairwatt.slurm_plugins.rule.RuleSpec`.

The examples run on the demo site: partition gpu (default) with two nodes of 4 a100 and one of 8
h100, partition mig with 7 a100_1g.5gb and 2 a100_3g.20gb on a node, partition all with both.

This page is written by `python -m fairwatt.slurm_plugins.rules_page`; do not edit it by hand.
"""


if __name__ == "__main__":
    sys.stdout.write(as_markdown())
