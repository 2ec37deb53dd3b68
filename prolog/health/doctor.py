# SPDX-License-Identifier: Apache-2.0
"""What `fairwatt doctor` asks about the health checks of a GPU node."""

from __future__ import annotations

import time

from fairwatt.core.config import Config
from fairwatt.core.doctor import Check, Finding, Level
from fairwatt.core.host import is_expected
from fairwatt.prolog.health.commands import newest
from fairwatt.prolog.health.settings import health_settings
from fairwatt.prolog.health.shown import remedy_of
from fairwatt.prolog.health.spec import load_checks

__all__ = ["checks"]


def _site_file(config: Config) -> list[Finding]:
    load_checks(health_settings(config).file)  # what is wrong in it is raised
    return []


def _verdict(config: Config) -> list[Finding]:
    settings = health_settings(config)
    if not config["health.enabled"] or not is_expected(
        config, "agent", settings.state_file.exists
    ):
        return [Finding("skipped: no health checks are expected on this host", "", "info")]
    verdict = newest(settings, time.time_ns() // 1_000_000)
    specs = load_checks()
    return [
        Finding(finding.reason, remedy_of(finding.code, specs), _level(finding.severity))
        for finding in verdict.findings
    ]


def _level(severity: str) -> Level:
    return "error" if severity == "bad" else "warn"


checks: list[Check] = [
    Check("health.file", _site_file),
    Check("health.verdict", _verdict),
]
