# SPDX-License-Identifier: Apache-2.0
"""The policy daemon: a request's line to the line that answers it, from memory."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import msgspec

from fairwatt.core.config import Config
from fairwatt.core.gres import Spelling
from fairwatt.slurm_plugins import wire
from fairwatt.slurm_plugins.durations import Durations
from fairwatt.slurm_plugins.engine import Decision, Policy, decide
from fairwatt.slurm_plugins.jobdesc import Fields
from fairwatt.slurm_plugins.memo import MAX_REFERRED_KEY_BYTES, NO_LIMIT, Memo, Remembered
from fairwatt.slurm_plugins.policy_check import try_rules
from fairwatt.slurm_plugins.policy_file import PolicyFile, load_policy
from fairwatt.slurm_plugins.ranged import Ranged
from fairwatt.slurm_plugins.refresher import Refresher
from fairwatt.slurm_plugins.rule import ActiveRule
from fairwatt.slurm_plugins.rulebook import BUILT_IN
from fairwatt.slurm_plugins.site import Site

__all__ = ["Journal", "PolicyDaemon", "Settings", "read_settings"]

_log = logging.getLogger(__name__)

MAX_REUSE_S = 60
"""The hook takes no longer time for a sensible one."""

STALE_AFTER = 10
"""Facts older than so many refresh periods are not used."""


class Journal(Protocol):
    """Where decisions are kept."""

    def offer(self, query: wire.Query, decision: Decision, took_us: int) -> None:
        """Take one decision while slurmctld waits. Its `admin_comment` has no id in it yet."""


@dataclass(frozen=True)
class Settings:
    """What the daemon works by, read whole before it replaces what is in use."""

    policy: PolicyFile
    refresh_s: int
    catalogue_dir: str | None
    reuse_s: int = 0

    @functools.cached_property
    def by_user(self) -> bool:
        """Whether equal requests of two users may be judged differently: a site's rule could."""
        own = {id(spec) for spec in BUILT_IN}
        return any(id(rule.spec) not in own for rule in self.rules)

    @property
    def rules(self) -> tuple[ActiveRule, ...]:
        """The rules in order."""
        return self.policy.rules

    @property
    def max_age_s(self) -> float:
        """Older facts are not used."""
        return float(STALE_AFTER * self.refresh_s)


def read_settings(config: Config, site: Site | None = None) -> Settings:
    """Read the policy file; where a site is known, each rule is tried on it before any real job.

    Raises:
        ConfigError: it is wrong.
        PolicyError: a site's rule cannot be used, or a rule raises on a trial request.
    """
    policy = load_policy(Path(config["policyd.policy_file"]))
    if site is not None:
        try_rules(policy, site)
    return Settings(
        policy,
        refresh_s=config["policyd.refresh_s"],
        catalogue_dir=config["site.catalogue_dir"] or None,
        reuse_s=min(config["policyd.reuse_s"], MAX_REUSE_S)
        if config["policyd.memo_entries"]
        else 0,
    )


class PolicyDaemon:
    """Turns request lines into answer lines.

    Args:
        settings: what to work by; `use` replaces them.
        refresher: source of facts.
        journal: where decisions are kept, if anywhere.
        memo: keeps answers; one without room for any makes each request judged anew.

    The hook may give answers again by itself (`reuse_s`), as long as the connection lives that
    brought them. So `outdate`, called when answers of before hold no longer, must end these
    connections, and what the hook reports on others must still be heard.
    """

    def __init__(
        self,
        settings: Settings,
        refresher: Refresher,
        *,
        journal: Journal | None = None,
        memo: Memo | None = None,
    ) -> None:
        self.refresher = refresher
        self._settings = settings
        self._journal = journal
        self._memo = Memo() if memo is None else memo
        self._site = refresher.snapshot.site
        self._durations = Durations()
        self._judged = 0
        self._hits = 0
        self._reused = 0
        self._newest_ref = 0
        self.outdate: Callable[[], None] = lambda: None

    def use(self, settings: Settings) -> None:
        """Take over settings; call it between two requests."""
        self._settings = settings
        self._forget()

    def look(self) -> None:
        """Notice new facts; call it between two requests."""
        self._policy()

    def answer(self, line: bytes) -> bytes | None:
        """Answer one line, b"": not at all; None closes the connection (no request of ours)."""
        start_ns = time.perf_counter_ns()
        policy = self._policy()
        # Answers without usable facts tell how old these are: never kept.
        usable = policy.site is not None and policy.age_s <= policy.max_age_s
        id_, key = wire.split_id(line) if usable else (b"", b"")
        uid, limit_min, key = self._split(key)
        known = self._memo.get(key, _or_no_limit(limit_min)) if key else None
        if known is not None:
            self._hits += 1
        else:
            query = _query(line, id_)
            if query is None:
                return None
            if query.verb == "ping":
                return wire.encode(self._pong())
            if query.verb == "reused":
                return self._note_reuse(query, start_ns)
            id_ = query.id.encode()
            known = self._remembered(query, policy, limit_min)
            if key and _is_lasting(known.decision):
                self._memo.put(key, known)
        answer = id_.join(known.pieces)
        if self._settings.reuse_s and _may_be_reused(key, known):
            answer = self._with_terms(answer, known, policy)
        self._count(id_, uid, limit_min, known, start_ns)
        return answer

    def _split(self, key: bytes) -> tuple[int | None, int | None, bytes]:
        """What two requests with the same answer may differ in, and the rest of one."""
        return (None, None, key) if self._settings.by_user else wire.split_own(key)

    def _with_terms(self, answer: bytes, known: Remembered, policy: Policy) -> bytes:
        """The answer, with terms unless a report of its reuse might not be understood."""
        reuse_s = min(self._settings.reuse_s, int(policy.max_age_s - policy.age_s))
        terms = wire.Terms(reuse_s, known.ref)
        if self._settings.by_user:
            uid = known.query.job.get("user_id")
            if not isinstance(uid, int):
                return answer
            terms = msgspec.structs.replace(terms, uid=uid)
        elif known.low_min < known.high_min:
            terms = wire.Terms(reuse_s, known.ref, lo=known.low_min, hi=known.high_min)
        fits = self._memo.refer(known, time.monotonic(), reuse_s)
        return wire.with_terms(answer, terms) if fits else answer

    def _note_reuse(self, query: wire.Query, start_ns: int) -> bytes:
        """Record that a job got a kept answer."""
        known = self._memo.referred(query.ref)
        uid, limit_min = query.job.get("user_id"), query.job.get("time_limit")
        if (
            known is None
            or not isinstance(uid, int)
            or not isinstance(limit_min, (int, type(None)))
            or not wire.is_id(query.id)
        ):
            _log.warning("a job got an answer that is not known any more: not recorded")
            return b""
        self._hits += 1
        self._reused += 1
        self._count(query.id.encode(), uid, limit_min, known, start_ns)
        return b""

    def _forget(self) -> None:
        self._memo.forget()
        self.outdate()

    def _policy(self) -> Policy:
        now = self.refresher.snapshot
        if now.site is not self._site:
            self._site = now.site
            self._forget()
        settings = self._settings
        return Policy(now.site, settings.rules, now.age_s or 0.0, settings.max_age_s)

    def _pong(self) -> wire.Pong:
        now = self.refresher.snapshot
        return wire.Pong(
            ok=True,
            generation=now.generation,
            age_s=now.age_s,
            nodes=len(now.site.facts.nodes) if now.site else 0,
            judged=self._judged,
            memo_hits=self._hits,
            reused=self._reused,
            p50_us=self._durations.percentile_us(50),
            p99_us=self._durations.percentile_us(99),
        )

    def _remembered(self, query: wire.Query, policy: Policy, limit_min: int | None) -> Remembered:
        decision, low_min, high_min = self._decided(query, policy, limit_min)
        answer = wire.Answer(
            v=wire.PROTOCOL,
            id="",
            act="accept" if decision.accepted else "reject",
            set=decision.edits if decision.accepted else {},
            say="\n".join(decision.say) or None,
        )
        self._newest_ref += 1
        return Remembered(
            self._newest_ref, wire.pieces(answer), query, decision, low_min, high_min
        )

    def _decided(
        self, query: wire.Query, policy: Policy, limit_min: int | None
    ) -> tuple[Decision, int, int]:
        """The decision, and the least and the most time limit with which it is the same one."""

        def judged(job: Fields) -> Decision:
            record = (query.record or {}) if query.verb == "modify" else None
            return decide(job, policy, record=record, spelling=Spelling(query.spelling))

        if limit_min is None:
            return judged(query.job), NO_LIMIT, NO_LIMIT
        ranged = Ranged(limit_min)
        decision = judged({**query.job, "time_limit": cast("int", ranged)})
        bare = not any(isinstance(value, Ranged) for value in decision.edits.values())
        if bare and _is_lasting(decision):
            return decision, ranged.low, ranged.high
        return judged(query.job), limit_min, limit_min

    def _count(
        self,
        id_: bytes,
        uid: int | None,
        limit_min: int | None,
        known: Remembered,
        start_ns: int,
    ) -> None:
        took_us = (time.perf_counter_ns() - start_ns) // 1000
        self._judged += 1
        self._durations.add(took_us)
        if self._journal is None:
            return
        job = known.query.job
        if uid is not None:
            job = {**job, "user_id": uid}
        if limit_min is not None:
            job = {**job, "time_limit": limit_min}
        query = msgspec.structs.replace(known.query, id=id_.decode(), job=job)
        self._journal.offer(query, known.decision, took_us)


def _or_no_limit(limit_min: int | None) -> int:
    return NO_LIMIT if limit_min is None else limit_min


def _query(line: bytes, id_: bytes) -> wire.Query | None:
    """Read a request; None: it is none of ours. `id_` is what was taken for its id, if any."""
    try:
        query = wire.decode_query(line)
    except msgspec.MsgspecError as error:
        _log.warning("not a request: %s", error)
        return None
    if query.verb == "ping":
        return query
    if query.v != wire.PROTOCOL:
        _log.warning("hook speaks protocol %d, this is %d", query.v, wire.PROTOCOL)
        return None
    if not wire.is_id(query.id) or (id_ and id_ != query.id.encode()):
        _log.warning("not a request: its id is not as the hook makes them")
        return None
    return query


def _may_be_reused(key: bytes, known: Remembered) -> bool:
    """Whether the hook, which knows no more than a submission's bytes, may give it again."""
    if not 0 < len(key) <= MAX_REFERRED_KEY_BYTES:
        return False
    return known.query.verb == "submit" and _is_lasting(known.decision)


def _is_lasting(decision: Decision) -> bool:
    """Whether the next equal request may have this answer: not when judging broke off."""
    return bool(decision.steps) or not decision.say
