# SPDX-License-Identifier: Apache-2.0
"""What the collector is told of a decision."""

from __future__ import annotations

from fairwatt.core.events import RuleNote, decode_event, encode_event
from fairwatt.slurm_plugins.decision_event import Origin, decision_event
from fairwatt.slurm_plugins.engine import Decision, Step
from fairwatt.slurm_plugins.message import Note
from fairwatt.slurm_plugins.wire import Query

ORIGIN = Origin("ctl", "policyd-1", "campus")
REWRITTEN = Decision(
    edits={
        "tres_per_node": "gres/gpu:m_3g.20gb:1",
        "time_limit": 60,
        "admin_comment": 'fairwatt:{"v":1,"id":""}',
    },
    say=("fairwatt FW101: because",),
    steps=(
        Step("memory_fit", "enforce", (Note("FW101", "because"),), None, True),
        Step("known_types", "off"),
        Step("mig_tasks", "warn", rejection=Note("FW211", "several slices")),
    ),
    asked="gpu:20gb:1",
    given="gpu:m_3g.20gb:1",
)


def event(query: Query, decision: Decision = REWRITTEN):
    return decision_event(ORIGIN, 7, 1_000, query, decision, 42)


def submit(**job):
    return Query(verb="submit", id="1-1", job={"tres_per_node": "gres/gpu:20gb:1", **job})


def test_a_rewritten_submission():
    told = event(submit(user_id=1000, account="qcd", partition="gpu"))
    assert (told.node, told.boot_id, told.seq, told.cluster) == ("ctl", "policyd-1", 7, "campus")
    assert (told.id, told.verb, told.uid, told.job_id) == ("1-1", "submit", 1000, None)
    assert (told.account, told.partition) == ("qcd", "gpu")
    assert (told.asked, told.given, told.accepted) == ("gpu:20gb:1", "gpu:m_3g.20gb:1", True)
    assert told.job["tres_per_node"] == "gres/gpu:20gb:1"
    assert told.took_us == 42
    assert decode_event(encode_event(told)) == told


def test_the_comment_is_left_out_because_it_says_the_same():
    assert event(submit()).edits == {"tres_per_node": "gres/gpu:m_3g.20gb:1", "time_limit": 60}


def test_each_rule_that_was_asked_is_named_and_what_it_said():
    told = event(submit())
    assert told.rules == {"memory_fit": "enforce", "mig_tasks": "warn"}
    assert told.notes == (
        RuleNote("memory_fit", "enforce", "FW101", "because"),
        RuleNote("mig_tasks", "warn", "FW211", "several slices"),
    )


def test_what_the_engine_itself_refuses_is_told_too():
    note = Note("FW005", "write --gres: so")
    refused = Decision(accepted=False, say=("fairwatt FW005: write --gres: so",), told=(note,))
    assert event(submit(), refused).notes == (
        RuleNote("engine", "enforce", "FW005", "write --gres: so"),
    )


def test_a_change_belongs_to_the_jobs_owner():
    query = Query(
        verb="modify",
        id="1-2",
        job={"partition": "mig", "user_id": 4294967294},
        record={"job_id": 12, "user_id": 1000, "account": "qcd", "partition": "gpu"},
    )
    told = event(query)
    assert (told.verb, told.job_id, told.uid, told.account) == ("modify", 12, 1000, "qcd")
    assert told.partition == "mig"
    assert told.job == query.job


def test_the_account_of_one_who_names_none_is_his_default():
    assert event(submit(default_account="qcd")).account == "qcd"
    assert event(submit(default_account="qcd", account="lab")).account == "lab"


def test_what_is_not_known_is_null():
    told = event(Query(verb="submit", id="", job={"account": "", "user_id": 4294967294}))
    assert (told.uid, told.account, told.partition) == (None, None, None)
