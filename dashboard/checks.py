# SPDX-License-Identifier: Apache-2.0
"""What `fairwatt doctor` asks of the host with the dashboard."""

from __future__ import annotations

from fairwatt.core.config import Config
from fairwatt.core.doctor import Check, Finding
from fairwatt.core.healthz import local_url, what_is_wrong
from fairwatt.core.host import is_expected

__all__ = ["checks"]


def _http(config: Config) -> list[Finding]:
    if not is_expected(config, "dashboard"):
        return []
    fault = what_is_wrong(local_url(config["dashboard.listen"], "dashboard.listen"))
    remedy = "start `fairwatt dashboard`; its log says why it does not run"
    return [Finding(f"the dashboard: {fault}", remedy)] if fault else []


checks: list[Check] = [Check("dashboard.http", _http)]
