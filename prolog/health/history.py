# SPDX-License-Identifier: Apache-2.0
"""What rounds add up to: since when, seen often enough to believe it, gone long enough."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from fairwatt.core.verdict import CheckState, Finding
from fairwatt.prolog.health.judge import Outcome

__all__ = ["History"]


@dataclass
class _Incident:
    finding: Finding
    rounds: int = 1
    passes: int = 0


class History:
    """The troubles of a node over rounds; no clock and no I/O of its own.

    Args:
        confirm_rounds: so many rounds in a row must see a trouble before it is confirmed.
        heal_rounds: so many rounds in a row must not see a confirmed trouble before it is over.
        since: when known troubles began (UTC epoch milliseconds), by finding key.
    """

    def __init__(
        self, confirm_rounds: int, heal_rounds: int, since: Mapping[str, int] | None = None
    ) -> None:
        self._confirm_rounds = max(1, confirm_rounds)
        self._heal_rounds = max(1, heal_rounds)
        self._since = dict(since or {})
        self._incidents: dict[str, _Incident] = {}
        self._watched: dict[tuple[str, str | None], int] = {}
        self._states: dict[str, CheckState] = {}
        self._unknown: dict[str, list[tuple[str, str | None, str]]] = {}
        self._unknown_since: dict[tuple[str, str | None, str], int] = {}

    def update(self, outcome: Outcome) -> None:
        """Take one check's result of one round."""
        spec = outcome.spec
        self._states[spec.name] = outcome.state()
        self._unknown[spec.name] = list(outcome.unknowns())
        for finding in outcome.findings():
            self._seen(finding, outcome.t_ms)
        for key, incident in list(self._incidents.items()):
            if incident.finding.code == spec.code and outcome.passes(incident.finding.device):
                self._passed(key, incident)
        for code, device in [each for each in self._watched if each[0] == spec.code]:
            self._watched[code, device] += outcome.passes(device)
        for key in [key for key in self._since if key not in self._incidents]:
            code, _, device = key.partition(" ")
            if code == spec.code and outcome.passes(device or None):
                del self._since[key]

    def _seen(self, finding: Finding, t_ms: int) -> None:
        key = finding.key
        old = self._incidents.get(key)
        since_ms = old.finding.since_ms if old else self._since.get(key, t_ms)
        rounds = old.rounds + 1 if old else 1
        confirmed = rounds >= self._confirm_rounds
        full = replace(finding, since_ms=since_ms, confirmed=confirmed)
        self._incidents[key] = _Incident(full, rounds)
        if (finding.code, finding.device) in self._watched:
            self._watched[finding.code, finding.device] = 0

    def _passed(self, key: str, incident: _Incident) -> None:
        incident.passes += 1
        lasting = incident.finding.action == "drain" and incident.finding.confirmed
        if not lasting or incident.passes >= self._heal_rounds:
            del self._incidents[key]
            self._since.pop(key, None)

    def keep_only(self, names: Collection[str], codes: Collection[str]) -> None:
        """Forget checks that were switched off; `codes` are those of `names`."""
        self._states = {name: state for name, state in self._states.items() if name in names}
        self._unknown = {name: items for name, items in self._unknown.items() if name in names}
        for key in [k for k, each in self._incidents.items() if each.finding.code not in codes]:
            del self._incidents[key]

    def watch(self, code: str, device: str | None) -> None:
        """Count from now on how often this check passes on this device, trouble or not."""
        self._watched.setdefault((code, device), 0)

    def is_healed(self, code: str, device: str | None) -> bool:
        """Whether a watched trouble has passed in enough rounds in a row."""
        return self._watched.get((code, device), 0) >= self._heal_rounds

    def troubles(self) -> list[Finding]:
        """The findings of the checks, worst and oldest first."""
        found = [incident.finding for incident in self._incidents.values()]
        return sorted(found, key=lambda item: (item.severity, item.since_ms, item.key))

    def unknowns(self, t_ms: int) -> list[Finding]:
        """One finding per reason why something could not be looked at."""
        now = {item for items in self._unknown.values() for item in items}
        self._unknown_since = {item: self._unknown_since.get(item, t_ms) for item in now}
        return [
            Finding(code=code, severity="unknown", device=device, text=why, since_ms=since_ms)
            for (code, device, why), since_ms in sorted(
                self._unknown_since.items(), key=lambda pair: (pair[0][0], str(pair[0][1]))
            )
        ]

    def states(self) -> Iterator[CheckState]:
        """How each check that ran stands, in the order of the first round."""
        return iter(self._states.values())

    def since(self) -> dict[str, int]:
        """When each trouble began, for the next life of this process."""
        active = {key: incident.finding.since_ms for key, incident in self._incidents.items()}
        return self._since | active
