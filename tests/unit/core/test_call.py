# SPDX-License-Identifier: Apache-2.0
"""The subprocess wrapper: no shell, no hang, every failure a CommandError."""

from __future__ import annotations

import time

import pytest

from fairwatt.core.call import call
from fairwatt.core.errors import CommandError, CommandTimeout


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


def test_a_slow_child_of_the_program_does_not_hold_the_call() -> None:
    began = time.monotonic()
    with pytest.raises(CommandTimeout):
        call(["sh", "-c", "sleep 30; true"], timeout_s=0.1)
    assert time.monotonic() - began < 5


def test_bad_bytes_do_not_crash() -> None:
    assert call(["printf", r"a\377b"], timeout_s=5).stdout == "a\ufffdb"
