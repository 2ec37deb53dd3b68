# SPDX-License-Identifier: Apache-2.0
"""`fairwatt policy`: show the rules in use, check a policy file, replay history through one."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairwatt.core import config as config_module

if TYPE_CHECKING:
    from fairwatt.core.config import Config
    from fairwatt.slurm_plugins.site import Site

__all__ = ["policy"]

_site_option = click.option(
    "--site",
    "site_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="JSON or TOML file with nodes and partitions; default: Slurm, else the demo site.",
)
_policy_path = click.Path(path_type=Path, dir_okay=False)


@click.group()
def policy() -> None:
    """The rules that judge submissions: show, check, replay."""


@policy.command()
@click.argument("file", required=False, type=_policy_path)
def show(file: Path | None) -> None:
    """List the rules of FILE (default: the policy in use) in order, with mode and options."""
    from fairwatt.slurm_plugins.policy_file import load_policy
    from fairwatt.slurm_plugins.policy_show import as_table

    click.echo(as_table(load_policy(file or _in_use(config_module.load(config_module.find())))))


@policy.command()
@_site_option
@click.argument("file", required=False, type=_policy_path)
def check(site_file: Path | None, file: Path | None) -> None:
    """Check FILE (default: the policy in use): each fault with file and line, status 1 if any.

    Every rule that is on is also tried on requests of every shape.
    """
    from fairwatt.slurm_plugins.policy_check import check_policy

    config = config_module.load(config_module.find())
    path = file or _in_use(config)
    if not path.exists() and file is None:
        click.echo(f"{path}: no such file, the defaults are in use")
        return
    site, origin = _site(site_file, config)
    policy_file, problems = check_policy(path, site)
    if problems and site_file is None and origin != "Slurm":
        click.echo(f"info: names are compared with {origin}")
    for problem in problems:
        click.echo(f"{problem.level}: {problem.text}")
    if any(problem.level == "error" for problem in problems):
        raise SystemExit(1)
    active = sum(rule.mode != "off" for rule in policy_file.rules)
    click.echo(f"{path}: good; {active} of {len(policy_file.rules)} rules are on")


@policy.command()
@_site_option
@click.option(
    "--days",
    type=click.IntRange(1, 3660),
    default=30,
    show_default=True,
    help="How many days back, today among them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("file", type=_policy_path)
def replay(site_file: Path | None, days: int, as_json: bool, file: Path) -> None:
    """Judge the jobs of the last days by FILE and by the policy in use; tell the differences.

    Nothing is changed. The jobs come from Slurm's accounting, as far as it knows what was asked.
    """
    from fairwatt.slurm_plugins import history
    from fairwatt.slurm_plugins.engine import Policy
    from fairwatt.slurm_plugins.policy_file import load_policy
    from fairwatt.slurm_plugins.replay import Replay, as_text

    config = config_module.load(config_module.find())
    site, _ = _site(site_file, config)
    now, then = (Policy(site, load_policy(path).rules) for path in (_in_use(config), file))
    found = Replay(now, then)
    today = int(time.time()) // history.DAY_S * history.DAY_S
    starts = range(today - (days - 1) * history.DAY_S, today + 1, history.DAY_S)
    with click.progressbar(starts, label="days", item_show_func=_day, file=sys.stderr) as bar:
        for start_ts in bar:
            found.add(history.read_day(start_ts, config["site.slurm_conf"] or None))
    click.echo(json.dumps(found.as_dict(), indent=2) if as_json else as_text(found))


def _day(start_ts: int | None) -> str | None:
    return None if start_ts is None else time.strftime("%Y-%m-%d", time.gmtime(start_ts))


def _in_use(config: Config) -> Path:
    return Path(config["policyd.policy_file"])


def _site(site_file: Path | None, config: Config) -> tuple[Site, str]:
    """The site to judge by, and where it is from."""
    from fairwatt.core.catalogue import load_catalogue
    from fairwatt.slurm_plugins.explain import find_facts
    from fairwatt.slurm_plugins.site import Site

    facts, origin = find_facts(site_file, config)
    return Site(facts, load_catalogue(config["site.catalogue_dir"] or None)), origin
