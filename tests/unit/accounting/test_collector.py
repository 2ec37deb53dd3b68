# SPDX-License-Identifier: Apache-2.0
"""The HTTP side with munge replaced: tests/lab delivers with real credentials."""

from __future__ import annotations

import dataclasses
import hashlib

import pytest

from fairwatt.accounting import collector
from fairwatt.accounting.collector import CollectorSettings, create_app
from fairwatt.accounting.collector_metrics import Peers
from fairwatt.accounting.store import open_store
from fairwatt.core import munge
from fairwatt.core.errors import AuthError, ConfigError
from fairwatt.core.events import encode_event
from tests.unit.accounting.samples import Node, decision, share, whole

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


def test_what_is_answered_for_is_on_disk(client, db):
    """A node forgets what the collector has; 2: SQLite syncs its WAL at each commit."""
    assert post(client, body(Node().up("GPU-a"))).status_code == 200
    assert db.execute("PRAGMA synchronous").fetchone() == (2,)


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


def test_a_body_is_of_one_node(client, db):
    """A node's credential and another node's name beside its own: nothing is taken."""
    data = body(Node("gpu01").up("GPU-a"), Node("gpu02").up("GPU-b"))
    refused(post(client, data), 403, "events of several nodes (got ['gpu01', 'gpu02'])")
    assert db.execute("SELECT count(*) FROM event").fetchone() == (0,)


def test_a_credential_of_another_host_is_refused_where_the_site_wants_it(db, monkeypatch):
    monkeypatch.setattr(
        munge, "decode", lambda cred, _: munge.Credential(cred.encode(), 0, 0, "192.0.2.7")
    )
    strict = dataclasses.replace(SETTINGS, check_origin="refuse")
    data = body(Node("localhost").up("GPU-a"))
    cred = hashlib.sha256(data).hexdigest()
    refused(post(create_app(db, strict).test_client(), data, cred), 403, "made on 192.0.2.7")
    assert post(create_app(db, SETTINGS).test_client(), data, cred).status_code == 200


def test_a_body_that_does_not_say_how_long_it_is(client):
    headers = {"Authorization": "Munge 0:x", "Transfer-Encoding": "chunked"}
    refused(client.post("/v1/events", headers=headers), 411, "announce its length")


@pytest.mark.parametrize("cut", [1, 40, -2])
def test_a_truncated_body_is_no_body(client, db, cut):
    """Cut on the way, the hash is another; cut before it was signed, the last line is none."""
    data = body(Node().up("GPU-a"), Node().window("GPU-a", 0, 5))
    whole = f"0:{hashlib.sha256(data).hexdigest()}"
    refused(post(client, data[:cut], whole), 403, "belongs to another body")
    refused(post(client, data[:cut]), 400, "not an event")
    assert db.execute("SELECT count(*) FROM event").fetchone() == (0,)


def test_a_full_inbox_says_when_to_come_again(db, monkeypatch):
    """While one body is read, another one comes: there is room for one."""
    monkeypatch.setattr(collector, "MAX_BODIES", 1)
    client = create_app(db, SETTINGS).test_client()
    inner = []
    real = munge.decode

    def slow(cred, socket):
        monkeypatch.setattr(munge, "decode", real)
        inner.append(post(client, body(Node("gpu02").up("GPU-b"))))
        return real(cred, socket)

    monkeypatch.setattr(munge, "decode", slow)
    assert post(client, body(Node().up("GPU-a"))).status_code == 200
    refused(inner[0], 429, "more bodies wait than this collector keeps")
    assert int(inner[0].headers["Retry-After"]) >= 1
    assert db.execute("SELECT node FROM event").fetchall() == [("gpu01",)]


def test_our_own_faults_say_when_to_come_again(client, db):
    db.execute("PRAGMA query_only = ON")
    assert post(client, body(Node().up("GPU-a"))).headers["Retry-After"] == "10"


def metrics_of(client, **how):
    lines = client.get("/metrics", **how).text.splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_metrics(client, db):
    """1,000 mJ of a run and 7 of nobody; one body again, one refused, one not in balance."""
    node = Node()
    data = body(node.up("GPU-a"), node.start(7, 1000, whole("GPU-a")),
                node.window("GPU-a", 1000, 5000, share(7, 1000, 100, 900), idle=3, active=4),
                node.window("GPU-a", 5000, 6000, idle=None, active=None,
                            measured=None))  # fmt: skip
    post(client, data)
    post(client, data)
    post(client, b"no event\n")
    post(client, body(node.window("GPU-a", 6000, 7000, idle=1, measured=2)))
    post(client, data, "1000:x")
    told = metrics_of(client)
    assert told["fairwatt_collector_bodies_total"] == "2"
    assert told["fairwatt_collector_events_total"] == "4"
    assert told["fairwatt_collector_duplicates_total"] == "4"
    refusals = {why: told[f'fairwatt_collector_refused_total{{why="{why}"}}']
                for why in ("body", "balance", "sender", "fault")}  # fmt: skip
    assert refusals == {"body": "1", "balance": "1", "sender": "1", "fault": "0"}
    assert told['fairwatt_ledger_energy_joules_total{kind="gpu",owner="run"}'] == "1"
    assert told['fairwatt_ledger_energy_joules_total{kind="gpu",owner="unallocated"}'] == "0.007"
    assert told['fairwatt_ledger_windows_total{kind="gpu",energy="known"}'] == "1"
    assert told['fairwatt_ledger_windows_total{kind="gpu",energy="unknown"}'] == "1"
    assert told["fairwatt_collector_unsettled_runs"] == "1"
    assert told["fairwatt_collector_nodes"] == "1"
    assert int(told['fairwatt_collector_store_bytes{file="main"}']) > 0
    assert "fairwatt_collector_last_sync_timestamp_seconds" not in told  # never: not 0


def test_metrics_in_the_form_that_is_asked_for(client):
    form = "application/openmetrics-text; version=1.0.0"
    answer = client.get("/metrics", headers={"Accept": form})
    assert answer.content_type.startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    assert client.get("/metrics").content_type.startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize(
    ("listed", "peer", "status"),
    [
        (["127.0.0.1"], "127.0.0.1", 200),
        (["127.0.0.1"], "::ffff:127.0.0.1", 200),
        (["127.0.0.1"], "10.0.0.9", 403),
        (["10.0.0.0/24"], "10.0.0.9", 200),
        (["127.0.0.1"], "", 403),
        ([], "127.0.0.1", 403),
    ],
)
def test_who_may_read_the_metrics(db, listed, peer, status):
    app = create_app(db, dataclasses.replace(SETTINGS, metrics_from=listed))
    got = app.test_client().get("/metrics", environ_overrides={"REMOTE_ADDR": peer})
    assert got.status_code == status


def test_a_bad_address_is_named():
    with pytest.raises(ConfigError, match=r"collector.metrics_from: not an address.*'here'"):
        Peers(["here"])
