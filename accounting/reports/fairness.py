# SPDX-License-Identifier: Apache-2.0
"""Fairness in numbers, never as a verdict.

>>> round(share_deviation([0.4, 0.3, 0.2, 0.1], [50, 20, 20, 10]), 2)
0.1
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["entitlements", "share_deviation"]


def entitlements(raw_shares: Sequence[int | None]) -> list[float | None]:
    """Return each sibling's NormShares s / Σ s; unknown shares stay unknown and weigh nothing."""
    total = sum(share for share in raw_shares if share is not None)
    return [None if share is None else (share / total if total else 0.0) for share in raw_shares]


def share_deviation(entitled: Sequence[float], used: Sequence[float]) -> float | None:
    """Return ½ Σ |used share − entitlement|: the part used on somebody else's entitlement.

    None if nothing was used or nobody is entitled. Entitlements are scaled to sum 1.
    """
    entitled_total, used_total = sum(entitled), sum(used)
    if not entitled_total or not used_total:
        return None
    return 0.5 * sum(
        abs(u / used_total - e / entitled_total) for e, u in zip(entitled, used, strict=True)
    )
