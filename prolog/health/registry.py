# SPDX-License-Identifier: Apache-2.0
"""The function of each check, by the name that checks.toml gives it."""

from __future__ import annotations

from collections.abc import Mapping

from fairwatt.prolog.health.checks import devices, errors, host, speed, use
from fairwatt.prolog.health.judge import Check

__all__ = ["CHECKS"]

CHECKS: Mapping[str, Check] = {
    name: getattr(module, name)
    for module in (devices, errors, host, speed, use)
    for name in module.__all__
    if callable(getattr(module, name))
}
