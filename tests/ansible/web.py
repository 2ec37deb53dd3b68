# SPDX-License-Identifier: Apache-2.0
"""Visits web pages from a node, directly or through the site's proxy."""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ansible.booted import BRIDGE, BootedLab, Node
from tests.lab.waiting import await_value

__all__ = ["Page", "login", "proxy", "visit"]

_PORT = 8000
_VISIT = """
import json, sys, urllib.error, urllib.request
url, headers = json.loads(sys.argv[1])
try:
    answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10)
except urllib.error.HTTPError as error:
    answer = error
except urllib.error.URLError as error:
    print(json.dumps([0, str(error.reason)])); sys.exit()
print(json.dumps([answer.status, answer.read().decode()]))
"""


@dataclass(frozen=True)
class Page:
    """An answer: HTTP status (0: nobody answered) and text."""

    status: int
    text: str


def visit(node: Node, url: str, headers: Mapping[str, str] = {}) -> Page:
    """Get a page as somebody would who sits at the node."""
    asked = json.dumps([url, dict(headers)])
    return Page(*json.loads(node.out("python3", "-c", _VISIT, asked)))


def login(user: str) -> dict[str, str]:
    """The header with which a browser logs in at the proxy."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:secret'.encode()).decode()}"}


@contextmanager
def proxy(lab: BootedLab, upstream: Node) -> Iterator[str]:
    """Run the site's proxy at the bridge's address; the value is its URL."""
    script = str(Path(__file__).with_name("proxy.py"))
    argv = [sys.executable, script, BRIDGE, str(_PORT), f"{upstream.address}:8080"]
    url = f"http://{BRIDGE}:{_PORT}"
    with tempfile.TemporaryFile() as log:
        process = lab.capsule.spawn(argv, log)
        try:
            await_value(lambda: visit(upstream, url).status, what="the proxy", timeout_s=10)
            yield url
        finally:
            process.terminate()
            process.wait()
