# SPDX-License-Identifier: Apache-2.0
"""Asks one of our own HTTP services whether it is well."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

from fairwatt.core.address import join_address, split_address

__all__ = ["local_url", "what_is_wrong"]

PATIENCE_S = 2.0
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (compared, never bound)


def local_url(listen: str, key: str) -> str:
    """Return the URL at which a service that listens as setting `key` says answers on this host.

    Raises:
        ConfigError: `listen` is not host:port.
    """
    host, port = split_address(listen, key)
    return f"http://{join_address(_EVERYWHERE.get(host, host), port)}"


def what_is_wrong(url: str) -> str | None:
    """Get `url`/healthz and return what is wrong with the service, None when all is well."""
    parts = urlsplit(url)
    https = parts.scheme == "https"
    kind = http.client.HTTPSConnection if https else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=PATIENCE_S)
    try:
        connection.request("GET", parts.path.rstrip("/") + "/healthz")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"{url} does not answer ({error})"
    finally:
        connection.close()
    return None if status == 200 else f"{url}/healthz answers {status}"
