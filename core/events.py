# SPDX-License-Identifier: Apache-2.0
"""What nodes and the policy daemon tell the collector: numbered events.

`(node, boot_id, seq)` is the key: sending an event twice is harmless. A body is JSON lines,
one event a line. Amounts are integer mJ, times UTC epoch milliseconds; unknown is null.
"""

from __future__ import annotations

import enum
from typing import Literal

import msgspec

from fairwatt.core.errors import IngestError
from fairwatt.core.records import Device, Int64

__all__ = [
    "AgentStarted",
    "DecisionMade",
    "DeviceKind",
    "Event",
    "Flag",
    "GpuMemory",
    "RuleNote",
    "RunEnded",
    "RunStarted",
    "Share",
    "DeviceHold",
    "WindowClosed",
    "decode_body",
    "decode_event",
    "encode_event",
]


class Flag(enum.IntFlag):
    """What a reader must know about a measured amount."""

    RESET = 1
    """The counter restarted inside the window: only the part since then is counted."""
    IMPLAUSIBLE = 2
    """The delta was negative or beyond what the board can draw: the amount is unknown."""
    INTEGRATED = 4
    """No energy counter: power samples were integrated."""
    GAP = 8
    """The agent was away during the window, or the clock was set back: a counter covers it,
    utilisation does not, and who held the device when is apportioned."""
    NO_UTIL = 16
    """No utilisation was available: the active part was split by reserved fraction."""
    LOST = 32
    """The device could not be read at the window's end."""
    DISAGREES = 64
    """Energy counter and integrated power differ by more than sampling can explain."""
    WRAPPED = 128
    """The counter passed its end inside the window and went on from 0: counted in full."""
    AMBIGUOUS = 256
    """The counter was not read for so long that it may have passed its end unseen."""
    SPREAD = 512
    """Which cores or how much memory a job held is not known: assumed by its number of CPUs."""
    INCLUDED = 1024
    """The amount is part of the GPU module's own and is not counted again here."""
    THINNED = 2048
    """The node had no room for more: neighbouring windows became one, their sums are exact."""


DeviceKind = Literal["gpu", "cpu", "dram", "node"]
"""A GPU board, a CPU package, a package's DRAM, or what the node draws beside all of these."""


class DeviceHold(msgspec.Struct, frozen=True, kw_only=True):
    """A job's hold on a device: the whole board, or one GPU instance of it.

    `numerator/denominator` is the reserved fraction of the board (3/7 for 3g on A100).
    `instance` is the MIG UUID, "" for a whole board.
    """

    device: str
    instance: str
    numerator: Int64
    denominator: Int64


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """One run's part of one window, idle and active apart."""

    job_id: Int64
    run_start_ms: Int64
    instance: str
    idle_mj: Int64
    active_mj: Int64
    util_permille: Int64 | None = None


class AgentStarted(msgspec.Struct, frozen=True, kw_only=True, tag="agent_started"):
    """The agent came up: the devices it found."""

    node: str
    boot_id: str
    seq: Int64
    t_ms: Int64
    devices: tuple[Device, ...]
    version: str


class RunStarted(msgspec.Struct, frozen=True, kw_only=True, tag="run_started", omit_defaults=True):
    """A job's prolog ran here: which devices it holds. `t_ms` names the run on this node.

    `ncpus` are the CPUs that the job got on this node, None where Slurm did not tell.
    """

    node: str
    boot_id: str
    seq: Int64
    t_ms: Int64
    job_id: Int64
    restart_cnt: Int64 | None
    sluid: str | None
    uid: Int64 | None
    account: str | None
    holds: tuple[DeviceHold, ...]
    mapped_by: str
    ncpus: Int64 | None = None


class RunEnded(msgspec.Struct, frozen=True, kw_only=True, tag="run_ended"):
    """A job's epilog ran here (or the agent found the job gone: `closed_by` says which)."""

    node: str
    boot_id: str
    seq: Int64
    t_ms: Int64
    job_id: Int64
    run_start_ms: Int64
    closed_by: str


class GpuMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory in use on a board (`instance` "") or an instance in one window, of its samples.

    MiB, without what the driver keeps for itself.
    """

    instance: str
    max_mib: Int64
    mean_mib: Int64


# Without omit_defaults a window that an older agent sends again would be written in other words
# than those the store has, and be refused.
class WindowClosed(
    msgspec.Struct, frozen=True, kw_only=True, tag="window_closed", omit_defaults=True
):
    """One device between two readings: measured = Σ shares + unallocated, exactly, in mJ.

    `measured_mj` None means unknown; then there are no shares and both unallocated parts are None.
    `clock_mhz` is the mean SM clock while the device was busy, None where it was not or not read.
    `memory` has the instances whose used memory was read.
    """

    node: str
    boot_id: str
    seq: Int64
    device: str
    t0_ms: Int64
    t1_ms: Int64
    measured_mj: Int64 | None
    unallocated_idle_mj: Int64 | None
    unallocated_active_mj: Int64 | None
    shares: tuple[Share, ...]
    flags: Int64
    method: str
    clock_mhz: Int64 | None = None
    system_mj: Int64 | None = 0
    kind: Literal["gpu", "cpu", "dram", "node"] = "gpu"
    memory: tuple[GpuMemory, ...] = ()


class RuleNote(msgspec.Struct, frozen=True, array_like=True):
    """What one rule in its mode said of a request; `rule` "engine": no rule, the policy itself."""

    rule: str
    mode: str
    code: str
    text: str


class DecisionMade(msgspec.Struct, frozen=True, kw_only=True, tag="decision"):
    """The submit policy judged a submission or a change: what was written, given, and why.

    `boot_id` names the run of policyd that numbers it. `id` is also in the job's comment;
    `job_id` is known of changes only, `uid` is the job's owner. `job` is the request as it came,
    for a change only what was to change; `rules` are those that were asked, with their modes.
    """

    node: str
    boot_id: str
    seq: Int64
    t_ms: Int64
    cluster: str
    id: str
    verb: Literal["submit", "modify"]
    uid: Int64 | None
    job_id: Int64 | None
    account: str | None
    partition: str | None
    asked: str
    given: str
    accepted: bool
    edits: dict[str, str | int]
    notes: tuple[RuleNote, ...]
    rules: dict[str, str]
    job: dict[str, str | int | float]
    took_us: Int64


Event = AgentStarted | RunStarted | RunEnded | WindowClosed | DecisionMade

_decoder = msgspec.json.Decoder(Event)
_encoder = msgspec.json.Encoder()


def encode_event(event: Event) -> bytes:
    """Return one event as a JSON line without its newline."""
    return _encoder.encode(event)


def decode_event(line: bytes) -> Event:
    """Read one JSON line.

    Raises:
        IngestError: it is not a known event; the message names the field.
    """
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise IngestError(
            f"not an event: {error}",
            value=line[:80],
            remedy="update the older fairwatt of the two hosts",
        ) from error


def decode_body(body: bytes) -> list[Event]:
    """Read a whole body; one bad line refuses it all, and the message gives the line number.

    Raises:
        IngestError: as `decode_event`, with `line N` as the place.
    """
    events = []
    for number, line in enumerate(body.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            events.append(decode_event(line))
        except IngestError as error:
            raise IngestError(
                error.problem, place=f"line {number}", value=error.value, remedy=error.remedy
            ) from error
    return events
