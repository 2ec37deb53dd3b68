# SPDX-License-Identifier: Apache-2.0
"""What came of a submission, as one line of text: read from Slurm, or expected by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tests.lab.matrix.forms import Level
from tests.lab.matrix.intents import Intent

__all__ = [
    "BY_CLIENT",
    "BY_SCRONTAB",
    "BY_SLURM",
    "NO_OPTION",
    "accepted",
    "codes",
    "expected",
    "of_record",
    "refusal",
]

BY_CLIENT = "refused by the client"
BY_SLURM = "refused by Slurm"
NO_OPTION = "no such option"
BY_SCRONTAB = "refused, without a word why"

NOTES = ("FW101", "FW111", "FW112", "FW113", "FW114", "FW201", "FW202", "FW205", "FW301", "FW308")
"""Codes of what the policy changed: where the job is refused after that, Slurm did it."""

_TRES: dict[str, str] = {
    "TresPerNode": "node",
    "TresPerJob": "job",
    "TresPerTask": "task",
    "TresPerSocket": "socket",
}
_CODE = re.compile(r"fairwatt (FW\d{3})")
_GPU = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::([^:=,]*[^0-9:=,][^:=,]*))?(?:[:=](\d+))?(?=,|$)")
_COUNTED = re.compile(r"gres/gpu=(\d+)")
_SERVER = re.compile(r"submission failed|submit/allocate failed|Unable to allocate|for job \d+")


def codes(said: str) -> tuple[str, ...]:
    """The codes of the hook's lines, in order."""
    return tuple(_CODE.findall(said))


def accepted(
    where: str,
    without: str | None = None,
    features: str | None = None,
    *,
    what: str = "accepted",
) -> str:
    """An accepted job: what it asks for, and where it may run."""
    left_out = f" without {without}" if without else ""
    return f"{what} in {where}{left_out}" + (f" with {features}" if features else "")


def expected(intent: Intent, level: Level) -> str:
    """What must come of an intent that is written at a level."""
    if intent.refused is not None:
        return intent.refused
    words = ["gpu", intent.given, str(intent.number)]
    what = ":".join(word for word in words if word)
    at = "counted by Slurm" if level == "counted" else f"per {level}"
    return accepted(intent.where, intent.without, intent.features, what=f"{what} {at}")


def refusal(said: str) -> str:
    """Who refused, by what the command said: the policy's code, the client, or Slurm's server."""
    told = [code for code in codes(said) if code not in NOTES]
    if "unrecognized option" in said:
        return NO_OPTION
    if told:
        return told[-1]
    if "issue with the job submission" in said:
        return BY_SCRONTAB
    return BY_SLURM if _SERVER.search(said) else BY_CLIENT


def of_record(record: Mapping[str, str]) -> str:
    """What `scontrol show job` says about an accepted job, in the words of `accepted`."""
    without, features = (_set(record.get(name)) for name in ("ExcNodeList", "Features"))
    what = " and ".join(_asked(record)) or _counted(record)
    return accepted(record["Partition"], without, features, what=what)


def _set(value: str | None) -> str | None:
    return None if value == "(null)" else value


def _asked(record: Mapping[str, str]) -> Iterable[str]:
    for field, level in _TRES.items():
        for type_, count in _GPU.findall(record.get(field, "")):
            what = f"gpu:{type_}:{count or 1}" if type_ else f"gpu:{count or 1}"
            yield f"{what} per {level}"


def _counted(record: Mapping[str, str]) -> str:
    found = _COUNTED.search(record.get("ReqTRES") or record.get("TRES") or "")
    return f"gpu:{found[1]} counted by Slurm" if found else "no GPU"
