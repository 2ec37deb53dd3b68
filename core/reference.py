# SPDX-License-Identifier: Apache-2.0
"""Writes the reference pages docs/settings.md, commands.md and metrics.md from the code itself.

`python -m fairwatt.core.reference docs` rewrites them; a test compares them with the code.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import click

from fairwatt.core.cli import cli
from fairwatt.core.metrics import METRICS, Metric
from fairwatt.core.settings import SETTINGS, Setting

__all__ = ["PAGES", "commands_page", "metrics_page", "settings_page", "write_pages"]

_WRITTEN = (
    "This page is written by `python -m fairwatt.core.reference docs`; do not edit it by hand."
)
_TYPE_NAMES = {bool: "true or false", int: "integer", float: "number", str: "text", list: "list"}

_SETTINGS_HEAD = f"""# Settings

fairwatt reads the file named by the environment variable FAIRWATT_CONFIG, else
`/etc/fairwatt/fairwatt.toml`, then the `*.toml` files of the `conf.d` folder beside it in name
order; a later file wins key by key. Without any file all defaults hold. An unknown key or a
wrong type is an error that names file, key, value and the nearest valid key.
`fairwatt doctor` says which files were read.

{_WRITTEN}
"""

_COMMANDS_HEAD = f"""# Commands

`fairwatt COMMAND --help` shows the same. A fault that fairwatt knows is one line on stderr and
exit status 1; wrong usage is exit status 2.

{_WRITTEN}
"""

_METRICS_HEAD = f"""# Metrics

Text for Prometheus and whatever reads its format, or OpenMetrics where the reader asks for that.
fairwatt needs neither, and bills from its store alone.

- The collector: `GET /metrics` at `collector.listen`, for the addresses in
  `collector.metrics_from`; by default this host's own only.
- The agent: the file that `agent.metrics_file` names, written every minute in the folder of
  node_exporter's textfile collector. No port is opened on nodes. The health checks' metrics are a
  file of their own (`health.metrics_file`, [health](health.md)).

No label has a value that a user or a job may choose: for each metric they are those below. A
counter that begins at 0 when its process does is said to; the ledger's are read from the store.

{_WRITTEN}
"""


def settings_page() -> str:
    """Return docs/settings.md: one table per section of the settings file."""
    return "\n".join([_SETTINGS_HEAD, *_sections()])


def commands_page() -> str:
    """Return docs/commands.md: every command with its arguments and options."""
    context = click.Context(cli, info_name="fairwatt")
    return "\n".join([_COMMANDS_HEAD, *_commands(cli, context)])


def metrics_page() -> str:
    """Return docs/metrics.md: every metric with kind, labels and meaning."""
    rows = [_metric_row(metric) for metric in METRICS]
    return "\n".join([_METRICS_HEAD, "| Metric | Kind | Meaning |", "|---|---|---|", *rows, ""])


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "commands.md": commands_page,
    "metrics.md": metrics_page,
}
"""File name in docs/ and the function that returns its text."""


def write_pages(folder: Path) -> None:
    """Write all pages into `folder`."""
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")


def _sections() -> Iterator[str]:
    for section, settings in groupby(SETTINGS, key=lambda item: item.key.split(".")[0]):
        yield f"## [{section}]\n"
        yield "| Key | Type | Default | Meaning |"
        yield "|---|---|---|---|"
        yield from (_setting_row(item) for item in settings)
        yield ""


def _setting_row(item: Setting) -> str:
    choices = ", ".join(f"`{choice}`" for choice in item.choices)
    kind = f"one of {choices}" if choices else _TYPE_NAMES[item.type]
    name = item.key.split(".", 1)[1]
    return f"| `{name}` | {kind} | `{json.dumps(item.default)}` | {_cell(item.doc)} |"


def _metric_row(metric: Metric) -> str:
    suffix = "_total" if metric.kind == "counter" else ""
    labels = "".join(
        f" `{label}`: {', '.join(values)}." for label, values in (metric.labels or {}).items()
    )
    return f"| `fairwatt_{metric.name}{suffix}` | {metric.kind} | {metric.doc}{labels} |"


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        yield from _command(command, inner)
        if isinstance(command, click.Group):
            yield from _commands(command, inner)


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"## {context.command_path}\n"
    yield f"`{context.command_path} {usage}`\n".replace(" `", "`")
    yield inspect.cleandoc(command.help or "").replace("\b\n", "") + "\n"
    options = [item for item in command.params if isinstance(item, click.Option)]
    if options:
        yield "| Option | Meaning |"
        yield "|---|---|"
        yield from (_option_row(item) for item in options if not item.hidden)
        yield ""


def _option_row(item: click.Option) -> str:
    names = ", ".join([*item.opts, *item.secondary_opts])
    if not item.is_flag:
        names += f" {item.type.name.upper()}"
    return f"| `{names}` | {_cell(item.help or '')} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
