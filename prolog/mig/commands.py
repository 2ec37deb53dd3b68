# SPDX-License-Identifier: Apache-2.0
"""`fairwatt mig`: declared MIG layouts shown, checked against Slurm, written out and planned."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from fairwatt.core import config as config_module
from fairwatt.prolog.mig.apply_commands import apply, restore, status

if TYPE_CHECKING:
    from fairwatt.prolog.mig.here import Here

__all__ = ["mig"]

FOUND = 3
"""Exit status of lint with faults, and of plan with proposals; 1 means it could not look."""

_node_option = click.option(
    "--node", help="This host's name in Slurm; default: setting agent.node, else the host name."
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def mig() -> None:
    """MIG layouts: declared in mig.toml, on the boards, in Slurm's files."""


mig.add_command(apply)
mig.add_command(status)
mig.add_command(restore)


@mig.command()
@_node_option
@_json_option
def show(node: str | None, as_json: bool) -> None:
    """Show this node's boards: what is declared, what is there, Slurm's types for the declared."""
    from fairwatt.prolog.mig import shown

    here = _here(node)
    rows = shown.rows(here)
    click.echo(
        json.dumps([asdict(row) for row in rows], indent=2) if as_json else shown.text(rows)
    )


@mig.command()
@_node_option
@_json_option
def lint(node: str | None, as_json: bool) -> None:
    """Check this node: layouts, boards, slurm.conf, gres.conf; print the line to write instead.

    Exit status: 0 nothing to mend, 3 findings, 1 it could not look.
    """
    from fairwatt.prolog.mig.lint import lint as run

    here = _here(node)
    findings = run(here.declared, here.conf, here.live, here.catalogue, dict(here.mig.types))
    if as_json:
        click.echo(json.dumps([asdict(each) for each in findings], indent=2))
    else:
        for each in findings:
            click.echo(str(each))
    if any(each.severity != "note" for each in findings):
        raise SystemExit(FOUND)
    if not as_json:
        click.echo(f"{here.node}: good")


@mig.command()
@_node_option
@click.option(
    "--style",
    type=click.Choice(["auto", "nvml", "files"]),
    default="auto",
    show_default=True,
    help="gres.conf with AutoDetect=nvml, or with device files; auto: as it is now.",
)
@_json_option
def generate(node: str | None, style: Literal["auto", "nvml", "files"], as_json: bool) -> None:
    """Print Gres= and the gres.conf lines for this node's declared layout.

    Lines with device files exist only for instances that are on the boards. Where a board is not
    cut as declared, a comment says so.
    """
    from fairwatt.prolog.mig.generate import boards_declared, unlike
    from fairwatt.prolog.mig.generate import generate as run

    here = _here(node)
    chosen = here.style if style == "auto" else style
    boards, faults = boards_declared(here.declared, here.live, here.catalogue)
    if faults:
        raise faults[0]
    spelling = here.spelling(must_match=chosen == "nvml")
    made = run(here.node, boards, spelling, chosen, live=here.live, others=here.conf.others)
    unlikes = [
        f"/dev/nvidia{board.gpu.minor}: {what}" for board in boards if (what := unlike(board))
    ]
    if as_json:
        click.echo(json.dumps({**asdict(made), "differs": unlikes}, indent=2))
        return
    for what in unlikes:
        click.echo(f"# not yet so: {what}")
    click.echo(f"# {here.conf.slurm_conf}")
    click.echo(here.conf.line_with_gres(made.gres) or f"Gres={made.gres}")
    click.echo(f"# {here.conf.gres_conf}")
    click.echo("\n".join(made.lines))


@mig.command()
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Declared layouts; default: setting mig.file.",
)
@click.option(
    "--history",
    "days",
    type=click.IntRange(0, 366),
    default=0,
    show_default=True,
    help="Between equals prefer types for which jobs of so many days waited long (sacct).",
)
@_json_option
def plan(path: Path | None, days: int, as_json: bool) -> None:
    """Propose which nodes to cut anew for the jobs that wait; changes nothing.

    Exit status: 0 nothing to change, 3 there are proposals, 1 it could not look.
    """
    from fairwatt.prolog.mig.here import read_plan
    from fairwatt.prolog.mig.proposals import as_text

    found = read_plan(config_module.load(config_module.find()), path, days)
    click.echo(json.dumps(asdict(found), indent=2) if as_json else as_text(found))
    if found.proposals:
        raise SystemExit(FOUND)


def _here(node: str | None) -> Here:
    from fairwatt.prolog.mig.here import read_here

    return read_here(config_module.load(config_module.find()), node)
