# SPDX-License-Identifier: Apache-2.0
"""Two weeks of the invented university, made once, and an application over it."""

from __future__ import annotations

from datetime import date

import pytest

from fairwatt.accounting.days import day_bounds, site_zone
from fairwatt.dashboard.app import create_app
from fairwatt.dashboard.demo import demo_config, fill_store

UNTIL = date(2026, 3, 1)


@pytest.fixture(scope="session")
def seeded(tmp_path_factory):
    """The path of a store with the two weeks before 1 March 2026."""
    path = tmp_path_factory.mktemp("seeded") / "fairwatt.db"
    fill_store(demo_config("127.0.0.1:0", path), UNTIL, days=14)
    return path


@pytest.fixture(scope="session")
def now_ts():
    return day_bounds(str(UNTIL), site_zone("Europe/Berlin"))[0] + 43_200


@pytest.fixture
def app(seeded, now_ts):
    return create_app(demo_config("127.0.0.1:0", seeded), seeded, clock=lambda: now_ts)


@pytest.fixture
def visit(app):
    """`visit(user)` gives a client that looks as that user."""

    def as_user(user):
        client = app.test_client()
        assert switch(client, user).status_code == 303
        return client

    return as_user


def switch(client, user, **headers):
    client.get("/me")
    with client.session_transaction() as session:
        token = session["csrf"]
    return client.post("/persona", data={"user": user, "csrf": token}, headers=headers)
