# SPDX-License-Identifier: Apache-2.0
"""The daemon's parts: lines over a socket, facts in the background, reload of the settings."""

from __future__ import annotations

import json
import logging
import queue
import socket
import threading

import pytest

from fairwatt.core import config as config_module
from fairwatt.core.errors import CommandError, PolicyError
from fairwatt.slurm_plugins import policy_file, rulebook
from fairwatt.slurm_plugins.lineserver import MAX_LINE_BYTES, LineServer
from fairwatt.slurm_plugins.policyd import PolicyDaemon, Reloader, read_settings
from fairwatt.slurm_plugins.refresher import Refresher
from fairwatt.slurm_plugins.rule import RuleSpec
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

    def test_the_journal_gets_each_decision_under_its_own_id(self):
        offered = []

        class Journal:
            def offer(self, query, decision, took_us):
                offered.append((query.id, query.job, decision.given, took_us >= 0))

        daemon = PolicyDaemon(settings(), refreshed(), journal=Journal())
        for id_ in ("7", "8-1"):
            daemon.answer(compact({**QUERY, "id": id_}))
        given = "gpu:a100_3g.20gb:1"
        assert offered == [("7", QUERY["job"], given, True), ("8-1", QUERY["job"], given, True)]
