# SPDX-License-Identifier: Apache-2.0
"""Runs a WSGI application with its background thread in one gunicorn worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fairwatt.accounting.wsgi import WsgiServer

__all__ = ["Background", "run_server"]


class Background(Protocol):
    """Work beside the requests, in the same process."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End soon."""


def run_server(
    bind: str, build: Callable[[], tuple[object, Background]], *, threads: int, grace_s: int
) -> None:
    """Serve `build()`'s application on `bind` until SIGTERM or SIGINT.

    `build` runs in the worker: connections and threads do not survive a fork. One worker,
    because the store has one writer; no access log, no control socket, nothing on stdout.
    """
    running: list[Background] = []

    def load() -> object:
        application, background = build()
        running.append(background)
        background.start()
        return application

    def stop(_server: object, _worker: object) -> None:
        for background in running:
            background.stop()

    options = {
        "bind": bind,
        "workers": 1,
        "threads": threads,
        "graceful_timeout": grace_s,
        "proc_name": "fairwatt-collector",
        "worker_exit": stop,
    }
    WsgiServer(load, options).run()
