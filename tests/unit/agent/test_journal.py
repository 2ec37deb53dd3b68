# SPDX-License-Identifier: Apache-2.0
"""The journal: what was decided survives kill -9, bad lines, a full disk; nothing twice."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairwatt.accounting.agent import journal as journal_module
from fairwatt.accounting.agent import segments as agent_segments_module
from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.journal_line import decode_line
from fairwatt.accounting.agent.records import Entry, Reading
from fairwatt.core import line_file as line_file_module
from fairwatt.core import segments as segments_module
from fairwatt.core.errors import SpoolError
from fairwatt.core.events import DeviceHold, RunEnded, RunStarted, decode_body

HOLD = DeviceHold(device="GPU-1", instance="", numerator=1, denominator=1)


def started(job_id: int, t_ms: int = 1_000) -> Entry:
    return Entry(
        event=RunStarted(
            node="n1",
            boot_id="b",
            seq=0,
            t_ms=t_ms,
            job_id=job_id,
            restart_cnt=0,
            sluid=None,
            uid=1,
            account="physics",
            holds=(HOLD,),
            mapped_by="uuid",
        )
    )


def ended(job_id: int, t_ms: int = 2_000, start_ms: int = 1_000) -> Entry:
    return Entry(
        event=RunEnded(
            node="n1",
            boot_id="b",
            seq=0,
            t_ms=t_ms,
            job_id=job_id,
            run_start_ms=start_ms,
            closed_by="epilog",
        )
    )


def reading(t_ms: int) -> Entry:
    return Entry(
        reading=Reading(device="GPU-1", t_ms=t_ms, energy_mj=t_ms, method="counter", boot_id="b")
    )


OPENED: list[Journal] = []


def open_journal(folder: Path, first_seq: int = 100) -> Journal:
    journal = Journal(folder, first_seq=first_seq)
    OPENED.append(journal)
    return journal


@pytest.fixture(autouse=True)
def _close_all() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def pending_jobs(journal: Journal) -> list[int]:
    batch = journal.pending(1 << 20, 1000)
    return [] if batch is None else [event.job_id for event in decode_body(batch.body)]


def test_a_reopened_journal_has_the_same_state_and_goes_on_counting(tmp_path) -> None:
    journal = open_journal(tmp_path)
    assert journal.append([started(1), reading(1_500), started(2, 1_600)])
    journal.close()
    again = open_journal(tmp_path, first_seq=999)
    assert [run.job_id for run in again.state.runs] == [1, 2]
    assert again.state.baselines["GPU-1"].energy_mj == 1_500
    assert again.state.next_seq == 102
    again.append([ended(1)])
    assert again.pending(1 << 20, 10).last_seq == 102


def test_events_leave_only_when_confirmed(tmp_path) -> None:
    journal = open_journal(tmp_path)
    journal.append([started(1), started(2), started(3)])
    batch = journal.pending(1 << 20, 2)
    assert (batch.count, batch.first_seq, batch.last_seq) == (2, 100, 101)
    journal.confirm(batch.last_seq)
    journal.close()
    again = open_journal(tmp_path)
    assert pending_jobs(again) == [3]
    assert {run.job_id for run in again.state.runs} == {1, 2, 3}


def test_what_is_delivered_is_not_read_again(tmp_path, monkeypatch) -> None:
    """A busy node's segment has thousands of lines, and hooks wait while they are read."""
    journal = open_journal(tmp_path)
    journal.append([started(n) for n in range(1, 51)])
    batch = journal.pending(1 << 20, 30)
    assert batch is not None
    journal.confirm(batch.last_seq)
    journal.append([started(51), ended(1)])
    decoded: list[bytes] = []

    def counted(line: bytes) -> Entry:
        decoded.append(line)
        return decode_line(line)

    monkeypatch.setattr(agent_segments_module, "decode_line", counted)
    assert pending_jobs(journal) == [*range(31, 52), 1]
    assert len(decoded) == 22


def test_a_torn_line_behind_the_last_delivery_hides_nothing(tmp_path, monkeypatch) -> None:
    journal = open_journal(tmp_path)
    journal.append([started(1)])
    with next(tmp_path.glob("*.journal")).open("ab") as file:
        file.write(b"torn")
    batch = journal.pending(1 << 20, 30)
    assert batch is not None
    journal.confirm(batch.last_seq)
    journal.append([started(2), started(3)])
    assert pending_jobs(journal)[-1] == 3


def test_batches_are_bounded_in_bytes_but_never_empty(tmp_path) -> None:
    journal = open_journal(tmp_path)
    journal.append([started(n) for n in range(5)])
    assert journal.pending(1, 1000).count == 1
    assert journal.pending(700, 1000).count in (2, 3)


def test_delivered_segments_are_dropped_and_the_state_stays(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 500)
    journal = open_journal(tmp_path)
    for number in range(10):
        journal.append([started(number)])
    assert len(list(tmp_path.glob("*.journal"))) > 3
    journal.confirm(journal.state.next_seq - 1)
    assert len(list(tmp_path.glob("*.journal"))) == 1
    journal.close()
    again = open_journal(tmp_path)
    assert [run.job_id for run in again.state.runs] == list(range(10))
    assert again.pending(1 << 20, 10) is None


def test_undelivered_segments_stay(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 500)
    journal = open_journal(tmp_path)
    for number in range(10):
        journal.append([started(number)])
    journal.confirm(104)
    journal.close()
    assert pending_jobs(open_journal(tmp_path)) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line[: len(line) // 2] + b"\n",
        lambda line: line.replace(b"physics", b"phys\x00cs"),
        lambda line: b"\xff\xfe garbage\n",
        lambda line: b"\n",
    ],
)
def test_a_damaged_line_is_set_aside_alone(tmp_path, caplog, damage) -> None:
    journal = open_journal(tmp_path)
    journal.append([started(1)])
    journal.append([started(2)])
    journal.append([started(3)])
    journal.close()
    (segment,) = tmp_path.glob("*.journal")
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[1] = damage(lines[1])
    segment.write_bytes(b"".join(lines))
    with caplog.at_level(logging.ERROR):
        again = open_journal(tmp_path)
    assert [run.job_id for run in again.state.runs] == [1, 3]
    assert segment.with_suffix(".bad").read_bytes() == lines[1]
    assert len(caplog.records) == 1
    assert "1 damaged line(s) set aside" in caplog.text
    assert pending_jobs(again) == [1, 3]
    again.close()
    caplog.clear()
    open_journal(tmp_path)
    assert caplog.text == ""


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 2_000))
def test_a_crash_at_any_byte_keeps_every_whole_line(tmp_path_factory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("journal")
    journal = open_journal(folder)
    journal.append([started(1), started(2)])
    journal.append([ended(1), started(3)])
    journal.close()
    (segment,) = folder.glob("*.journal")
    whole = segment.read_bytes()
    kept = whole[: min(cut, len(whole))]
    segment.write_bytes(kept)
    again = open_journal(folder)
    expected = ["1", "12", "2", "23"]
    lines = kept.count(b"\n")
    jobs = "".join(str(run.job_id) for run in again.state.runs)
    assert jobs == (["", *expected][lines])
    assert again.state.next_seq == 100 + lines
    again.append([started(9)])
    assert again.state.runs[-1].job_id == 9
    again.close()


def test_a_damaged_checkpoint_is_set_aside(tmp_path, caplog) -> None:
    journal = open_journal(tmp_path)
    journal.append([started(1)])
    journal.close()
    (tmp_path / "checkpoint").write_bytes(b"00000000 {}\n")
    again = open_journal(tmp_path)
    assert [run.job_id for run in again.state.runs] == [1]
    assert (tmp_path / "checkpoint.bad").exists()
    assert "is damaged" in caplog.text


def test_a_full_disk_is_reported_once_and_made_good(tmp_path, monkeypatch, caplog) -> None:
    journal = open_journal(tmp_path)
    journal.append([started(1)])
    write = os.write
    room = [40]

    def full(descriptor: int, data: bytes) -> int:
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = write(descriptor, data[: room[0]])
        room[0] -= count
        return count

    monkeypatch.setattr(os, "write", full)
    assert journal.append([started(2)]) is False
    assert journal.append([ended(1)]) is False
    assert journal.failing
    assert [run.job_id for run in journal.state.runs] == [2]
    monkeypatch.setattr(os, "write", write)
    assert journal.retry() is True
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "No space left on device" in caplog.text
    journal.close()
    again = open_journal(tmp_path)
    assert [run.job_id for run in again.state.runs] == [2]
    assert not list(tmp_path.glob("*.bad"))


@pytest.fixture
def no_new_files(monkeypatch):
    """The disk is full: no file can be created or replaced; an old one still takes a line."""

    def full(*_: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        for module in (journal_module, segments_module):
            patch.setattr(module, "write_atomically", full)
        patch.setattr(line_file_module, "sync_folder", full)
        yield patch


@pytest.mark.parametrize("torn", [b"", b'deadbeef {"ev'])
def test_an_agent_starts_on_a_full_disk(tmp_path, request, torn) -> None:
    """Else it could never deliver, and so never free, what fills the disk."""
    journal = open_journal(tmp_path)
    journal.append([started(1)])
    journal.close()
    segment = max(path for path in tmp_path.glob("*.journal") if path.stat().st_size)
    segment.write_bytes(segment.read_bytes() + torn)
    patch = request.getfixturevalue("no_new_files")
    again = open_journal(tmp_path)
    assert [run.job_id for run in again.state.runs] == [1]
    assert again.append([started(2)])
    again.close()
    patch.undo()
    last = open_journal(tmp_path)
    assert [run.job_id for run in last.state.runs] == [1, 2]
    assert pending_jobs(last) == [1, 2]


def test_delivery_makes_room_on_a_full_disk(tmp_path, monkeypatch, request) -> None:
    """The mark cannot be written before something was removed."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 100)
    journal = open_journal(tmp_path)
    for job_id in range(1, 6):
        journal.append([started(job_id)])
    before = len(list(tmp_path.glob("*.journal")))
    batch = journal.pending(1 << 20, 1000)
    request.getfixturevalue("no_new_files")
    journal.confirm(batch.last_seq)
    assert before > 3
    assert len(list(tmp_path.glob("*.journal"))) == 1


def test_what_a_hook_waits_for_is_written_at_once_and_synced_afterwards(
    tmp_path, monkeypatch
) -> None:
    journal = open_journal(tmp_path)
    synced: list[int] = []
    monkeypatch.setattr(line_file_module.os, "fdatasync", synced.append)
    with journal.synced_at_end():
        assert journal.append([started(1)])
        assert pending_jobs(journal) == [1]  # read from the file: another process sees it too
        assert synced == []
    assert len(synced) == 1
    journal.append([started(2)])
    assert len(synced) == 2


def test_a_disk_that_fails_to_sync_is_reported(tmp_path, monkeypatch, caplog) -> None:
    journal = open_journal(tmp_path)

    def refuse(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(line_file_module.os, "fdatasync", refuse)
    with journal.synced_at_end():
        assert journal.append([started(1)])
    assert "Input/output error" in caplog.text


def test_two_agents_cannot_share_a_spool(tmp_path) -> None:
    journal = open_journal(tmp_path)
    with pytest.raises(SpoolError, match="another agent uses this spool"):
        open_journal(tmp_path)
    journal.close()


def test_an_unusable_folder_is_one_clear_message(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match=r"check agent\.spool_dir"):
        open_journal(tmp_path / "file")


def test_what_may_be_merged_no_more_is_on_disk_before_it_is_sent(tmp_path, monkeypatch) -> None:
    """After a power cut the collector may have it: a merged window would be another event."""
    journal = open_journal(tmp_path)
    journal.append([ended(1)])
    synced, fsync = [], os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    journal.pending(10_000, 10)
    assert synced == [".offered.tmp", tmp_path.name]
