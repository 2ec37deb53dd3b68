# SPDX-License-Identifier: Apache-2.0
"""A checker that breaks is unknown, never bad; what does not answer proves nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairwatt.prolog.health.history import History
from fairwatt.prolog.health.judge import Outcome, Params, Problem, judge
from fairwatt.prolog.health.reading import Expected, Gap, Gpu, Reading
from fairwatt.prolog.health.spec import CheckSpec, load_checks

SPEC = load_checks()["ecc_uncorrected"]
A = Gpu(uuid="GPU-a", index=0, minor=0, pci="0000:07:00")
LOST = Gpu(uuid="GPU-l", index=1, minor=1, pci="0000:0f:00", state="lost")


def says(*devices: str | None):
    def check(_reading: Reading, _params: Params) -> Iterator[Problem]:
        return (Problem(device, "1", "one error") for device in devices)

    return check


def outcome(*devices: str | None, gaps=None, expected=None, spec: CheckSpec = SPEC) -> Outcome:
    reading = Reading(t_ms=5, gpus=(A, LOST), gaps=gaps or {}, expected=expected)
    return judge(spec, says(*devices), reading)


def test_a_check_that_raises_is_unknown() -> None:
    def broken(_reading: Reading, _params: Params) -> Iterator[Problem]:
        raise ZeroDivisionError("by\nzero")

    result = judge(SPEC, broken, Reading(t_ms=5, gpus=(A,)))
    assert result.state().state == "unknown"
    assert list(result.unknowns()) == [
        ("FWH901", None, "ecc_uncorrected: ZeroDivisionError: by zero")
    ]
    assert not result.passes("GPU-a")


@pytest.mark.parametrize(
    ("kind", "code"), [("not-offered", None), ("fault", "FWH903"), ("timeout", "FWH904")]
)
def test_a_part_that_is_missing_is_unknown_on_its_board(kind, code) -> None:
    result = outcome(gaps={("GPU-a", "ecc"): Gap(kind, "why")})
    assert result.state().state == "unknown"
    assert result.state().note.endswith(": why")
    assert [item[0] for item in result.unknowns()] == ([code] if code else [])
    assert not result.passes("GPU-a")


def test_without_boards_nothing_is_judged() -> None:
    result = outcome("GPU-a", gaps={("", "devices"): Gap("timeout", "why")})
    assert result.problems == ()
    assert not result.passes("GPU-a")


def test_a_part_of_another_check_does_not_matter() -> None:
    result = outcome(gaps={("GPU-a", "links"): Gap("timeout", "why")})
    assert result.state().state == "ok"
    assert result.passes("GPU-a")


def test_only_what_answers_can_pass() -> None:
    assert not outcome().passes("GPU-l")
    assert not outcome().passes("GPU-gone")
    assert outcome().passes(None)
    assert not outcome(None).passes(None)


def test_a_board_that_is_gone_passes_when_the_baseline_forgets_it() -> None:
    assert not outcome(expected=Expected(boards={"GPU-gone": "x"})).passes("GPU-gone")
    assert outcome(expected=Expected(boards={"GPU-a": "x"})).passes("GPU-gone")


class TestHistory:
    def history(self, *outcomes: Outcome, confirm: int = 2, heal: int = 3) -> History:
        history = History(confirm, heal)
        for each in outcomes:
            history.update(each)
        return history

    def test_seen_twice_in_a_row_is_confirmed(self) -> None:
        (first,) = self.history(outcome("GPU-a")).troubles()
        assert (first.code, first.device, first.since_ms, first.confirmed) == (
            *("FWH203", "GPU-a", 5, False),
        )
        (second,) = self.history(outcome("GPU-a"), outcome("GPU-a")).troubles()
        assert second.confirmed

    def test_a_pass_between_begins_anew_and_an_unknown_does_not(self) -> None:
        unknown = outcome(gaps={("GPU-a", "ecc"): Gap("timeout", "why")})
        (kept,) = self.history(outcome("GPU-a"), unknown, outcome("GPU-a")).troubles()
        assert kept.confirmed
        (anew,) = self.history(outcome("GPU-a"), outcome(), outcome("GPU-a")).troubles()
        assert not anew.confirmed

    def test_a_confirmed_drain_heals_after_enough_passes(self) -> None:
        seen = [outcome("GPU-a")] * 2
        assert len(self.history(*seen, outcome(), outcome()).troubles()) == 1
        assert self.history(*seen, *[outcome()] * 3).troubles() == []
        broken = [outcome(), outcome(), outcome("GPU-a"), outcome(), outcome()]
        assert len(self.history(*seen, *broken).troubles()) == 1

    def test_a_lost_board_never_heals_an_older_trouble(self) -> None:
        seen = [outcome("GPU-l")] * 2
        assert len(self.history(*seen, *[outcome()] * 9).troubles()) == 1

    def test_what_was_drained_before_is_watched_until_it_passes(self) -> None:
        history = History(2, 3)
        history.watch("FWH203", "GPU-a")
        for each in [outcome(), outcome(), outcome("GPU-a"), outcome(), outcome()]:
            history.update(each)
            assert not history.is_healed("FWH203", "GPU-a")
        history.update(outcome())
        assert history.is_healed("FWH203", "GPU-a")

    def test_the_beginning_outlives_the_process_until_it_is_over(self) -> None:
        history = History(2, 3, {"FWH203 GPU-a": 1, "FWH203 GPU-l": 2})
        history.update(outcome("GPU-a"))
        assert history.troubles()[0].since_ms == 1
        history.update(outcome())
        assert history.since() == {"FWH203 GPU-l": 2}

    def test_one_reason_is_one_finding_however_many_checks_lack_it(self) -> None:
        gap = {("", "devices"): Gap("fault", "NVML: gone")}
        history = self.history(
            *(outcome(gaps=gap, spec=load_checks()[name]) for name in ("gpu_lost", "hot"))
        )
        (finding,) = history.unknowns(7)
        assert (finding.code, finding.text, finding.since_ms) == ("FWH903", "NVML: gone", 7)
        assert history.unknowns(9)[0].since_ms == 7

    def test_a_check_that_is_switched_off_leaves_nothing(self) -> None:
        history = self.history(outcome("GPU-a"), outcome("GPU-a"))
        history.keep_only({"hot"}, {"FWH308"})
        assert history.troubles() == []
        assert list(history.states()) == []
