# SPDX-License-Identifier: Apache-2.0
"""When Slurm is asked, in which order, what is tried again; slurmctld is a plain object."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from fairwatt.core.errors import CommandError, SlurmError
from fairwatt.core.verdict import Finding
from fairwatt.prolog.health import slurm_node
from fairwatt.prolog.health.drain import NodeView, Record
from fairwatt.prolog.health.slurm_node import SlurmNode, views_of_text
from fairwatt.prolog.health.warden import Warden

LOST = Finding(
    code="FWH101", severity="bad", action="drain", device="GPU-a", text="lost", confirmed=True
)
AWAY = CommandError(["sinfo"], 1, "slurm_load_node error: Unable to contact slurm controller")


class Slurm:
    """Node n1 among others; keeps what was asked of it."""

    def __init__(self) -> None:
        self.view = NodeView(name="n1", state="idle")
        self.others: list[NodeView] = []
        self.later: list[NodeView] = []
        self.asked: list[str] = []
        self.away = False

    def look(self, *, everywhere: bool) -> tuple[NodeView, list[NodeView]]:
        self._ask("all" if everywhere else "look")
        return self.view, self.others if everywhere else []

    def drain(self, reason: str) -> None:
        self._ask("drain")
        self.view = replace(self.view, state="drained", reason=reason, since_ms=now_ms())
        self.others += self.later

    def undrain(self) -> None:
        self._ask("undrain")
        self.view = NodeView(name="n1", state="idle")

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.away:
            raise AWAY


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def slurm() -> Slurm:
    return Slurm()


@pytest.fixture
def warden(slurm: Slurm) -> Warden:
    return Warden(slurm, Record(), limit=2, watch_s=30, settle_s=0)


def turn(warden: Warden, *wanted: Finding, now: float = 0.0, healed: bool = False) -> bool:
    """Run one task, if there is one."""
    task = warden.next_task(wanted, healed=healed, now=now)
    if task is None:
        return False
    try:
        warden.done(task(), now)
    except CommandError as error:
        warden.failed(error, now)
    return True


def test_a_well_node_never_asks_slurm(slurm: Slurm, warden: Warden) -> None:
    for now in range(0, 1000, 10):
        assert not turn(warden, now=now)
    assert slurm.asked == []
    assert warden.wait_s(0) >= 60


def test_a_fault_is_looked_at_once_then_drained_then_verified(
    slurm: Slurm, warden: Warden
) -> None:
    assert turn(warden, LOST)
    assert warden.step is not None
    assert (warden.step.drain, warden.record.sure) == ("permitted", False)
    assert turn(warden, LOST)
    assert (warden.step.drain, warden.record.sure) == ("drained", True)
    assert slurm.asked == ["all", "drain", "all"]
    assert not turn(warden, LOST, now=29)
    assert turn(warden, LOST, now=30)
    assert slurm.asked[3:] == ["look"]


def test_it_heals(slurm: Slurm, warden: Warden) -> None:
    turn(warden, LOST)
    turn(warden, LOST)
    assert not turn(warden, now=1, healed=False) or slurm.view.is_drained
    assert turn(warden, now=2, healed=True)
    assert turn(warden, now=2, healed=True)
    assert slurm.asked[-1] == "undrain"
    assert warden.record == Record()
    assert not turn(warden, now=100)


def test_slurmctld_away_is_tried_again_later_each_time(slurm: Slurm, warden: Warden) -> None:
    slurm.away = True
    tries = [now for now in range(700) if turn(warden, LOST, now=now)]
    assert tries == [0, 2, 6, 14, 30, 62, 126, 254, 510]
    assert "Unable to contact" in warden.fault
    slurm.away = False
    assert turn(warden, LOST, now=900)
    assert turn(warden, LOST, now=900)
    assert (warden.fault, slurm.view.is_drained) == ("", True)


def test_away_between_looking_and_draining_drains_later(slurm: Slurm, warden: Warden) -> None:
    turn(warden, LOST)
    slurm.away = True
    turn(warden, LOST)
    slurm.away = False
    assert turn(warden, LOST, now=2)
    assert turn(warden, LOST, now=2)
    assert slurm.view.reason == LOST.reason


def test_one_that_came_too_late_takes_its_drain_back(slurm: Slurm, warden: Warden) -> None:
    early = now_ms() - 5_000
    slurm.later = [
        NodeView(name=f"o{n}", state="drained", reason=LOST.reason, since_ms=early) for n in (1, 2)
    ]
    turn(warden, LOST)
    turn(warden, LOST)
    assert slurm.asked == ["all", "drain", "all", "undrain"]
    assert warden.step is not None
    assert (warden.step.drain, warden.record) == ("limit", Record())
    assert turn(warden, LOST, now=30)
    assert slurm.asked[4:] == ["all"]


def test_a_new_trouble_does_not_wait_for_the_next_look(slurm: Slurm, warden: Warden) -> None:
    slurm.view = replace(slurm.view, state="drained", reason="maintenance")
    turn(warden, LOST)
    assert not turn(warden, LOST, now=1)
    assert turn(warden, LOST, replace(LOST, device="GPU-b"), now=1)


def test_lines_of_sinfo() -> None:
    """A line per node and partition; the reason may hold anything but a newline."""
    text = (
        "gpu01|drained|2026-11-30T15:25:02|fairwatt FWH101 GPU-a: x | y\n"
        "gpu01|drained|2026-11-30T15:25:02|fairwatt FWH101 GPU-a: x | y\n"
        "gpu02|idle*|Unknown|none\n"
        "nonsense\n"
    )
    views = views_of_text(text)
    assert set(views) == {"gpu01", "gpu02"}
    assert views["gpu01"].reason == "fairwatt FWH101 GPU-a: x | y"
    assert views["gpu01"].since_ms == 1_796_052_302_000
    assert views["gpu01"].is_drained
    assert (views["gpu02"].reason, views["gpu02"].since_ms) == ("", None)
    assert not views["gpu02"].is_drained


def test_a_node_that_slurm_does_not_know_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Done:
        stdout = "other|idle|Unknown|none\n"

    monkeypatch.setattr(slurm_node, "call", lambda *_args, **_options: Done)
    with pytest.raises(SlurmError, match=r"agent\.node: Slurm has no such node \(got 'n1'\)"):
        SlurmNode("n1").look(everywhere=True)
