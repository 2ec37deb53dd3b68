# SPDX-License-Identifier: Apache-2.0
"""The hook client: asks the agent, else leaves the message in the inbox; never fails."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.accounting.agent.requests import parse_request
from fairwatt.core.call import Completed, call
from fairwatt.prolog import client

PROLOG = Path(__file__).parents[3] / "prolog"
HEAVY = {"pathlib", "subprocess", "logging", "typing", "json", "re", "enum", "socket", "signal"}
"""Each is a good part of the time that a job waits for its prolog."""


def hook(
    verb: str, *, check: bool = True, folder: Path = PROLOG / "hooks", **env: str
) -> Completed:
    pairs = [
        f"{name}={value}" for name, value in {"FAIRWATT_PYTHON": sys.executable, **env}.items()
    ]
    return call(["env", "-i", *pairs, str(folder / verb)], timeout_s=10, check=check)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[tuple[str, list[bytes], list[bytes]]]:
    """A unix socket that records one line and gives the answer it is told."""
    path = str(tmp_path / "agent.sock")
    asked: list[bytes] = []
    answers: list[bytes] = []
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()

    def serve() -> None:
        try:
            peer, _ = server.accept()
        except OSError:
            return
        with peer:
            asked.append(peer.makefile("rb").readline())
            if answers:
                peer.sendall(answers[0])
            else:
                peer.recv(1)  # a hung agent: until the client gives up

    thread = threading.Thread(target=serve)
    thread.start()
    yield path, asked, answers
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(5)


def test_the_agent_gets_only_whitelisted_variables(agent, tmp_path: Path) -> None:
    path, asked, answers = agent
    answers.append(b'{"ok":true}\n')
    done = hook(
        "prolog",
        FAIRWATT_AGENT_SOCKET=path,
        FAIRWATT_INBOX_DIR=str(tmp_path / "inbox"),
        SLURM_JOB_ID="42",
        SLURM_JOB_GPUS="1,2",
        SLURM_JOB_COMMENT="$(touch /tmp/never) <script>",
        SPANK_X="1",
    )
    assert (done.stdout, done.stderr) == ("", "")
    message = json.loads(asked[0])
    assert message["env"] == {"SLURM_JOB_ID": "42", "SLURM_JOB_GPUS": "1,2"}
    assert (message["v"], message["verb"]) == (1, "prolog")
    assert abs(message["t_ms"] - time.time() * 1000) < 10_000
    assert not (tmp_path / "inbox").exists()


def test_without_an_agent_the_message_waits_in_the_inbox(tmp_path: Path) -> None:
    hook(
        "epilog",
        FAIRWATT_AGENT_SOCKET=str(tmp_path / "none.sock"),
        FAIRWATT_INBOX_DIR=str(tmp_path / "in" / "box"),
        SLURM_JOB_ID="42",
    )
    (left,) = (tmp_path / "in" / "box").iterdir()
    assert left.name.endswith("-epilog.json")
    assert json.loads(left.read_bytes())["env"] == {"SLURM_JOB_ID": "42"}


def test_a_hung_agent_costs_200_ms_and_the_message_is_kept(agent, tmp_path: Path) -> None:
    path, asked, _ = agent
    begun = time.monotonic()
    hook("prolog", FAIRWATT_AGENT_SOCKET=path, FAIRWATT_INBOX_DIR=str(tmp_path / "inbox"))
    assert 0.2 <= time.monotonic() - begun < 2
    (left,) = (tmp_path / "inbox").iterdir()
    assert left.read_bytes() == asked[0]


def test_nothing_works_and_the_job_still_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = hook(
        "prolog",
        FAIRWATT_AGENT_SOCKET=str(tmp_path / "none.sock"),
        FAIRWATT_INBOX_DIR=str(tmp_path / "file"),
    )
    assert done.returncode == 0
    assert "neither the agent nor its inbox" in done.stderr


@pytest.mark.parametrize("verb", ["prolog", "epilog"])
def test_j18_the_dispatcher_alone_ends_well(verb: str, tmp_path: Path) -> None:
    """The package folder is gone, or Python is: status 0, one line in the log."""
    alone = tmp_path / "hooks"
    alone.mkdir()
    shutil.copy(PROLOG / "hooks" / verb, alone / verb)
    for done in (
        hook(verb, folder=alone, SLURM_JOB_ID="7"),
        hook(verb, SLURM_JOB_ID="7", FAIRWATT_PYTHON="/nonexistent/python3"),
    ):
        assert (done.returncode, done.stdout) == (0, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"fairwatt: {verb} of job 7: ")
        assert "not accounted" in line


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        ("exit 0", 0, ""),
        ("exit 86", 1, ""),  # client.py's word that a device of the job is broken
        ("exit 1", 0, "failed"),  # any fault of Python's
        ("exit 2", 0, "failed"),
        ("kill -9 $$", 0, "took longer"),
    ],
)
def test_only_a_broken_device_is_a_status_of_ours(tmp_path: Path, program, status, said) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    done = hook("prolog", check=False, FAIRWATT_PYTHON=str(python))
    assert done.returncode == status
    assert said in done.stderr
    assert bool(done.stderr) == bool(said)


FAULT = b'{"ok":true,"verdict":{"state":"bad","drain":{"code":"FWH101","device":"GPU-1","text":"lost"}}}\n'  # noqa: E501


@pytest.mark.parametrize(
    ("verb", "answer", "status"),
    [
        ("prolog", FAULT, 1),
        ("epilog", FAULT, 0),
        ("prolog", b'{"ok":true,"verdict":{"state":"bad","drain":null}}\n', 0),
        ("prolog", b'{"ok":true,"verdict":"bad"}\n', 0),
        ("prolog", b'{"ok":true,"verdict":{"drain":"yes"}}\n', 0),
        ("prolog", b"[86]\n", 0),
        ("prolog", b"nonsense\n", 0),
        ("prolog", b"\n", 0),
    ],
)
def test_the_agent_s_verdict_decides_and_nothing_else(agent, tmp_path, verb, answer, status):
    path, _, answers = agent
    answers.append(answer)
    done = hook(
        verb,
        check=False,
        FAIRWATT_AGENT_SOCKET=path,
        FAIRWATT_INBOX_DIR=str(tmp_path / "inbox"),
        SLURM_JOB_ID="42",
    )
    assert done.returncode == status
    assert done.stderr == ("fairwatt: prolog of job 42: FWH101 GPU-1 lost\n" if status else "")
    assert (tmp_path / "inbox").exists() == (b'"ok":true' not in answer)


def test_the_journal_gets_the_line_too(tmp_path: Path, monkeypatch, capsys) -> None:
    journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    journal.bind(str(tmp_path / "log"))
    monkeypatch.setenv("FAIRWATT_LOG_SOCKET", str(tmp_path / "log"))
    monkeypatch.setenv("SLURM_JOB_ID", "42\nroot: all is well")
    client.say("epilog", "a\nb\x1b[31m")
    text = journal.recv(2000).decode()
    journal.close()
    assert text.startswith("<27>fairwatt-epilog[")
    assert text.endswith("]: job 42?root: all is well: a?b?[31m")
    assert "\x1b" not in capsys.readouterr().err


def test_the_client_loads_no_heavy_module() -> None:
    code = (
        "import sys; sys.argv = ['client.py', 'nonsense'];"
        f"source = open({str(PROLOG / 'client.py')!r}).read()\n"
        "try: exec(compile(source, 'client.py', 'exec'), {'__name__': '__main__'})\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print(','.join(sys.modules))"
    )
    loaded = set(call([sys.executable, "-I", "-S", "-c", code], timeout_s=10).stdout.split(","))
    assert "_socket" in loaded
    assert not loaded & HEAVY


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8")) | st.binary())
def test_whatever_a_variable_holds_the_message_is_json(value: str | bytes) -> None:
    text = os.fsdecode(value.replace(b"\0", b"")) if isinstance(value, bytes) else value
    with patch.dict(os.environ, {"SLURM_JOB_ACCOUNT": text}, clear=True):
        line = client.message("epilog", 1_700_000_000_123)
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "v": 1,
        "verb": "epilog",
        "t_ms": 1_700_000_000_123,
        "env": {"SLURM_JOB_ACCOUNT": os.fsencode(text).decode("utf-8", "replace")},
    }


def test_an_account_that_is_no_text_hides_no_job() -> None:
    """Where no association is enforced, a user may give any account."""
    with patch.dict(
        os.environ, {"SLURM_JOB_ID": "7", "SLURM_JOB_ACCOUNT": "p\udcff\n"}, clear=True
    ):
        request = parse_request(client.message("prolog", 1_700_000_000_123))
    assert request.env == {"SLURM_JOB_ID": "7", "SLURM_JOB_ACCOUNT": "p\ufffd\n"}


@pytest.mark.parametrize(
    "part", [b" ", b"[" * 60_000 + b"\n"], ids=["one byte after the other", "nested"]
)
def test_a_strange_listener_costs_200_ms_and_the_message_is_kept(
    part: bytes, tmp_path: Path, monkeypatch
) -> None:
    path = str(tmp_path / "agent.sock")
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    over = threading.Event()

    def dribble() -> None:
        peer, _ = server.accept()
        with peer, contextlib.suppress(OSError):
            while not over.wait(0.0005):
                peer.sendall(part)

    thread = threading.Thread(target=dribble)
    thread.start()
    monkeypatch.setenv("FAIRWATT_AGENT_SOCKET", path)
    monkeypatch.setenv("FAIRWATT_INBOX_DIR", str(tmp_path / "inbox"))
    monkeypatch.setenv("FAIRWATT_JOB_DIR", str(tmp_path / "jobs"))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    began = time.monotonic()
    assert client.main(["prolog"]) == 0
    assert time.monotonic() - began < 1
    over.set()
    thread.join()
    server.close()
    (left,) = (tmp_path / "inbox").iterdir()
    assert json.loads(left.read_bytes())["env"]["SLURM_JOB_ID"] == "7"
