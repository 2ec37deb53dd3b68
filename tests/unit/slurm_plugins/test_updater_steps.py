# SPDX-License-Identifier: Apache-2.0
"""What sbatch exported of a job that the updater may change: steps must not name the old type."""

from __future__ import annotations

import msgspec
import pytest

from fairwatt.core.gres import Spelling
from fairwatt.core.records import Flavour
from fairwatt.slurm_plugins import jobdesc
from fairwatt.slurm_plugins.demand import retyped

SLASH = Spelling.SLASH
FLAVOURS = (Flavour("h100"),)


def edits(fields: dict[str, str], to: str, flavours: tuple[Flavour, ...]) -> dict[str, str | int]:
    parsed = jobdesc.parse(fields)
    types = {ask.type: to for ask in parsed.request.gpus}
    after = msgspec.structs.replace(retyped(parsed.request, types), flavours=flavours)
    return jobdesc.edits(parsed, after, SLASH)


@pytest.mark.parametrize(
    ("level", "name"),
    [
        ("tres_per_job", "SLURM_GPUS"),
        ("tres_per_node", "SLURM_GPUS_PER_NODE"),
        ("tres_per_socket", "SLURM_GPUS_PER_SOCKET"),
    ],
)
def test_a_job_with_flavours_exports_counts_without_a_type(level, name):
    fields = {level: "gres/gpu:20gb:2", name: "20gb:2"}
    changed = edits(fields, "a100", FLAVOURS)
    assert changed == {level: "gres/gpu:a100:2", name: "2"}
    assert edits(fields, "a100", ()) == {level: "gres/gpu:a100:2", name: "a100:2"}


def test_also_where_the_user_wrote_the_type_himself():
    fields = {"tres_per_job": "gres/gpu:a100:2", "SLURM_GPUS": "a100:2"}
    assert edits(fields, "a100", FLAVOURS) == {"SLURM_GPUS": "2"}
    assert edits(fields, "a100", ()) == {}


def test_the_variable_of_newer_releases_keeps_what_is_no_gpu():
    text = "cpu=3,gres/gpu:20gb=1"
    fields = {"tres_per_task": text, "SLURM_TRES_PER_TASK": text}
    assert edits(fields, "a100", FLAVOURS) == {
        "tres_per_task": "cpu=3,gres/gpu:a100=1",
        "SLURM_TRES_PER_TASK": "cpu=3,gres/gpu=1",
    }


def test_without_exported_variables_nothing_is_written():
    changed = edits({"tres_per_node": "gres/gpu:20gb:1"}, "a100", FLAVOURS)
    assert changed == {"tres_per_node": "gres/gpu:a100:1"}
