# SPDX-License-Identifier: Apache-2.0
"""How long jobs waited lately for each GRES type, from sacct; decides between equal plans only."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator

from fairwatt.core.call import call
from fairwatt.core.errors import GrammarError
from fairwatt.core.tres import parse_tres

__all__ = ["mean_waits", "read_waits"]

TIMEOUT_S = 120.0
DAY_S = 86_400
_TYPED = "gres/gpu:"


def read_waits(days: int, slurm_conf: str | None = None) -> dict[str, float]:
    """Return the mean wait in seconds by type, of jobs that ended in the last days.

    Raises:
        CommandError: sacct does not answer.
    """
    start_ts = int(time.time()) - days * DAY_S
    begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(start_ts))
    argv = ["sacct", "-a", "-X", "-P", "-n", "--noconvert", "-S", begin, "-E", "now"]
    argv += ["-s", "CD,F,TO,OOM", "-o", "Eligible,Start,AllocTRES"]
    env = {"TZ": "UTC", "SLURM_TIME_FORMAT": "%s"}
    if slurm_conf:
        env["SLURM_CONF"] = slurm_conf
    return mean_waits(call(argv, timeout_s=TIMEOUT_S, env=env).stdout.splitlines())


def mean_waits(lines: Iterable[str]) -> dict[str, float]:
    """Read rows `eligible|start|AllocTRES`; what is none is passed over."""
    waits: dict[str, list[int]] = defaultdict(list)
    for wait_s, types in _rows(lines):
        for type_ in types:
            waits[type_].append(wait_s)
    return {type_: sum(each) / len(each) for type_, each in waits.items()}


def _rows(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    for line in lines:
        eligible, _, rest = line.partition("|")
        start, _, alloc = rest.partition("|")
        if not (eligible.isdigit() and start.isdigit()):
            continue
        try:
            keys = [entry.key for entry in parse_tres(alloc).entries]
        except GrammarError:
            continue
        types = [key.removeprefix(_TYPED) for key in keys if key.startswith(_TYPED)]
        yield max(0, int(start) - int(eligible)), types
