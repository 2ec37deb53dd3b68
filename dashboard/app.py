# SPDX-License-Identifier: Apache-2.0
"""The Flask application: read-only pages over the store. No request calls Slurm."""

from __future__ import annotations

import logging
import secrets
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from flask import Flask, Response, abort, g, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from fairwatt.accounting.days import site_zone
from fairwatt.accounting.reports.use import yardstick_of
from fairwatt.accounting.store import open_reader
from fairwatt.core.config import Config
from fairwatt.core.errors import NotFoundError, ReportError, StoreError
from fairwatt.dashboard import charts, identity, pages
from fairwatt.dashboard.headers import add_headers
from fairwatt.dashboard.proxy_identity import ProxyIdentity, Refused, proxy_identity
from fairwatt.dashboard.render import is_number, shown, time_words, with_code

__all__ = ["create_app"]

HERE = Path(__file__).parent
QUERY_LIMIT_S = 5.0
_STEPS_BETWEEN_CHECKS = 20_000

_log = logging.getLogger(__name__)


def create_app(
    config: Config,
    db_path: str | Path,
    *,
    secret: bytes | None = None,
    clock: Callable[[], float] = time.time,
) -> Flask:
    """Return the application for one store.

    Args:
        config: site and dashboard settings.
        db_path: the SQLite file; it is opened read-only at each request.
        secret: signs the cookies; None draws a new one, which ends all earlier choices.
        clock: gives the current time in UTC epoch seconds.

    Raises:
        ConfigError: the demo identity would listen beyond loopback, the proxy identity trusts
            nobody, or an unknown time zone.
        StoreError: there is no readable store.
    """
    proxy = proxy_identity(config)
    identity.check_listen(config)
    zone = site_zone(config["site.timezone"])
    open_reader(db_path).close()
    # Absolute paths, because a package without __init__.py has no folder for Flask to find.
    app = Flask("fairwatt.dashboard", root_path=str(HERE), instance_path=str(HERE))
    app.secret_key = secret or secrets.token_bytes(32)
    app.config.update(
        SESSION_COOKIE_NAME="fairwatt",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
        MAX_CONTENT_LENGTH=64 * 1024,
        FAIRWATT=config,
        FAIRWATT_ZONE=zone,
        FAIRWATT_CLOCK=clock,
        FAIRWATT_PROXY=proxy,
        FAIRWATT_YARDSTICK=yardstick_of(config),
    )
    app.jinja_options = {"trim_blocks": True, "lstrip_blocks": True}
    app.jinja_env.filters["shown"] = lambda value, kind: shown(value, kind, zone)
    app.jinja_env.filters["code"] = with_code
    app.jinja_env.filters["time_words"] = lambda value: time_words(value, zone)
    app.jinja_env.globals.update(
        is_number=is_number, patterns=charts.patterns, csrf_token=identity.csrf_token
    )
    app.before_request(_refuse_foreign_host if proxy is None else lambda: _admit(proxy))
    app.before_request(lambda: _open(db_path))
    app.teardown_request(_close)
    app.after_request(add_headers)
    app.register_blueprint(pages.blueprint)
    _register_errors(app)
    return app


def _refuse_foreign_host() -> None:
    """A name that an outsider points at loopback (DNS rebinding) must not reach the personas."""
    if not identity.is_loopback(urlsplit(f"//{request.host}").hostname or ""):
        abort(400)


def _admit(proxy: ProxyIdentity) -> None:
    """Answer nobody whom no trusted proxy names; how the service is may be asked by anybody."""
    if request.endpoint not in ("static", "pages.health"):
        proxy.user_of(request)


def _open(db_path: str | Path) -> None:
    """Open one snapshot of the store for the request, with a limit on its queries."""
    if request.endpoint == "static":
        return
    db = open_reader(db_path)
    deadline = time.monotonic() + QUERY_LIMIT_S
    db.set_progress_handler(lambda: int(time.monotonic() > deadline), _STEPS_BETWEEN_CHECKS)
    db.execute("BEGIN")
    g.db = db


def _close(_error: BaseException | None) -> None:
    db: sqlite3.Connection | None = g.pop("db", None)
    if db is not None:
        db.close()


def _register_errors(app: Flask) -> None:
    app.register_error_handler(NotFoundError, lambda _error: _error_page(404))
    app.register_error_handler(ReportError, lambda error: _error_page(400, str(error)))
    app.register_error_handler(StoreError, _unreadable)
    app.register_error_handler(sqlite3.OperationalError, _unreadable)
    app.register_error_handler(Refused, lambda error: _error_page(403, error.description or ""))
    app.register_error_handler(HTTPException, _http_error)


def _unreadable(error: Exception) -> Response:
    """The visitor learns that it is not their fault; place and remedy are for the log."""
    _log.error("%s %s: %s", request.method, request.path, error)
    return _error_page(503)


def _http_error(error: HTTPException) -> ResponseReturnValue:
    """Redirects pass; every other answer of the framework gets our page."""
    code = error.code or 500
    return error if code < 400 else _error_page(code)


def _error_page(code: int, detail: str = "") -> Response:
    return pages.error_page(code, detail)
