# SPDX-License-Identifier: Apache-2.0
"""The daemon's parts: lines over a socket, facts in the background, reload of the settings."""

from __future__ import annotations

import json
import logging
import socket
import threading

import pytest

from fairwatt.core import config as config_module
from fairwatt.core.errors import CommandError, PolicyError
from fairwatt.slurm_plugins.lineserver import MAX_LINE_BYTES, LineServer
from fairwatt.slurm_plugins.policyd import PolicyDaemon
from fairwatt.slurm_plugins.refresher import Refresher
from tests.fakes.sites import demo

FACTS = demo().facts
QUERY = {
    "v": 1,
    "id": "7",
    "verb": "submit",
    "spelling": "colon",
    "job": {"tres_per_node": "gres:gpu:20gb:1", "user_id": 5},
}


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


@pytest.fixture
def daemon():
    refresher = Refresher(lambda: FACTS, 30, None)
    refresher.refresh()
    return PolicyDaemon(config_module.load(None), refresher)


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

    @pytest.mark.parametrize(
        "line", [b"", b"x", b"[]", b'{"verb":"drop"}', b'{"verb":"submit","v":2}', b"\xff"]
    )
    def test_what_is_no_request_closes_the_connection(self, daemon, line):
        assert daemon.answer(line) is None

    def test_old_facts_are_not_used(self, daemon):
        old = daemon.refresher.snapshot
        daemon.refresher.snapshot = type(old)(old.site, 1, old.read_at - 301)
        answer = ask(daemon, **QUERY)
        assert "set" not in answer
        assert "FW002" in answer["say"]

    def test_reload_takes_new_settings_and_keeps_the_good_ones_when_broken(
        self, daemon, tmp_path, monkeypatch, caplog
    ):
        file = tmp_path / "fairwatt.toml"
        monkeypatch.setenv("FAIRWATT_CONFIG", str(file))
        file.write_text('[rules]\nmemory_fit = "off"\nknown_types = "off"\n')
        daemon.reload()
        assert "set" not in ask(daemon, **QUERY)
        file.write_text('[rules]\nmemory_fitt = "enforce"\n')
        with caplog.at_level(logging.ERROR):
            daemon.reload()
        assert "memory_fitt" in caplog.text
        assert "the last good one stays" in caplog.text
        assert "set" not in ask(daemon, **QUERY)

    def test_the_decision_log_gets_a_line_each(self, tmp_path):
        path = tmp_path / "decisions"
        file = tmp_path / "fairwatt.toml"
        file.write_text(f'[policyd]\ndecision_log = "{path}"\n')
        refresher = Refresher(lambda: FACTS, 30, None)
        refresher.refresh()
        daemon = PolicyDaemon(config_module.load(file), refresher)
        ask(daemon, **QUERY)
        ask(daemon, v=1, verb="ping")
        daemon.close()
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [row["decision"]["given"] for row in rows] == ["gpu:a100_3g.20gb:1"]

    def test_a_decision_log_that_cannot_be_opened_is_named(self, tmp_path):
        file = tmp_path / "fairwatt.toml"
        file.write_text(f'[policyd]\ndecision_log = "{tmp_path}/no/log"\n')
        with pytest.raises(PolicyError, match="decision_log"):
            PolicyDaemon(config_module.load(file), Refresher(lambda: FACTS, 30, None))

    def test_a_full_disk_under_the_decision_log_ends_nothing(self, tmp_path, monkeypatch, caplog):
        """The text that the disk refused comes up again when the file is closed."""
        file = tmp_path / "fairwatt.toml"
        file.write_text('[policyd]\ndecision_log = "/dev/full"\n')
        monkeypatch.setenv("FAIRWATT_CONFIG", str(file))
        refresher = Refresher(lambda: FACTS, 30, None)
        refresher.refresh()
        daemon = PolicyDaemon(config_module.load(file), refresher)
        assert "set" in ask(daemon, **QUERY)
        file.write_text("")
        daemon.reload()
        assert "set" in ask(daemon, **QUERY)
        assert "No space left" in caplog.text
