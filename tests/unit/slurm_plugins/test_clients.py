# SPDX-License-Identifier: Apache-2.0
"""What users of srun and salloc are told of steps; the variables of a hetjob's parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.core.gres import Spelling
from fairwatt.slurm_plugins.engine import decide
from fairwatt.slurm_plugins.exported import of_parts
from tests.unit.slurm_plugins.campus import DEMO, POLICY

COLON, SLASH = Spelling.COLON, Spelling.SLASH


def own(fields, spelling=SLASH):
    """What the engine itself says."""
    out = decide(fields, POLICY, spelling=spelling)
    assert all(any(note.text in line for line in out.say) for note in out.told)
    return out.accepted, [(note.code, note.text) for note in out.told]


class TestSalloc:
    @pytest.mark.parametrize(
        ("field", "spelling", "name"),
        [
            ("tres_per_job", SLASH, "SLURM_GPUS"),
            ("tres_per_node", SLASH, "SLURM_GPUS_PER_NODE"),
            ("tres_per_socket", SLASH, "SLURM_GPUS_PER_SOCKET"),
            ("tres_per_task", SLASH, "SLURM_TRES_PER_TASK"),
            ("tres_per_task", COLON, "SLURM_GPUS_PER_TASK"),
        ],
    )
    def test_it_is_told_what_its_shell_keeps(self, field, spelling, name):
        accepted, told = own({field: "gpu:20gb:1", "client": "salloc"}, spelling)
        assert accepted
        assert told == [
            (
                "FW008",
                "gpu:20gb:1 is gpu:a100_3g.20gb:1 here, but srun in this shell may still ask for "
                f"gpu:20gb:1: first `unset {name}`",
            )
        ]

    def test_a_part_of_a_hetjob_has_two_names_for_it(self):
        _, [(_, text)] = own({"tres_per_job": "gpu:20gb:1", "client": "salloc", "het_offset": 1})
        assert text.endswith("`unset SLURM_GPUS_HET_GROUP_1 SLURM_GPUS_PACK_GROUP_1`")

    @pytest.mark.parametrize("text", ["gpu:a100:1", "gpu:1"])
    def test_what_stays_as_it_was_typed_needs_no_word(self, text):
        assert own({"tres_per_job": text, "client": "salloc"}) == (True, [])

    def test_batch_jobs_and_changes_are_told_nothing(self):
        assert own({"tres_per_job": "gpu:20gb:1", "std_in": "/dev/null"}) == (True, [])
        out = decide({"tres_per_job": "gpu:20gb:1"}, POLICY, record={"job_id": 7})
        assert (out.accepted, out.told) == (True, ())


def test_who_may_be_salloc_is_not_refused_but_told_what_srun_needs():
    accepted, told = own({"tres_per_job": "gpu:20gb:1", "client": "either"})
    assert accepted
    assert told == [
        (
            "FW009",
            "gpu:20gb:1 is gpu:a100_3g.20gb:1 here; with salloc that is all, but srun's own step "
            "would still ask for gpu:20gb:1 and fail: write --gpus=a100_3g.20gb:1 -p mig",
        )
    ]


class TestTheWordGpuTwice:
    """`--gpus=gpu:a100:2`, as the client of 24.11 sends it."""

    @pytest.mark.parametrize("field", ["tres_per_job", "tres_per_node", "tres_per_socket"])
    @pytest.mark.parametrize(
        "text", ["gpu:gpu:a100:2", "gpu:gres/gpu:a100:2", "gpu:gres:gpu:a100=2"]
    )
    def test_it_is_read_and_written_once(self, field, text):
        out = decide({field: f"gres/{text}", "std_in": "x"}, POLICY, spelling=SLASH)
        assert (out.accepted, out.edits, out.say) == (True, {field: "gres/gpu:a100:2"}, ())

    def test_what_sbatch_exported_follows(self):
        job = {"tres_per_job": "gres/gpu:gpu:a100:2", "SLURM_GPUS": "gpu:a100:2", "std_in": "x"}
        assert decide(job, POLICY, spelling=SLASH).edits["SLURM_GPUS"] == "a100:2"
        job = {"tres_per_job": "gres/gpu:gpu:2", "SLURM_GPUS": "gpu:2", "std_in": "x"}
        assert decide(job, POLICY, spelling=SLASH).edits["SLURM_GPUS"] == "2"

    def test_without_a_type_the_word_is_no_type(self):
        out = decide({"tres_per_job": "gres/gpu:gpu:2"}, POLICY, spelling=SLASH)
        assert out.edits["tres_per_job"] == "gres/gpu:2"
        assert out.say[0].startswith("fairwatt FW309: gpu:gpu:2 -> gpu:2: ")

    def test_but_per_task_it_is_refused_since_clients_change_the_rest(self):
        """24.11 makes this of `--gpus-per-task=gpu:4gb:1`."""
        out = decide({"tres_per_task": "gres/gpu:gpu=4"}, POLICY, spelling=SLASH)
        assert "FW302: no GPU type gpu" in out.say[0]

    @pytest.mark.parametrize(("text", "given"), [("gpu:a100:2", "a100:2"), ("gpu:2", "2")])
    def test_the_step_of_srun_would_say_it_again(self, text, given):
        accepted, [(code, said)] = own({"tres_per_job": f"gres/gpu:{text}", "client": "srun"})
        assert (accepted, code) == (False, "FW005")
        assert said.endswith(f"would still ask for gpu:{text}; write --gpus={given}")


PARTS = {
    "SLURM_GPUS_HET_GROUP_1": ("20gb:1", "1"),
    "SLURM_GPUS_PACK_GROUP_1": ("20gb:1", "1"),
    "SLURM_GPUS_PER_NODE_HET_GROUP_0": ("A100:2", "2"),
    "SLURM_GPUS_PER_TASK_HET_GROUP_12": ("a100|h100:1", "1"),
    "SLURM_GPUS_PER_SOCKET_HET_GROUP_2": ("any", "1"),
    "SLURM_GPUS_HET_GROUP_3": ("a100:1,20gb:2", "3"),
    "SLURM_GPUS_HET_GROUP_4": ("gpu:a100:2", "a100:2"),
    "SLURM_TRES_PER_TASK_HET_GROUP_1": ("cpu=2,gres/gpu:20gb:1", "cpu=2,gres/gpu=1"),
}
KEPT = {
    "SLURM_GPUS_HET_GROUP_1": "a100:2",
    "SLURM_GPUS_HET_GROUP_2": "2",
    "SLURM_GPUS_HET_GROUP_3": "a100:2,h100",
    "SLURM_GPUS_HET_GROUP_4": "a:b:c:d",
    "SLURM_CPUS_PER_GPU_HET_GROUP_0": "20gb",
    "SLURM_TRES_PER_TASK_HET_GROUP_1": "cpu=2,gres/gpu:a100:1",
    "SLURM_GPUS": "20gb:1",
    "SLURM_NTASKS_HET_GROUP_1": "20gb:1",
    "PATH_HET_GROUP_1": "20gb:1",
}


class TestParts:
    """sbatch exports the options of all parts with the first one."""

    @pytest.mark.parametrize("name", PARTS)
    def test_a_type_that_becomes_another_one_is_left_out(self, name):
        text, wanted = PARTS[name]
        assert of_parts({name: text}, DEMO.types, SLASH) == {name: wanted}

    @pytest.mark.parametrize("name", KEPT)
    def test_what_the_steps_can_have_and_all_else_stays(self, name):
        assert of_parts({name: KEPT[name]}, DEMO.types, SLASH) == {}

    def test_the_first_part_changes_them_even_if_it_has_no_gpu(self):
        job = {"het_offset": 0, "num_tasks": 1, "SLURM_GPUS_HET_GROUP_1": "20gb:1"}
        assert decide(job, POLICY).edits == {"SLURM_GPUS_HET_GROUP_1": "1"}
        assert decide({**job, "het_offset": 1}, POLICY).edits == {}

    @given(st.text(st.characters(max_codepoint=255), max_size=40))
    def test_whatever_stands_there(self, text):
        for name in PARTS:
            for found in of_parts({name: text}, DEMO.types, SLASH).values():
                assert of_parts({name: found}, DEMO.types, SLASH) == {}
                assert found.isascii()
