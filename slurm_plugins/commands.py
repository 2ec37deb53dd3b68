# SPDX-License-Identifier: Apache-2.0
"""The commands of the submit side: `fairwatt explain` and `fairwatt policyd`."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from fairwatt.core import config as config_module
from fairwatt.core import logs

__all__ = ["explain", "policyd"]


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--site",
    "site_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="JSON or TOML file with nodes and partitions; default: Slurm, else the demo site.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def explain(site_file: Path | None, as_json: bool, flags: tuple[str, ...]) -> None:
    """Say what each rule would do to a job with sbatch's FLAGS. Submits nothing.

    Example: fairwatt explain -- --gres=gpu:20gb:1 -n1
    """
    from fairwatt.slurm_plugins import explain as explaining
    from fairwatt.slurm_plugins.sbatch_flags import job_fields, passed_over

    config = config_module.load(config_module.find())
    explanation = explaining.explain_job(job_fields(flags), site_file, config)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(explanation)).decode())
    else:
        click.echo(explaining.as_text(explanation))
        if rest := passed_over(flags):
            click.echo(f"note      not looked at: {' '.join(rest)}; only sbatch can judge that")


@click.command()
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def policyd(verbose: bool) -> None:
    """Answer the submit hook over a unix socket until SIGTERM; SIGHUP reads the settings again."""
    from fairwatt.slurm_plugins.policyd import serve

    logs.setup(verbose)
    serve(config_module.load(config_module.find()))
