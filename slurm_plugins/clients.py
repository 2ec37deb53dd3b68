# SPDX-License-Identifier: Apache-2.0
"""What the policy cannot change of interactive jobs, and what their users are told; pure.

srun asks for its step as it was typed, whatever became of the job; salloc's shell keeps what was
typed in its environment, from where srun takes it. Slurm's clients differ in little else: from
24.11 on, where the user names the job, no field tells srun from salloc. Such a job is accepted
and both are told: of the two, salloc would work, and srun's user has read what to write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from fairwatt.core.gres import Spelling
from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins import exported, jobdesc
from fairwatt.slurm_plugins.demand import as_text
from fairwatt.slurm_plugins.engine_messages import FW005, FW008, FW009
from fairwatt.slurm_plugins.message import Note

__all__ = ["Client", "client", "srun_refusal", "told"]

Client = Literal["srun", "salloc", "either"]
_CLIENTS: dict[object, Client] = {"srun": "srun", "salloc": "salloc", "either": "either"}


def client(fields: jobdesc.Fields) -> Client | None:
    """Which program asks for an interactive job, as the hook has seen; None: no such job."""
    return _CLIENTS.get(fields.get("client"))


def srun_refusal(fields: jobdesc.Fields, before: jobdesc.Parsed, after: JobRequest) -> Note | None:
    """Why srun is refused where its step could not start; None: it can."""
    if client(fields) != "srun" or not _renamed(before, after):
        return None
    offer = jobdesc.flags(after, before.request)
    return FW005.note(asked=_asked(before), given=as_text(after.gpus), offer=offer)


def told(
    fields: jobdesc.Fields, before: jobdesc.Parsed, after: JobRequest, spelling: Spelling
) -> tuple[Note, ...]:
    """What is said of steps to a user of salloc, or of what may be salloc."""
    asks = client(fields)
    if asks is None or not _renamed(before, after):
        return ()
    words = {"asked": _asked(before), "given": as_text(after.gpus)}
    if asks == "either":
        return (FW009.note(**words, offer=jobdesc.flags(after, before.request)),)
    names = " ".join(_variables(fields, before, after, spelling))
    return (FW008.note(**words, names=names),)


def _asked(before: jobdesc.Parsed) -> str:
    """The GPU entries as the client will repeat them."""
    if not before.doubled:
        return as_text(before.request.gpus)
    return ",".join(before.texts[level].removeprefix("gres/") for level in sorted(before.doubled))


def _renamed(before: jobdesc.Parsed, after: JobRequest) -> bool:
    """Whether a type that the user named is gone, or was not written as it is read."""
    left = {(ask.level, ask.type) for ask in after.gpus}
    asks = before.request.gpus
    return bool(before.doubled) or any(
        ask.type and (ask.level, ask.type) not in left for ask in asks
    )


def _variables(
    fields: jobdesc.Fields, before: jobdesc.Parsed, after: JobRequest, spelling: Spelling
) -> Iterator[str]:
    """Where salloc keeps what it was asked for."""
    offset = fields.get("het_offset")
    ends = [""] if offset is None else [f"_{kind}_GROUP_{offset}" for kind in ("HET", "PACK")]
    left = {(ask.level, ask.type) for ask in after.gpus}
    for level, name in exported.BY_LEVEL.items():
        gone = any(
            (ask.level, ask.type) not in left for ask in before.request.gpus if ask.level == level
        )
        if gone or level in before.doubled:
            newer = level == "task" and spelling is Spelling.SLASH
            yield from (f"{exported.TRES_PER_TASK if newer else name}{end}" for end in ends)
