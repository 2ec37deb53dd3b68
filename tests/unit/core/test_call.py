# SPDX-License-Identifier: Apache-2.0
"""The subprocess wrapper: no shell, no hang, every failure a CommandError."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairwatt.core.call import call
from fairwatt.core.errors import CommandError, CommandTimeout
from tests.lab.waiting import await_value


def test_arguments_are_not_a_shell_line() -> None:
    assert call(["echo", "$HOME; `id`", "a b"], timeout_s=5).stdout == "$HOME; `id` a b\n"


def test_feeds_text_and_variables() -> None:
    done = call(["sh", "-c", 'cat; echo "$X"'], timeout_s=5, stdin="in\n", env={"X": "y"})
    assert done.stdout == "in\ny\n"


def test_without_text_the_input_is_empty() -> None:
    assert call(["cat"], timeout_s=5).stdout == ""


def test_a_failure_carries_status_and_text() -> None:
    with pytest.raises(CommandError, match=r"sh -c: exit status 3: oops") as caught:
        call(["sh", "-c", "echo oops >&2; exit 3"], timeout_s=5)
    assert (caught.value.returncode, caught.value.stderr) == (3, "oops\n")
    assert call(["sh", "-c", "exit 3"], timeout_s=5, check=False).returncode == 3


def test_a_missing_program_is_named() -> None:
    with pytest.raises(CommandError, match="no-such-program not found; install it"):
        call(["no-such-program"], timeout_s=5)


def test_a_program_that_may_not_run_is_named() -> None:
    with pytest.raises(CommandError, match="Permission denied"):
        call(["/etc/passwd"], timeout_s=5)


def test_a_slow_program_is_ended() -> None:
    with pytest.raises(CommandTimeout, match=r"no answer within 0\.1 s"):
        call(["sleep", "30"], timeout_s=0.1)


def test_a_slow_program_takes_its_children_along(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(CommandTimeout):
        call(["sh", "-c", f"sleep 30 & echo $! > {pid}; wait"], timeout_s=1)
    await_gone(int(pid.read_text()))


def await_gone(pid: int) -> None:
    """Wait up to 5 s until the process has ended; a zombie that nobody reaped counts as ended."""
    await_value(lambda: not is_alive(pid), what=f"the end of process {pid}", timeout_s=5)


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_bad_bytes_do_not_crash() -> None:
    assert call(["printf", r"a\377b"], timeout_s=5).stdout == "a\ufffdb"
