# SPDX-License-Identifier: Apache-2.0
"""Who is visiting: a user named by the site's proxy, or a persona chosen on loopback (`demo`).

The demo's cookie carries a user name and a token against forged posts; roles are read from the
store at each request, never from the browser. For the proxy see proxy_identity.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import sqlite3
from urllib.parse import urlsplit

from flask import Request, abort, current_app, request, session

from fairwatt.accounting.reports.scope import Scope, scope_of
from fairwatt.core.address import split_address
from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError
from fairwatt.dashboard.proxy_identity import ProxyIdentity

__all__ = [
    "ADMIN",
    "check_listen",
    "check_post",
    "csrf_token",
    "is_loopback",
    "personas",
    "switch_to",
    "visitor",
]

ADMIN = "root"
"""The persona that sees everything."""

_USERS = """
    SELECT user, MAX(coordinator) FROM membership WHERE NOT deleted AND user <> ?
    GROUP BY user ORDER BY user"""


def check_listen(config: Config) -> tuple[str, int]:
    """Return host and port of `dashboard.listen`.

    Raises:
        ConfigError: not host:port, or not on loopback, where demo personas have no business.
    """
    listen = config["dashboard.listen"]
    host, port = split_address(listen, "dashboard.listen")
    if config["dashboard.identity"] == "demo" and not is_loopback(host):
        raise ConfigError(
            "the demo identity has no passwords and must stay on this host",
            place="dashboard.listen",
            value=listen,
            remedy="use 127.0.0.1:8080 and an ssh tunnel, or set dashboard.identity to proxy",
        )
    return host, port


def is_loopback(host: str) -> bool:
    """Say whether a host name or address means this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def personas(db: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the user names to choose from, by group heading; none with identity `proxy`."""
    if _proxy() is not None:
        return {}
    users = db.execute(_USERS, (ADMIN,)).fetchall()
    return {
        "Researchers": [name for name, coordinator in users if not coordinator],
        "Department heads": [name for name, coordinator in users if coordinator],
        "Administrators": [ADMIN],
    }


def visitor(db: sqlite3.Connection) -> Scope:
    """Return the scope of who visits; in the demo without a choice, of the first researcher."""
    proxy = _proxy()
    if proxy is not None:
        return proxy.visitor(db, request)
    known = personas(db)
    name = str(session.get("user", ""))
    if not any(name in names for names in known.values()):
        name = next((names[0] for names in known.values() if names), ADMIN)
    return scope_of(db, name, admin=name == ADMIN)


def switch_to(db: sqlite3.Connection, name: str) -> Scope | None:
    """Remember a persona and return its scope; None if there is no such persona."""
    if not any(name in names for names in personas(db).values()):
        return None
    session["user"] = name
    return visitor(db)


def csrf_token() -> str:
    """Return the visitor's token for forms, made at first use."""
    if "csrf" not in session:
        session["csrf"] = secrets.token_urlsafe(32)
    token: str = session["csrf"]
    return token


def _proxy() -> ProxyIdentity | None:
    proxy: ProxyIdentity | None = current_app.config["FAIRWATT_PROXY"]
    return proxy


def check_post(request: Request) -> None:
    """Refuse (403) a post that another site caused or that lacks the visitor's token."""
    origin = request.headers.get("Origin")
    foreign = origin is not None and urlsplit(origin).netloc != request.host
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    token = request.form.get("csrf", "")
    known = session.get("csrf", "")
    if foreign or site not in ("same-origin", "none") or not known:
        abort(403)
    if not hmac.compare_digest(token.encode(), known.encode()):
        abort(403)
