# SPDX-License-Identifier: Apache-2.0
"""The `fairwatt` command: finds the rooms' commands by entry point, loads only the one called."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points, version
from typing import Any

import click

from fairwatt.core.errors import FairwattError

__all__ = ["cli", "main"]

COMMAND_GROUP = "fairwatt.commands"


class _RoomCommands(click.Group):
    """Commands of all rooms; a command's module is imported when it is called, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_registered())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, _short_help(entry)) for name, entry in sorted(_registered().items())]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _registered().get(cmd_name)
        return None if entry is None else _loaded(entry)


def _registered() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=COMMAND_GROUP)}


def _short_help(entry: EntryPoint) -> str:
    """A command that cannot be loaded says why in the list, and hides no other."""
    try:
        return _loaded(entry).get_short_help_str(limit=120)
    except click.ClickException as error:
        return f"({error.message})"


def _loaded(entry: EntryPoint) -> click.Command:
    try:
        command: Any = entry.load()
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"`fairwatt {entry.name}` needs the Python package {error.name}; "
            "install fairwatt with the extra that brings it (gpu, dashboard)"
        ) from error
    if not isinstance(command, click.Command):
        raise click.ClickException(f"{entry.value} is not a command; reinstall fairwatt")
    return command


@click.group(cls=_RoomCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("fairwatt"), prog_name="fairwatt")
def cli() -> None:
    """Fair, measured GPU sharing for Slurm."""


def main() -> None:
    """Run the command line; our own errors become one line on stderr and exit status 1."""
    try:
        cli()
    except FairwattError as error:
        click.echo(f"fairwatt: {error}", err=True)
        sys.exit(1)
