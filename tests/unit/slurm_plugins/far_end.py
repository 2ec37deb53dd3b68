# SPDX-License-Identifier: Apache-2.0
"""policyd as the hook sees it: its right answers, and answers that are right but for one thing."""

from __future__ import annotations

import json

from fairwatt.core.gres import Spelling
from fairwatt.slurm_plugins import engine, wire
from tests.unit.slurm_plugins.campus import POLICY

NOT_APPLIED = "fairwatt: the site's GPU policy could not be applied"


def real(line: str) -> str:
    """What policyd answers."""
    query = wire.decode_query(line.encode("ascii"))
    decision = engine.decide(
        query.job, POLICY, record=query.record, spelling=Spelling(query.spelling)
    )
    return wire.encode(
        wire.Answer(
            v=1,
            id=query.id,
            act="accept" if decision.accepted else "reject",
            set=decision.edits,
            say="\n".join(decision.say) or None,
        )
    ).decode("ascii")


def forged(**changes):
    """An answer that is right except for `changes`; None removes a key."""

    def answer(line: str) -> str:
        body = json.loads(real(line)) | changes
        return json.dumps({key: value for key, value in body.items() if value is not None})

    return answer
