# SPDX-License-Identifier: Apache-2.0
"""How a verdict, a round and the list of checks look on a terminal; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fairwatt.core.verdict import Finding, Verdict
from fairwatt.prolog.health.own_codes import OWN_CODES
from fairwatt.prolog.health.spec import CheckSpec

__all__ = ["EXIT", "age", "checks_text", "remedy_of", "verdict_text"]

EXIT: Mapping[str, int] = {"ok": 0, "warn": 3, "bad": 4, "unknown": 5}
"""Exit status of `fairwatt health` by the node's state; 1 and 2 are faults of the command."""
_DRAINS = {
    "confirming": "seen once, to be confirmed",
    "permitted": "the node is being drained",
    "drained": "the node is drained",
    "foreign": "the node is drained for another reason",
    "limit": "not drained: too many nodes are",
    "yielded": "not drained: an admin resumed the node",
    "off": "not drained: health.drain is false",
    "waiting": "not drained: Slurm does not answer",
}


def verdict_text(verdict: Verdict, specs: Mapping[str, CheckSpec], now_ms: int) -> str:
    """Return the table of findings, worst first, and what is well in one line."""
    lines = [f"{verdict.node}: {verdict.state} ({age(now_ms - verdict.t_ms)} ago)"]
    rows = [
        ("CHECK", "STATE", "DEVICE", "VALUE", "SINCE"),
        *(_row(finding, specs, now_ms) for finding in verdict.findings),
    ]
    if verdict.findings:
        table = _columns(rows)
        lines += ["", table[0]]
        for line, finding in zip(table[1:], verdict.findings, strict=True):
            lines += [line, *_below(finding, specs)]
    lines += ["", *_summary(verdict)]
    return "\n".join(lines)


def _row(
    finding: Finding, specs: Mapping[str, CheckSpec], now_ms: int
) -> tuple[str, str, str, str, str]:
    since = age(now_ms - finding.since_ms) if finding.since_ms else "-"
    name = next((spec.name for spec in specs.values() if spec.code == finding.code), "checker")
    return (
        f"{finding.code} {name}",
        finding.severity,
        finding.device or "-",
        finding.value or "-",
        since,
    )


def _below(finding: Finding, specs: Mapping[str, CheckSpec]) -> list[str]:
    what = [finding.text, _DRAINS.get(finding.drain, ""), remedy_of(finding.code, specs)]
    return [f"    {text}" for text in what if text]


def remedy_of(code: str, specs: Mapping[str, CheckSpec]) -> str:
    """Return what an admin does about a code."""
    for spec in specs.values():
        if spec.code == code:
            return spec.remedy
    return OWN_CODES[code].remedy if code in OWN_CODES else ""


def _summary(verdict: Verdict) -> Iterable[str]:
    by_state: dict[str, list[str]] = {}
    for check in verdict.checks:
        by_state.setdefault(check.state, []).append(check.name)
    yield f"{len(by_state.get('ok', []))} of {len(verdict.checks)} checks are well"
    for check in verdict.checks:
        if check.state in ("unknown", "off"):
            yield f"{check.code} {check.name}: {check.note or check.state}"


def checks_text(specs: Iterable[CheckSpec]) -> str:
    """Return the list of checks with codes and what they do."""
    head = ("CODE", "CHECK", "SEVERITY", "ACTION", "EVERY", "FINDS")
    rows = [head, *(_spec_row(spec) for spec in specs)]
    return "\n".join(_columns(rows))


def _spec_row(spec: CheckSpec) -> tuple[str, ...]:
    action = spec.action if spec.enabled else "off"
    return (spec.code, spec.name, spec.severity, action, f"{spec.period_s:g} s", spec.title)


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def age(span_ms: int) -> str:
    """Return a span in its largest unit: 12 s, 5 min, 3 h, 2 d."""
    seconds = max(0, span_ms) // 1000
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"
