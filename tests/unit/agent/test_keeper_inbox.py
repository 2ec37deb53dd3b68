# SPDX-License-Identifier: Apache-2.0
"""The keeper and its inbox: bad mail is set aside, and the rest goes on."""

from __future__ import annotations

import os
from pathlib import Path

from fairwatt.core.events import RunStarted


def test_bad_mail_is_set_aside_and_the_rest_goes_on(bench, caplog) -> None:
    (bench.folder / "inbox" / "00000000000001-broken.json").write_text('{"v":1,"verb":"pro')
    bench.mail("prolog", 4)
    bench.keeper.sample(bench.look())
    assert [run.job_id for run in bench.events(RunStarted)] == [4]
    assert [path.name for path in (bench.folder / "inbox").iterdir()] == [
        "00000000000001-broken.bad"
    ]
    assert "set aside: not a hook's message" in caplog.text


def test_what_is_no_file_is_set_aside_and_said_once(bench, caplog) -> None:
    inbox = bench.folder / "inbox"
    (inbox / "1.json").mkdir()
    (inbox / "2.json").symlink_to("nowhere")
    os.mkfifo(inbox / "3.json")
    with (inbox / "4.json").open("wb") as file:
        file.truncate(1 << 40)
    for _ in range(3):
        bench.keeper.sample(bench.look())
    assert sorted(path.name for path in inbox.iterdir()) == ["1.bad", "2.bad", "3.bad", "4.bad"]
    assert caplog.text.count("cannot be read") == 4
    assert not bench.keeper.has_mail


def test_a_message_that_breaks_us_is_tried_once(bench, monkeypatch, caplog) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(bench.keeper, "_start", broken)
    bench.mail("prolog", 4)
    bench.now_ms += 1
    bench.mail("epilog", 4)
    bench.keeper.sample(bench.look())
    assert [path.suffix for path in (bench.folder / "inbox").iterdir()] == [".bad"]
    assert "a fault of ours" in caplog.text


def test_bad_mail_that_cannot_be_set_aside_ends_nothing(bench, monkeypatch, caplog) -> None:
    (bench.folder / "inbox" / "1-1-prolog.json").write_text("{")
    bench.mail("prolog", 7)

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "rename", refuse)
    bench.keeper.sample(bench.look())
    assert bench.keeper.status()["jobs"] == [7]
    assert "cannot be set aside: Read-only file system" in caplog.text
