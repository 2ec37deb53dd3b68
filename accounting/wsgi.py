# SPDX-License-Identifier: Apache-2.0
"""gunicorn started from Python: what the collector and the dashboard have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gunicorn.app.base import BaseApplication

from fairwatt.accounting.worker import ImpatientWorker

__all__ = ["WsgiServer"]

_COMMON: Mapping[str, Any] = {
    "worker_class": ImpatientWorker,
    "accesslog": None,
    "errorlog": "-",
    "loglevel": "warning",
    # gunicorn >= 25 opens a socket in the home folder.
    "control_socket_disable": True,
}


class WsgiServer(BaseApplication):  # type: ignore[misc]
    """gunicorn with our options alone: it reads no file, variable or command line.

    Args:
        load: makes the application, in each worker unless `preload_app` is among the options.
        options: gunicorn's settings by name; those that its release does not know are left out.
    """

    def __init__(self, load: Callable[[], object], options: Mapping[str, Any]) -> None:
        self._load = load
        self._options = {**_COMMON, **options}
        super().__init__()

    def load_config(self) -> None:
        """Set our options."""
        for name, value in self._options.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> object:
        """Make the application."""
        return self._load()
