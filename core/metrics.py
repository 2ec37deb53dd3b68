# SPDX-License-Identifier: Apache-2.0
"""Every metric that the collector and the agent tell, and their text for Prometheus.

One table serves the two, docs/metrics.md and the test that compares them. No label has a value
that a user, a job or a node's event may choose: what they are is said here, so their number is
bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = ["METRICS", "OPENMETRICS", "TEXT", "Metric", "Sample", "content_type", "render"]

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(frozen=True)
class Metric:
    """One metric: its name without `fairwatt_`, kind, meaning, and labels with their values.

    A counter's samples have `_total` behind the name.
    """

    name: str
    kind: Literal["counter", "gauge"]
    doc: str
    labels: Mapping[str, tuple[str, ...]] | None = None


class Sample(NamedTuple):
    """A value of a metric; `labels` are values in the order of the metric's labels."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


KINDS = ("gpu", "cpu", "dram", "node")
OWNERS = ("run", "unallocated", "system")

METRICS: tuple[Metric, ...] = (
    Metric("collector_bodies", "counter", "Bodies taken since the collector began."),
    Metric("collector_events", "counter", "New events taken since the collector began."),
    Metric("collector_duplicates", "counter", "Events that came again and changed nothing."),
    Metric(
        "collector_refused",
        "counter",
        "Bodies refused since the collector began: not events or contradicting (body), windows"
        " that do not add up (balance), a credential or sender (sender), our own fault (fault).",
        {"why": ("body", "balance", "sender", "fault")},
    ),
    Metric("collector_busy", "counter", "Bodies asked to come again because the inbox was full."),
    Metric("collector_inbox_bodies", "gauge", "Bodies being worked on now."),
    Metric("collector_inbox_bytes", "gauge", "Their bytes."),
    Metric("collector_last_delivery_timestamp_seconds", "gauge", "When a body was last written."),
    Metric("collector_nodes", "gauge", "Nodes that have delivered since the collector began."),
    Metric(
        "collector_silent_nodes", "gauge", "Those of them that have not for a quarter of an hour."
    ),
    Metric("collector_lag_seconds", "gauge", "Age of the newest window at the last delivery."),
    Metric("collector_last_sync_timestamp_seconds", "gauge", "Until when Slurm was imported."),
    Metric("collector_rejected_rows", "gauge", "Rows of sacct that could not be read."),
    Metric("collector_unsettled_runs", "gauge", "Runs on nodes with news that are not settled."),
    Metric("collector_dirty_days", "gauge", "Days that are to be rolled up anew."),
    Metric("collector_store_bytes", "gauge", "Size of the store.", {"file": ("main", "wal")}),
    Metric(
        "ledger_energy_joules",
        "counter",
        "Energy in the ledger by what was measured and who owns it.",
        {"kind": KINDS, "owner": OWNERS},
    ),
    Metric(
        "ledger_windows",
        "counter",
        "Windows in the ledger, of known and of unknown energy.",
        {"kind": KINDS, "energy": ("known", "unknown")},
    ),
    Metric("agent_devices", "gauge", "Devices that the agent watches."),
    Metric("agent_jobs", "gauge", "Jobs that run on the node as far as the agent knows."),
    Metric("agent_spool_bytes", "gauge", "What the journal takes on disk."),
    Metric("agent_undelivered_events", "gauge", "Events that the collector has not confirmed."),
    Metric("agent_thinned_windows", "counter", "Windows merged away for want of room."),
    Metric("agent_on_disk", "gauge", "1: all is on disk; 0: the disk refuses it."),
    Metric("agent_delivery_healthy", "gauge", "1: the last delivery went well; 0: it did not."),
    Metric(
        "agent_last_delivery_timestamp_seconds", "gauge", "When the collector last took events."
    ),
    Metric("agent_faulty_devices", "gauge", "Devices that could not be read at the last visit."),
    Metric(
        "agent_idle_power_devices",
        "gauge",
        "Boards by where their idle power is from: learnt here, the catalogue, or unknown.",
        {"by": ("learnt", "catalogue", "unknown")},
    ),
)

_BY_NAME = {metric.name: metric for metric in METRICS}


def content_type(accept: str | None) -> str:
    """Return the form in which to answer a reader with this Accept header."""
    return OPENMETRICS if "application/openmetrics-text" in (accept or "") else TEXT


def render(samples: Iterable[Sample], form: str = TEXT) -> str:
    """Return samples as text, metrics in the order of METRICS.

    Raises:
        KeyError: a metric or a label's value that METRICS does not know.
    """
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    for name in by_name.keys() - _BY_NAME.keys():
        raise KeyError(name)
    lines = [
        line
        for metric in METRICS
        if metric.name in by_name
        for line in _lines(metric, by_name[metric.name], form)
    ]
    return "\n".join([*lines, *(["# EOF"] if form == OPENMETRICS else [])]) + "\n"


def _lines(metric: Metric, samples: Iterable[Sample], form: str) -> Iterator[str]:
    name = f"fairwatt_{metric.name}"
    suffix = "_total" if metric.kind == "counter" else ""
    family = name if form == OPENMETRICS else name + suffix
    yield f"# HELP {family} {metric.doc}"
    yield f"# TYPE {family} {metric.kind}"
    for sample in samples:
        yield f"{name}{suffix}{_labels(metric, sample.labels)} {sample.value:.15g}"


def _labels(metric: Metric, values: tuple[str, ...]) -> str:
    known = metric.labels or {}
    if len(values) != len(known):
        raise KeyError(f"{metric.name}: {len(known)} labels, not {len(values)}")
    for (label, allowed), value in zip(known.items(), values, strict=True):
        if value not in allowed:
            raise KeyError(f"{metric.name}: {label}={value}")
    inside = ",".join(f'{label}="{value}"' for label, value in zip(known, values, strict=True))
    return f"{{{inside}}}" if inside else ""
