# SPDX-License-Identifier: Apache-2.0
"""The HTTP side with munge replaced: tests/lab delivers with real credentials."""

from __future__ import annotations

import hashlib

import pytest

from fairwatt.accounting.collector import CollectorSettings, create_app
from fairwatt.accounting.store import open_store
from fairwatt.core import munge
from fairwatt.core.errors import AuthError
from fairwatt.core.events import encode_event
from tests.unit.accounting.samples import Node, decision

SETTINGS = CollectorSettings(
    node_uids=frozenset({0}), policyd_uids=frozenset({64}), max_body_bytes=4096
)


@pytest.fixture
def db(tmp_path):
    return open_store(tmp_path / "a.db")


@pytest.fixture
def news():
    return []


@pytest.fixture
def client(db, news):
    return create_app(db, SETTINGS, on_news=lambda: news.append(1)).test_client()


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    """A credential reads `uid:payload`; `away` stands for a missing munged."""

    def decode(cred, socket):
        if cred == "away":
            error = AuthError("munge: cannot connect", place="munge", remedy="start munged")
            error.status = 503
            raise error
        uid, colon, payload = cred.partition(":")
        if not colon:
            raise AuthError("munge: Replayed credential", place="munge")
        return munge.Credential(payload.encode(), int(uid), int(uid))

    monkeypatch.setattr(munge, "decode", decode)


def body(*events):
    return b"\n".join(encode_event(event) for event in events) + b"\n"


def post(client, data, cred=None):
    cred = f"0:{hashlib.sha256(data).hexdigest()}" if cred is None else cred
    return client.post("/v1/events", data=data, headers={"Authorization": f"Munge {cred}"})


def test_events_are_taken_once(client, news):
    data = body(Node().up("GPU-a"))
    first, again = post(client, data), post(client, data)
    assert (first.status_code, first.json) == (200, {"accepted": 1, "duplicates": 0})
    assert again.json == {"accepted": 0, "duplicates": 1}
    assert news == [1]


def refused(response, status, words):
    assert response.status_code == status
    assert response.json.keys() == {"error"}
    assert words in response.json["error"]
    assert "\n" not in response.json["error"]


def test_no_credential(client):
    refused(client.post("/v1/events", data=b""), 403, "no munge credential")
    headers = {"Authorization": "Bearer x"}
    refused(client.post("/v1/events", data=b"", headers=headers), 403, "no munge credential")


def test_a_credential_of_another_body(client, db):
    data = body(Node().up("GPU-a"))
    wrong = "0:" + hashlib.sha256(b"other").hexdigest()
    refused(post(client, data, wrong), 403, "the credential belongs to another body")
    refused(post(client, data, "0:é"), 403, "the credential belongs to another body")
    assert db.execute("SELECT count(*) FROM event").fetchone() == (0,)


def test_a_foreign_user(client):
    data = body(Node().up("GPU-a"))
    cred = f"1000:{hashlib.sha256(data).hexdigest()}"
    refused(
        post(client, data, cred), 403, "(got 1000); run the agent as root and policyd as SlurmUser"
    )


def signed(uid, data):
    return f"{uid}:{hashlib.sha256(data).hexdigest()}"


def test_policyd_delivers_decisions_and_nothing_that_a_node_measures(client, db, news):
    data = body(decision(1))
    assert post(client, data, signed(64, data)).json == {"accepted": 1, "duplicates": 0}
    assert news == []  # nothing to settle
    data = body(decision(2), Node().up("GPU-a"))
    refused(post(client, data, signed(64, data)), 403, "may not deliver events of a node (got 64)")
    assert db.execute("SELECT count(*) FROM decision").fetchone() == (1,)


def test_a_node_delivers_no_decisions(client, db):
    data = body(decision(1))
    refused(post(client, data), 403, "may not deliver decisions (got 0)")
    assert db.execute("SELECT count(*) FROM decision").fetchone() == (0,)


def test_a_decision_gets_the_name_that_this_host_knows(client, db):
    """Root is known everywhere; 2147483000 is nobody."""
    data = body(decision(1, uid=0), decision(2, uid=2_147_483_000), decision(3, uid=None))
    post(client, data, signed(64, data))
    rows = db.execute("SELECT uid, user FROM decision ORDER BY seq").fetchall()
    assert rows == [(0, "root"), (2_147_483_000, None), (None, None)]


def test_a_replayed_credential(client):
    refused(post(client, b"", "stale"), 403, "Replayed credential")


def test_a_missing_munged_is_our_fault(client):
    refused(post(client, b"", "away"), 503, "start munged")


def test_a_bad_line_refuses_the_whole_body(client, db):
    data = body(Node().up("GPU-a")) + b'{"type":"window_closed"}\n'
    refused(post(client, data), 400, "line 2: not an event")
    refused(post(client, b"\xff\n"), 400, "line 1: not an event")
    assert db.execute("SELECT count(*) FROM event").fetchone() == (0,)


def test_a_contradiction_names_its_line(client):
    node = Node()
    data = body(node.up("GPU-a"), node.window("GPU-a", 0, 5, idle=1, measured=2))
    refused(post(client, data), 400, "line 2: shares + unallocated = 1 mJ, measured 2 mJ")


def test_a_large_body(client):
    refused(post(client, b"x" * 5000), 413, "body larger than 4096 bytes")


def test_a_store_that_cannot_be_written_asks_to_try_again(client, db):
    db.execute("PRAGMA query_only = ON")
    refused(post(client, body(Node().up("GPU-a"))), 503, "readonly")


def test_health_and_strangers(client):
    assert client.get("/healthz").json == {"ok": True}
    refused(client.get("/"), 404, "Not Found: GET /")
    refused(client.get("/v1/events"), 405, "Method Not Allowed")
