# SPDX-License-Identifier: Apache-2.0
"""The command `fairwatt updater`."""

from __future__ import annotations

import click

from fairwatt.core import config as config_module
from fairwatt.core import logs

__all__ = ["updater"]


@click.command()
@click.option("--once", is_flag=True, help="Make one pass and end.")
@click.option(
    "--dry-run", is_flag=True, help="With --once: print what would be done and change nothing."
)
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def updater(once: bool, dry_run: bool, verbose: bool) -> None:
    """Change jobs that wait long to the next GPU that would do, until SIGTERM.

    Looks at jobs whose request left a choice and takes the next one after updater.wait_s.
    Needs the rights of SlurmUser.
    """
    from fairwatt.slurm_plugins.updater import from_config, serve

    if dry_run and not once:
        raise click.UsageError("--dry-run goes with --once")
    logs.setup(verbose)
    config = config_module.load(config_module.find())
    if not once:
        return serve(config)
    for outcome in from_config(config, dry_run=dry_run).run_pass():
        verb = "would change: " if dry_run else ""
        click.echo(f"job {outcome.job_id}: {verb if outcome.changed else 'stays: '}{outcome.text}")
    return None
