# SPDX-License-Identifier: Apache-2.0
"""Draws by lot what befalls the campus in one round."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.chaos.parts import Wounds
from tests.chaos.world import BEGIN_S, BOARDS, HOUR_S, LAST_S

ROLES = (*BOARDS, "collector", "sync")


@dataclass
class Plan:
    """One round's faults; chances are of each delivery, outages of an agent are times in s."""

    seed: int
    wounds: dict[str, Wounds] = field(default_factory=dict)
    outages: dict[str, tuple[int, int]] = field(default_factory=dict)
    away: tuple[int, int] = (0, 0)
    spool_bytes: int = 0
    """The agents' room, beyond which windows are merged; 0: no bound."""
    power: bool = False
    """Whether each death is a power cut of the host: what is not synced is lost too."""
    locked: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    unheard: float = 0.0

    @property
    def cuts_windows(self) -> bool:
        """Whether an agent died or had no room: then windows end elsewhere, and say why."""
        agents = [self.wounds.get(node, Wounds()) for node in BOARDS]
        return bool(self.outages or self.spool_bytes) or any(
            w.kills or w.full_steps for w in agents
        )

    def words(self) -> str:
        """What befell whom, in a line."""
        kills = {role: w.kills for role, w in self.wounds.items() if w.kills}
        full = {r: (w.full_from, w.full_steps) for r, w in self.wounds.items() if w.full_steps}
        how = "power cuts" if self.power else "kills"
        return (
            f"seed {self.seed}: {how} {kills}, disk full {full}, agents away {self.outages}, "
            f"spool {self.spool_bytes}, "
            f"collector away {self.away}, locked {self.locked}, twice {self.twice}, "
            f"late {self.late}, unheard {self.unheard}"
        )


def draw(seed: int, steps: Mapping[str, int], kills: int) -> Plan:
    """Return a plan with so many kills; `steps` is how many each part takes undisturbed."""
    rng = random.Random(seed)
    plan = Plan(seed, {role: Wounds() for role in ROLES})
    # Every second round spares the agents: then the store has to be the same to the byte.
    spares = rng.random() < 0.5
    roles = ("collector", "sync") if spares else (*BOARDS, *ROLES)
    for _ in range(kills):
        role = rng.choice(roles)
        plan.wounds[role].kills.append(rng.randint(1, steps[role]))
    if rng.random() < 0.5:
        role = rng.choice(roles)
        plan.wounds[role].full_from = rng.randint(1, steps[role])
        plan.wounds[role].full_steps = rng.choice((1, 3, 40, 400))
    if not spares and rng.random() < 0.6:
        begin_s = rng.randrange(BEGIN_S, LAST_S - HOUR_S)
        plan.outages[rng.choice(list(BOARDS))] = (begin_s, begin_s + rng.randrange(60, 9 * HOUR_S))
    if not spares and rng.random() < 0.5:
        plan.spool_bytes = 10_000
    if rng.random() < 0.2:
        begin_s = rng.randrange(BEGIN_S, BEGIN_S + 6 * HOUR_S)
        plan.away = (begin_s, begin_s + 24 * HOUR_S)
    plan.power = rng.random() < 0.4
    plan.locked, plan.twice, plan.late, plan.unheard = (
        rng.choice((0.0, 0.0, 0.3)) for _ in range(4)
    )
    return plan
