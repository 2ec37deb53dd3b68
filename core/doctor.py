# SPDX-License-Identifier: Apache-2.0
"""`fairwatt doctor`: runs the checks of all rooms and says what is wrong and what to do.

Rooms register lists of `Check` under the entry-point group `fairwatt.checks`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Literal

import click

from fairwatt.core import config as config_module
from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError, FairwattError

__all__ = ["Check", "Finding", "Level", "Report", "as_json", "doctor", "examine", "run_checks"]

CHECK_GROUP = "fairwatt.checks"
Level = Literal["error", "warn", "info"]


@dataclass(frozen=True)
class Finding:
    """One thing a check found: "error" is a fault, "warn" and "info" are shown only."""

    problem: str
    remedy: str
    level: Level = "error"


@dataclass(frozen=True)
class Check:
    """A named question about this host; `run` returns its findings, none when all is well."""

    name: str
    run: Callable[[Config], list[Finding]]


@dataclass(frozen=True)
class Report:
    """All findings with the name of their check; ok when none is an error."""

    findings: tuple[tuple[str, Finding], ...]

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return all(finding.level != "error" for _, finding in self.findings)


def examine() -> Report:
    """Load the configuration and run the checks of all rooms; a broken configuration is all."""
    try:
        config = config_module.load(config_module.find())
    except ConfigError as error:
        return Report((("core.config", _of(error)),))
    rooms = sorted(entry_points(group=CHECK_GROUP), key=lambda entry: entry.name != "core")
    checks, broken = _loaded(rooms)
    return Report((*broken, *run_checks(checks, config)))


def run_checks(checks: Iterable[Check], config: Config) -> list[tuple[str, Finding]]:
    """Run each check; an exception becomes a finding of its own."""
    return [(check.name, finding) for check in checks for finding in _run(check, config)]


def as_json(report: Report) -> str:
    """Return the report as a JSON object with `ok` and `findings`."""
    findings = [
        {
            "check": name,
            "level": finding.level,
            "problem": finding.problem,
            "remedy": finding.remedy,
        }
        for name, finding in report.findings
    ]
    return json.dumps({"ok": report.ok, "findings": findings}, indent=2)


@click.command()
@click.option("--json", "as_json_", is_flag=True, help="Print one JSON object instead of lines.")
@click.pass_context
def doctor(ctx: click.Context, as_json_: bool) -> None:
    """Check this host's set-up; exit status 1 when something must be mended."""
    report = examine()
    click.echo(as_json(report) if as_json_ else _as_lines(report))
    if not report.ok:
        ctx.exit(1)


def _as_lines(report: Report) -> str:
    lines = [_line(name, finding) for name, finding in report.findings]
    return "\n".join([*lines, "ok: no faults found" if report.ok else "not ok: see the errors"])


def _line(name: str, finding: Finding) -> str:
    """One line, also when the problem quotes an outside program's many."""
    text = f"{finding.problem}; {finding.remedy}" if finding.remedy else finding.problem
    return f"{finding.level:5} {name}: {' '.join(text.split())}"


def _loaded(
    rooms: Sequence[EntryPoint],
) -> tuple[list[Check], list[tuple[str, Finding]]]:
    checks: list[Check] = []
    broken: list[tuple[str, Finding]] = []
    for room in rooms:
        try:
            checks += room.load()
        except Exception as error:  # a room that cannot be imported is itself a finding
            problem = f"its checks cannot be loaded: {type(error).__name__}: {error}"
            broken.append(
                (room.name, Finding(problem, "reinstall fairwatt with all its packages"))
            )
    return checks, broken


def _run(check: Check, config: Config) -> list[Finding]:
    try:
        return check.run(config)
    except FairwattError as error:
        return [_of(error)]
    except Exception as error:  # one broken check must not hide the others
        return [Finding(f"check failed: {type(error).__name__}: {error}", "report this")]


def _of(error: FairwattError) -> Finding:
    """Split our own error into what is wrong and what to do."""
    remedy = error.remedy or ""
    return Finding(str(error).removesuffix(f"; {remedy}"), remedy)
