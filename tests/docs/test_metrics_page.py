# SPDX-License-Identifier: Apache-2.0
"""Every metric is in docs/metrics.md with its labels, and someone tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairwatt.core.metrics import METRICS, Metric

ROOT = Path(__file__).parents[2]
TELLERS = "".join(
    (ROOT / "accounting" / name).read_text(encoding="utf-8")
    for name in ("collector_metrics.py", "agent/metrics_file.py")
)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_has_its_row(metric: Metric) -> None:
    suffix = "_total" if metric.kind == "counter" else ""
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    head = f"| `fairwatt_{metric.name}{suffix}` | {metric.kind} | {metric.doc}"
    rows = [line for line in page.splitlines() if line.startswith(head)]
    assert len(rows) == 1
    for label, values in (metric.labels or {}).items():
        assert f"`{label}`: {', '.join(values)}." in rows[0]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_is_told(metric: Metric) -> None:
    """One that nobody tells any more would be an empty graph."""
    assert f'"{metric.name}"' in TELLERS
