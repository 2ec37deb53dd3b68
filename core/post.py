# SPDX-License-Identifier: Apache-2.0
"""Sends one body of events to the collector, with a munge credential bound to its hash."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from fairwatt.core.errors import ConfigError, FairwattError
from fairwatt.core.http_post import LONGEST_ANSWER, Answer, http_post, retry_after
from fairwatt.core.sha256 import sha256_hex

__all__ = ["Answer", "post_events"]

PATH = "/v1/events"


def post_events(
    url: str, body: bytes, sign: Callable[[bytes], str], *, timeout_s: float = 15.0
) -> Answer:
    """Send `body` and return the answer; every fault becomes an answer with status 0.

    `sign` makes the credential for the lower-case hex SHA-256 of the body.
    """
    try:
        credential = sign(sha256_hex(body).encode("ascii"))
        return _exchange(url, body, credential, timeout_s)
    except (OSError, ValueError, FairwattError) as error:
        return Answer(0, str(error) or type(error).__name__)


def _exchange(url: str, body: bytes, credential: str, timeout_s: float) -> Answer:
    parts = urlsplit(url)
    path = parts.path.rstrip("/") + PATH
    headers = {
        "Authorization": f"Munge {credential}",
        "Content-Type": "application/x-ndjson",
    }
    if parts.scheme == "https":
        return _over_tls(parts.netloc, path, headers, body, timeout_s)
    if parts.scheme == "http" and parts.hostname:
        port = parts.port or 80
        return http_post(parts.hostname, port, path, headers, body, timeout_s)
    raise ConfigError(
        "not an address to send to",
        place="agent.collector_url",
        value=url,
        remedy="use http://host:port or https://host:port",
    )


def _over_tls(
    netloc: str, path: str, headers: dict[str, str], body: bytes, timeout_s: float
) -> Answer:
    import http.client  # 5 MB, only where it is needed

    connection = http.client.HTTPSConnection(netloc, timeout=timeout_s)
    try:
        connection.request("POST", path, body=body, headers=headers)
        response = connection.getresponse()
        text = response.read(LONGEST_ANSWER).decode("utf-8", errors="replace")
        return Answer(response.status, text, retry_after(response.getheader("Retry-After")))
    except http.client.HTTPException as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()
