# SPDX-License-Identifier: Apache-2.0
"""What a service of grid data is to us, and how one is asked: a deadline, a limit, no redirect."""

from __future__ import annotations

import functools
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

from fairwatt.accounting.carbon.factors import Factor, grams_milli
from fairwatt.core.errors import ConfigError, SourceError
from fairwatt.core.http_get import HttpPlace, http_get, parse_url
from fairwatt.core.secret_file import read_secret

__all__ = ["Access", "GridSource", "factor_of", "iso", "read_json", "seconds"]

TIMEOUT_S = 30.0
LONGEST = 33_554_432
"""Bytes of an answer: a week of a country's generation by fuel has 2 MB."""


class GridSource(Protocol):
    """A service of grid factors for one zone.

    `method` is what its numbers are, `slice_s` the longest span that one question may have.
    """

    name: str
    zone: str
    method: str
    source: str
    licence: str
    slice_s: int

    def fetch(self, from_ts: int, until_ts: int) -> list[Factor]:
        """Return what is known of [from_ts, until_ts), ordered and apart; gaps are left out.

        Raises:
            SourceError: no answer, or not one as documented.
        """
        ...


@dataclass(frozen=True)
class Access:
    """How a service is reached: its zone ("": the service's own), URL ("": the public one), key.

    The key is read when it is needed; it is in no message.
    """

    zone: str = ""
    url: str = ""
    key_file: str = ""
    timeout_s: float = TIMEOUT_S
    longest: int = field(default=LONGEST, repr=False)

    def key(self, service: str) -> str:
        """Return the key.

        Raises:
            ConfigError: no file is configured, or others may read it.
        """
        if not self.key_file:
            raise ConfigError(
                f"{service} wants a key", place="carbon.source_key_file",
                remedy="write the key into a file of mode 0600 and name it",
            )  # fmt: skip
        return read_secret(Path(self.key_file))[0]

    def get(
        self,
        public_url: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        secret: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Return status and body of a question; `secret` is a part of the query that is not told.

        Raises:
            SourceError: no answer, too many questions, a redirect, a fault of the service.
            ConfigError: the URL is none, or a key would go over the network in the clear.
        """
        place = _place(self.url or public_url, path, {**(query or {}), **(secret or {})})
        shown = f"{place.scheme}://{place.netloc}{path}"
        is_open = place.scheme == "http" and not place.is_loopback
        if is_open and (secret or headers):
            raise ConfigError(
                "a key would go over the network in the clear", place="carbon.source_url",
                value=self.url, remedy="use https",
            )  # fmt: skip
        try:
            status, body = http_get(
                place, headers={"User-Agent": "fairwatt", **(headers or {})},
                timeout_s=self.timeout_s, longest=self.longest,
                tls=_tls() if place.scheme == "https" else None,
            )  # fmt: skip
        except OSError as error:
            raise SourceError(f"no answer: {error}", place=shown) from error
        _check(status, shown)
        return status, body


def read_json(body: bytes, place: str) -> Any:  # noqa: ANN401 - JSON
    """Return a JSON answer.

    Raises:
        SourceError: it is none.
    """
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise SourceError(
            "no JSON in the answer", place=place, value=body[:60],
            remedy="see carbon.source_url; is a proxy in between?",
        ) from error  # fmt: skip


def factor_of(zone: str, from_ts: int, until_ts: int, grams: object, place: str) -> Factor:
    """Return a factor from what a service said.

    Raises:
        SourceError: the number cannot be g/kWh, or the span is empty.
    """
    is_number = isinstance(grams, int | float) and not isinstance(grams, bool)
    milli = grams_milli(str(grams)) if is_number else None
    if milli is None or from_ts >= until_ts:
        raise SourceError("not a factor in g/kWh", place=place, value=grams)
    return Factor(zone, from_ts, until_ts, milli)


def iso(ts: int) -> str:
    """Return epoch seconds as 2024-01-01T13:00Z."""
    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%dT%H:%MZ")


def seconds(text: object, place: str) -> int:
    """Return an ISO time with its zone as epoch seconds.

    Raises:
        SourceError: it is none.
    """
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError as error:
        raise SourceError("not a time", place=place, value=text) from error
    if moment.tzinfo is None:
        raise SourceError("a time without its zone", place=place, value=text)
    return int(moment.timestamp())


def _place(url: str, path: str, query: Mapping[str, str]) -> HttpPlace:
    place = parse_url(url)
    if place is None:
        raise ConfigError(
            "not an http or https URL", place="carbon.source_url", value=url,
            remedy="leave it empty for the public service",
        )  # fmt: skip
    tail = f"?{urlencode(query)}" if query else ""
    return HttpPlace(place.scheme, place.host, place.port, f"{place.path.rstrip('/')}{path}{tail}")


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


_STATUS = {
    401: ("does not accept the key", "see carbon.source_key_file"),
    403: ("does not accept the key for this zone", "see carbon.source_key_file"),
    429: ("too many questions", "it is asked again later; raise carbon.fetch_s"),
}


def _check(status: int, place: str) -> None:
    if 300 <= status < 400:
        raise SourceError(
            "redirects are not followed", place=place, value=status,
            remedy="name the new address in carbon.source_url",
        )  # fmt: skip
    problem, remedy = _STATUS.get(status, ("the service failed", "it is asked again later"))
    # 400 may be how a service says that it has nothing: its adapter looks into the answer.
    if status not in (200, 400):
        raise SourceError(problem, place=place, value=status, remedy=remedy)
