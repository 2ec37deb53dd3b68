# SPDX-License-Identifier: Apache-2.0
"""Events on the wire: they come back equal, and a bad line is named by its number."""

from __future__ import annotations

import json

import pytest

from fairwatt.core.errors import IngestError
from fairwatt.core.events import (
    AgentStarted,
    DecisionMade,
    DeviceHold,
    Event,
    Flag,
    RuleNote,
    RunEnded,
    RunStarted,
    Share,
    WindowClosed,
    decode_body,
    decode_event,
    encode_event,
)
from fairwatt.core.records import Device, GpuInstance

BOOT = "0f3c"
BOARD = Device(
    node="mig01",
    uuid="GPU-1",
    name="Board 40GB",
    model=None,
    minor=0,
    nvml_index=1,
    memory_mib=40960,
    mig_enabled=True,
    compute_slices=7,
    instances=(
        GpuInstance(uuid="MIG-1", gi=7, ci=0, profile="1g.5gb", compute_slices=1, memory_mib=4864),
    ),
)
EVENTS: list[Event] = [
    AgentStarted(node="n", boot_id=BOOT, seq=1, t_ms=1, devices=(BOARD,), version="0.1.0"),
    RunStarted(
        node="n",
        boot_id=BOOT,
        seq=2,
        t_ms=2,
        job_id=7,
        restart_cnt=None,
        sluid=None,
        uid=1000,
        account="qcd",
        holds=(DeviceHold(device="GPU-1", instance="MIG-1", numerator=1, denominator=7),),
        mapped_by="uuid",
    ),
    WindowClosed(
        node="n",
        boot_id=BOOT,
        seq=3,
        device="GPU-1",
        t0_ms=2,
        t1_ms=3,
        measured_mj=100,
        unallocated_idle_mj=60,
        unallocated_active_mj=0,
        shares=(Share(job_id=7, run_start_ms=2, instance="MIG-1", idle_mj=10, active_mj=30),),
        flags=Flag.GAP | Flag.NO_UTIL,
        method="counter",
    ),
    RunEnded(node="n", boot_id=BOOT, seq=4, t_ms=4, job_id=7, run_start_ms=2, closed_by="epilog"),
    DecisionMade(
        node="ctl",
        boot_id="policyd-1",
        seq=1,
        t_ms=1,
        cluster="campus",
        id="1-1",
        verb="modify",
        uid=None,
        job_id=7,
        account=None,
        partition="gpu",
        asked="gpu:20gb:1",
        given="gpu:m:1",
        accepted=False,
        edits={"tres_per_node": "gres/gpu:m:1", "time_limit": 60},
        notes=(RuleNote("memory_fit", "warn", "FW101", "caf\xe9"),),
        rules={"memory_fit": "warn"},
        job={"partition": "gpu", "min_nodes": 2, "x": 0.5},
        took_us=41,
    ),
]


def test_a_body_comes_back_equal() -> None:
    body = b"\n".join(encode_event(event) for event in EVENTS)
    assert decode_body(body) == EVENTS
    assert decode_body(body + b"\n\n") == EVENTS
    assert decode_body(b"") == []


def test_a_line_is_plain_json_with_its_kind() -> None:
    line = json.loads(encode_event(EVENTS[2]))
    assert line["type"] == "window_closed"
    assert line["measured_mj"] == 100
    assert line["flags"] == 24


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (b"{", "not an event"),
        (b"[]", "not an event"),
        (b'{"type":"window_opened"}', "window_opened"),
        (b'{"type":"run_ended","node":"n","boot_id":"b","seq":1}', "t_ms"),
        (encode_event(EVENTS[3]).replace(b'"job_id":7', b'"job_id":"7"'), "$.job_id"),
        (encode_event(EVENTS[3]).replace(b"epilog", b"\xff"), "not an event"),
        (b'{"type":"run_ended","seq":1e999}', "not an event"),
    ],
)
def test_a_bad_line_is_refused(line: bytes, wanted: str) -> None:
    with pytest.raises(IngestError) as caught:
        decode_event(line)
    assert wanted in str(caught.value)


def test_a_bad_line_refuses_the_body_and_is_named() -> None:
    good = encode_event(EVENTS[0])
    with pytest.raises(IngestError, match=r"^line 3: not an event"):
        decode_body(good + b"\n\n" + b'{"type":"run_ended"}' + b"\n" + good)


@pytest.mark.parametrize("number", [2**63, 2**64 - 2, 10**30, -(2**64)])
def test_a_number_that_the_store_cannot_hold_is_refused(number: int) -> None:
    line = encode_event(EVENTS[2]).replace(b'"measured_mj":100', b'"measured_mj":%d' % number)
    with pytest.raises(IngestError, match=r"measured_mj"):
        decode_event(line)


def test_a_line_nested_beyond_reason_is_refused_like_any_other():
    """Not an accident of ours (503): the node would send it for ever."""
    line = b'{"type":"run_ended","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(IngestError, match="line 1: not an event"):
        decode_body(line)
