# SPDX-License-Identifier: Apache-2.0
"""Where a fuzz target's input comes from: hypothesis in the tests, atheris in `make fuzz`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

__all__ = ["FromBytes", "FromHypothesis", "Source"]

T = TypeVar("T")


class Source(Protocol):
    """Draws values; every draw is free to be hostile."""

    def text(self, most: int) -> str:
        """Text of code points 0 to 255: bytes as the wire carries them."""
        ...

    def number(self, least: int, most: int) -> int:
        """A whole number between two bounds."""
        ...

    def pick(self, values: Sequence[T]) -> T:
        """One of some values."""
        ...


class FromHypothesis:
    """Draws through `st.data()`."""

    def __init__(self, data: st.DataObject) -> None:
        self._draw = data.draw

    def text(self, most: int) -> str:
        """Draw a text."""
        return self._draw(st.text(st.characters(max_codepoint=255), max_size=most))

    def number(self, least: int, most: int) -> int:
        """Draw a number."""
        return self._draw(st.integers(least, most))

    def pick(self, values: Sequence[T]) -> T:
        """Draw one of some values."""
        return self._draw(st.sampled_from(values))


class FromBytes:
    """Draws from atheris' bytes."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    def text(self, most: int) -> str:
        """Draw a text."""
        size = self._provider.ConsumeIntInRange(0, most)
        return bytes(self._provider.ConsumeBytes(size)).decode("latin-1")

    def number(self, least: int, most: int) -> int:
        """Draw a number."""
        return int(self._provider.ConsumeIntInRange(least, most))

    def pick(self, values: Sequence[T]) -> T:
        """Draw one of some values."""
        return values[self._provider.ConsumeIntInRange(0, len(values) - 1)]
