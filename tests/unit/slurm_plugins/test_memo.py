# SPDX-License-Identifier: Apache-2.0
"""The memo: a daemon with one answers every request as one without does, only sooner."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.core import config as config_module
from fairwatt.slurm_plugins import wire
from fairwatt.slurm_plugins.durations import Durations
from fairwatt.slurm_plugins.engine import Decision
from fairwatt.slurm_plugins.memo import (
    LATE_S,
    MAX_BANDS,
    MAX_KEY_BYTES,
    MAX_REFERRED,
    OBJECT_BYTES,
    Memo,
    Remembered,
)
from fairwatt.slurm_plugins.policy_file import parse_policy
from fairwatt.slurm_plugins.policyd import PolicyDaemon, read_settings
from fairwatt.slurm_plugins.site import Site
from tests.fakes.sites import demo, mixed

MAX_AGE_S = 300
SITES = (None, demo(), mixed())
POLICIES = (
    "",
    '[rules.memory_fit]\nmode = "warn"',
    '[rules.memory_fit]\nmode = "off"\n[rules.known_types]\nmode = "off"',
    '[rules.time_limits]\nmode = "enforce"\nmax_action = "clamp"\ndefault_min = 60\n'
    '[rules.interactive_limits]\nmode = "enforce"\nmax_hours = 4.5',
    '[rules.time_limits]\nmode = "warn"\n[rules.satisfiable]\nmode = "enforce"\n'
    '[rules.routing]\nmode = "enforce"\noverride = true\nroutes = ['
    '{ max_hours = 1, partition = "gpu", gpus = ["a100"] }, { min_hours = 9, qos = "long" }]',
)
JOBS = (
    {"tres_per_node": "gres:gpu:20gb:1"},
    {"tres_per_node": "gres/gpu:20gb:1", "user_id": 5},
    {"tres_per_job": "gres:gpu:2", "partition": "gpu"},
    {"tres_per_node": "gres:gpu:nothing:1"},
    {"tres_per_node": "gres:gpu:20gb:1", "partition": "nowhere"},
    {"tres_per_node": "gres:gpu:::"},
    {"tres_per_node": "gres:gpu:20gb:1", "admin_comment": 'fairwatt:{"v":1,"id":""'},
    {"tres_per_node": "gres:gpu:20gb:1", "features": '"id":"" \\"id\\":\\"\\" caf\xe9'},
    {"num_tasks": 4, "ntasks_per_gpu": 2},
    {"partition": "gpu"},
)
A100 = {"tres_per_node": "gres:gpu:a100:1", "std_in": "/dev/null"}
LIMITS_MIN = (None, 1, 30, 59, 60, 61, 270, 271, 540, 1440, 1441, 4320, 4294967295)
RECORDS = (None, {"tres_per_node": "gres:gpu:a100:1", "partition": "gpu"})


@dataclass(frozen=True)
class Snapshot:
    """Facts whose age stands still."""

    site: Site | None
    age_s: float | None
    generation: int = 1


@dataclass
class StandingRefresher:
    """What both daemons look at."""

    snapshot: Snapshot


def line(job: dict, record: dict | None, id_: str, spelling: str = "colon") -> bytes:
    query = {"v": 1, "id": id_, "verb": "modify" if record else "submit", "spelling": spelling}
    query |= {"job": job} | ({"record": record} if record else {})
    return json.dumps(query, separators=(",", ":")).encode()


def settings(policy: str):
    base = read_settings(config_module.load(None))
    return type(base)(parse_policy(policy, "policy.toml"), 30, None)


SETTINGS = [settings(policy) for policy in POLICIES]

ids = st.from_regex(r"\A[0-9-]{1,64}\Z")
changes = st.one_of(
    st.builds(Snapshot, st.sampled_from(SITES), st.sampled_from((0, 299.0, 301.0, 302.0))),
    st.sampled_from(SETTINGS),
)


def own(limit_min: int | None, uid: int = 7) -> dict[str, int]:
    """What two jobs with one answer may differ in, as the hook puts it in front."""
    return {"user_id": uid} | ({"time_limit": limit_min} if limit_min is not None else {})


@st.composite
def histories(draw: st.DrawFn) -> list[object]:
    """Requests of a few kinds, over and over, with changes of facts, age and policy between."""
    kinds = draw(
        st.lists(
            st.tuples(
                st.sampled_from(JOBS),
                st.sampled_from(RECORDS),
                st.sampled_from(("colon", "slash")),
            ),
            min_size=1,
            max_size=4,
        )
    )
    request = st.builds(
        lambda kind, limit_min, id_: line(own(limit_min) | kind[0], kind[1], id_, kind[2]),
        st.sampled_from(kinds),
        st.sampled_from(LIMITS_MIN),
        ids,
    )
    return draw(st.lists(st.one_of(request, request, changes), min_size=5, max_size=25))


@given(histories())
def test_a_daemon_with_a_memo_answers_as_one_without(events):
    refresher = StandingRefresher(Snapshot(demo(), 0))
    remembering = PolicyDaemon(SETTINGS[0], refresher, memo=Memo(max_entries=3))
    forgetful = PolicyDaemon(SETTINGS[0], refresher, memo=Memo(max_entries=0))
    for event in events:
        if isinstance(event, bytes):
            assert remembering.answer(event) == forgetful.answer(event)
        elif isinstance(event, Snapshot):
            refresher.snapshot = event if event.site else Snapshot(None, None)
        else:
            remembering.use(event)
            forgetful.use(event)


class ReusingHook:
    """The hook's side of `keep`, on one connection: forgets all when policyd ends that."""

    def __init__(self, daemon: PolicyDaemon) -> None:
        self._daemon = daemon
        self._kept: dict[bytes, list[tuple[int, int, bytes]]] = {}
        daemon.outdate = self._kept.clear
        self.reused = 0

    def answer(self, request: bytes) -> bytes | None:
        """A line as policyd would answer it, perhaps without asking."""
        id_, rest = wire.split_id(request)
        _, limit, key = wire.split_own(rest)
        limit = -1 if limit is None else limit
        self._daemon.look()
        for low, high, known in self._kept.get(key, ()):
            if low <= limit <= high:
                self.reused += 1
                return id_.join(known.split(b"?"))
        line = self._daemon.answer(request)
        body = json.loads(line) if line else {}
        terms = body.pop("keep", None)
        if terms is not None:
            plain = line[: line.rindex(b',"keep":')] + b"}\n"
            low, high = terms.get("lo", limit), terms.get("hi", limit)
            assert low <= limit <= high
            cut = b"?".join(plain.split(id_)) if len(id_) > 9 else plain
            self._kept.setdefault(key, []).append((low, high, cut))
            return plain
        return line


@given(histories())
def test_a_hook_that_reuses_answers_gives_what_policyd_would(events):
    refresher = StandingRefresher(Snapshot(demo(), 0))
    reusing = [dataclasses.replace(each, reuse_s=30) for each in SETTINGS]
    daemon = PolicyDaemon(reusing[0], refresher, memo=Memo(max_entries=3))
    hook = ReusingHook(daemon)
    forgetful = PolicyDaemon(SETTINGS[0], refresher, memo=Memo(max_entries=0))
    for event in events:
        if isinstance(event, bytes):
            id_ = wire.split_id(event)[0]
            long = event.replace(b'"id":"%b"' % id_, b'"id":"1234567890-%b"' % id_[:9])
            assert hook.answer(long) == forgetful.answer(long)
        elif isinstance(event, Snapshot):
            # Facts that grow old end with the time in the terms, here as if at once.
            if event.site is None or event.age_s > MAX_AGE_S:
                hook._kept.clear()
            refresher.snapshot = event if event.site else Snapshot(None, None)
        else:
            daemon.use(reusing[SETTINGS.index(event)])
            forgetful.use(event)


def hits(daemon: PolicyDaemon) -> int:
    return json.loads(daemon.answer(b'{"verb":"ping"}'))["memo_hits"]


def daemon_of(site: Site = SITES[1]) -> tuple[PolicyDaemon, StandingRefresher]:
    refresher = StandingRefresher(Snapshot(site, 0))
    return PolicyDaemon(SETTINGS[0], refresher), refresher


class TestHits:
    def test_only_the_id_may_differ(self):
        daemon, _ = daemon_of()
        for job, id_ in ((JOBS[0], "1"), (JOBS[0], "2-3"), (JOBS[1], "4")):
            assert json.loads(daemon.answer(line(job, None, id_)))["id"] == id_
        assert hits(daemon) == 1

    def test_facts_read_again_without_a_change_keep_it(self):
        daemon, refresher = daemon_of()
        daemon.answer(line(JOBS[0], None, "1"))
        refresher.snapshot = Snapshot(refresher.snapshot.site, 5.0, 2)
        daemon.answer(line(JOBS[0], None, "2"))
        assert hits(daemon) == 1

    def test_facts_that_changed_and_changed_back_are_judged_anew(self):
        daemon, refresher = daemon_of()
        for site in (SITES[1], SITES[2], SITES[1]):
            refresher.snapshot = Snapshot(site, 0)
            daemon.answer(line(JOBS[0], None, "1"))
        assert hits(daemon) == 0

    def test_an_unknown_place_is_asked_for_again(self):
        """It may be newer than the facts, which tell of it at any moment."""
        daemon, _ = daemon_of()
        for _ in range(2):
            assert b"FW006" in daemon.answer(line(JOBS[4], None, "1"))
        assert hits(daemon) == 0


class TestTimeLimits:
    """demo() allows 1,440 minutes everywhere; interactive jobs are held to 270 by POLICIES[3]."""

    def daemon(self, policy: int) -> PolicyDaemon:
        return PolicyDaemon(SETTINGS[policy], StandingRefresher(Snapshot(SITES[1], 0)))

    def ask(self, daemon: PolicyDaemon, limit_min: int | None, **fields: object) -> dict:
        job = own(limit_min) | A100 | fields
        return json.loads(daemon.answer(line(job, None, "1")))

    def test_one_answer_is_for_all_that_the_partitions_allow(self):
        daemon = self.daemon(0)
        for limit_min in (1, 30, 1440):
            self.ask(daemon, limit_min)
        assert hits(daemon) == 2
        self.ask(daemon, 1441)
        assert hits(daemon) == 2

    def test_none_is_not_a_limit(self):
        daemon = self.daemon(0)
        for limit_min in (None, 0, None):
            self.ask(daemon, limit_min)
        assert hits(daemon) == 1

    def test_an_answer_ends_where_a_rule_would_say_something_else(self):
        daemon = self.daemon(3)
        for limit_min in (10, 1440, 1):
            assert "time_limit" not in self.ask(daemon, limit_min).get("set", {})
        assert hits(daemon) == 2
        assert self.ask(daemon, 1441)["set"]["time_limit"] == 1440
        assert hits(daemon) == 2

    def test_an_answer_that_names_the_limit_is_for_it_alone(self):
        daemon = self.daemon(3)
        texts = [self.ask(daemon, limit_min)["say"] for limit_min in (1500, 1501, 1500)]
        assert "25 h" in texts[0]
        assert "25:01 h" in texts[1]
        assert texts[2] == texts[0]
        assert hits(daemon) == 1

    def test_an_answer_that_does_not_name_it_is_for_all_that_are_cut_alike(self):
        daemon = self.daemon(3)
        for limit_min in (271, 1440, 300):
            assert self.ask(daemon, limit_min, std_in="")["set"]["time_limit"] == 270
        assert hits(daemon) == 2

    def test_routes_by_length_have_their_own(self):
        daemon = self.daemon(4)
        qos = [self.ask(daemon, n).get("set", {}).get("qos") for n in (539, 540, 541, 538)]
        assert qos == [None, "long", "long", None]
        assert hits(daemon) == 2


class TestIdInTheAdminComment:
    def test_it_is_the_requests_own(self):
        daemon, _ = daemon_of()
        for id_ in ("1-1", "2-22"):
            answer = json.loads(daemon.answer(line(JOBS[0], None, id_)))
            comment = answer["set"]["admin_comment"].removeprefix("fairwatt:")
            assert json.loads(comment)["id"] == id_

    def test_a_users_text_that_looks_like_a_place_for_it_is_left_alone(self):
        text = '"admin_comment":"fairwatt:{\\"v\\":1,\\"id\\":\\"\\"'
        answer = wire.Answer(v=1, id="", act="accept", set={"features": text}, say=text)
        pieces = wire.pieces(answer)
        assert len(pieces) == 2
        got = msgspec.json.decode(b"5".join(pieces))
        assert (got["id"], got["set"]["features"], got["say"]) == ("5", text, text)

    def test_a_comment_without_a_place_for_it_stays(self):
        comment = 'fairwatt:{"v":1,"asked":"gpu:1"}'
        pieces = wire.pieces(wire.Answer(v=1, id="", act="accept", set={"admin_comment": comment}))
        assert json.loads(b"5".join(pieces))["set"] == {"admin_comment": comment}

    def test_an_answer_beyond_ascii_has_its_places_too(self):
        comment = 'fairwatt:{"v":1,"id":""}'
        answer = wire.Answer(
            v=1, id="", act="accept", set={"features": "caf\xe9", "admin_comment": comment}
        )
        assert json.loads(b"5".join(wire.pieces(answer))) == {
            "v": 1,
            "id": "5",
            "act": "accept",
            "set": {"features": "caf\xe9", "admin_comment": 'fairwatt:{"v":1,"id":"5"}'},
        }


def entry(size: int = 0) -> Remembered:
    return Remembered(1, (b"x" * size,), wire.Query(verb="submit"), Decision())


class TestReferences:
    def test_an_answer_is_found_by_its_number_after_its_entry_was_forgotten_or_replaced(self):
        memo = Memo()
        old, new = entry(), Remembered(2, (), wire.Query(verb="submit"), Decision())
        for each in (old, new):
            memo.put(b"a", each)
            memo.refer(each, 0.0, 30.0)
            memo.forget()
        assert (memo.referred(1), memo.referred(2), memo.referred(3)) == (old, new, None)

    def numbered(self, ref: int) -> Remembered:
        return Remembered(ref, (), wire.Query(verb="submit"), Decision())

    def known(self, memo: Memo, *refs: int) -> list[int]:
        return [ref for ref in refs if memo.referred(ref) is not None]

    def test_a_small_memo_knows_all_that_the_hook_may_have(self):
        memo = Memo(max_entries=1)
        assert all(memo.refer(self.numbered(ref), 0.0, 30.0) for ref in range(MAX_REFERRED))
        assert memo.referred(0) is not None
        assert not memo.refer(self.numbered(MAX_REFERRED), 0.0, 30.0)

    def test_an_answer_gives_way_after_its_time_and_not_before(self):
        memo = Memo(max_referred=2)
        for ref, now_s in ((1, 0.0), (2, 10.0)):
            assert memo.refer(self.numbered(ref), now_s, 30.0)
        late_s = 30 + LATE_S
        assert not memo.refer(self.numbered(3), late_s - 0.1, 30.0)
        assert self.known(memo, 1, 2, 3) == [1, 2]
        assert memo.refer(self.numbered(3), late_s, 30.0)
        assert self.known(memo, 1, 2, 3) == [2, 3]
        assert not memo.refer(self.numbered(4), late_s, 30.0)

    def test_one_that_is_given_again_stays_for_the_longer_of_both_times(self):
        memo = Memo(max_referred=1)
        memo.refer(self.numbered(1), 0.0, 30.0)
        assert memo.refer(self.numbered(1), 1.0, 9.0)
        assert not memo.refer(self.numbered(2), 29.0, 30.0)
        assert memo.refer(self.numbered(1), 29.0, 30.0)
        assert not memo.refer(self.numbered(2), 58.0, 30.0)

    def test_those_of_before_a_forget_give_way_at_once(self):
        memo = Memo(max_referred=1)
        memo.refer(self.numbered(1), 0.0, 30.0)
        memo.forget()
        assert self.known(memo, 1) == [1]
        assert memo.refer(self.numbered(2), 0.0, 30.0)
        assert self.known(memo, 1, 2) == [2]


class TestBounds:
    def test_the_entry_unused_for_longest_goes_first(self):
        memo = Memo(max_entries=2)
        kept, other = entry(), entry()
        memo.put(b"a", kept)
        memo.put(b"b", other)
        assert memo.get(b"a") is kept
        memo.put(b"c", other)
        assert (memo.get(b"a"), memo.get(b"b"), len(memo)) == (kept, None, 2)

    def test_bytes_are_bounded(self):
        memo = Memo(max_bytes=3 * OBJECT_BYTES)
        for number in range(9):
            memo.put(b"%d" % number, entry())
        assert len(memo) == 2
        assert memo.size_bytes <= 3 * OBJECT_BYTES
        memo.put(b"9", entry(3 * OBJECT_BYTES))
        assert (len(memo), memo.size_bytes) == (0, 0)

    def test_a_key_put_twice_counts_once(self):
        memo = Memo()
        memo.put(b"a", entry(100))
        memo.put(b"a", entry(10))
        assert (len(memo), memo.size_bytes) == (1, 3 * 11 + OBJECT_BYTES)

    def test_of_answers_for_other_time_limits_the_oldest_goes(self):
        memo = Memo()
        bands = [
            Remembered(n, (), wire.Query(verb="submit"), Decision(), 10 * n, 10 * n + 9)
            for n in range(MAX_BANDS + 1)
        ]
        for each in bands:
            memo.put(b"a", each)
        assert [memo.get(b"a", 10 * n + 5) for n in range(MAX_BANDS + 1)] == [None, *bands[1:]]
        assert memo.size_bytes == MAX_BANDS * (3 + OBJECT_BYTES)
        memo.forget()
        memo.put(b"a", bands[0])
        assert memo.get(b"a", 15) is None
        assert memo.size_bytes == 3 + OBJECT_BYTES

    def test_a_long_request_is_not_kept(self):
        memo = Memo()
        memo.put(b"x" * (MAX_KEY_BYTES + 1), entry())
        assert len(memo) == 0

    def test_forgotten_entries_still_make_room(self):
        memo = Memo(max_entries=2)
        for key in (b"a", b"b"):
            memo.put(key, entry())
        memo.forget()
        assert memo.get(b"a") is None
        new = entry()
        memo.put(b"a", new)
        memo.put(b"c", new)
        assert (memo.get(b"a"), memo.get(b"c"), len(memo)) == (new, new, 2)


class TestDurations:
    def test_percentiles(self):
        durations = Durations()
        assert durations.percentile_us(50) is None
        for took_us in (*range(1, 101), 9_000_000):
            durations.add(took_us)
        assert [durations.percentile_us(p) for p in (50, 99, 100)] == [51, 100, 4096]
