# SPDX-License-Identifier: Apache-2.0
"""Which checks are due when, on the monotonic clock; pure."""

from __future__ import annotations

from collections.abc import Collection

from fairwatt.prolog.health.spec import CheckSpec

__all__ = ["Schedule"]


class Schedule:
    """Each enabled check once per period, all at `now` first."""

    def __init__(self, specs: Collection[CheckSpec], now: float) -> None:
        self._due = {spec.name: now for spec in specs if spec.enabled}
        self._specs = {spec.name: spec for spec in specs}

    def take(self, now: float) -> list[CheckSpec]:
        """Return what is due, and plan it again a period later.

        What is due within a tenth of its period comes along: rounds together are fewer.
        """
        if not any(due <= now for due in self._due.values()):
            return []
        taken = []
        for name, due in self._due.items():
            spec = self._specs[name]
            if due <= now + spec.period_s / 10:
                self._due[name] = now + spec.period_s
                taken.append(spec)
        return taken

    def hasten(self, context: str, now: float, delay_s: float) -> None:
        """Have the checks of a context within `delay_s`."""
        for name, due in self._due.items():
            if context in self._specs[name].contexts:
                self._due[name] = min(due, now + delay_s)

    def wait_s(self, now: float) -> float:
        """Return the seconds until something is due."""
        return max(0.0, min(self._due.values(), default=now + 3600.0) - now)
