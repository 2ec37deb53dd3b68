# SPDX-License-Identifier: Apache-2.0
"""Headers and rights of every answer."""

from __future__ import annotations

import dataclasses
import re
import sqlite3

import pytest

from fairwatt.core.config import load
from fairwatt.core.errors import ConfigError, StoreError
from fairwatt.dashboard import app as app_module
from fairwatt.dashboard.app import create_app
from fairwatt.dashboard.demo import demo_config

PATHS = ("/", "/me", "/dept/physics", "/nope", "/healthz", "/static/fairwatt.css", "/me?period=x")


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_carries_the_policy(visit, path):
    with visit("hana").get(path) as answer:
        headers = answer.headers
    assert headers["Content-Security-Policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"


def test_pages_are_private_and_vary_by_cookie(visit):
    headers = visit("ada").get("/me").headers
    assert headers["Cache-Control"] == "private, no-cache"
    assert "Cookie" in headers["Vary"]


def test_no_inline_script_or_style_leaves_the_server(visit):
    for path in ("/me?period=90d", "/dept/physics", "/nope"):
        html = visit("hana").get(path).text
        assert not re.search(r"<script|<style|\sstyle=|\son\w+=|javascript:", html)


@pytest.mark.parametrize("listen", ["0.0.0.0:8080", "[::]:8080", "10.0.0.1:80", "example.org:80"])
def test_demo_refuses_to_leave_loopback(seeded, listen):
    with pytest.raises(ConfigError, match="stay on this host"):
        create_app(demo_config(listen, seeded), seeded)


@pytest.mark.parametrize("listen", ["8080", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", ""])
def test_a_wrong_address_is_named(seeded, listen):
    with pytest.raises(ConfigError, match=r"dashboard\.listen"):
        create_app(demo_config(listen, seeded), seeded)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:80", "[::1]:8080", "127.9.9.9:1"])
def test_loopback_in_all_spellings(seeded, listen):
    create_app(demo_config(listen, seeded), seeded)


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("evil.example", 400),
     ("127.0.0.1.evil.example:80", 400), ("10.1.2.3", 400)],
)  # fmt: skip
def test_a_foreign_host_name_is_refused(app, host, status):
    """DNS rebinding: an outside name that points at this host must not reach the personas."""
    assert app.test_client().get("/me", headers={"Host": host}).status_code == status


def test_missing_and_out_of_scope_have_the_same_body(visit):
    client = visit("ada")
    missing = client.get("/jobs/campus/1")
    assert missing.status_code == 404
    others = ["/dept/physics", "/dept/none", "/nope", "/jobs/x/1", f"/jobs/campus/{2**63}",
              f"/jobs/campus/{2**70}", "/jobs/campus/-1", "/me?format=csv&table=nothing",
              "/dept/a%00b"]  # fmt: skip
    for path in others:
        answer = client.get(path)
        assert (answer.status_code, answer.data) == (404, missing.data), path


def test_posts_to_pages_do_not_exist(visit):
    assert visit("ada").post("/me").status_code == 404


@pytest.mark.parametrize("query", ["period=0d", "period=2026-13", "format=xml", "format=csv"])
def test_bad_questions_get_400(visit, query):
    assert visit("ada").get(f"/me?{query}").status_code == 400


def test_the_store_is_read_only_and_closed_after_each_request(app, monkeypatch):
    opened = []
    reader = app_module.open_reader
    monkeypatch.setattr(
        app_module, "open_reader", lambda p: opened.append(reader(p)) or opened[-1]
    )
    app.test_client().get("/me")
    (db,) = opened
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        db.execute("SELECT 1")
    with pytest.raises(sqlite3.OperationalError, match=r"readonly|read-only"):
        reader(app.config["FAIRWATT"]["collector.database"]).execute("DELETE FROM job_run")


def test_a_question_that_takes_too_long_is_stopped(app, monkeypatch):
    monkeypatch.setattr(app_module, "QUERY_LIMIT_S", -1.0)
    monkeypatch.setattr(app_module, "_STEPS_BETWEEN_CHECKS", 1)
    answer = app.test_client().get("/me")
    assert answer.status_code == 503
    assert "cannot be read now" in answer.text


def test_no_store_no_start(tmp_path):
    with pytest.raises(StoreError, match="no readable store"):
        create_app(load(None), tmp_path / "missing.db")


def test_unknown_time_zone_stops_the_start(seeded):
    config = demo_config("127.0.0.1:0", seeded)
    broken = dataclasses.replace(config, values={**config.values, "site.timezone": "Mars/Base"})
    with pytest.raises(ConfigError, match="Mars/Base"):
        create_app(broken, seeded)


def test_no_page_starts_a_process(visit, monkeypatch):
    """No Slurm command in any web request."""
    monkeypatch.setattr("subprocess.Popen.__init__", lambda *a, **k: pytest.fail("a process"))
    client = visit("hana")
    for path in ("/me", "/dept/physics", "/dept/physics?format=json"):
        assert client.get(path).status_code == 200


def test_invented_data_says_so_and_real_data_does_not(visit, seeded, tmp_path, now_ts):
    assert "Invented data for demonstration" in visit("ada").get("/me").text
    from fairwatt.accounting.store import open_store

    open_store(tmp_path / "real.db").close()
    real = create_app(demo_config("127.0.0.1:0", tmp_path / "real.db"), tmp_path / "real.db")
    answer = real.test_client().get("/me")
    assert answer.status_code == 200
    assert "Invented" not in answer.text


def test_pages_name_their_data_and_zone(visit):
    text = visit("hana").get("/dept/physics").text
    assert re.search(r"Data as of 2026-02-\d\d \d\d:\d\d:\d\d \(Europe/Berlin\)", text)
    assert "You see: your own runs; physics and below" in text
