# SPDX-License-Identifier: Apache-2.0
"""The command line: no traceback for our own errors, lists all commands, stays light."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fairwatt.core import cli
from fairwatt.core.errors import StoreError

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
NAMES = sorted(PROJECT["entry-points"]["fairwatt.commands"])


@click.command()
def faulty() -> None:
    """Fail."""
    raise StoreError("is locked", place="/x.db", remedy="wait")


def register(monkeypatch: pytest.MonkeyPatch, **targets: str) -> None:
    entries = [EntryPoint(name, target, cli.COMMAND_GROUP) for name, target in targets.items()]
    monkeypatch.setattr(cli, "entry_points", lambda group: entries)


def test_the_group_lists_every_command() -> None:
    assert cli.cli.list_commands(click.Context(cli.cli)) == NAMES


def test_help_lists_every_command_even_one_that_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(monkeypatch, web="no_such_package.web:command", doctor="fairwatt.core.doctor:doctor")
    done = CliRunner().invoke(cli.cli, ["--help"])
    assert done.exit_code == 0
    assert "doctor  Check this host's set-up" in done.output
    assert "needs the Python package no_such_package" in done.output


def test_our_own_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_registered", lambda: {"faulty": object()})
    monkeypatch.setattr(cli, "_loaded", lambda entry: faulty)
    monkeypatch.setattr(sys, "argv", ["fairwatt", "faulty"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "fairwatt: /x.db: is locked; wait\n")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, web="no_such_package.web:command")
    done = CliRunner().invoke(cli.cli, ["web"])
    assert done.exit_code == 1
    assert "`fairwatt web` needs the Python package no_such_package" in done.output


def test_an_entry_point_that_is_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, odd="fairwatt.core.cli:COMMAND_GROUP")
    done = CliRunner().invoke(cli.cli, ["odd"])
    assert done.exit_code == 1
    assert "fairwatt.core.cli:COMMAND_GROUP is not a command" in done.output


def test_an_unknown_command_is_wrong_usage() -> None:
    done = CliRunner().invoke(cli.cli, ["doktor"])
    assert done.exit_code == 2
    assert "No such command" in done.output


def test_the_command_line_loads_nothing_heavy() -> None:
    code = (
        "import sys, fairwatt.core.cli; "
        "print([name for name in ('flask', 'sqlite_utils', 'msgspec', 'pynvml', 'sqlite3') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
