# SPDX-License-Identifier: Apache-2.0
"""Agent, ledger and store under random histories: every millijoule has one owner or is unknown.

Whole boards with and without a counter, one in shards and MPS, three MIG layouts; jobs,
resets, driver reloads, lost devices, dead agents, reboots, hooks that could not read, clocks that
jump.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairwatt.accounting.reports.job import job_report
from fairwatt.accounting.reports.scope import Role, Scope
from fairwatt.core.events import Flag, RunEnded, RunStarted, WindowClosed
from tests.unit.agent.chain_world import NO_COUNTER, PLACES, SHARDS, Node, in_store

HOUR_MS = 3_600_000
numbers = st.integers(0, 2**20)
quiet = st.one_of(
    st.tuples(st.just("time"), st.integers(1, 900_000), st.integers(0, 390_000)),
    st.tuples(st.sampled_from(["prolog", "prolog", "epilog", "mail", "blind"]), numbers, numbers),
    st.tuples(st.sampled_from(["told", "sample", "border", "crash", "again"]), numbers, numbers),
)
wild = st.one_of(
    quiet,
    st.tuples(st.sampled_from(["reset", "reload", "lost", "back", "reboot"]), numbers, numbers),
    st.tuples(st.just("clock"), st.integers(-3 * HOUR_MS, 3 * HOUR_MS), numbers),
    st.tuples(st.just("clock"), st.integers(-900, 900), numbers),
)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def play(node: Node, steps) -> None:
    """Let the steps happen, then read everything once more."""
    for what, a, b in steps:
        _STEPS[what](node, a, b)
    for board in node.boards.values():
        board.lost = False
    for _ in range(2):
        node.pass_time(1, 0)
        with node.journal.synced_at_end():
            node.keeper.border(node.look(), node.now_ms)


def _prolog(node: Node, a: int, b: int) -> None:
    job_id = len(node.jobs) + 1
    node.jobs[job_id] = PLACES[a % len(PLACES)]
    node.starts_ms[job_id] = node.now_ms
    with node.journal.synced_at_end():
        node.keeper.hook(node.request("prolog", job_id, b % 90), node.look(b % 1001))


def _epilog(node: Node, a: int, b: int) -> None:
    if node.jobs:
        with node.journal.synced_at_end():
            job_id = 1 + a % len(node.jobs)
            node.keeper.hook(node.request("epilog", job_id), node.look(b % 1001))


def _mail(node: Node, a: int, b: int) -> None:
    """A hook found no agent; it is read at the next visit."""
    job_id = len(node.jobs) + 1
    verb = "prolog"
    if b % 2 and node.jobs:
        verb, job_id = "epilog", 1 + a % len(node.jobs)
    else:
        node.jobs[job_id] = PLACES[a % len(PLACES)]
        node.starts_ms[job_id] = node.now_ms
    node.mail(verb, job_id)


def _blind(node: Node, a: int, b: int) -> None:
    """The GPUs did not answer while the hook waited."""
    job_id = len(node.jobs) + 1
    node.jobs[job_id] = PLACES[a % len(PLACES)]
    node.starts_ms[job_id] = node.now_ms
    with node.journal.synced_at_end():
        node.keeper.hook(node.request("prolog", job_id), None)
        if b % 2:
            node.keeper.late(node.look(), node.keeper.devices_of(job_id))


def _again(node: Node, a: int, b: int) -> None:
    """A prolog comes twice, or the job was requeued at once."""
    if node.jobs:
        with node.journal.synced_at_end():
            node.keeper.hook(node.request("prolog", 1 + a % len(node.jobs)), node.look())


def _told(node: Node, a: int, b: int) -> None:
    with node.journal.synced_at_end():
        for job_id in node.keeper.assumed[:1]:
            held = 1 + a % SHARDS
            gres = f"shard:{held}(0/0,{held}/{SHARDS})" if b % 3 else "gpu:1(IDX:1)"
            text = f"   JOB_GRES=x\n     Nodes=n1 CPU_IDs=0 Mem=1 GRES={gres}\n"
            node.keeper.told(job_id, text)


def _sample(node: Node, a: int, b: int) -> None:
    with node.journal.synced_at_end():
        node.keeper.sample(node.look(None if a % 4 == 0 else b % 1001))


def _border(node: Node, a: int, b: int) -> None:
    node.pass_time(1, 0)
    with node.journal.synced_at_end():
        node.keeper.border(node.look(b % 1001), node.now_ms - a % 2)


def _crash(node: Node, a: int, b: int) -> None:
    node.stop()
    if a % 2:
        node.pass_time(1 + b % 600_000, 200_000)
    node.start()


def _reset(node: Node, a: int, b: int) -> None:
    """A board's counter begins again, seen before or not."""
    board = [*node.boards.values()][a % len(node.boards)]
    if b % 2:
        _sample(node, 1, 500)
    board.counter_mj, board.forgot = 0, True


def _reload(node: Node, a: int, b: int) -> None:
    for board in node.boards.values():
        board.counter_mj, board.forgot = 0, True
    node.pass_time(1 + a % 5_000, 60_000)


def _lost(node: Node, a: int, b: int) -> None:
    board = [*node.boards.values()][a % len(node.boards)]
    board.lost = board.forgot = True


def _back(node: Node, a: int, b: int) -> None:
    for board in node.boards.values():
        if board.lost:
            board.lost, board.counter_mj = False, board.counter_mj if b % 2 else 0


def _reboot(node: Node, a: int, b: int) -> None:
    node.stop()
    node.boot += 1
    node.pass_time(1 + a % 900_000, 100_000)
    node.boot_ms = node.now_ms
    for board in node.boards.values():
        board.counter_mj, board.lost, board.forgot = 0, False, True
    node.pass_time(b % 100_000, 100_000)
    node.start()


def _clock(node: Node, a: int, b: int) -> None:
    """Someone sets the wall clock; what was used meanwhile is still counted."""
    node.now_ms += a
    for board in node.boards.values():
        board.forgot = True


_STEPS = {
    "time": lambda node, a, b: node.pass_time(a, b),
    "prolog": _prolog, "epilog": _epilog, "mail": _mail, "blind": _blind, "again": _again,
    "told": _told, "sample": _sample, "border": _border, "crash": _crash, "reset": _reset,
    "reload": _reload, "lost": _lost, "back": _back, "reboot": _reboot, "clock": _clock,
}  # fmt: skip


def check_windows(node: Node, events) -> None:
    """What must hold of all windows, whatever happened."""
    windows = defaultdict(list)
    for event in events:
        if isinstance(event, WindowClosed):
            windows[event.device].append(event)
    for uuid, board in node.boards.items():
        for one, other in pairwise(windows[uuid]):
            assert one.t1_ms == other.t0_ms
        for window in windows[uuid]:
            check_window(window)
        if uuid == NO_COUNTER:
            assert all(w.flags & Flag.INTEGRATED or w.measured_mj is None for w in windows[uuid])
            continue
        measured = sum(w.measured_mj or 0 for w in windows[uuid])
        assert measured <= board.used_mj
        if not board.forgot:
            assert all(w.measured_mj is not None for w in windows[uuid])
            assert measured == board.used_mj


def check_window(window: WindowClosed) -> None:
    """Parts add up and are not negative; unknown has no parts and says why."""
    assert window.t0_ms < window.t1_ms
    if window.measured_mj is None:
        rest = (window.unallocated_idle_mj, window.unallocated_active_mj)
        assert (window.shares, rest) == ((), (None, None))
        assert window.flags & (Flag.LOST | Flag.GAP | Flag.IMPLAUSIBLE | Flag.RESET)
        return
    parts = [part for share in window.shares for part in (share.idle_mj, share.active_mj)]
    parts += [window.unallocated_idle_mj, window.unallocated_active_mj]
    assert min(parts) >= 0
    assert sum(parts) == window.measured_mj
    keys = [(share.job_id, share.run_start_ms, share.instance) for share in window.shares]
    assert len(set(keys)) == len(keys)


def check_runs(events, *, clock_is_steady: bool) -> None:
    """A run has a share only of windows that it held to their end, from its start on.

    Where the clock was set back, a run may end before the end of a window that it had.
    """
    starts, ends = {}, {}
    for event in events:
        if isinstance(event, RunStarted):
            starts[event.job_id, event.t_ms] = event
        elif isinstance(event, RunEnded):
            assert (event.job_id, event.run_start_ms) not in ends
            ends[event.job_id, event.run_start_ms] = event.t_ms
            assert event.t_ms >= event.run_start_ms
    for event in events:
        for share in event.shares if isinstance(event, WindowClosed) else ():
            key = (share.job_id, share.run_start_ms)
            assert event.device in {hold.device for hold in starts[key].holds}
            assert share.run_start_ms <= event.t0_ms
            if clock_is_steady:
                assert ends.get(key, event.t1_ms) >= event.t1_ms


@settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(st.lists(quiet, max_size=30))
def test_without_faults_all_that_was_used_is_measured(tmp_path_factory, steps) -> None:
    node = Node(tmp_path_factory.mktemp("node"))
    try:
        play(node, steps)
        events = node.events()
    finally:
        node.stop()
    check_windows(node, events)
    check_runs(events, clock_is_steady=True)


@settings(max_examples=120, deadline=None, suppress_health_check=SLOW)
@given(st.lists(wild, max_size=30))
def test_whatever_happens_the_windows_hold(tmp_path_factory, steps) -> None:
    node = Node(tmp_path_factory.mktemp("node"))
    try:
        play(node, steps)
        events = node.events()
    finally:
        node.stop()
    check_windows(node, events)
    check_runs(events, clock_is_steady=all(what != "clock" for what, _, _ in steps))


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(st.lists(wild, max_size=25))
def test_the_store_and_the_report_say_what_the_windows_say(tmp_path_factory, steps) -> None:
    """Per run and device: the sum of its shares; unknown, not 0, where no window is known."""
    folder = tmp_path_factory.mktemp("node")
    node = Node(folder)
    try:
        play(node, steps)
        events = node.events()
    finally:
        node.stop()
    db = in_store(node, folder / "store.db", events)
    assert _booked(db) == _expected(events, _joined(db))
    for job_id in {event.job_id for event in events if isinstance(event, RunStarted)}:
        check_report(db, job_id)
    db.close()


def _joined(db) -> dict[tuple[int, int], int]:
    """The run of each node's run that has one, as the store joined them."""
    rows = db.execute("SELECT job_id, start_ms, run_id FROM node_run").fetchall()
    return {(job_id, start_ms): run_id for job_id, start_ms, run_id in rows if run_id}


def _expected(events, joined) -> dict[tuple[int, str], int | None]:
    sums: dict[tuple[int, str], int | None] = {}
    for event in events:
        if isinstance(event, RunStarted) and (event.job_id, event.t_ms) in joined:
            for hold in event.holds:
                sums.setdefault((joined[event.job_id, event.t_ms], hold.device), None)
    for event in events:
        for share in event.shares if isinstance(event, WindowClosed) else ():
            run_id = joined.get((share.job_id, share.run_start_ms))
            if run_id is not None:
                key = (run_id, event.device)
                sums[key] = (sums.get(key) or 0) + share.idle_mj + share.active_mj
    return sums


def _booked(db) -> dict[tuple[int, str], int | None]:
    rows = db.execute("SELECT run_id, device_uuid, idle_mj + active_mj FROM run_energy")
    return {(run_id, uuid): energy_mj for run_id, uuid, energy_mj in rows.fetchall()}


def check_report(db, job_id: int) -> None:
    """What the store does not know is None in the table that pages and commands show."""
    table = next(
        t for t in job_report(db, Scope("root", Role.ADMIN), "c1", job_id) if t.name == "energy"
    )
    keys = [column.key for column in table.columns]
    shown = {row[keys.index("device_uuid")]: row[keys.index("energy_mj")] for row in table.rows}
    stored = db.execute(
        "SELECT device_uuid, idle_mj + active_mj FROM run_energy e JOIN run r USING (run_id)"
        " WHERE r.job_id = ?", (job_id,),
    ).fetchall()  # fmt: skip
    assert shown == dict(stored)
