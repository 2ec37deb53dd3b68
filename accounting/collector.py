# SPDX-License-Identifier: Apache-2.0
"""The collector's HTTP side: takes events into the store, each body whole or not at all.

`POST /v1/events` wants `Authorization: Munge <credential>` whose payload is the lowercase hex
sha256 of the body. Answers are JSON: 200 `{"accepted", "duplicates"}`, else `{"error"}` with
400 (the body), 403 (the credential), 411 (no length), 413 (its size), 429 (the inbox is full) or
503 (our side). After the last two the sender keeps the body and comes again when `Retry-After`
says. `GET /metrics` answers the addresses of `collector.metrics_from` alone.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from flask import Flask, Response, abort, jsonify, request
from sqlite_utils import Database
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from fairwatt.accounting.backup import back_up_before_update
from fairwatt.accounting.carbon.fetch import FetchTimer, fetch_timer
from fairwatt.accounting.collector_metrics import Peers, collector_samples
from fairwatt.accounting.cycle import Repeater, import_and_refresh, prepare_store, refresh, site_of
from fairwatt.accounting.decisions import users_of
from fairwatt.accounting.intake import Inbox
from fairwatt.accounting.origins import Origins
from fairwatt.accounting.store_files import hold_store
from fairwatt.accounting.turns import TurnLock
from fairwatt.accounting.upkeep import Upkeep, keeping_of, tend_if_due
from fairwatt.accounting.verify_nightly import verify_if_due
from fairwatt.accounting.windows import file_of
from fairwatt.core import munge
from fairwatt.core.address import join_address, split_address
from fairwatt.core.config import Config
from fairwatt.core.errors import AuthError, BusyError, IngestError, StoreError
from fairwatt.core.events import DecisionMade, Event, decode_body
from fairwatt.core.metrics import content_type, render

__all__ = ["CollectorSettings", "create_app", "serve"]

SCHEME = "Munge "
THREADS = 32
GRACE_S = 10
DRAIN_BYTES = 67_108_864
MAX_BODIES = THREADS - 8
"""So many bodies are worked on at once; the threads that are left say no to more at once."""

RETRY_S = 10
"""When to come again after a fault of ours."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CollectorSettings:
    """What the HTTP side needs: who may deliver, how much, and munge's socket ("": default).

    `node_uids` deliver what nodes measured, `policyd_uids` what the submit policy decided.
    """

    node_uids: Collection[int]
    policyd_uids: Collection[int]
    max_body_bytes: int
    munge_socket: str = ""
    max_inbox_bytes: int = 16 * 1024 * 1024
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    check_origin: str = "off"
    cluster: str = "cluster"
    metrics_from: Collection[str] = ("127.0.0.1", "::1")
    lock: AbstractContextManager[object] = field(default_factory=TurnLock)
    """Held while the store is written: one writer in this process."""


def create_app(
    db: Database, settings: CollectorSettings, *, on_news: Callable[[], None] = lambda: None
) -> Flask:
    """Return the WSGI application over an open store; `on_news` is called after new events."""
    app = Flask("fairwatt.collector", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
    inbox = Inbox(
        db,
        settings.lock,
        settings.zone,
        max_bodies=MAX_BODIES,
        max_bytes=settings.max_inbox_bytes,
    )
    origins = Origins(settings.check_origin)

    @app.post("/v1/events")
    def events() -> Response:
        with inbox.room(_announced_length()):
            sender = _proven_sender(settings)
            body = request.get_data(cache=False)
            _check_bound(sender, body)
            batch = decode_body(body)
            del body
            measured = [event for event in batch if not isinstance(event, DecisionMade)]
            _check_may_send(settings, sender, batch, measured)
            origins.check(sender.origin, {event.node for event in measured})
            accepted, duplicates = inbox.take(batch, users_of(batch))
        if accepted and measured:
            on_news()
        return jsonify(accepted=accepted, duplicates=duplicates)

    @app.get("/healthz")
    def healthz() -> Response:
        db.execute("SELECT 1 FROM meta").fetchone()
        return jsonify(ok=True)

    peers = Peers(settings.metrics_from)

    @app.get("/metrics")
    def metrics() -> Response:
        if not peers.have(request.remote_addr):
            abort(403)
        form = content_type(request.headers.get("Accept"))
        samples = collector_samples(inbox, file_of(db.conn), settings.cluster)
        return Response(render(samples, form), content_type=form)

    def counted(answer: Callable[[Any], _Answered]) -> Callable[[Any], _Answered]:
        def handle(error: Exception) -> _Answered:
            if request.path == "/v1/events":
                inbox.counts.refuse(error)
            return answer(error)

        return handle

    app.register_error_handler(BusyError, _busy)
    app.register_error_handler(IngestError, counted(_refused))
    app.register_error_handler(StoreError, counted(_our_fault))
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(RequestEntityTooLarge, counted(_http_error))
    app.register_error_handler(Exception, counted(_unforeseen))
    return app


_Answered = tuple[Response, int]


def serve(config: Config) -> None:
    """Serve until SIGTERM, with one process and the import thread beside it.

    Raises:
        ConfigError, StoreError: before anything is served; also where another collector runs.
    """
    from fairwatt.accounting.server import run_server

    site, keeping = site_of(config), keeping_of(config)
    Peers(config["collector.metrics_from"])  # a fault is told to who started us
    address = join_address(*split_address(config["collector.listen"], "collector.listen"))

    def build() -> tuple[Flask, _Rounds]:
        settings = CollectorSettings(
            node_uids=frozenset(config["collector.node_uids"]),
            policyd_uids=frozenset(config["collector.policyd_uids"]),
            max_body_bytes=config["collector.max_body_bytes"],
            munge_socket=config["site.munge_socket"],
            max_inbox_bytes=config["collector.inbox_mib"] * 1024 * 1024,
            zone=site.zone,
            check_origin=config["collector.check_origin"],
            cluster=site.cluster,
            metrics_from=config["collector.metrics_from"],
        )
        own, served, kept = (prepare_store(site) for _ in range(3))
        repeater = Repeater(
            lambda: import_and_refresh(own, site, lock=settings.lock, with_audit=True),
            lambda: refresh(own, site, settings.lock),
            config["collector.sync_s"],
        )
        upkeep = Upkeep(
            lambda: tend_if_due(kept, keeping, site.zone, time.time(), settings.lock),
            lambda: verify_if_due(
                kept, site, days=config["store.verify_days"], hour=keeping.hour,
                now_ts=time.time(), lock=settings.lock,
            ),
        )  # fmt: skip
        carbon = fetch_timer(site.database, site.carbon, settings.lock, repeater.wake)
        app = create_app(served, settings, on_news=repeater.wake)
        return app, _Rounds((repeater, upkeep, carbon), (own, served, kept))

    with hold_store(site.database, "stop it first, or set collector.database to another file"):
        if keeping.backup_dir is not None:
            back_up_before_update(
                site.database,
                keeping.backup_dir,
                keep_days=keeping.backup_keep_days,
                now_ts=time.time(),
            )
        # Once here, so that a fault is told to who started us; the worker opens its own.
        prepare_store(site).close()
        run_server(address, build, threads=THREADS, grace_s=GRACE_S)


class _Rounds:
    """The threads, and at the end the store closed: SQLite then leaves one whole file."""

    def __init__(
        self, threads: Sequence[Repeater | Upkeep | FetchTimer], stores: Sequence[Database]
    ) -> None:
        self._threads = threads
        self._stores = stores

    def start(self) -> None:
        """Begin with an import at once."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End after the step that is running now."""
        for thread in self._threads:
            thread.stop()
        for db in self._stores:
            db.close()


def _announced_length() -> int:
    """What the body will take; one that does not say cannot be given room."""
    length = request.content_length or 0
    if request.headers.get("Transfer-Encoding"):
        error = IngestError(
            "a body without Content-Length", place="POST /v1/events", remedy="announce its length"
        )
        error.status = 411
        raise error
    return min(length, (request.max_content_length or length) + 1)


def _check_bound(sender: munge.Credential, body: bytes) -> None:
    if not hmac.compare_digest(sender.payload, hashlib.sha256(body).hexdigest().encode()):
        raise AuthError(
            "the credential belongs to another body",
            place="POST /v1/events",
            remedy="its payload is the lowercase hex sha256 of the body",
        )


def _check_may_send(
    settings: CollectorSettings,
    sender: munge.Credential,
    batch: Sequence[Event],
    measured: Sequence[Event],
) -> None:
    """Nodes measure and policyd decides; a body is of one node, whose name its events have."""
    if measured:
        _check_sender(sender.uid, settings.node_uids, "events of a node", "node_uids")
    if len(measured) < len(batch):
        _check_sender(sender.uid, settings.policyd_uids, "decisions", "policyd_uids")
    names = sorted({event.node for event in measured})
    if len(names) > 1:
        raise AuthError(
            "a body with events of several nodes",
            place="POST /v1/events",
            value=names[:3],
            remedy="give each node's agent its own agent.node and agent.spool_dir",
        )


def _proven_sender(settings: CollectorSettings) -> munge.Credential:
    """A good credential of a user who may deliver something."""
    header = request.headers.get("Authorization", "")
    if not header.startswith(SCHEME):
        raise AuthError(
            "no munge credential",
            place="POST /v1/events",
            remedy="send `Authorization: Munge <credential>`",
        )
    credential = munge.decode(header.removeprefix(SCHEME).strip(), settings.munge_socket)
    known = {*settings.node_uids, *settings.policyd_uids}
    _check_sender(credential.uid, known, "events", "node_uids or collector.policyd_uids")
    return credential


def _check_sender(uid: int, allowed: Collection[int], what: str, setting: str) -> None:
    if uid not in allowed:
        raise AuthError(
            f"this user may not deliver {what}",
            place="POST /v1/events",
            value=uid,
            remedy=f"run the agent as root and policyd as SlurmUser, or add the uid to "
            f"collector.{setting}",
        )


def _refused(error: IngestError) -> tuple[Response, int]:
    _log.warning("refused a delivery from %s: %s", request.remote_addr, error)
    return _answer(str(error), error.status)


def _busy(error: BusyError) -> tuple[Response, int]:
    return _answer(str(error), error.status, retry_s=error.retry_after_s)


def _our_fault(error: StoreError) -> tuple[Response, int]:
    _log.error("store: %s", error)
    return _answer(str(error), 503, retry_s=RETRY_S)


def _http_error(error: HTTPException) -> tuple[Response, int]:
    if isinstance(error, RequestEntityTooLarge):
        limit = request.max_content_length
        return _answer(f"body larger than {limit} bytes; see collector.max_body_bytes", 413)
    return _answer(f"{error.name}: {request.method} {request.path}", error.code or 500)


def _unforeseen(error: Exception) -> tuple[Response, int]:
    _log.exception("request failed", exc_info=error)
    return _answer("internal error; see the collector's log", 503, retry_s=RETRY_S)


def _answer(message: str, status: int, *, retry_s: int | None = None) -> tuple[Response, int]:
    _drain()
    body: dict[str, Any] = {"error": message}
    response = jsonify(body)
    if retry_s is not None:
        response.headers["Retry-After"] = str(retry_s)
    return response, status


def _drain() -> None:
    """Read what the node still sends: else it sees a broken pipe instead of our answer."""
    left = min(request.content_length or 0, DRAIN_BYTES)
    stream = request.environ["wsgi.input"]
    while left > 0:
        chunk = stream.read(min(left, 65_536))
        if not chunk:
            return
        left -= len(chunk)
