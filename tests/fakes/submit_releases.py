# SPDX-License-Identifier: Apache-2.0
"""What of Slurm's releases a submit script can notice, from 21.08 to the next one.

22.05, 24.11 and 26.05 are also run live (tests/lab); the others are as their sources are.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RELEASES", "Release"]

SINCE = {
    "prefer": "22.05",
    "assoc_comment": "23.02",
    "mcs_label": "23.11",
    "assoc_qos": "24.11",
    "segment_size": "25.11",
    "thread_spec": "26.05",
}
"""Fields that came with a release; before it they are unknown."""


@dataclass(frozen=True)
class Release:
    """What of a Slurm release a script can notice.

    Args:
        name: YY.MM.
        slash: GRES are written gres/gpu, and a count per task after `=`; else gres:gpu.
        all_codes: `slurm` has every ESLURM constant, not eight of them.
        error_rejects: an error in the script refuses the job; else it is accepted as it is then.
        log_user_in_modify: a message of a modify reaches the user; else it is discarded.
        keeps_empty: in a modify "" stays "" and clears what the job has; else it is nothing.
    """

    name: str
    slash: bool
    all_codes: bool
    error_rejects: bool
    log_user_in_modify: bool
    keeps_empty: bool = False

    def gres(self, text: str, *, per_task: bool = False) -> str:
        """`gpu:a100:2` as the clients of this release send it."""
        if not self.slash:
            return f"gres:{text}"
        head, _, count = text.rpartition(":")
        return f"gres/{head}={count}" if per_task else f"gres/{text}"

    def knows(self, name: str) -> bool:
        """Whether the field is there in this release."""
        return SINCE.get(name, "") <= self.name


RELEASES = {
    r.name: r
    for r in (
        Release("21.08", False, False, False, False),
        Release("22.05", False, False, False, False),
        Release("23.02", False, True, False, True),
        Release("23.11", True, True, False, True),
        Release("24.05", True, True, False, True),
        Release("24.11", True, True, False, True),
        Release("25.05", True, True, False, True),
        Release("25.11", True, True, False, True),
        Release("26.05", True, True, True, True),
        Release("26.11", True, True, True, True, keeps_empty=True),  # as its candidate's source is
    )
}
