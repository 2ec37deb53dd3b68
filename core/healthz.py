# SPDX-License-Identifier: Apache-2.0
"""Asks one of our own HTTP services on this host whether it is well."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

__all__ = ["local_url", "what_is_wrong"]

PATIENCE_S = 2.0
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (compared, never bound)


def local_url(listen: str) -> str:
    """Return the URL at which a service that listens at `host:port` answers on this host."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    host = _EVERYWHERE.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def what_is_wrong(url: str) -> str | None:
    """Get `url`/healthz and return what is wrong with the service, None when all is well."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"{url} does not answer ({error})"
    finally:
        connection.close()
    return None if status == 200 else f"{url}/healthz answers {status}"
