# SPDX-License-Identifier: Apache-2.0
"""Compares the host that a credential was made on with the node that the events name.

A credential carries the address of the munged that made it. Who is root on a node may have set
another one; but a node that was cloned with another's agent.node, or a user of a login node who
became root there, is found.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Collection

from fairwatt.core.errors import AuthError

__all__ = ["Origins", "addresses_of"]

KEEP_S = 300.0
MOST_NODES = 20_000
_LOCAL = "127."

_log = logging.getLogger(__name__)


def addresses_of(name: str) -> frozenset[str]:
    """Return the IPv4 addresses that this host knows of a name; none for an unknown one."""
    try:
        return frozenset(socket.gethostbyname_ex(name)[2])
    except (OSError, UnicodeError):
        return frozenset()


class Origins:
    """Checks deliveries; what was looked up is kept for five minutes.

    Args:
        mode: off, warn (one line in the log for each node) or refuse.
        resolve: addresses of a node's name.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        mode: str,
        *,
        resolve: Callable[[str], Collection[str]] = addresses_of,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mode = mode
        self._resolve = resolve
        self._clock = clock
        self._known: dict[str, tuple[float, Collection[str]]] = {}
        self._warned: set[str] = set()

    def check(self, origin: str, nodes: Collection[str]) -> None:
        """Say whether a credential of a host may speak for these nodes.

        Raises:
            AuthError: it may not, and the mode is refuse.
        """
        if self._mode == "off":
            return
        for node in nodes:
            fault = self._fault(origin, node)
            if fault is not None and self._mode == "refuse":
                raise fault
            if fault is not None and node not in self._warned:
                self._warned = {*self._warned, node} if len(self._warned) < MOST_NODES else {node}
                _log.warning("%s; taken nevertheless (collector.check_origin)", fault)

    def _fault(self, origin: str, node: str) -> AuthError | None:
        """Munged on a host of several addresses may name the loopback one: then none is proven."""
        known = self._addresses(node)
        if origin in known or (not known and self._mode == "warn"):
            return None
        if not origin or origin.startswith(_LOCAL):
            problem = f"the credential does not tell on which host it was made ({origin or '-'})"
        else:
            problem = f"made on {origin}, which is none of the addresses of node {node}"
        return AuthError(
            problem,
            place="POST /v1/events",
            value=sorted(known)[:3],
            remedy="set agent.node on that host, munged's --origin, or this host's /etc/hosts",
        )

    def _addresses(self, node: str) -> Collection[str]:
        now = self._clock()
        known = self._known.get(node)
        if known is None or now - known[0] > KEEP_S:
            if len(self._known) >= MOST_NODES:
                self._known.clear()
            known = self._known[node] = (now, self._resolve(node))
        return known[1]
