# SPDX-License-Identifier: Apache-2.0
"""docs/health.md, written from checks.toml, xids.toml and the checks' own codes.

`python -m fairwatt.prolog.health.page > docs/health.md`; a test compares.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from fairwatt.prolog.health.own_codes import OWN_CODES
from fairwatt.prolog.health.shown import EXIT
from fairwatt.prolog.health.spec import CheckSpec, load_checks, load_xids

__all__ = ["as_markdown"]

_HEAD = """\
# Health checks

The agent of each GPU node runs these checks in a process of its own, round after round. The
prolog reads the newest verdict from the agent; it runs no check itself and calls no Slurm command.

    fairwatt health            # what is wrong here, since when, what to do
    fairwatt health run        # one round of all checks now; drains nothing
    fairwatt health checks     # all checks with their codes
    fairwatt health baseline   # what the node has; --write records it as what it should have
    fairwatt health metrics    # the same for Prometheus

This page is written by `python -m fairwatt.prolog.health.page`; do not edit it by hand.

## What a finding does

- **alert**: it is in `fairwatt health`, `fairwatt doctor`, the metrics and the agent's log.
- **drain**: besides, once `health.confirm_rounds` rounds in a row have seen it, the node is
  drained with the reason `fairwatt CODE DEVICE: what`. The prolog stops a job that holds this very
  device (`health.prolog_fails`): Slurm then requeues the job held and, where the node is not
  drained already, drains it with its own reason "Prolog error". Jobs on other devices go on.
- **A fault of the checking is never a fault of the node.** A check that breaks, a driver call that
  hangs, a missing library, an agent that is away: the state is unknown, jobs run, no node drains.
  A checking process that hangs for `health.hang_s` is started anew, later each time.
- **Only our own reason is undrained**, after `health.heal_rounds` rounds in a row without the
  finding. A reason that an admin changed or added to is his, and so is a node that he resumed:
  the same trouble does not drain it again until it was over once, or the node was rebooted.
  A node that is drained for another reason is never touched. A check that is switched off, or
  set to alert, gives its drains back.
- **No more than `health.max_drains_per_hour` nodes** of the cluster have a drain of ours that is
  younger than an hour. Beyond it there is the alert FWH907: many at once have a common cause.
- `health.drain = false` keeps fairwatt from changing nodes at all. The prolog still stops jobs on
  a broken device, for which Slurm drains the node, without any limit: set `health.prolog_fails`
  too where that is not wanted.

Slurm is asked only when there is something to drain or undrain: one `sinfo` before and one after,
one `scontrol update`, each at most 10 s. While slurmctld is away it is tried again, up to every
5 minutes. `agent.node` must be the node's name in Slurm.

## What a node should have

The number of boards comes from gres.conf (its device files), else from slurm.conf's `Gres=`. The
boards' UUIDs, NVLinks and power limits come from the baseline: record it once the node is well.
Without a baseline these are compared with what the board says is normal, and a board that is
missing is seen by the number alone, which drains nothing. MIG layouts come from `mig.file`, else
from the baseline.

## Changing checks

`/etc/fairwatt/health.toml` (`health.file`) changes single entries; it is read again when it
changes. What is wrong in it is the finding FWH905 with file and line, and until it is mended no
check drains.

```toml
[defaults]                    # for all checks
period_s = 60                 # seconds between two rounds
deadline_s = 10               # later than this a check is unknown

[checks.ecc_uncorrected]
action = "alert"              # or enabled, severity, period_s, deadline_s
parameters = { over = 3 }

[checks.leftover_processes]
parameters = { allow_uids = [0, 991] }
```

Nothing that a user can write is read by a check: no comment, job name or folder switches one off.

## Metrics

`health.metrics_file` names a file, in the folder of node_exporter's textfile collector, that the
agent rewrites whenever the verdict changes, else once a minute:

| Metric | Meaning |
|---|---|
| `fairwatt_health_state{state}` | 1 for the node's state: ok, warn, bad, unknown |
| `fairwatt_health_check{code,check,state}` | 1 for the state of each check; also off |
| `fairwatt_health_finding_since_seconds{code,device,severity,action,drain}` | since when |
| `fairwatt_health_verdict_timestamp_seconds` | when the verdict was made: alert when it is old |
| `fairwatt_health_rounds_total` | rounds since the checking process began |
| `fairwatt_health_stuck_seconds` | for how long a driver call has not returned |
"""


def as_markdown() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_checks(), *_xids(), *_own(), *_exits()])


def _checks() -> Iterator[str]:
    specs = list(load_checks().values())
    yield "## The checks\n"
    yield "| Code | Check | Finds | Severity | Action | Every |"
    yield "|---|---|---|---|---|---|"
    for spec in specs:
        cells = (spec.code, f"`{spec.name}`", spec.title, spec.severity, spec.action)
        yield f"| {' | '.join(cells)} | {spec.period_s:g} s |"
    yield ""
    for spec in specs:
        yield from _check(spec)


def _check(spec: CheckSpec) -> Iterator[str]:
    yield f"### {spec.code} {spec.name}\n"
    yield f"{spec.what} {spec.remedy}\n"
    if "epilog" in spec.contexts:
        yield "Also run when a job has ended.\n"
    if spec.parameters:
        yield "| Parameter | Default | Meaning |"
        yield "|---|---|---|"
        for name, value in spec.parameters.items():
            yield f"| `{name}` | `{json.dumps(value)}` | {spec.about[name]} |"
        yield ""


def _xids() -> Iterator[str]:
    yield "## XIDs\n"
    yield "Read from the kernel log; only what the kernel itself wrote counts. Faults are FWH201,"
    yield "notices FWH202, mistakes of applications neither. A number that is not here raises"
    yield "nothing unless health.toml adds it (`also`).\n"
    yield "| XID | Kind | Meaning |"
    yield "|---|---|---|"
    for number, item in load_xids().items():
        yield f"| {number} | {item.kind} | {item.meaning} |"
    yield ""


def _own() -> Iterator[str]:
    yield "## The checking itself\n"
    yield "| Code | Means | What to do |"
    yield "|---|---|---|"
    for code, item in OWN_CODES.items():
        yield f"| {code} | {item.title} | {item.remedy} |"
    yield ""


def _exits() -> Iterator[str]:
    yield "## Exit status of `fairwatt health` and `fairwatt health run`\n"
    yield "| Status | State |"
    yield "|---|---|"
    for state, status in EXIT.items():
        yield f"| {status} | {state} |"
    yield "\n1: it could not look (one line says why); 2: wrong usage."


def _main() -> None:
    sys.stdout.write(as_markdown() + "\n")


if __name__ == "__main__":
    _main()
