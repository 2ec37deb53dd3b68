# SPDX-License-Identifier: Apache-2.0
"""What must hold for every input: no crash, no half-edited job, no GPU that the policy misses.

Each target takes a Source and fails by an AssertionError or any other exception.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from fairwatt.core.errors import FairwattError
from fairwatt.core.gres import (
    Spelling,
    format_node_gres,
    format_request,
    parse_node_gres,
    parse_request,
)
from fairwatt.core.tres import format_tres, parse_tres
from fairwatt.slurm_plugins import history, policy_file, sbatch_script
from fairwatt.slurm_plugins.engine import Decision, Policy, decide
from fairwatt.slurm_plugins.ranged import Ranged
from tests.bench.policy import every_rule
from tests.fakes.job_desc import LUAS, Hook, Wire
from tests.fakes.sites import demo
from tests.fakes.submit_releases import RELEASES
from tests.fuzz.requests import (
    FIELDS,
    asks_for_gpus,
    exported_parts,
    gres_text,
    job_fields,
    origin_fields,
)
from tests.fuzz.source import Source
from tests.unit.slurm_plugins.campus import POLICY
from tests.unit.slurm_plugins.far_end import forged, real

__all__ = ["TARGETS"]

TIMED = (
    every_rule(),
    '[rules.time_limits]\nmode = "enforce"\nmax_action = "clamp"\n'
    '[rules.interactive_limits]\nmode = "enforce"\nmax_hours = 4.5\n'
    '[rules.routing]\nmode = "warn"\noverride = true\nroutes = ['
    '{ max_hours = 1, partition = "gpu" }, { min_hours = 9, qos = "long" }]',
    '[rules.interactive_limits]\nmode = "enforce"\nmax_hours = 1\naction = "refuse"\n'
    '[rules.time_limits]\nmode = "audit"\n[rules.satisfiable]\nmode = "enforce"',
)
"""Policies that look at a job's time limit."""


def grammar(source: Source) -> None:
    """Parsers raise nothing but our own errors, and what they read can be written and read."""
    text = source.pick((gres_text(source), source.text(60)))
    read = _tried(parse_request, text)
    if read is not None:
        for spelling in Spelling:
            written = _tried(format_request, read, spelling)
            assert written is None or parse_request(written) == read
    nodes = _tried(parse_node_gres, text)
    if nodes is not None:
        assert parse_node_gres(format_node_gres(nodes)) == nodes
    tres = _tried(parse_tres, text)
    if tres is not None:
        assert parse_tres(format_tres(tres)) == tres
    for reader in (_policy, sbatch_script.script_flags, _rows):
        _tried(reader, text)


def decisions(source: Source) -> None:
    """The engine never fails, never misses a GPU, and is content with its own edits."""
    job = job_fields(source) | origin_fields(source)
    spelling = source.pick(list(Spelling))
    decision = decide(job, POLICY, spelling=spelling)
    assert not any("internal error" in line for line in decision.say), decision.say
    if any(asks_for_gpus(str(job[name])) for name in FIELDS if name in job):
        assert decision.asked or not decision.accepted or decision.say, (job, decision)
    if decision.accepted and decision.edits:
        again = decide({**job, **decision.edits}, POLICY, spelling=spelling)
        assert again.accepted, (job, decision, again)
        changed = {k: v for k, v in again.edits.items() if k != "admin_comment"}
        assert not changed, (job, decision, again)


def time_limits(source: Source) -> None:
    """An answer is the same for all time limits between the bounds that judging it has left."""
    policy = source.pick(_timed_policies())
    limit = Ranged(source.pick((0, 1, 60, 61, 1440, 1441, source.number(0, 2**32 - 1))))
    job: dict[str, str | int | float] = job_fields(source) | origin_fields(source)
    if source.pick((True, False)):
        job["std_in"] = source.text(9)

    def judged(number: object) -> Decision:
        return decide({**job, "time_limit": cast("int", number)}, policy)

    first = judged(limit)
    assert not any("internal error" in line for line in first.say), (job, first.say)
    low, high = limit.low, limit.high
    assert low <= high
    for number in (low, high, source.number(low, high)):
        assert judged(number) == first, (job, low, number, high)


@functools.cache
def _timed_policies() -> tuple[Policy, ...]:
    return tuple(Policy(demo(), policy_file.parse_policy(text, "p").rules) for text in TIMED)


def hook(source: Source) -> None:
    """After the hook a job is edited as policyd said, or not at all; nothing raises.

    An equal job after it, which the hook may judge by itself, has the same outcome.
    """
    lua, release = source.pick(LUAS), source.pick(sorted(RELEASES))
    script, wire = _hook(lua, release)
    wire.now += 100.0  # past every pause of the breaker
    wire.fault = source.pick((None, None, None, "absent", "hung", "dead", "backlog", "half"))
    wire.raw = source.pick((None, None, None, source.text(80), _forged(source)))
    wire.lines.clear()
    job: dict[str, object] = {
        name: text for name, text in job_fields(source).items() if "\0" not in str(text)
    }
    gpus = any(asks_for_gpus(str(job[name])) for name in FIELDS if name in job)
    failing = source.pick(((), ("partition",), ("admin_comment",), FIELDS))
    environment = source.pick((None, {}, {"SLURM_GPUS": source.text(5)}, exported_parts(source)))
    job["het_job_offset"] = source.pick((0, 1, 4294967294))
    out = script.submit({**job, "__failing__": failing}, environment)
    assert isinstance(out.code, (int, float)), out
    expected = _edits(wire)
    # Slurm keeps no empty text: what was put back as one reads as nothing.
    fields = {k: v for k, v in out.fields.items() if v is not None or job.get(k) != ""}
    assert fields in ({}, expected), (job, out, expected)
    assert not fields or out.accepted
    if gpus and wire.fault is None:
        assert wire.lines or out.said, (job, out)
    wire.fault = wire.raw = None
    asked, equal = (script.submit({**job, "__failing__": failing}, environment) for _ in "12")
    assert (asked.fields, asked.said, asked.code) == (equal.fields, equal.said, equal.code), (
        *(job, failing, environment, asked, equal),
    )


TARGETS: Mapping[str, Callable[[Source], None]] = {
    "grammar": grammar,
    "decisions": decisions,
    "time_limits": time_limits,
    "hook": hook,
}


def _tried(read: Callable, *args: object) -> object:
    try:
        return read(*args)
    except FairwattError:
        return None


def _policy(text: str) -> object:
    return policy_file.inspect_policy(text, "p")


def _rows(text: str) -> object:
    return list(history.parse_rows(text))


@functools.cache
def _hook(lua: str, release: str) -> tuple[Hook, Wire]:
    wire = Wire(answer=forged(keep={"s": 30, "ref": 1}))
    with tempfile.TemporaryDirectory() as folder:
        return Hook(Path(folder), wire, lua=lua, release=release), wire


def _edits(wire: Wire) -> dict[str, object]:
    """What a right answer to the last line would have set, except in the job's environment."""
    text = wire.raw if wire.raw is not None else real(wire.lines[-1]) if wire.lines else "{}"
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    edits = found.get("set", {}) if isinstance(found, dict) else {}
    return {k: v for k, v in edits.items() if not k.startswith("SLURM_")} if edits else {}


def _forged(source: Source) -> str:
    """An answer in the right shape with wrong things in it; it can never have the right id."""
    name = source.pick(("partition", "priority", "min_nodes", "tres_per_node", source.text(6)))
    value = source.pick((source.text(8), -1, 1.5, None, [1], "gres/gpu:1"))
    return json.dumps({"v": 1, "id": source.text(6), "act": "accept", "set": {name: value}})
