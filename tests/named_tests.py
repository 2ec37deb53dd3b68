# SPDX-License-Identifier: Apache-2.0
"""Whether tests that a table of cases names are there."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

__all__ = ["is_there"]

_TESTS = Path(__file__).parent


def is_there(test: str) -> bool:
    """Whether `FILE::NAME`, the file below tests/, names a test function."""
    file, _, name = test.partition("::")
    return name in _known_in(file)


@functools.cache
def _known_in(file: str) -> frozenset[str]:
    tree = ast.parse((_TESTS / file).read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )
