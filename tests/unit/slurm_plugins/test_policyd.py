# SPDX-License-Identifier: Apache-2.0
"""The daemon's parts: lines over a socket, facts in the background, reload of the settings."""

from __future__ import annotations

import dataclasses
import json
import logging
import queue
import socket
import threading
from pathlib import Path

import msgspec
import pytest

from fairwatt.core import config as config_module
from fairwatt.core.errors import CommandError, PolicyError
from fairwatt.slurm_plugins import lineserver, policy_file, rulebook
from fairwatt.slurm_plugins.lineserver import MAX_LINE_BYTES, LineServer
from fairwatt.slurm_plugins.memo import Memo
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.policyd import PolicyDaemon, read_settings
from fairwatt.slurm_plugins.policyd_process import Reloader
from fairwatt.slurm_plugins.refresher import Refresher
from fairwatt.slurm_plugins.rule import ActiveRule, RuleSpec
from tests.fakes.sites import demo

FACTS = demo().facts
QUERY = {
    "v": 1,
    "id": "7",
    "verb": "submit",
    "spelling": "colon",
    "job": {"tres_per_node": "gres:gpu:20gb:1", "user_id": 5},
}


def compact(query: dict) -> bytes:
    """A request as the hook writes it."""
    return json.dumps(query, separators=(",", ":")).encode()


@pytest.fixture
def server(tmp_path):
    """A server that answers in upper case, `bye` by hanging up."""
    made = LineServer(
        tmp_path / "s", lambda line: None if line == b"bye" else line.upper() + b"\n"
    )
    thread = threading.Thread(target=made.serve)
    thread.start()
    yield made
    made.stop()
    thread.join()
    made.close()


def talk(path, *chunks: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        client.connect(str(path))
        for chunk in chunks:
            client.sendall(chunk)
        client.shutdown(socket.SHUT_WR)
        return client.makefile("rb").read()


class TestLineServer:
    def test_lines_may_come_in_pieces_or_together(self, server):
        assert talk(server.path, b"a", b"b\nc", b"d\n") == b"AB\nCD\n"
        assert talk(server.path, b"a\nb\n", b"c\n", b"d\ne") == b"A\nB\nC\nD\n"

    def test_lines_of_clients_do_not_mix(self, server):
        with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
            for client in (one, two):
                client.settimeout(5)
                client.connect(str(server.path))
            one.sendall(b"a")
            two.sendall(b"x\n")
            assert two.recv(9) == b"X\n"
            one.sendall(b"b\n")
            assert one.recv(9) == b"AB\n"

    def test_it_hangs_up_on_what_is_no_request_and_goes_on(self, server):
        assert talk(server.path, b"bye\nx\n") == b""
        assert talk(server.path, b"x\n") == b"X\n"

    def test_a_line_without_end_is_cut_off(self, server):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(str(server.path))
            with pytest.raises(OSError):  # noqa: PT012 - either call may find it closed
                client.sendall(b"x" * (MAX_LINE_BYTES + 70_000))
                if client.recv(1) == b"":
                    raise OSError("closed")

    def test_at_parting_clients_see_the_end_and_are_not_heard_any_more(self, tmp_path):
        heard = []
        server = LineServer(tmp_path / "s", lambda line: heard.append(line) or line + b"\n")
        thread = threading.Thread(target=server.serve)
        with socket.socket(socket.AF_UNIX) as old, socket.socket(socket.AF_UNIX) as new:
            for client in (old, new):
                client.settimeout(5)
            old.connect(str(server.path))
            thread.start()
            old.sendall(b"1\n")
            assert old.recv(9) == b"1\n"
            server.call_soon(server.part)
            assert old.recv(9) == b""
            old.sendall(b"2\n")
            old.shutdown(socket.SHUT_WR)
            new.connect(str(server.path))
            new.sendall(b"3\n")
            assert new.recv(9) == b"3\n"
        server.stop()
        thread.join()
        server.close()
        assert heard == [b"1", b"3"]

    def test_a_client_that_waits_for_its_first_answer_gets_it(self, tmp_path):
        server = LineServer(tmp_path / "s", lambda line: line + b"\n")
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(str(server.path))
            client.sendall(b"1")
            server._accept()
            server._read(*next(iter(server._clients.items())))
            server.part()
            client.sendall(b"2\n")
            server._read(*next(iter(server._clients.items())))
            assert client.recv(9) == b"12\n"
        server.close()

    def test_a_client_that_stays_after_its_parting_is_dropped_at_the_next(self, tmp_path):
        server = LineServer(tmp_path / "s", lambda line: line + b"\n")
        thread = threading.Thread(target=server.serve)
        thread.start()
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(str(server.path))
            client.sendall(b"1\n")
            assert client.recv(9) == b"1\n"
            for _ in range(2):
                server.call_soon(server.part)
            server.stop()
            thread.join()
            with pytest.raises(BrokenPipeError):
                client.sendall(b"2\n")
        server.close()

    def test_the_socket_is_for_its_owner_and_group(self, server):
        assert server.path.stat().st_mode & 0o777 == 0o660

    def test_a_second_server_is_refused(self, server):
        with pytest.raises(PolicyError, match="already answers"):
            LineServer(server.path, lambda line: line)

    def test_a_stale_socket_is_replaced_and_removed_at_the_end(self, tmp_path):
        path = tmp_path / "s"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        LineServer(path, lambda line: line).close()
        assert not path.exists()

    def test_a_folder_that_is_missing_is_named(self, tmp_path):
        with pytest.raises(PolicyError, match="create its folder"):
            LineServer(tmp_path / "no" / "s", lambda line: line)


class TestReports:
    """Clients whose lines get no answer are not looked at for each."""

    @pytest.fixture
    def heard(self):
        return []

    @pytest.fixture
    def server(self, tmp_path, heard, monkeypatch):
        """A server whose time for gathering the test makes pass; it answers what ends with `?`."""
        made = LineServer(
            tmp_path / "s", lambda line: heard.append(line) or line * line.endswith(b"?")
        )
        monkeypatch.setattr(lineserver, "REPORTS_S", 3600.0)
        yield made
        made.close()

    @pytest.fixture
    def client(self, server):
        with socket.socket(socket.AF_UNIX) as made:
            made.settimeout(5)
            made.connect(str(server.path))
            server._accept()
            yield made

    def turn(self, server) -> None:
        """What `serve` does once, without waiting."""
        for number, _ in server._epoll.poll(0):
            server._read(number, server._clients[number])
        if server._gathering:
            server._read_reports()

    def pass_time(self, server) -> None:
        server._gathered_at = 0.0

    def test_after_the_first_they_gather_and_are_read_together(self, server, client, heard):
        for line in (b"1\n", b"2\n", b"3\n"):
            client.sendall(line)
            self.turn(server)
        assert heard == [b"1"]
        assert 0 < server._rest_s() <= 3600
        self.pass_time(server)
        self.turn(server)
        assert heard == [b"1", b"2", b"3"]

    def test_when_none_came_the_next_is_seen_at_once_again(self, server, client, heard):
        client.sendall(b"1\n")
        self.turn(server)
        self.pass_time(server)
        self.turn(server)
        assert server._rest_s() is None
        client.sendall(b"2\n")
        self.turn(server)
        assert heard == [b"1", b"2"]

    def test_many_are_read_in_pieces_with_requests_in_between(self, server, client, heard):
        client.sendall(b"0\n")
        self.turn(server)
        lines = [b"%03d" % n for n in range(1000)]
        client.sendall(b"".join(line + b"\n" for line in lines))
        self.pass_time(server)
        self.turn(server)
        assert heard[1:] == lines[:512]  # REPORTS_BYTES, four a line
        assert server._rest_s() == 0.0
        self.turn(server)
        self.turn(server)
        assert heard[1:] == lines

    def test_one_that_asks_is_never_kept_waiting(self, server, client, heard):
        for line in (b"1?\n", b"2\n", b"3?\n"):
            client.sendall(line)
            self.turn(server)
        assert heard == [b"1?", b"2", b"3?"]
        assert not server._gathering

    @pytest.mark.parametrize("gathering", [True, False])
    def test_at_the_end_what_was_reported_is_taken(self, server, client, heard, gathering):
        client.sendall(b"1\n")
        self.turn(server)
        if not gathering:
            self.pass_time(server)
            self.turn(server)
        client.sendall(b"2\n3\n")
        server.close()
        assert heard == [b"1", b"2", b"3"]

    def test_at_the_end_a_first_report_is_taken_too(self, server, client, heard):
        client.sendall(b"1\n")
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.connect(str(server.path))
            waiting.sendall(b"2\n")
            server.close()
        assert heard == [b"1", b"2"]

    def test_at_the_end_the_hook_sees_it_before_its_last_reports_are_read(self, server, client):
        client.sendall(b"1?\n")
        self.turn(server)
        assert client.recv(9) == b"1?"
        seen = []
        server._answer = lambda line: seen.append((line, client.recv(9))) or b""
        with socket.socket(socket.AF_UNIX) as reporter:
            reporter.connect(str(server.path))
            reporter.sendall(b"2\n")
            server.close()
        assert seen == [(b"2", b"")]

    def test_one_that_hangs_up_is_read_to_its_end_and_let_go(self, server, client, heard):
        client.sendall(b"1\n")
        self.turn(server)
        client.sendall(b"2\n")
        client.close()
        for _ in range(2):
            self.turn(server)
        assert heard == [b"1", b"2"]
        assert not server._clients
        assert not server._gathering

    def test_parting_leaves_them(self, server, client, heard):
        client.sendall(b"1\n")
        self.turn(server)
        server.part()
        client.sendall(b"2\n")
        self.pass_time(server)
        self.turn(server)
        assert heard == [b"1", b"2"]


class TestRefresher:
    def test_a_failure_keeps_the_last_good_facts_and_says_so_once(self, caplog):
        answers = [
            FACTS,
            CommandError(["scontrol"], 1, "down"),
            CommandError(["scontrol"], 1, "x"),
        ]

        def read():
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        refresher = Refresher(read, 30, None)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                refresher.refresh()
        assert refresher.snapshot.generation == 1
        assert refresher.snapshot.site.facts == FACTS
        assert [record.levelname for record in caplog.records] == ["WARNING"]

    def test_facts_that_did_not_change_keep_their_site(self):
        refresher = Refresher(lambda: FACTS, 30, None)
        refresher.refresh()
        site = refresher.snapshot.site
        refresher.refresh()
        assert refresher.snapshot.site is site
        assert refresher.snapshot.generation == 2

    def test_new_settings_make_the_site_anew(self):
        refresher = Refresher(lambda: FACTS, 30, None)
        refresher.refresh()
        site = refresher.snapshot.site
        refresher.use(60, None)
        refresher.refresh()
        assert refresher.snapshot.site is not site
        assert refresher.refresh_s == 60


def refreshed() -> Refresher:
    refresher = Refresher(lambda: FACTS, 30, None)
    refresher.refresh()
    return refresher


def settings(path=None, **changes):
    """The defaults, with dotted settings written to `path` where given."""
    if path is None:
        return read_settings(config_module.load(None))
    write(path, **changes)
    return read_settings(config_module.load(path))


def write(path, **policyd: object) -> None:
    lines = [f'{name} = "{value}"' for name, value in policyd.items()]
    path.write_text("\n".join(["[policyd]", *lines, ""]))


@pytest.fixture
def daemon():
    return PolicyDaemon(settings(), refreshed())


def ask(daemon, **fields):
    answer = daemon.answer(json.dumps(fields).encode())
    return None if answer is None else json.loads(answer)


class TestPolicyDaemon:
    def test_an_answer_names_its_request(self, daemon):
        answer = ask(daemon, **QUERY)
        assert answer["id"] == "7"
        assert answer["act"] == "accept"
        assert answer["set"]["tres_per_node"] == "gres:gpu:a100_3g.20gb:1"

    def test_ping(self, daemon):
        pong = ask(daemon, v=1, verb="ping")
        assert pong["ok"] is True
        assert (pong["nodes"], pong["generation"]) == (4, 1)
        assert 0 <= pong["age_s"] < 5
        assert (pong["judged"], pong["p50_us"], pong["p99_us"]) == (0, None, None)

    def test_ping_tells_how_long_decisions_took(self, daemon):
        for _ in range(3):
            daemon.answer(compact(QUERY))
        pong = ask(daemon, v=1, verb="ping")
        assert (pong["judged"], pong["memo_hits"]) == (3, 2)
        assert 0 < pong["p50_us"] <= pong["p99_us"]

    @pytest.mark.parametrize(
        "line", [b"", b"x", b"[]", b'{"verb":"drop"}', b'{"verb":"submit","v":2}', b"\xff"]
    )
    def test_what_is_no_request_closes_the_connection(self, daemon, line):
        assert daemon.answer(line) is None

    @pytest.mark.parametrize("id_", ["", "a", "7 ", '7"', "7\\", "\u0667", "7" * 65])
    @pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
    def test_an_id_that_is_not_the_hooks_closes_the_connection(self, daemon, id_, separators):
        daemon.answer(compact(QUERY))  # its answer is known by now
        line = json.dumps({**QUERY, "id": id_}, separators=separators).encode()
        assert daemon.answer(line) is None

    def test_a_request_with_two_ids_closes_the_connection(self, daemon):
        line = compact(QUERY).replace(b'"verb"', b'"id":"8","verb"')
        assert daemon.answer(line) is None
        assert daemon.answer(line) is None

    def test_old_facts_are_not_used(self, daemon):
        old = daemon.refresher.snapshot
        daemon.refresher.snapshot = type(old)(old.site, 1, old.read_at - 301)
        answer = ask(daemon, **QUERY)
        assert "set" not in answer
        assert "FW002" in answer["say"]

    def test_reload_takes_a_new_policy_and_keeps_the_good_one_when_broken(
        self, daemon, tmp_path, monkeypatch, caplog
    ):
        policy = tmp_path / "policy.toml"
        file = tmp_path / "fairwatt.toml"
        write(file, policy_file=policy)
        monkeypatch.setenv("FAIRWATT_CONFIG", str(file))
        reloader = Reloader(daemon, lambda task: task())
        known = daemon.answer(compact(QUERY))
        policy.write_text('[rules.memory_fit]\nmode = "off"\n[rules.known_types]\nmode = "off"\n')
        reloader.read()
        off = daemon.answer(compact(QUERY))
        assert b"tres_per_node" in known
        assert b"tres_per_node" not in off
        policy.write_text('[rules.memory_fitt]\nmode = "enforce"\n')
        with caplog.at_level(logging.ERROR):
            reloader.read()
        assert "memory_fitt" in caplog.text
        assert "the last good one stays" in caplog.text
        assert daemon.answer(compact(QUERY)) == off

    def test_reload_keeps_the_good_one_when_a_rule_of_the_site_fails_on_a_trial(
        self, daemon, tmp_path, monkeypatch, caplog
    ):
        def broken(request, site, options):
            return 1 / (request.min_nodes or 0)

        spec = RuleSpec("ours", "Fails.", broken, mode="enforce")
        known = {**rulebook.known_rules(), "ours": spec}
        monkeypatch.setattr(policy_file, "known_rules", lambda: known)
        write(tmp_path / "fairwatt.toml", policy_file=tmp_path / "policy.toml")
        (tmp_path / "policy.toml").write_text("")
        monkeypatch.setenv("FAIRWATT_CONFIG", str(tmp_path / "fairwatt.toml"))
        good = daemon.answer(compact(QUERY))
        with caplog.at_level(logging.ERROR):
            Reloader(daemon, lambda task: task()).read()
        assert "not taken over, the last good one stays" in caplog.text
        assert "rule ours fails on an empty request: ZeroDivisionError" in caplog.text
        assert daemon.answer(compact(QUERY)) == good
        (tmp_path / "policy.toml").write_text('[rules.ours]\nmode = "off"\n')
        Reloader(daemon, lambda task: task()).read()
        assert daemon._settings.rules[-1].mode == "off"

    def test_a_reload_runs_in_its_own_thread_and_replaces_between_requests(
        self, daemon, tmp_path, monkeypatch
    ):
        write(tmp_path / "fairwatt.toml", policy_file=tmp_path / "policy.toml")
        (tmp_path / "policy.toml").write_text("")
        monkeypatch.setenv("FAIRWATT_CONFIG", str(tmp_path / "fairwatt.toml"))
        tasks: queue.Queue = queue.Queue()
        Reloader(daemon, tasks.put).start()
        task = tasks.get(timeout=5)
        before = daemon._settings
        task()
        assert daemon._settings is not before

    def test_the_journal_gets_each_decision_under_its_own_id_and_user(self):
        journal = Journal()
        daemon = PolicyDaemon(settings(), refreshed(), journal=journal)
        for id_, uid in (("7", 5), ("8-1", 5), ("9", 6)):
            daemon.answer(request(id_, uid))
        assert [each[0] for each in journal.offered] == ["7", "8-1", "9"]
        assert [each[1]["user_id"] for each in journal.offered] == [5, 5, 6]
        assert {each[2] for each in journal.offered} == {"gpu:a100_3g.20gb:1"}
        assert ask(daemon, v=1, verb="ping")["memo_hits"] == 2


class Journal:
    """Keeps what it is offered."""

    def __init__(self):
        self.offered = []

    def offer(self, query, decision, took_us):
        self.offered.append((query.id, query.job, decision.given, took_us))


def request(id_: str, uid: int, gres: str = "gres:gpu:20gb:1") -> bytes:
    """A request as the hook writes it, its user first."""
    return compact({**QUERY, "id": id_, "job": {"user_id": uid, "tres_per_node": gres}})


class TestReuse:
    """What the hook may do by itself, and that it is recorded as what policyd does."""

    @pytest.fixture
    def journal(self):
        return Journal()

    @pytest.fixture
    def daemon(self, journal):
        wanted = dataclasses.replace(settings(), reuse_s=30)
        return PolicyDaemon(wanted, refreshed(), journal=journal)

    def terms(self, daemon, line):
        return json.loads(daemon.answer(line)).get("keep")

    def test_it_is_30_s_by_default_and_off_without_a_memo(self, tmp_path):
        (tmp_path / "a").write_text("[policyd]\nmemo_entries = 0\n")
        assert settings().reuse_s == 30
        assert read_settings(config_module.load(tmp_path / "a")).reuse_s == 0

    def test_more_than_the_hook_takes_is_cut_to_that(self, tmp_path):
        (tmp_path / "a").write_text("[policyd]\nreuse_s = 600\n")
        assert read_settings(config_module.load(tmp_path / "a")).reuse_s == 60

    def test_an_answer_tells_its_terms_and_equal_requests_have_one_number(self, daemon):
        assert self.terms(daemon, request("1", 5)) == {"s": 30, "ref": 1}
        assert self.terms(daemon, request("2", 6)) == {"s": 30, "ref": 1}
        assert self.terms(daemon, request("3", 6, "gres:gpu:2")) == {"s": 30, "ref": 2}

    def test_a_reuse_is_recorded_with_its_own_id_and_user_and_not_answered(self, daemon, journal):
        daemon.answer(request("1", 5))
        line = compact({"v": 1, "id": "2", "verb": "reused", "ref": 1, "job": {"user_id": 6}})
        assert daemon.answer(line) == b""
        (first, job, given, _), (second, job_again, given_again, _) = journal.offered
        assert (first, second, given_again) == ("1", "2", given)
        assert job_again == {**job, "user_id": 6}
        pong = ask(daemon, v=1, verb="ping")
        assert (pong["judged"], pong["memo_hits"], pong["reused"]) == (2, 1, 1)

    def timed(self, id_: str, limit_min: int | None, uid: int = 5) -> bytes:
        limit = {} if limit_min is None else {"time_limit": limit_min}
        job = {"user_id": uid} | limit | {"tres_per_node": "gres:gpu:20gb:1", "std_in": "x"}
        return compact({**QUERY, "id": id_, "job": job})

    def test_an_answer_tells_for_which_time_limits_it_holds(self, daemon):
        """The demo's partitions allow 1,440 minutes; a job may also go without a limit."""
        assert self.terms(daemon, self.timed("1", 60)) == {"s": 30, "ref": 1, "lo": 0, "hi": 1440}
        assert self.terms(daemon, self.timed("2", 90)) == {"s": 30, "ref": 1, "lo": 0, "hi": 1440}
        assert self.terms(daemon, self.timed("3", None)) == {"s": 30, "ref": 2}
        assert self.terms(daemon, self.timed("4", 1441))["ref"] == 3

    def test_each_job_is_recorded_with_its_own_time_limit(self, daemon, journal):
        daemon.answer(self.timed("1", 60))
        daemon.answer(self.timed("2", 90))
        job = {"user_id": 6, "time_limit": 120}
        daemon.answer(compact({"v": 1, "id": "3", "verb": "reused", "ref": 1, "job": job}))
        limits = [(each[0], each[1]["time_limit"]) for each in journal.offered]
        assert limits == [("1", 60), ("2", 90), ("3", 120)]
        assert ask(daemon, v=1, verb="ping")["memo_hits"] == 2

    def test_a_reuse_that_comes_after_the_answer_changed_is_recorded_as_it_was(
        self, daemon, journal
    ):
        daemon.answer(request("1", 5))
        daemon.use(dataclasses.replace(settings(), reuse_s=30))
        daemon.answer(request("2", 5))
        line = compact({"v": 1, "id": "3", "verb": "reused", "ref": 1, "job": {"user_id": 5}})
        daemon.answer(line)
        assert [each[0] for each in journal.offered] == ["1", "2", "3"]

    @pytest.mark.parametrize(
        "changes",
        [
            {"ref": 9},
            {"id": "x"},
            {"job": {}},
            {"job": {"user_id": "5"}},
            {"job": {"user_id": 5, "time_limit": "1"}},
        ],
        ids=str,
    )
    def test_a_reuse_of_nothing_known_is_not_recorded_and_said(
        self, daemon, journal, caplog, changes
    ):
        daemon.answer(request("1", 5))
        query = {"v": 1, "id": "2", "verb": "reused", "ref": 1, "job": {"user_id": 6}}
        assert not daemon.answer(compact(query | changes))
        assert len(journal.offered) == 1
        assert len(caplog.records) == 1

    def test_another_policy_and_other_facts_end_the_connections(self, daemon):
        ends = []
        daemon.outdate = lambda: ends.append(1)
        daemon.answer(request("1", 5))
        daemon.look()
        assert ends == []
        daemon.use(settings())
        daemon.refresher.use(30, None)
        daemon.refresher.refresh()
        daemon.look()
        assert len(ends) == 2

    def test_facts_that_are_nearly_too_old_shorten_the_time(self, daemon):
        old = daemon.refresher.snapshot
        daemon.refresher.snapshot = type(old)(old.site, 1, old.read_at - 290)
        assert self.terms(daemon, request("1", 5))["s"] == 9

    def test_with_a_rule_of_the_site_an_answer_is_for_its_user(self, journal):
        def judge(request, site, options):
            return Outcome(request)

        base = settings()
        spec = RuleSpec("ours", "Does nothing.", judge, mode="enforce")
        rules = (*base.rules, ActiveRule(spec, "enforce", "open", spec.options()))
        policy = msgspec.structs.replace(base.policy, rules=rules)
        daemon = PolicyDaemon(
            dataclasses.replace(base, policy=policy, reuse_s=30), refreshed(), journal=journal
        )
        assert self.terms(daemon, request("1", 5)) == {"s": 30, "ref": 1, "uid": 5}
        assert self.terms(daemon, request("2", 6)) == {"s": 30, "ref": 2, "uid": 6}
        nobody = {"user_id": "x", "tres_per_node": "gres:gpu:20gb:1"}
        assert self.terms(daemon, compact({**QUERY, "job": nobody})) is None

    def test_no_more_answers_are_let_be_reused_than_are_known(self, journal):
        wanted = dataclasses.replace(settings(), reuse_s=30)
        daemon = PolicyDaemon(wanted, refreshed(), journal=journal, memo=Memo(max_referred=1))
        assert self.terms(daemon, request("1", 5))["ref"] == 1
        assert self.terms(daemon, request("2", 5, "gres:gpu:2")) is None
        line = compact({"v": 1, "id": "3", "verb": "reused", "ref": 1, "job": {"user_id": 6}})
        daemon.answer(line)
        assert [each[0] for each in journal.offered] == ["1", "2", "3"]
        assert self.terms(daemon, request("4", 5))["ref"] == 1

    @pytest.mark.parametrize(
        "line",
        [
            compact({**QUERY, "verb": "modify", "record": {"tres_per_node": "gres:gpu:1"}}),
            request("1", 5, "gres:gpu:20gb:1").replace(b'"tres', b'"partition":"no","tres'),
            request("1", 5, "gres:gpu:20gb:1" + ",gres:x:1" * 500),
        ],
        ids=[
            "a change",
            "a place that may be newer than the facts",
            "a request longer than the hook keeps",
        ],
    )
    def test_what_may_not_be_kept_has_no_terms(self, daemon, line):
        assert self.terms(daemon, line) is None


def test_no_rule_of_ours_looks_at_the_user():
    """policyd takes equal requests of two users for one; only a site's rule may part them."""
    folder = Path(rulebook.__file__).parent / "rules"
    readers = [path.name for path in folder.glob("*.py") if ".uid" in path.read_text()]
    assert readers == []
