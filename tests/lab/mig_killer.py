# SPDX-License-Identifier: Apache-2.0
"""Runs `fairwatt ARGS` and kills it (SIGKILL) at one point of its journal.

    python -m tests.lab.mig_killer WAY:STEP:PHASE fairwatt-arguments…

PHASE "begin": the journal says that the step begins, and nothing of it is done. PHASE "done": all
of the step is done, but the journal does not say so.
"""

from __future__ import annotations

import os
import signal
import sys

from fairwatt.core.cli import main
from fairwatt.prolog.mig.journal import Journal, Mark, Record


def arm(where: str) -> None:
    """Let the journal kill this process there."""
    way, step, phase = where.split(":")
    append = Journal.append

    def deadly(self: Journal, record: Record) -> None:
        here = isinstance(record, Mark) and (record.way, record.step, record.phase) == (
            way,
            step,
            phase,
        )
        if here and phase == "done":
            os.kill(os.getpid(), signal.SIGKILL)
        append(self, record)
        if here:
            os.kill(os.getpid(), signal.SIGKILL)

    Journal.append = deadly  # type: ignore[method-assign]


if __name__ == "__main__":
    arm(sys.argv.pop(1))
    main()
