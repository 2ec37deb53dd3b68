# SPDX-License-Identifier: Apache-2.0
"""Identity `proxy`: the header counts from listed peers alone, and nothing else names a user."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fairwatt.core.errors import ConfigError
from fairwatt.dashboard.app import create_app
from fairwatt.dashboard.commands import _session_key
from fairwatt.dashboard.demo import demo_config

PROXY = "10.0.0.5"


def settings(path, **changes):
    base = demo_config("0.0.0.0:8080", path)
    values = {
        "dashboard.identity": "proxy",
        "dashboard.trusted_proxies": [PROXY, "192.168.7.0/29"],
        "dashboard.admins": ["boss"],
        **{f"dashboard.{key}": value for key, value in changes.items()},
    }
    return replace(base, values={**base.values, **values})


@pytest.fixture
def proxied(seeded, now_ts):
    return create_app(settings(seeded), seeded, clock=lambda: now_ts)


def get(app, path="/me", user=None, peer=PROXY, **headers):
    if user is not None:
        headers["X-Remote-User"] = user
    return app.test_client().get(path, headers=headers, environ_base={"REMOTE_ADDR": peer})


@pytest.mark.parametrize("peer", [PROXY, "192.168.7.6", f"::ffff:{PROXY}"])
def test_a_user_whom_a_listed_proxy_names_sees_their_own_page(proxied, peer):
    page = get(proxied, user="ada", peer=peer)
    assert page.status_code == 200
    assert "You see: your own runs." in page.text
    assert re.search(r'<p class="persona">\s*ada\s*</p>', page.text)
    assert "Switch" not in page.text
    assert "Set-Cookie" not in page.headers


@pytest.mark.parametrize("peer", ["127.0.0.1", "10.0.0.6", "192.168.7.8", "::1", "", "nonsense"])
@pytest.mark.parametrize("path", ["/me", "/dept/physics", "/nowhere"])
def test_a_header_from_anybody_else_is_refused_with_a_clear_page(proxied, peer, path):
    page = get(proxied, path, user="boss", peer=peer)
    assert page.status_code == 403
    assert "dashboard.trusted_proxies" in page.text
    assert "physics" not in page.text


@pytest.mark.parametrize("user", [None, "", "ada,boss", "a b", "-ada", "ada'--", "ä", "x" * 256])
def test_a_proxy_that_names_no_single_user_is_refused(proxied, user):
    page = get(proxied, user=user)
    assert page.status_code == 403
    assert "did not name one user" in page.text


def test_a_forwarded_address_is_not_the_peer(proxied):
    page = get(proxied, user="boss", peer="10.9.9.9", **{"X-Forwarded-For": PROXY})
    assert page.status_code == 403


def test_roles_come_from_the_store_and_the_settings(proxied):
    assert get(proxied, "/dept/physics", user="hana").status_code == 200
    assert get(proxied, "/dept/physics", user="ada").status_code == 404
    assert get(proxied, "/dept/root", user="boss").status_code == 200
    # The store's root account makes nobody an admin.
    assert get(proxied, "/dept/root", user="root").status_code == 404


def test_an_unknown_user_sees_nothing(proxied):
    page = get(proxied, user="stranger")
    assert page.status_code == 200
    assert get(proxied, "/dept/physics", user="stranger").status_code == 404


def test_a_persona_cannot_be_chosen(proxied):
    client = proxied.test_client()
    answer = client.post(
        "/persona",
        data={"user": "boss"},
        headers={"X-Remote-User": "ada"},
        environ_base={"REMOTE_ADDR": PROXY},
    )
    assert answer.status_code == 403


def test_anybody_may_ask_whether_the_service_is_well(proxied):
    assert get(proxied, "/healthz", peer="10.9.9.9").status_code == 200
    style = get(proxied, "/static/fairwatt.css", peer="10.9.9.9")
    assert style.status_code == 200
    style.close()


def test_the_demo_never_reads_the_header(app):
    page = app.test_client().get("/me", headers={"X-Remote-User": "root"})
    assert "ada, " in page.text
    assert (
        app.test_client().get("/dept/root", headers={"X-Remote-User": "root"}).status_code == 404
    )


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"trusted_proxies": []}, "trusted_proxies"),
        ({"trusted_proxies": ["proxy.example.org"]}, "trusted_proxies"),
        ({"trusted_proxies": ["10.0.0.5/24"]}, "trusted_proxies"),
        ({"trusted_proxies": ["0.0.0.0/0"]}, "trusted_proxies"),
        ({"user_header": "X_Remote_User"}, "user_header"),
        ({"user_header": ""}, "user_header"),
    ],
)
def test_settings_that_would_trust_wrongly_are_refused(seeded, changes, place):
    with pytest.raises(ConfigError, match=f"dashboard.{place}"):
        create_app(settings(seeded, **changes), seeded)


def test_the_session_key_comes_from_systemd(tmp_path, monkeypatch):
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert _session_key() is None
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert _session_key() is None
    (tmp_path / "session-key").write_text("k" * 40 + "\n")
    assert _session_key() == b"k" * 40
    (tmp_path / "session-key").write_text("short")
    with pytest.raises(ConfigError, match="LoadCredential"):
        _session_key()


def test_the_demo_stays_on_loopback(seeded):
    with pytest.raises(ConfigError, match=r"set dashboard\.identity to proxy"):
        create_app(settings(seeded, identity="demo"), seeded)
