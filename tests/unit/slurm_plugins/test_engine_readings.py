# SPDX-License-Identifier: Apache-2.0
"""The engine reads a request as Slurm does: last entries, implied GPUs, reservations."""

from __future__ import annotations

import msgspec
import pytest

from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.gres import Spelling
from fairwatt.core.records import UNLIMITED_MIN
from fairwatt.slurm_plugins import jobdesc
from fairwatt.slurm_plugins.engine import decide
from fairwatt.slurm_plugins.site import Site
from tests.fakes.sites import enforcing, mixed
from tests.unit.slurm_plugins.campus import DEMO, POLICY, UNSET


class TestWhatSlurmAcceptsToo:
    """Each held against a slurmctld 22.05 without a hook, which accepts the job."""

    def judged(self, **fields):
        return decide({**UNSET, **fields}, POLICY, spelling=Spelling.COLON)

    def test_of_two_entries_of_one_type_the_last_counts(self):
        """`--gres=gpu:a100:4 --gpus-per-node=a100:4` asks for four."""
        for text in ("gres:gpu:a100:4,gres:gpu:a100:4", "gres:gpu:a100:9,gres:gpu:a100:1"):
            out = self.judged(tres_per_node=text)
            assert (out.accepted, out.edits) == (True, {})
        assert not self.judged(tres_per_node="gres:gpu:a100:1,gres:gpu:a100:9").accepted

    def test_the_last_count_is_the_one_that_is_rewritten(self):
        out = self.judged(tres_per_node="gres:gpu:20gb:2,gres:gpu:20gb:1")
        assert out.edits["tres_per_node"] == "gres:gpu:a100_3g.20gb:1"

    def test_a_count_with_a_plus(self):
        assert self.judged(tres_per_node="gres:gpu:+2").accepted

    @pytest.mark.parametrize("text", ["gres:", "gres/"])
    def test_a_cleared_request(self, text):
        """What `scontrol update Gres=` makes of it."""
        out = decide(
            {**UNSET, "tres_per_node": text},
            POLICY,
            record={**UNSET, "tres_per_node": "gres:gpu:a100:2"},
            spelling=Spelling.COLON,
        )
        assert (out.accepted, out.edits, out.say) == (True, {}, ())

    @pytest.mark.parametrize(
        ("field", "name", "what"),
        [
            ("partition", "new", "partition new"),
            ("partition", "gpu,new", "partition new"),
            ("reservation", "course", "reservation course"),
            ("req_nodes", "new[01-02]", "node new[01-02]"),
        ],
    )
    def test_places_newer_than_the_facts_are_left_to_slurm(self, field, name, what):
        out = self.judged(tres_per_node="gres:gpu:1", **{field: name})
        assert (out.accepted, out.edits) == (True, {})
        assert out.say == (
            f"fairwatt FW006: {what} is not known to the site's GPU policy;"
            " the request is left as it is",
        )


IMPLIED = {**UNSET, "num_tasks": 4, "ntasks_per_gpu": 2}


class TestGpusThatNoFieldShows:
    """`--ntasks-per-gpu=2 -n4`: Slurm makes two GPUs of it after the hook."""

    def test_they_are_kept_off_slices_like_written_ones(self):
        out = decide({**IMPLIED, "partition": "mig"}, POLICY)
        assert "FW203: gpu:2: partition mig has only MIG slices" in out.say[0]
        out = decide({**IMPLIED, "partition": "all"}, POLICY)
        assert out.edits["exc_nodes"] == "mig01"

    def test_where_there_are_no_slices_nothing_is_written(self):
        out = decide(IMPLIED, POLICY)
        assert (out.accepted, out.edits, out.asked) == (True, {}, "gpu:2")

    def test_a_type_becomes_a_request_of_the_job(self):
        known = enforcing(mixed())
        out = decide({**IMPLIED, "req_nodes": "a1,m1"}, known, spelling=Spelling.COLON)
        assert out.edits["tres_per_job"] == "gres:gpu:a100:2"

    def test_what_is_written_counts_more(self):
        fields = {**IMPLIED, "tres_per_node": "gres:gpu:a100:1"}
        assert decide(fields, POLICY).asked == "gpu:a100:1"

    def test_a_pending_job_shows_them_in_what_slurm_counted(self):
        record = {**UNSET, "num_tasks": 4, "tres_counted": "cpu=4,mem=4000M,node=1,gres/gpu=2"}
        out = decide({**UNSET, "partition": "mig"}, POLICY, record=record)
        assert "FW203: gpu:2" in out.say[0]

    def test_cpu_tasks_imply_nothing(self):
        assert decide({**UNSET, "num_tasks": 4, "ntasks_per_gpu": 65534}, POLICY).say == ()


class TestReservations:
    """A job that names a reservation but no partition runs in the reservation's."""

    FACTS = msgspec.structs.replace(DEMO.facts, reservations={"course": "mig", "open": ""})
    POLICY = enforcing(Site(FACTS, load_catalogue()))

    def judged(self, text, reservation):
        fields = {**UNSET, "tres_per_node": text, "reservation": reservation}
        return decide(fields, self.POLICY, spelling=Spelling.COLON)

    def test_an_untyped_request_is_kept_off_its_slices(self):
        assert "FW203: gpu:1: partition mig" in self.judged("gres:gpu:1", "course").say[0]
        assert self.judged("gres:gpu:1", "open").say == ()

    def test_its_types_are_in_reach(self):
        out = self.judged("gres:gpu:a100_1g.5gb:1", "course")
        assert (out.accepted, out.edits) == (True, {})
        assert self.judged("gres:gpu:5gb:1", "course").given == "gpu:a100_1g.5gb:1"

    def test_the_job_is_not_moved_out_of_it(self):
        out = self.judged("gres:gpu:h100:1", "course")
        assert "FW303" in out.say[0]


def test_a_list_too_long_to_judge_in_time_is_refused():
    """Else one user's request costs everybody the policy: the hook's breaker opens."""
    text = ",".join(f"gres:gpu:{size}gb:1" for size in range(1, 18))
    out = decide({"tres_per_node": text}, POLICY)
    assert not out.accepted
    assert "name at most 16" in out.say[0]


def test_the_message_names_the_nodes_that_the_user_left():
    out = decide({"tres_per_node": "gres:gpu:1", "partition": "mig", "exc_nodes": "mig01"}, POLICY)
    assert "partition mig without mig01 has no GPU" in out.say[0]


class TestTimeLimit:
    """Unlimited (INFINITE) is a wish; unset (NO_VAL) is none."""

    def test_unlimited_is_read_as_such(self):
        assert jobdesc.parse({"time_limit": 4294967295}).request.time_limit_min == UNLIMITED_MIN
        assert jobdesc.parse({"time_limit": 4294967294}).request.time_limit_min is None
        assert jobdesc.parse({"num_tasks": 4294967295}).request.num_tasks is None

    def test_a_change_to_unlimited_concerns_the_time(self):
        assert jobdesc.changed_aspects({"time_limit": 4294967295}) == {"time"}
        assert jobdesc.changed_aspects({"time_limit": 4294967294}) == frozenset()


def test_a_text_that_would_be_written_as_it_is_is_no_edit():
    """Found by fuzzing: a count behind a comparison was written again and again."""
    job = {"tres_per_task": "gpu:>=40G:1", "req_nodes": "no_such_node"}
    assert decide(job, POLICY, spelling=Spelling.BARE).edits == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("gres/gpu:a100:3,gres/gpu:a100:0", 3),
        ("gres/gpu:a100:0,gres/gpu:a100:3", 3),
        ("gres/gpu:a100:3,gres/gpu:a100:1", 1),
        ("gres/gpu:a100:3,gres/gpu:a100:2,gres/gpu:a100:0", 2),
        ("gres/gpu:a100:0", 0),
    ],
)
def test_of_several_entries_the_last_above_zero_counts(text, count):
    """Measured on 22.05, 24.11 and 26.05; a zero at the end once hid the GPUs from the policy."""
    (ask,) = jobdesc.parse({"tres_per_node": text}).request.gpus
    assert ask.count == count


def test_a_zero_at_the_end_hides_no_gpu():
    text = "gres/gpu:h10:3,gres/gpu:h10:0"
    assert not decide({"tres_per_node": text}, POLICY).accepted
