# SPDX-License-Identifier: Apache-2.0
"""Who a visitor is, by persona and by the site's proxy."""

from __future__ import annotations

import pytest

from fairwatt.dashboard.app import create_app
from fairwatt.dashboard.demo import demo_config
from tests.unit.dashboard.conftest import switch


def test_persona_leads_to_the_page_of_its_role(app):
    client = app.test_client()
    assert switch(client, "ada").headers["Location"] == "/me"
    assert switch(client, "hana").headers["Location"] == "/dept/physics"
    assert switch(client, "root").headers["Location"] == "/dept/root"


def test_first_visit_is_the_first_researcher(app):
    assert "ada, " in app.test_client().get("/me").text


def test_unknown_persona_changes_nothing(app):
    client = app.test_client()
    assert switch(client, "nobody'--").status_code == 400
    assert "ada, " in client.get("/me").text


@pytest.mark.parametrize("token", ["", "wrong", "é"])
def test_a_post_without_the_token_is_refused(app, token):
    client = app.test_client()
    client.get("/me")
    assert client.post("/persona", data={"user": "root", "csrf": token}).status_code == 403
    assert app.test_client().post("/persona", data={"user": "root"}).status_code == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}, 303),
    ],
)
def test_a_post_that_another_site_caused_is_refused(app, headers, status):
    assert switch(app.test_client(), "root", **headers).status_code == status


def test_switching_by_get_is_impossible(app):
    assert app.test_client().get("/persona?user=root").status_code == 404


def test_the_cookie_is_signed_by_a_secret_of_this_start(app, seeded):
    client = app.test_client()
    switch(client, "root")
    cookie = client.get_cookie("fairwatt")
    assert cookie.http_only
    assert cookie.same_site == "Lax"
    again = create_app(demo_config("127.0.0.1:0", seeded), seeded).test_client()
    again.set_cookie("fairwatt", cookie.value)
    assert "You see: your own runs." in again.get("/me").text


def test_a_role_is_read_from_the_store_not_from_the_cookie(app):
    client = app.test_client()
    switch(client, "ada")
    with client.session_transaction() as session:
        session["role"] = "admin"
        session["accounts"] = [["campus", "physics"]]
    assert client.get("/dept/physics").status_code == 404
