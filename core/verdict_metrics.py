# SPDX-License-Identifier: Apache-2.0
"""A health verdict as Prometheus metrics, in the text format that node_exporter's files have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fairwatt.core.verdict import Verdict

__all__ = ["as_metrics"]

_STATES = ("ok", "warn", "bad", "unknown", "off")


def as_metrics(verdict: Verdict) -> str:
    """Return all metrics of one verdict; every check is there, whatever its state."""
    return "".join(f"{line}\n" for line in _lines(verdict))


def _lines(verdict: Verdict) -> Iterator[str]:
    node = {"node": verdict.node}
    yield from _head("health_state", "1 for the node's state, 0 for the others")
    for state in _STATES[:4]:
        yield _sample("health_state", {**node, "state": state}, int(verdict.state == state))
    yield from _head("health_verdict_timestamp_seconds", "when the verdict was made")
    yield _sample("health_verdict_timestamp_seconds", node, verdict.t_ms / 1000)
    yield from _head("health_rounds_total", "rounds since the checker began", "counter")
    yield _sample("health_rounds_total", node, verdict.rounds)
    yield from _head("health_stuck_seconds", "for how long a driver call has not returned")
    yield _sample("health_stuck_seconds", node, verdict.stuck_s)
    yield from _head("health_check", "1 for the check's state, 0 for the others")
    for check in verdict.checks:
        labels = {**node, "code": check.code, "check": check.name}
        for state in _STATES:
            yield _sample("health_check", {**labels, "state": state}, int(check.state == state))
    yield from _head("health_finding_since_seconds", "when each finding began")
    for finding in verdict.findings:
        labels = {
            **node,
            "code": finding.code,
            "device": finding.device or "",
            "severity": finding.severity,
            "action": finding.action,
            "drain": finding.drain,
        }
        yield _sample("health_finding_since_seconds", labels, finding.since_ms / 1000)


def _head(name: str, meaning: str, kind: str = "gauge") -> tuple[str, str]:
    return f"# HELP fairwatt_{name} {meaning}", f"# TYPE fairwatt_{name} {kind}"


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"fairwatt_{name}{{{inside}}} {value:.15g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
