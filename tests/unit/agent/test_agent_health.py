# SPDX-License-Identifier: Apache-2.0
"""The agent's watch over the health worker: children that are silent, dead, stuck or mad."""

from __future__ import annotations

import json
import selectors
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from fairwatt.accounting.agent.health import MOST_DYING, HealthSettings, HealthWatch
from fairwatt.core.verdict import Finding, Holder, Verdict, decode_verdict, encode_verdict

LOST = Finding(
    code="FWH101",
    severity="bad",
    action="drain",
    device="GPU-a",
    value="gone",
    text="lost",
    confirmed=True,
    drain="drained",
)
BAD = Verdict(t_ms=1, node="n1", state="bad", findings=(LOST,))
OK = Verdict(t_ms=1, node="n1", state="ok")


def says(verdict: Verdict) -> str:
    return (
        f"import sys; sys.stdout.write({encode_verdict(verdict).decode()!r}); sys.stdout.flush()"
    )


WAITS = "; sys.stdin.read()"


class Bench:
    """A watch on a program of Python text, in a loop of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 1000.0
        self.selector = selectors.DefaultSelector()
        self.watch: HealthWatch | None = None

    def begin(self, program: str, *, prolog_fails: bool = True) -> HealthWatch:
        settings = HealthSettings(
            node="n1",
            state_file=self.root / "run" / "health.json",
            metrics_file=self.root / "health.prom",
            prolog_fails=prolog_fails,
            hang_s=60.0,
            argv=(sys.executable, "-S", "-c", program),
        )
        self.watch = HealthWatch(settings, self.selector, lambda: self.now)
        self.watch.tick()
        return self.watch

    def until(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < end, what
            for key, _ in self.selector.select(0.02):
                key.data()
            assert self.watch is not None
            self.watch.tick()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    if made.watch is not None:
        made.watch.close()


def codes(watch: HealthWatch) -> list[str]:
    return [finding.code for finding in watch.verdict.findings]


def test_a_finding_is_logged_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    later = msgspec.structs.replace(BAD, rounds=2)
    watch = bench.begin(says(BAD) + "; import time; time.sleep(0.2);" + says(later) + WAITS)
    bench.until(lambda: watch.verdict.rounds == 2, "the second verdict")
    said = [each.message for each in caplog.records if "FWH101" in each.message]
    assert said == ["health: bad fairwatt FWH101 GPU-a: lost (gone)"]


def test_the_prolog_hears_of_a_fault_of_its_own_devices_only(bench: Bench) -> None:
    watch = bench.begin(says(BAD) + WAITS)
    assert watch.answer({"GPU-a"}) == {"state": "unknown", "drain": None}
    bench.until(lambda: watch.verdict.state == "bad", "the verdict")
    drain = {"code": "FWH101", "device": "GPU-a", "text": "lost"}
    assert watch.answer({"GPU-a", "GPU-b"}) == {"state": "bad", "drain": drain}
    assert watch.answer({"GPU-b"}) == {"state": "bad", "drain": None}
    assert watch.answer(set()) == {"state": "bad", "drain": None}


@pytest.mark.parametrize("word", ["permitted", "foreign", "off"])
def test_a_fault_that_drains_or_would_stops_its_job(bench: Bench, word: str) -> None:
    finding = msgspec.structs.replace(LOST, drain=word)
    watch = bench.begin(says(msgspec.structs.replace(BAD, findings=(finding,))) + WAITS)
    bench.until(lambda: watch.verdict.state == "bad", "the verdict")
    assert watch.answer({"GPU-a"})["drain"] is not None


@pytest.mark.parametrize("word", ["", "confirming", "limit", "yielded", "waiting"])
def test_a_fault_that_does_not_drain_stops_no_job(bench: Bench, word: str) -> None:
    finding = msgspec.structs.replace(LOST, drain=word)
    watch = bench.begin(says(msgspec.structs.replace(BAD, findings=(finding,))) + WAITS)
    bench.until(lambda: watch.verdict.state == "bad", "the verdict")
    assert watch.answer({"GPU-a"})["drain"] is None


def test_a_site_may_let_jobs_run(bench: Bench) -> None:
    watch = bench.begin(says(BAD) + WAITS, prolog_fails=False)
    bench.until(lambda: watch.verdict.state == "bad", "the verdict")
    assert watch.answer({"GPU-a"}) == {"state": "bad", "drain": None}


def test_the_newest_verdict_is_kept_in_files(bench: Bench) -> None:
    watch = bench.begin(says(OK) + ";" + says(BAD) + WAITS)
    state = bench.root / "run" / "health.json"
    bench.until(lambda: state.exists() and decode_verdict(state.read_bytes()) == BAD, "the file")
    assert state.stat().st_mode & 0o777 == 0o644
    bench.until(lambda: 'state="bad"} 1' in (bench.root / "health.prom").read_text(), "metrics")
    assert watch.status()["findings"] == ["fairwatt FWH101 GPU-a: lost"]


def test_a_file_that_cannot_be_written_stops_nothing(bench: Bench) -> None:
    (bench.root / "run").write_text("in the way")
    watch = bench.begin(says(OK) + WAITS)
    bench.until(lambda: watch.verdict.state == "ok", "the verdict")


def test_a_silent_child_is_killed_and_what_it_said_no_longer_counts(bench: Bench) -> None:
    watch = bench.begin(says(BAD) + WAITS)
    bench.until(lambda: watch.verdict.state == "bad", "the verdict")
    bench.now += 59
    watch.tick()
    assert watch.verdict.state == "bad"
    bench.now += 2
    watch.tick()
    assert (watch.verdict.state, codes(watch), watch.restarts) == ("unknown", ["FWH908"], 1)
    assert watch.answer({"GPU-a"})["drain"] is None
    bench.now += 1
    bench.until(lambda: watch.verdict.state == "bad", "the next child's verdict")


def test_a_child_that_is_stuck_in_the_driver_is_begun_anew(bench: Bench) -> None:
    stuck = Verdict(t_ms=1, node="n1", state="unknown", stuck_s=60.0)
    watch = bench.begin(says(stuck) + WAITS)
    bench.until(lambda: watch.restarts == 1, "a restart")
    assert codes(watch) == ["FWH908"]
    assert "hangs for 60 s" in watch.verdict.findings[0].text


@pytest.mark.parametrize(
    "program", ["raise SystemExit(7)", "print('nonsense', flush=True); input()", "1/0"]
)
def test_one_that_ends_or_raves_is_begun_anew_later_each_time(
    bench: Bench, program: str, capfd: pytest.CaptureFixture[str]
) -> None:
    watch = bench.begin(program)
    waits = []
    for restarts in range(1, 6):
        bench.until(lambda restarts=restarts: watch.restarts >= restarts, "the end")
        begun = bench.now
        while not watch._child:
            bench.now += 0.5
            watch.tick()
        waits.append(bench.now - begun)
    assert waits == [1, 2, 4, 8, 16]
    assert watch.verdict.state == "unknown"


def test_a_program_that_is_missing_is_said(bench: Bench) -> None:
    settings = HealthSettings("n1", bench.root / "s", None, True, 60.0, ("/nonexistent/python",))
    bench.watch = watch = HealthWatch(settings, bench.selector, lambda: bench.now)
    watch.tick()
    assert "cannot run" in watch.verdict.findings[0].text


def test_children_that_do_not_die_are_not_piled_up(bench: Bench) -> None:
    """A process in a hung driver may outlive SIGKILL; then no more are begun."""

    class Undead:
        returncode = None

        def poll(self) -> None:
            return None

    watch = bench.begin(says(OK) + WAITS)
    watch._lose("a test")
    for child in watch._dying:
        child.wait(5)
    watch._dying = [Undead()] * MOST_DYING  # type: ignore[list-item]
    bench.now += 1000
    watch.tick()
    assert watch._child is None
    watch._dying = []
    watch.tick()
    assert watch._child is not None


def test_the_worker_hears_what_jobs_hold_and_that_one_ended(bench: Bench) -> None:
    log = bench.root / "heard"
    watch = bench.begin(
        f"import sys; log = open({str(log)!r}, 'w', 1)\nfor line in sys.stdin: log.write(line)"
    )
    watch.tell_holders([Holder("GPU-b"), Holder("GPU-a", "MIG-1"), Holder("GPU-b")])
    watch.tell_holders([Holder("GPU-a", "MIG-1"), Holder("GPU-b")])  # nothing new
    watch.tell_holders([], job_ended=True)
    bench.until(lambda: log.exists() and len(log.read_text().splitlines()) == 3, "three lines")
    first, second, third = map(json.loads, log.read_text().splitlines())
    assert first["holders"] == []
    assert [item["device"] for item in second["holders"]] == ["GPU-a", "GPU-b"]
    assert (third["holders"], third["job_ended"]) == ([], True)


def test_a_worker_that_does_not_listen_costs_nothing(bench: Bench) -> None:
    """Its pipe is full after some thousand lines: telling goes on without waiting."""
    watch = bench.begin("import time; time.sleep(60)")
    begun = time.monotonic()
    for number in range(5000):
        watch.tell_holders([Holder(f"GPU-{number}")])
    assert time.monotonic() - begun < 5
