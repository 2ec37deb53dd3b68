# SPDX-License-Identifier: Apache-2.0
"""Runs a WSGI application with its background thread in one gunicorn worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gunicorn.app.base import BaseApplication

from fairwatt.accounting.worker import ImpatientWorker

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
    _Server(bind, build, threads, grace_s).run()


class _Server(BaseApplication):  # type: ignore[misc]
    def __init__(
        self,
        bind: str,
        build: Callable[[], tuple[object, Background]],
        threads: int,
        grace_s: int,
    ) -> None:
        self._build = build
        self._background: Background | None = None
        self._options = {
            "bind": bind,
            "workers": 1,
            "worker_class": ImpatientWorker,
            "threads": threads,
            "graceful_timeout": grace_s,
            "accesslog": None,
            "errorlog": "-",
            "loglevel": "warning",
            "proc_name": "fairwatt-collector",
            "worker_exit": lambda _server, _worker: self._stop(),
            # gunicorn >= 25 opens a socket in the home folder.
            "control_socket_disable": True,
        }
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._options.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> object:
        application, self._background = self._build()
        self._background.start()
        return application

    def _stop(self) -> None:
        if self._background is not None:
            self._background.stop()
