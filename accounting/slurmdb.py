# SPDX-License-Identifier: Apache-2.0
"""Asks slurmdbd through sacct and sacctmgr, and the controller through squeue; stores nothing."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from fairwatt.accounting.accounts import AccountTree, parse_accounts
from fairwatt.accounting.sacct import (
    OPEN_STATES,
    TERMINAL_STATES,
    Rejected,
    choose_fields,
    parse_sacct,
)
from fairwatt.accounting.step_memory import STEP_FIELDS, StepPeak, parse_steps
from fairwatt.core.call import call
from fairwatt.core.errors import CommandError, CommandTimeout
from fairwatt.core.records import Run

__all__ = ["SlurmDb"]

TIMEOUT_S = 300.0
QUICK_TIMEOUT_S = 30.0
DAY_S = 86_400
FEW_ROWS = 5_000
MANY_ROWS = 50_000
MAX_SLICE_S = 64 * DAY_S
MIN_SLICE_S = 900
_TOO_MUCH = ("exceeds size limit", "too large", "too wide")


@dataclass
class SlurmDb:
    """One cluster's accounting; `slurm_conf` empty means SLURM_CONF or Slurm's own default.

    Methods raise CommandError when slurmdbd or a command is away.
    """

    slurm_conf: str = ""
    _fields: list[str] = field(default_factory=list, init=False)

    def ended(self, since_ts: int, until_ts: int) -> Iterator[tuple[list[Run], list[Rejected]]]:
        """Yield the runs that ended in [since, until], slice by slice.

        Slices grow while they hold few runs and shrink when they hold many, or when Slurm says
        that an answer would be too large (3 GiB) or takes too long; an empty year should cost few
        calls.
        """
        start_ts, length_s = since_ts, DAY_S
        while start_ts <= until_ts:
            end_ts = min(start_ts + length_s, until_ts)
            try:
                runs, rejected = self._sacct(*_during(TERMINAL_STATES, start_ts, end_ts))
            except CommandError as error:
                if length_s <= MIN_SLICE_S or not _asked_too_much(error):
                    raise
                length_s = max(length_s // 2, MIN_SLICE_S)
                continue
            yield runs, rejected
            start_ts = end_ts + 1
            if len(runs) < FEW_ROWS:
                length_s = min(2 * length_s, MAX_SLICE_S)
            elif len(runs) > MANY_ROWS:
                length_s = max(length_s // 2, MIN_SLICE_S)

    def open(self, now_ts: int) -> tuple[list[Run], list[Rejected]]:
        """Return the runs that are pending, running or suspended now."""
        runs, rejected = self._sacct(*_during(sorted(OPEN_STATES), now_ts - 1, now_ts))
        # RUNNING means an overlap to sacct: it also returns what ended in that second.
        return [row for row in runs if row.state in OPEN_STATES], rejected

    def by_id(self, job_ids: Sequence[int]) -> tuple[list[Run], list[Rejected]]:
        """Return all runs of these jobs, whenever they were."""
        return self._sacct(f"--jobs={','.join(map(str, job_ids))}")

    def steps(self, since_ts: int, until_ts: int) -> list[StepPeak]:
        """Return the steps of the runs that ended in [since, until], those with known memory."""
        delimiter = f"\x1f{secrets.token_hex(3)}\x1f"
        argv = [
            *("sacct", "--allusers", "--duplicates", "--noheader", "--parsable2", "--noconvert"),
            *(f"--delimiter={delimiter}", f"--format={','.join(STEP_FIELDS)}"),
            *_during(TERMINAL_STATES, since_ts, until_ts),
        ]
        return parse_steps(call(argv, timeout_s=TIMEOUT_S, env=self._env()).stdout, delimiter)

    def running_job_ids(self) -> frozenset[int] | None:
        """Return the job ids that slurmctld knows as started; None if it does not answer."""
        argv = ["squeue", "--noheader", "--all", "--states=running,suspended,completing"]
        try:
            text = call([*argv, "--format=%A"], timeout_s=QUICK_TIMEOUT_S, env=self._env()).stdout
        except CommandError:
            return None
        return frozenset(int(word) for word in text.split() if word.isdigit())

    def accounts(self) -> AccountTree:
        """Return all accounts and users' memberships, deleted ones marked."""
        form = "format=Cluster,Account,User,ParentName,Fairshare,Partition"
        return parse_accounts(
            now=self._sacctmgr("show", "associations", form),
            ever=self._sacctmgr("show", "associations", "withdeleted", form),
            details=self._sacctmgr(
                "show", "accounts", "withcoordinators", "format=Account,Coordinators,Description"
            ),
        )

    def allocated_s(self, cluster: str, day: str, zone: ZoneInfo) -> dict[str, int]:
        """Return TRES-seconds of a local day by TRES name, as sreport sums them; {}: not yet."""
        following = date.fromisoformat(day) + timedelta(days=1)
        argv = ["sreport", "--noheader", "--parsable2", "-t", "seconds", "--tres=ALL"]
        argv += ["cluster", "utilization", f"cluster={cluster}"]
        argv += [f"start={day}T00:00:00", f"end={following}T00:00:00", "format=TresName,Allocated"]
        # Days are cut in the zone of the command.
        env = {**self._env(), "TZ": zone.key}
        text = call(argv, timeout_s=TIMEOUT_S, env=env).stdout
        rows = (line.rpartition("|") for line in text.splitlines())
        return {name: int(value) for name, _, value in rows if value.isdigit()}

    def _sacctmgr(self, *words: str) -> str:
        return call(
            ["sacctmgr", "--noheader", "--parsable2", *words],
            timeout_s=QUICK_TIMEOUT_S,
            env=self._env(),
        ).stdout

    def _sacct(self, *which: str) -> tuple[list[Run], list[Rejected]]:
        # A delimiter that nobody can know: no job name can forge a row.
        delimiter = f"\x1f{secrets.token_hex(3)}\x1f"
        fields = self._field_list()
        argv = [
            *("sacct", "--allusers", "--duplicates", "--allocations", "--noheader"),
            *("--parsable2", "--noconvert", f"--delimiter={delimiter}"),
            f"--format={','.join(fields)}",
            *which,
        ]
        done = call(argv, timeout_s=TIMEOUT_S, env=self._env())
        return parse_sacct(done.stdout, fields, delimiter)

    def _field_list(self) -> list[str]:
        if not self._fields:
            known = call(["sacct", "--helpformat"], timeout_s=QUICK_TIMEOUT_S, env=self._env())
            self._fields = choose_fields(known.stdout)
        return self._fields

    def _env(self) -> dict[str, str]:
        conf = {"SLURM_CONF": self.slurm_conf} if self.slurm_conf else {}
        # Epoch seconds: a local time is ambiguous when summer time ends.
        return {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC", **conf}


def _asked_too_much(error: CommandError) -> bool:
    """Whether fewer hours might be answered: ESLURM_RESULT_TOO_LARGE, MaxQueryTimeRange."""
    words = error.stderr.lower()
    return isinstance(error, CommandTimeout) or any(word in words for word in _TOO_MUCH)


def _during(states: Sequence[str], start_ts: int, end_ts: int) -> tuple[str, str, str]:
    return (
        f"--state={','.join(states)}",
        f"--starttime={_iso(start_ts)}",
        f"--endtime={_iso(end_ts)}",
    )


def _iso(ts: int) -> str:
    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%dT%H:%M:%S")
