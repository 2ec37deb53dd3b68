# SPDX-License-Identifier: Apache-2.0
"""Addresses of our own HTTP services as settings write them: `host:port` or `[v6]:port`."""

from __future__ import annotations

from urllib.parse import urlsplit

from fairwatt.core.errors import ConfigError

__all__ = ["join_address", "split_address"]


def split_address(text: str, key: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[v6]:port`, the value of the setting `key`.

    Raises:
        ConfigError: it is neither.
    """
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port is None or parts.path or parts.username:
        raise ConfigError(
            "not host:port",
            place=key,
            value=text,
            remedy="write it like 127.0.0.1:8080 or [::1]:8080",
        )
    return host, port


def join_address(host: str, port: int) -> str:
    """Return what `split_address` reads: an IPv6 address gets its brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
