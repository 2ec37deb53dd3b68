# SPDX-License-Identifier: Apache-2.0
"""The verdict: one ASCII line there and back, the worst state wins, metrics of all of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.core.errors import DeviceError
from fairwatt.core.verdict import (
    CheckState,
    Finding,
    Verdict,
    decode_verdict,
    encode_verdict,
    one_line,
    state_of,
    verdict_unknown,
)
from fairwatt.core.verdict_metrics import as_metrics

LOST = Finding(
    code="FWH101",
    severity="bad",
    action="drain",
    device="GPU-a",
    value="lost",
    text="the GPU is lost",
    since_ms=1_800_000_000_500,
    confirmed=True,
    drain="drained",
)
VERDICT = Verdict(
    t_ms=1_800_000_001_000,
    node="n1",
    state="bad",
    findings=(LOST,),
    checks=(CheckState(code="FWH101", name="gpu_lost", state="bad", t_ms=1),),
    rounds=7,
)


def test_there_and_back() -> None:
    line = encode_verdict(VERDICT)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_verdict(line) == VERDICT


@pytest.mark.parametrize("line", [b"", b"{}", b"nonsense", b'{"v":2}', b"\xff", b"[]"])
def test_what_is_no_verdict_is_a_device_error(line: bytes) -> None:
    with pytest.raises(DeviceError, match="not a health verdict"):
        decode_verdict(line)


@given(st.text())
def test_whatever_is_shown_is_one_line_of_ascii(text: str) -> None:
    shown = one_line(text)
    assert len(shown) <= 160
    assert shown.isascii()
    assert shown.isprintable()


def test_a_reason_names_code_and_device() -> None:
    assert LOST.reason == "fairwatt FWH101 GPU-a: the GPU is lost"
    assert verdict_unknown("n1", 5, "FWH908", "x\ny").findings[0].reason == "fairwatt FWH908: x y"


@pytest.mark.parametrize(
    ("severities", "state"),
    [
        ((), "ok"),
        (("unknown",), "unknown"),
        (("unknown", "warn"), "warn"),
        (("warn", "bad"), "bad"),
    ],
)
def test_the_worst_wins_and_unknown_is_never_bad(severities: tuple[str, ...], state: str) -> None:
    findings = [Finding(code="FWH901", severity=each) for each in severities]  # type: ignore[arg-type]
    assert state_of(findings) == state


def test_metrics_by_hand() -> None:
    lines = as_metrics(VERDICT).splitlines()
    assert 'fairwatt_health_state{node="n1",state="bad"} 1' in lines
    assert 'fairwatt_health_state{node="n1",state="ok"} 0' in lines
    assert 'fairwatt_health_verdict_timestamp_seconds{node="n1"} 1800000001' in lines
    assert 'fairwatt_health_rounds_total{node="n1"} 7' in lines
    assert 'fairwatt_health_check{node="n1",code="FWH101",check="gpu_lost",state="bad"} 1' in lines
    assert (
        'fairwatt_health_finding_since_seconds{node="n1",code="FWH101",device="GPU-a",'
        'severity="bad",action="drain",drain="drained"} 1800000000.5' in lines
    )
    names = [line.split("{")[0] for line in lines if not line.startswith("#")]
    for name in set(names):
        assert f"# TYPE {name} " in as_metrics(VERDICT)


def test_labels_are_escaped() -> None:
    odd = Verdict(t_ms=1, node='n"\\\n1', state="ok")
    assert 'node="n\\"\\\\\\n1"' in as_metrics(odd)
