# SPDX-License-Identifier: Apache-2.0
"""The intents of the live matrix (tests/lab/matrix) on every emulated release, hook and engine.

The live test has three releases and what their clients let through; here are all, and each text
that a client or a program may write to a job's field, 20.11's without any prefix among them.
"""

from __future__ import annotations

import pytest

from tests.fakes.job_desc import Hook, Wire
from tests.fakes.submit_releases import RELEASES
from tests.lab.matrix.forms import FIELDS, WIRE, Level, field_text
from tests.lab.matrix.intents import INTENTS, Intent
from tests.lab.matrix.outcomes import codes, expected, of_record
from tests.unit.slurm_plugins.far_end import real

LEVELS: tuple[Level, ...] = ("node", "job", "task", "socket")
SHOWN = {
    "node": "TresPerNode",
    "job": "TresPerJob",
    "task": "TresPerTask",
    "socket": "TresPerSocket",
}
ENTRIES = {
    "sbatch": ({"std_in": "/dev/null"}, True),
    "salloc": ({"name": "interactive", "argc": 1}, False),
    "second part of a hetjob": ({"std_in": "/dev/null", "het_job_offset": 1}, True),
    "API": ({}, True),
}


@pytest.fixture(scope="module", params=RELEASES)
def hook(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Hook:
    """One slurmctld of that release; it keeps its hook, as a real one does."""
    return Hook(tmp_path_factory.mktemp("hook"), Wire(answer=real), release=request.param)


def fields(intent: Intent, level: Level, text: str) -> dict[str, object]:
    """The job as its client sends it."""
    job: dict[str, object] = {FIELDS[level]: text, "num_tasks": 1, "min_nodes": 1}
    named = {
        "partition": intent.partition,
        "req_nodes": intent.node,
        "exc_nodes": intent.exclude,
        "max_nodes": 1 if intent.one_node else None,
    }
    return job | {name: value for name, value in named.items() if value}


def judged(hook: Hook, job: dict[str, object], *, batch: bool) -> str:
    """The outcome in the words of the live matrix."""
    out = hook.submit(dict(job), {} if batch else None)
    if not out.accepted:
        return codes("\n".join(out.said))[-1]
    after = job | out.fields
    record = {SHOWN[level]: str(after[name]) for level, name in FIELDS.items() if name in after}
    record["Partition"] = str(after.get("partition", "gpu"))
    named = {"exc_nodes": "ExcNodeList", "features": "Features"}
    record |= {show: str(after[name]) for name, show in named.items() if after.get(name)}
    return of_record(record)


@pytest.mark.parametrize("intent", INTENTS, ids=lambda intent: intent.name)
def test_one_intent_one_decision(hook, intent):
    wrong = {}
    for entry, (marks, batch) in ENTRIES.items():
        for level in LEVELS:
            for spelling in WIRE if entry == "API" else WIRE[:1]:
                job = fields(intent, level, field_text(intent, spelling)) | marks
                outcome = judged(hook, job, batch=batch)
                if outcome != expected(intent, level):
                    wrong[entry, level, spelling] = outcome
    assert wrong == {}


@pytest.mark.parametrize("intent", INTENTS, ids=lambda intent: intent.name)
def test_what_is_written_is_what_the_server_reads(hook, intent):
    """Another server's prefix is refused; 21.08 to 23.02 count typed GPUs only after `=`."""
    if intent.refused:
        return
    prefix = "gres/" if hook.release.slash else "gres:"
    for level in LEVELS:
        for spelling in WIRE:
            text = field_text(intent, spelling)
            out = hook.submit(dict(fields(intent, level, text)), {})
            written = str(out.fields.get(FIELDS[level], text))
            assert written.startswith(f"{prefix}gpu"), (level, text, written)
            assert hook.release.slash or "gpu=" not in written, (level, text, written)


@pytest.mark.parametrize("intent", INTENTS, ids=lambda intent: intent.name)
def test_srun_is_refused_only_where_a_type_gets_another_name(hook, intent):
    job = fields(intent, "job", field_text(intent, "gpu:")) | {
        "argc": 1,
        "argv": ["x"],
        "name": "x",
    }
    outcome = judged(hook, job, batch=False)
    assert outcome == ("FW005" if intent.renamed else expected(intent, "job"))


@pytest.mark.parametrize("intent", INTENTS, ids=lambda intent: intent.name)
def test_gpus_that_follow_from_the_tasks(hook, intent):
    """`--ntasks-per-gpu=2`: no field names a GPU when the hook runs."""
    if intent.type is not None or not intent.count:
        return
    job = fields(intent, "job", "") | {"num_tasks": 2 * intent.count, "ntasks_per_gpu": 2}
    del job["tres_per_job"]
    outcome = judged(hook, job, batch=True)
    counted = f"gpu:{intent.count} counted by Slurm"
    assert outcome == expected(intent, "counted").replace(counted, "no GPU")
