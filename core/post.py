# SPDX-License-Identifier: Apache-2.0
"""Sends one body of events to the collector, with a munge credential bound to its hash."""

from __future__ import annotations

import hashlib
import http.client
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from fairwatt.core.errors import ConfigError, FairwattError

__all__ = ["Answer", "post_events"]

PATH = "/v1/events"
LONGEST_ANSWER = 65_536


@dataclass(frozen=True)
class Answer:
    """The collector's HTTP status and text; status 0: it could not be reached."""

    status: int
    text: str


def post_events(
    url: str, body: bytes, sign: Callable[[bytes], str], *, timeout_s: float = 15.0
) -> Answer:
    """Send `body` and return the answer; every fault becomes an answer with status 0.

    `sign` makes the credential for the lower-case hex SHA-256 of the body.
    """
    try:
        credential = sign(hashlib.sha256(body).hexdigest().encode("ascii"))
        return _exchange(url, body, credential, timeout_s)
    except (OSError, http.client.HTTPException, FairwattError) as error:
        return Answer(0, str(error) or type(error).__name__)


def _exchange(url: str, body: bytes, credential: str, timeout_s: float) -> Answer:
    parts = urlsplit(url)
    connection = _connection(parts.scheme, parts.netloc, timeout_s)
    headers = {
        "Authorization": f"Munge {credential}",
        "Content-Type": "application/x-ndjson",
    }
    try:
        connection.request("POST", parts.path.rstrip("/") + PATH, body=body, headers=headers)
        response = connection.getresponse()
        text = response.read(LONGEST_ANSWER).decode("utf-8", errors="replace")
        return Answer(response.status, text)
    finally:
        connection.close()


def _connection(scheme: str, netloc: str, timeout_s: float) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(netloc, timeout=timeout_s)
    if scheme == "http" and netloc:
        return http.client.HTTPConnection(netloc, timeout=timeout_s)
    raise ConfigError(
        "not an address to send to",
        place="agent.collector_url",
        value=f"{scheme}://{netloc}",
        remedy="use http://host:port or https://host:port",
    )
