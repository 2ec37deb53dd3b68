# SPDX-License-Identifier: Apache-2.0
"""Serves the application with gunicorn, started from Python rather than by its own command."""

from __future__ import annotations

import socket
from collections.abc import Callable

from flask import Flask
from gunicorn.arbiter import Arbiter

from fairwatt.accounting.wsgi import WsgiServer
from fairwatt.core.address import join_address
from fairwatt.core.errors import ConfigError

__all__ = ["serve"]

WORKERS = 2
THREADS = 16


def serve(
    app: Flask,
    host: str,
    port: int,
    *,
    when_ready: Callable[[str], None] | None = None,
    hold: Callable[[], object] = lambda: None,
) -> None:
    """Serve until SIGINT or SIGTERM; port 0 takes a free one. Ends the process.

    The application is made before the workers are forked, so that they share its secret.
    `when_ready` gets the address (`http://…`) once the socket listens. What `hold` returns stays
    alive in each worker: a reader of the store that is always open keeps SQLite from removing the
    WAL when the collector ends, and without it a read-only process could not open the store.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    _check_free(host, port)

    def ready(arbiter: Arbiter) -> None:
        if when_ready is not None:
            bound = arbiter.LISTENERS[0].sock.getsockname()[1]
            when_ready(f"http://{join_address(host, bound)}")

    held: list[object] = []
    options = {
        "bind": join_address(host, port),
        "workers": WORKERS,
        "threads": THREADS,
        "preload_app": True,
        "when_ready": ready,
        # X_Remote_User must never pass for X-Remote-User.
        "header_map": "refuse",
        "post_worker_init": lambda _worker: held.append(hold()),
        "graceful_timeout": 5,
        "proc_name": "fairwatt-dashboard",
    }
    WsgiServer(lambda: app, options).run()


def _check_free(host: str, port: int) -> None:
    """Try the address once: gunicorn would try for five seconds and say it in ten lines."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise ConfigError(
            f"cannot be listened on ({error.strerror})",
            place=join_address(host, port),
            remedy="choose another port: dashboard.listen, or --port of `fairwatt demo`",
        ) from error
