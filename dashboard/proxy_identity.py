# SPDX-License-Identifier: Apache-2.0
"""Identity `proxy`: the site's reverse proxy has proved who visits and names the user in a header.

Nothing is believed by default: a request counts only if it comes from a listed address and its
header holds one plain user name. Roles come from the store and from `dashboard.admins`.
"""

from __future__ import annotations

import ipaddress
import re
import sqlite3
from dataclasses import dataclass

from flask import Request
from werkzeug.exceptions import Forbidden

from fairwatt.accounting.reports.scope import Scope, scope_of
from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError

__all__ = ["ProxyIdentity", "Refused", "proxy_identity"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# A letter, digits and dashes: with an underscore the header could be confused with another one.
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,254}")


class Refused(Forbidden):
    """A visitor whom no trusted proxy names; the description says why and what to do."""


@dataclass(frozen=True)
class ProxyIdentity:
    """Whom to believe: networks of proxies, the header that names the user, and the admins."""

    peers: tuple[Network, ...]
    header: str
    admins: frozenset[str]

    def user_of(self, request: Request) -> str:
        """Return the user that the proxy names.

        Raises:
            Refused: the peer is not listed, or the header is missing or no single user name.
        """
        if not self._is_trusted(request.remote_addr or ""):
            raise Refused(
                f"This page is served through the site's proxy only; {request.remote_addr} is not"
                " among dashboard.trusted_proxies. Use the site's address of fairwatt."
            )
        # A header sent twice arrives joined by a comma, which no user name holds.
        user = request.headers.get(self.header, "")
        if not _USER.fullmatch(user):
            raise Refused(
                f"The proxy did not name one user in {self.header}. Log in again; if that does"
                " not help, tell the admins of this page."
            )
        return user

    def visitor(self, db: sqlite3.Connection, request: Request) -> Scope:
        """Return the scope of the user that the proxy names; Refused as in `user_of`."""
        user = self.user_of(request)
        return scope_of(db, user, admin=user in self.admins)

    def _is_trusted(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        # A socket for both families shows IPv4 peers as ::ffff:a.b.c.d.
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self.peers)


def proxy_identity(config: Config) -> ProxyIdentity | None:
    """Return the identity that the settings describe; None where it is not `proxy`.

    Raises:
        ConfigError: no proxy is listed, one is no address, or the header cannot be used.
    """
    if config["dashboard.identity"] != "proxy":
        return None
    header = config["dashboard.user_header"]
    if not _HEADER.fullmatch(header):
        raise ConfigError(
            "not a header name of letters, digits and dashes",
            place="dashboard.user_header",
            value=header,
            remedy="use X-Remote-User",
        )
    peers = tuple(_network(text) for text in config["dashboard.trusted_proxies"])
    if not peers:
        raise ConfigError(
            "identity proxy trusts nobody",
            place="dashboard.trusted_proxies",
            remedy='list the proxy\'s address, for example ["127.0.0.1"]',
        )
    return ProxyIdentity(peers, header, frozenset(config["dashboard.admins"]))


def _network(text: str) -> Network:
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise ConfigError(
            f"not an address or network ({error})",
            place="dashboard.trusted_proxies",
            value=text,
            remedy='write addresses such as "10.0.0.5" or networks such as "10.0.0.0/28"',
        ) from error
    if network.prefixlen == 0:
        raise ConfigError(
            "would believe every host",
            place="dashboard.trusted_proxies",
            value=text,
            remedy="list the addresses of the proxies alone",
        )
    return network
