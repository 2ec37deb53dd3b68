# SPDX-License-Identifier: Apache-2.0
"""The one error tree. Every message names the place, the value and the remedy.

* FairwattError
    * ConfigError       a configuration file, key or value
    * GrammarError      a GRES or TRES string; `.part` is the faulty piece
    * CatalogueError    a GPU model or MIG profile that no data file names
    * CommandError      an outside command failed; `.argv`, `.returncode`, `.stderr`
        * CommandTimeout
    * SlurmError        an answer of Slurm that cannot be understood
    * PolicyError       a rule or the policy daemon
    * DeviceError       a GPU, its library or its files
    * SpoolError        the node's journal of events
    * IngestError       a body that the collector refuses; `.status` is the HTTP status
        * AuthError     its munge credential
        * BalanceError  a window whose parts are not what was measured
        * BusyError     no room for it now; `.retry_after_s`
    * SourceError       a service of grid data that does not answer as documented
    * StoreError        the SQLite store
    * ReportError       a report that cannot be made for this scope and period
        * NotFoundError the object does not exist or is out of the asker's scope: no difference
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "AuthError",
    "BalanceError",
    "BusyError",
    "CatalogueError",
    "CommandError",
    "CommandTimeout",
    "ConfigError",
    "DeviceError",
    "FairwattError",
    "GrammarError",
    "IngestError",
    "NotFoundError",
    "PolicyError",
    "ReportError",
    "SlurmError",
    "SourceError",
    "SpoolError",
    "StoreError",
]


class FairwattError(Exception):
    """Any fault that fairwatt names itself.

    Args:
        problem: what is wrong, in one clause.
        place: where (file and key, column, endpoint).
        value: the offending value, shown with `repr` and cut to 200 characters.
        remedy: what to do about it.
    """

    def __init__(
        self,
        problem: str,
        *,
        place: str | None = None,
        value: object = None,
        remedy: str | None = None,
    ) -> None:
        self.problem = problem
        self.place = place
        self.value = value
        self.remedy = remedy
        super().__init__(self._message())

    def _message(self) -> str:
        head = f"{self.place}: {self.problem}" if self.place else self.problem
        shown = "" if self.value is None else f" (got {_cut(repr(self.value))})"
        tail = f"; {self.remedy}" if self.remedy else ""
        return f"{head}{shown}{tail}"


class ConfigError(FairwattError):
    """A configuration file, key or value is wrong."""


class GrammarError(FairwattError):
    """A GRES or TRES string cannot be read; `part` is the faulty piece."""

    def __init__(self, problem: str, *, text: str, part: str, remedy: str | None = None) -> None:
        self.text = text
        self.part = part
        super().__init__(problem, place=f"in {_cut(repr(text))}", value=part, remedy=remedy)


class CatalogueError(FairwattError):
    """A GPU model or MIG profile is not in the catalogue, or its data file is wrong."""


class CommandError(FairwattError):
    """An outside command failed."""

    def __init__(
        self, argv: Sequence[str], returncode: int, stderr: str, *, remedy: str | None = None
    ) -> None:
        self.argv = list(argv)
        self.returncode = returncode
        self.stderr = stderr
        super().__init__(
            f"exit status {returncode}: {_cut(stderr.strip() or 'no message')}",
            place=" ".join(argv[:2]),
            remedy=remedy,
        )


class CommandTimeout(CommandError):
    """An outside command did not end in time and was stopped."""


class SlurmError(FairwattError):
    """An answer of Slurm cannot be understood."""


class PolicyError(FairwattError):
    """A rule or the policy daemon failed."""


class DeviceError(FairwattError):
    """A GPU, its library or its files cannot be read."""


class SpoolError(FairwattError):
    """The node's journal of events is damaged or cannot be written."""


class IngestError(FairwattError):
    """A body that the collector refuses."""

    status = 400


class AuthError(IngestError):
    """The credential of a body is missing, foreign or belongs to another body."""

    status = 403


class BalanceError(IngestError):
    """A window whose parts do not sum to what was measured."""


class BusyError(IngestError):
    """There is no room for a body now; `retry_after_s` is when to send it again."""

    status = 429
    retry_after_s = 1


class SourceError(FairwattError):
    """A service of grid data does not answer, or not as it is documented."""


class StoreError(FairwattError):
    """The SQLite store cannot be opened, migrated or written."""


class ReportError(FairwattError):
    """A report cannot be made for this scope and period."""


class NotFoundError(ReportError):
    """The object does not exist or is out of scope; the asker cannot tell which."""


def _cut(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
