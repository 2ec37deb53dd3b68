# SPDX-License-Identifier: Apache-2.0
"""The commands of the submit side: `fairwatt explain` and `fairwatt policyd`."""

from __future__ import annotations

import re
from pathlib import Path

import click
import msgspec

from fairwatt.core import config as config_module
from fairwatt.core import logs

__all__ = ["explain", "policyd"]

_JOB_ID = re.compile(r"[0-9]+(?:_[0-9]+|\+[0-9]+)?")


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--site",
    "site_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="JSON or TOML file with nodes and partitions; default: Slurm, else the demo site.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def explain(site_file: Path | None, as_json: bool, words: tuple[str, ...]) -> None:
    """Say what each rule would do to a job. Submits nothing.

    WORDS are sbatch's flags, flags and a script with #SBATCH lines, or a job's number.

    \b
    fairwatt explain -- --gres=gpu:20gb:1 -n1
    fairwatt explain -- -p gpu train.sh
    fairwatt explain 4711
    """  # noqa: D301 (click reads \b)
    from fairwatt.slurm_plugins import explain as explaining

    config = config_module.load(config_module.find())
    if len(words) == 1 and _JOB_ID.fullmatch(words[0]):
        past = explaining.past_job(words[0], config)
        explanation = explaining.explain_job(past.fields, site_file, config, past.recorded)
        rest: list[str] = []
    else:
        fields, rest = explaining.submission(words)
        explanation = explaining.explain_job(fields, site_file, config)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(explanation)).decode())
        return
    click.echo(explaining.as_text(explanation))
    if rest:
        click.echo(f"note      not looked at: {' '.join(rest)}; only sbatch can judge that")


@click.command()
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def policyd(verbose: bool) -> None:
    """Answer the submit hook over a unix socket until SIGTERM; SIGHUP reads the settings again."""
    from fairwatt.slurm_plugins.policyd_process import serve

    logs.setup(verbose)
    serve(config_module.load(config_module.find()))
