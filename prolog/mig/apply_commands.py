# SPDX-License-Identifier: Apache-2.0
"""`fairwatt mig apply` and `fairwatt mig status`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairwatt.core import config as config_module
from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError

if TYPE_CHECKING:
    from fairwatt.prolog.mig.apply import Outcome
    from fairwatt.prolog.mig.journal import Begun, Journal

__all__ = ["apply", "restore", "status"]

GONE_BACK, STUCK = 4, 5
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@click.argument("node", required=False)
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="What `fairwatt mig plan --json` printed: take its proposal for this node.",
)
@click.option("--layout", "layout_name", help="This declared layout; default: as [nodes] says.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--dynamic/--restart",
    "dynamic",
    default=None,
    help="Delete the node and let it register itself anew, or restart slurmd; "
    "default: as the node is known to slurmctld.",
)
@click.option("--rollback", is_flag=True, help="Take a change back that is not finished.")
@click.option("--abandon", is_flag=True, help="Forget a change that is stuck; touch nothing.")
@_json_option
def apply(
    node: str | None,
    plan_file: Path | None,
    layout_name: str | None,
    yes: bool,
    dynamic: bool | None,
    rollback: bool,
    abandon: bool,
    as_json: bool,
) -> None:
    """Cut this node's GPUs as declared: drain, wait, change, tell Slurm, resume.

    Run as root on the node. What fails is taken back. After a crash run it again: it goes on
    where it was, or takes it back (--rollback). Jobs are never ended; a node that somebody else
    drained stays drained.

    Exit status: 0 it is as wanted, 4 taken back, 5 stuck: the node stays drained, 1 nothing was
    changed.
    """
    from fairwatt.prolog.mig.apply import hold_lock
    from fairwatt.prolog.mig.journal import Journal
    from fairwatt.prolog.mig.target import node_here

    if plan_file is not None and layout_name is not None:
        raise click.UsageError("give --plan or --layout, not both")
    config = config_module.load(config_module.find())
    name = node_here(config, node)
    folder = Path(config["mig.state_dir"])
    with hold_lock(folder):
        journal = Journal.open(folder)
        if abandon:
            _abandon(journal, folder)
            return
        asked = (layout_name, plan_file, dynamic)
        outcome = _run(config, name, journal, asked, rollback=rollback, yes=yes, quiet=as_json)
    _tell(name, outcome, as_json=as_json)


def _run(
    config: Config,
    name: str,
    journal: Journal | None,
    asked: tuple[str | None, Path | None, bool | None],
    *,
    rollback: bool,
    yes: bool,
    quiet: bool,
) -> Outcome | None:
    """Take up the open change or begin one; None: there is nothing to do."""
    from fairwatt.prolog.mig.apply import finish, turn_back
    from fairwatt.prolog.mig.here import read_here
    from fairwatt.prolog.mig.journal import Journal
    from fairwatt.prolog.mig.slurm_node import SlurmNode
    from fairwatt.prolog.mig.steps import Steps
    from fairwatt.prolog.mig.target import asked_layout, make_begun, same_target, site_of

    here = read_here(config, name)
    slurm = SlurmNode(name, config["site.slurm_conf"] or None)
    layout_name, plan_file, dynamic = asked
    if journal is None:
        if rollback:
            raise ConfigError("no change is open", place=name, remedy="see fairwatt mig status")
        wanted = asked_layout(name, here.mig, layout_name, plan_file)
        begun = make_begun(config, wanted, here, slurm, dynamic=dynamic)
        if begun is None:
            return None
        if not yes:
            _confirm(begun)
        journal = Journal.begin(Path(config["mig.state_dir"]), begun)
    elif rollback:
        turn_back(journal, "asked for")
    elif layout_name or plan_file:
        same_target(journal, asked_layout(name, here.mig, layout_name, plan_file), here)

    def say(text: str) -> None:
        if not quiet:
            click.echo(text, err=True)

    return finish(journal, Steps(site_of(config, here), slurm, journal, say), slurm, say)


def _confirm(begun: Begun) -> None:
    how = "the node leaves and registers anew" if begun.dynamic else "slurmd is restarted"
    click.echo(f"{begun.node}: {begun.old.gres or 'no GPUs'} -> {begun.new.gres} ({how})")
    click.confirm("Drain the node and do it?", abort=True)


def _abandon(journal: Journal | None, folder: Path) -> None:
    if journal is None:
        raise ConfigError("no change is open", place=str(folder), remedy="nothing to abandon")
    journal.end("abandoned")
    click.echo(f"{journal.begun.node}: forgotten; check it (fairwatt mig lint), then resume it")


def _tell(node: str, outcome: Outcome | None, *, as_json: bool) -> None:
    if as_json:
        found = {"result": "unchanged"} if outcome is None else asdict(outcome)
        click.echo(json.dumps({"node": node, **found}))
    elif outcome is None:
        click.echo(f"{node}: is so already; nothing was changed")
    else:
        click.echo(f"{node}: {_sentence(outcome)}")
    if outcome is not None and outcome.result != "applied":
        raise SystemExit(GONE_BACK if outcome.result == "rolled back" else STUCK)


def _sentence(outcome: Outcome) -> str:
    away = "" if outcome.outage_s is None else f"; out of service for {outcome.outage_s:.2f} s"
    if outcome.result == "stuck":
        return (
            f"stuck, drained: {outcome.text}; mend it, then run fairwatt mig apply --rollback, "
            "or --abandon to forget it"
        )
    why = f": {outcome.text}" if outcome.text else ""
    return f"{outcome.result}{why}{away}"


@click.command()
def restore() -> None:
    """Cut this node's GPUs again as Slurm's files say, after a reboot.

    To be run before slurmd starts (unit fairwatt-mig.service). Slurm is not told: its files are
    as they were.
    """
    from fairwatt.prolog.mig.apply import hold_lock
    from fairwatt.prolog.mig.here import read_here
    from fairwatt.prolog.mig.restore import restore as run
    from fairwatt.prolog.mig.target import node_here

    config = config_module.load(config_module.find())
    name = node_here(config, None)
    with hold_lock(Path(config["mig.state_dir"])):
        done = run(config, read_here(config, name))
    click.echo(f"{name}: {len(done)} changes" if done else f"{name}: is so already")


@click.command()
@_json_option
def status(as_json: bool) -> None:
    """Tell where a change of this node's layout stands, or how the last one ended."""
    from fairwatt.prolog.mig import status as told

    config = config_module.load(config_module.find())
    report = told.read_status(Path(config["mig.state_dir"]))
    click.echo(json.dumps(report) if as_json else told.as_text(report))
