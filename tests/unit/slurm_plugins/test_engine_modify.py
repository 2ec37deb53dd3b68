# SPDX-License-Identifier: Apache-2.0
"""The engine and changes of a pending job: the merged job is judged, without a comment."""

from __future__ import annotations

from fairwatt.slurm_plugins.engine import decide
from tests.unit.slurm_plugins.campus import POLICY, UNSET

RECORD = {"tres_per_node": "gres/gpu:a100:1", "partition": "gpu", "min_nodes": 1}


class TestModify:
    def test_unset_numbers_do_not_hide_the_record(self):
        record = {**RECORD, "tres_per_node": "gres/gpu:a100:4", "min_nodes": 2}
        out = decide({**UNSET, "partition": "all"}, POLICY, record=record)
        assert out.accepted
        out = decide({**UNSET, "min_nodes": 3, "partition": "all"}, POLICY, record=record)
        assert out.say[0].startswith("fairwatt FW306")

    def test_an_unrelated_change_is_not_judged(self):
        record = {**RECORD, "tres_per_node": "gres/gpu:gone:1"}
        for change in ({"account": "x"}, {"time_limit": 5}):
            out = decide({**UNSET, **change}, POLICY, record=record)
            assert (out.accepted, out.edits, out.say) == (True, {}, ())

    def test_counts_alone_are_left_to_slurm(self):
        """An untyped job in a mixed partition was kept off slices when it was submitted."""
        record = {**RECORD, "tres_per_node": "gres/gpu:1", "partition": "all"}
        for change in ({"min_nodes": 2, "max_nodes": 2}, {"num_tasks": 4}):
            out = decide({**UNSET, **change}, POLICY, record=record)
            assert (out.accepted, out.edits, out.say) == (True, {}, ())

    def test_nodes_that_the_job_excludes_are_never_overwritten(self):
        """Slurm does not show a hook which nodes a pending job excludes."""
        record = {**RECORD, "tres_per_node": "gres/gpu:1"}
        out = decide({**UNSET, "partition": "all"}, POLICY, record=record)
        assert (out.accepted, out.edits) == (False, {})
        assert out.say == (
            "fairwatt FW206: gpu:1: partition all has MIG slices; name a type,"
            " or exclude them: ExcNodeList=mig01",
        )

    def test_nodes_excluded_in_the_same_change_are_kept(self):
        record = {**RECORD, "tres_per_node": "gres/gpu:1"}
        change = {**UNSET, "partition": "all", "exc_nodes": "gpu01"}
        assert decide(change, POLICY, record=record).edits == {"exc_nodes": "gpu01,mig01"}
        enough = {**change, "exc_nodes": "gpu01,mig01"}
        assert decide(enough, POLICY, record=record).edits == {}

    def test_no_comment_is_written(self):
        out = decide({"tres_per_node": "gres/gpu:A100:2"}, POLICY, record=RECORD)
        assert out.edits == {"tres_per_node": "gres/gpu:a100:2"}
