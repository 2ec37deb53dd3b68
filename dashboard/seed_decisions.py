# SPDX-License-Identifier: Apache-2.0
"""The invented year's decisions: what the submit policy would have said of its runs, and refusals.

They are the events that a live policyd sends, so that the store reads them like real ones.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator

from fairwatt.core.events import DecisionMade, RuleNote
from fairwatt.dashboard.invent import SeedRun

__all__ = ["comment_of", "decision_of", "refusals"]

BOOT = "policyd-invented"
NODE = "invented"
_REWRITTEN = 0.4
_REFUSED = 0.03
_SECOND_TRY_S = 90


def decision_of(
    rng: random.Random, run: SeedRun, cluster: str, job_id: int, uid: int
) -> DecisionMade | None:
    """Some users asked by memory or in another spelling, and the hook helped."""
    if run.pool is None or rng.random() > _REWRITTEN:
        return None
    kind, count = run.pool.type, run.count
    given = f"gpu:{kind}:{count}"
    if run.pool.whole:
        rule, code, asked = "known_types", "FW301", f"gpu:{kind.upper()}:{count}"
        why = f"{kind} is how this cluster spells it"
    else:
        memory = kind.rpartition(".")[2]
        rule, code, asked = "memory_fit", "FW101", f"gpu:{memory}:{count}"
        why = f"{kind} is the smallest that has {memory} in partition {run.pool.partition}"
    note = RuleNote(rule, "enforce", code, f"{asked} -> {given}: {why}")
    return _made(run, cluster, job_id, uid, asked=asked, given=given, note=note)


def comment_of(made: DecisionMade) -> str:
    """Return what the policy leaves in the job's comment."""
    notes = [[note.code, note.text] for note in made.notes]
    body = {"v": 1, "id": made.id, "asked": made.asked, "given": made.given, "notes": notes}
    return json.dumps(body)


def refusals(
    rng: random.Random, runs: Iterable[tuple[int, int, SeedRun]], cluster: str
) -> Iterator[DecisionMade]:
    """Yield a refused first try for some of the (job id, uid, run): a type nobody has."""
    for job_id, uid, run in runs:
        if run.pool is None or not run.pool.whole or rng.random() > _REFUSED:
            continue
        wrong, right = run.pool.type[:-1], run.pool.type
        text = f"no GPU type {wrong} in partition {run.pool.partition}; nearest: {right}"
        asked = f"gpu:{wrong}:{run.count}"
        note = RuleNote("known_types", "enforce", "FW302", text)
        yield _made(run, cluster, -job_id, uid, asked=asked, given=asked, note=note)


def _made(
    run: SeedRun, cluster: str, number: int, uid: int, *, asked: str, given: str, note: RuleNote
) -> DecisionMade:
    """A decision; a negative `number` is that of a try before the job, which was refused."""
    assert run.pool is not None  # noqa: S101 - the callers
    accepted = number > 0
    submit_ts = run.submit_ts - (0 if accepted else _SECOND_TRY_S)
    return DecisionMade(
        node=NODE,
        boot_id=BOOT,
        seq=number,
        t_ms=1000 * submit_ts,
        cluster=cluster,
        id=f"invented{number:+}",
        verb="submit",
        uid=uid,
        job_id=None,
        account=run.account,
        partition=run.pool.partition,
        asked=asked,
        given=given,
        accepted=accepted,
        edits={"tres_per_node": f"gres/{given}"} if accepted else {},
        notes=(note,),
        rules={"memory_fit": "enforce", "untyped_slices": "enforce", "known_types": "enforce"},
        job={"tres_per_node": f"gres/{asked}", "account": run.account, "user_id": uid},
        took_us=30 + number * 7919 % 61,
    )
