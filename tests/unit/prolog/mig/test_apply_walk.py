# SPDX-License-Identifier: Apache-2.0
"""Which steps are walked, forward, back and after a crash; the steps only note their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fairwatt.core.errors import ConfigError, DeviceError, FairwattError
from fairwatt.prolog.mig.apply import finish, hold_lock, turn_back
from fairwatt.prolog.mig.journal import Begun, Journal, Mark, Target, last_change
from fairwatt.prolog.mig.status import as_text, read_status
from fairwatt.prolog.mig.steps import STEPS_DYNAMIC, STEPS_STATIC

OLD = Target("as before", (), "gpu:a:7", {"a": 7})
NEW = Target("large", (), "gpu:b:2", {"b": 2})
NAMES = STEPS_DYNAMIC


class Notes:
    """Steps of a dynamic node that note what is done; `faults` by (way, step)."""

    names = NAMES

    def __init__(self, journal: Journal, faults: dict[tuple[str, str], BaseException]) -> None:
        self.journal = journal
        self.faults = faults
        self.done: list[str] = []
        self.cut_and_written = False

    def run(self, step: str) -> None:
        fault = self.faults.get((self.journal.way, step))
        if fault is not None:
            raise fault
        self.done.append(f"{'' if self.journal.way == 'forward' else '-'}{step}")

    def is_cut_and_written(self) -> bool:
        return self.cut_and_written


class Silent:
    """A slurmctld that notes drains."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def show(self) -> object:
        return type("Node", (), {"foreign_reason": None})()

    def drain(self, reason: str) -> None:
        self.reasons.append(reason)


@pytest.fixture
def begin(tmp_path: Path) -> Callable[[], Journal]:
    def make() -> Journal:
        begun = Begun(t_ms=5, node="n1", old=OLD, new=NEW, dynamic=True, by_hand=False)
        return Journal.begin(tmp_path, begun)

    return make


def walk(journal: Journal, faults=None, cut_and_written=False):
    steps, slurm = Notes(journal, faults or {}), Silent()
    steps.cut_and_written = cut_and_written
    outcome = finish(journal, steps, slurm, lambda _: None)  # type: ignore[arg-type]
    return outcome, steps.done, slurm


def back(*steps: str) -> list[str]:
    return [f"-{step}" for step in steps]


def test_all_steps_in_their_order(begin, tmp_path) -> None:
    outcome, done, _ = walk(begin())
    assert (outcome.result, done) == ("applied", list(NAMES))
    assert Journal.open(tmp_path) is None
    assert read_status(tmp_path)["state"] == "applied"
    assert outcome.outage_s is not None


@pytest.mark.parametrize(
    ("step", "way_back"),
    [
        ("drain", ["resume"]),
        ("idle", ["resume"]),
        ("stop", ["start", "registered", "resume"]),
        ("leave", ["start", "registered", "resume"]),
        ("cut", list(NAMES)),
        ("check", list(NAMES)),
        ("files", list(NAMES)),
        ("start", list(NAMES)),
        ("registered", list(NAMES)),
        ("resume", list(NAMES)),
    ],
)
def test_what_fails_is_taken_back_as_far_as_it_went(begin, step, way_back) -> None:
    outcome, done, _ = walk(begin(), {("forward", step): DeviceError("in use")})
    assert outcome.result == "rolled back"
    assert "in use" in outcome.text
    assert done == [*NAMES[: NAMES.index(step)], *back(*way_back)]


def test_a_static_node_that_was_only_stopped_comes_back(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(Notes, "names", STEPS_STATIC)
    begun = Begun(t_ms=5, node="n1", old=OLD, new=NEW, dynamic=False, by_hand=True)
    journal = Journal.begin(tmp_path, begun)
    outcome, done, _ = walk(journal, {("forward", "stop"): DeviceError("a job began")})
    assert outcome.result == "rolled back"
    assert done == ["drain", "idle", *back("resume", "start", "registered")]


def test_ctrl_c_takes_back_too(begin) -> None:
    outcome, done, _ = walk(begin(), {("forward", "idle"): KeyboardInterrupt()})
    assert (outcome.result, done) == ("rolled back", ["drain", "-resume"])


def test_stuck_is_open_and_drained_with_a_code(begin, tmp_path) -> None:
    faults = {(way, "cut"): DeviceError("broken\nboard") for way in ("forward", "back")}
    outcome, _, slurm = walk(begin(), faults)
    assert outcome.result == "stuck"
    assert slurm.reasons == [
        "fairwatt FWM202 re-slice failed, fairwatt mig status tells more: broken board"
    ]
    report = read_status(tmp_path)
    assert report["state"] == "stuck"
    assert "--abandon" in as_text(report)
    again = Journal.open(tmp_path)
    assert again is not None
    outcome, done, _ = walk(again)
    assert (outcome.result, done) == ("rolled back", back(*NAMES))


@pytest.mark.parametrize("phase", ["begin", "done"])
@pytest.mark.parametrize("step", NAMES)
def test_killed_and_taken_up(begin, tmp_path, step, phase, monkeypatch) -> None:
    """Forward again from the start, unless the boards and files are as wanted already."""
    append = Journal.append

    def deadly(self, record):
        here = isinstance(record, Mark) and (record.step, record.phase) == (step, phase)
        if not (here and phase == "done"):
            append(self, record)
        if here:
            raise SystemExit

    monkeypatch.setattr(Journal, "append", deadly)
    with pytest.raises(SystemExit):
        walk(begin())
    monkeypatch.undo()
    assert read_status(tmp_path)["state"] == "open"
    journal = Journal.open(tmp_path)
    assert journal is not None
    written = NAMES.index(step) > NAMES.index("files")
    outcome, done, _ = walk(journal, cut_and_written=written)
    rest = ["start", "registered", "resume"]
    assert (outcome.result, done) == ("applied", rest if written else list(NAMES))


def test_asked_to_go_back_before_anything_was_changed(begin, tmp_path) -> None:
    journal = begin()
    turn_back(journal, "asked for")
    outcome, done, _ = walk(journal)
    assert (outcome.result, done) == ("rolled back", ["-resume"])
    assert read_status(tmp_path)["state"] == "rolled back"


def test_a_torn_last_line_does_not_count(begin, tmp_path) -> None:
    journal = begin()
    path = tmp_path / "current.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"type":"step","t_ms":7,"wa')
    assert Journal.peek(tmp_path).records == journal.records  # type: ignore[union-attr]
    again = Journal.open(tmp_path)
    assert again is not None
    turn_back(again, "x")
    assert len(path.read_bytes().splitlines()) == 2
    path.write_bytes(whole[:20])
    assert Journal.open(tmp_path) is None, "nothing was changed yet"
    assert not path.exists()


def test_a_journal_of_nonsense_is_named(tmp_path) -> None:
    (tmp_path / "current.jsonl").write_bytes(b"{}\nnonsense\n")
    with pytest.raises(FairwattError, match=r"current\.jsonl:1"):
        Journal.open(tmp_path)


def test_one_at_a_time(tmp_path) -> None:
    with hold_lock(tmp_path / "new"), pytest.raises(ConfigError, match="another"):
        hold_lock(tmp_path / "new")
    hold_lock(tmp_path / "new").close()


def test_only_the_newest_changes_are_kept(tmp_path) -> None:
    for t_ms in range(95, 155):
        begun = Begun(t_ms=t_ms, node="n1", old=OLD, new=NEW, dynamic=True, by_hand=False)
        Journal.begin(tmp_path, begun).end("applied")
    assert len(list((tmp_path / "done").iterdir())) == 50
    assert last_change(tmp_path)[0].t_ms == 154
