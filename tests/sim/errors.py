# SPDX-License-Identifier: Apache-2.0
"""How far estimates are from the truth, in the words of the benchmark's table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Errors", "Pair", "errors_of"]

Pair = tuple[float, float]
"""An estimate and the truth, in mJ."""


@dataclass(frozen=True)
class Errors:
    """Relative errors of many runs.

    `total` is Σ |estimate - truth| ÷ Σ truth: what goes to the wrong run, by energy; `bias` the
    error of the sum; the others are of single runs, whatever their size.
    """

    runs: int
    total: float
    bias: float
    median: float
    p95: float
    worst: float


def errors_of(pairs: Sequence[Pair]) -> Errors:
    """Return the errors of at least one run; truths are above 0."""
    truth = sum(true for _, true in pairs)
    single = sorted(abs(guess - true) / true for guess, true in pairs)
    return Errors(
        runs=len(pairs),
        total=sum(abs(guess - true) for guess, true in pairs) / truth,
        bias=sum(guess - true for guess, true in pairs) / truth,
        median=_quantile(single, 0.5),
        p95=_quantile(single, 0.95),
        worst=single[-1],
    )


def _quantile(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
