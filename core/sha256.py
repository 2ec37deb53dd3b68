# SPDX-License-Identifier: Apache-2.0
"""SHA-256 without OpenSSL, which takes 3.5 MB in a daemon that runs on every node.

The standard library's own `random` takes its hash in the same way.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["sha256_hex"]


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of `data` in lower-case hex."""
    return str(_module().sha256(data).hexdigest())


def _module() -> Any:  # noqa: ANN401 -- a module that type checkers do not know
    for name in ("_sha2", "_sha256"):  # Python 3.12 renamed it
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    return importlib.import_module("hashlib")
