# SPDX-License-Identifier: Apache-2.0
"""`fairwatt health`: what the agent's checks say of this node, and the checks themselves."""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn

import click
import msgspec

from fairwatt.core import config as config_module
from fairwatt.core.clock import now_ms
from fairwatt.core.errors import DeviceError
from fairwatt.core.verdict import Verdict, decode_verdict, verdict_unknown
from fairwatt.core.verdict_metrics import as_metrics
from fairwatt.prolog.health.settings import HealthSettings, health_settings
from fairwatt.prolog.health.shown import EXIT, age, checks_text, verdict_text
from fairwatt.prolog.health.spec import load_checks

__all__ = ["STALE_MS", "health", "newest"]

STALE_MS = 300_000
"""The agent writes the verdict at least once a minute."""

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(invoke_without_command=True)
@_json_option
@click.pass_context
def health(context: click.Context, as_json: bool) -> None:
    """Show this node's health as the agent's checks found it.

    Exit status: 0 ok, 3 warn, 4 bad, 5 unknown; 1 it could not look.
    """
    if context.invoked_subcommand is None:
        settings = _settings()
        _end(newest(settings, now_ms()), settings, as_json=as_json)


@health.command()
@_json_option
def run(as_json: bool) -> None:
    """Run all checks once, now; nothing is drained.

    Exit status as that of `fairwatt health`.
    """
    from fairwatt.prolog.health.one_round import one_round
    from fairwatt.prolog.health.site import site_checks

    settings = _settings()
    specs, fault = site_checks(settings.file)
    _end(one_round(settings, specs.values(), fault), settings, as_json=as_json)


@health.command()
@_json_option
def checks(as_json: bool) -> None:
    """List the checks with their codes, as the site's file changes them."""
    specs = load_checks(_settings().file).values()
    if as_json:
        click.echo(json.dumps([msgspec.to_builtins(spec) for spec in specs], indent=2))
    else:
        click.echo(checks_text(specs))


@health.command()
@click.option("--write", is_flag=True, help="Record what is there now as the baseline.")
def baseline(write: bool) -> None:
    """Show what the node has, or record it as what it should have: boards, links, limits, MIG."""
    from fairwatt.prolog.health.baseline import baseline_of, read_baseline, write_baseline
    from fairwatt.prolog.health.one_round import one_reading

    settings = _settings()
    now = baseline_of(settings.node, one_reading(settings, load_checks().values()))
    if write:
        click.echo(f"{write_baseline(settings.folder, now)}: {len(now.boards)} GPUs recorded")
        return
    recorded = read_baseline(settings.folder)
    if recorded is None:
        click.echo("no baseline is recorded; `fairwatt health baseline --write` records this:")
    elif recorded.boards == now.boards:
        click.echo(f"as recorded {age(now_ms() - recorded.t_ms)} ago:")
    else:
        click.echo(f"differs from what was recorded {age(now_ms() - recorded.t_ms)} ago; now:")
    for board in now.boards:
        click.echo(json.dumps(msgspec.to_builtins(board)))


@health.command()
def metrics() -> None:
    """Print the newest verdict as Prometheus metrics, for node_exporter's textfile collector."""
    click.echo(as_metrics(newest(_settings(), now_ms())), nl=False)


def newest(settings: HealthSettings, now_ms: int) -> Verdict:
    """Return the verdict that the agent wrote last; an old one is "unknown".

    Raises:
        DeviceError: there is none.
    """
    path = settings.state_file
    try:
        verdict = decode_verdict(path.read_bytes())
    except OSError as error:
        raise DeviceError(
            f"no verdict: {error.strerror}",
            place=str(path),
            remedy="start the agent (health.enabled), or see `fairwatt health run`",
        ) from error
    old_ms = now_ms - verdict.t_ms
    if old_ms <= STALE_MS:
        return verdict
    why = f"the verdict is {age(old_ms)} old: the agent does not run"
    return verdict_unknown(verdict.node, verdict.t_ms, "FWH908", why)


def _end(verdict: Verdict, settings: HealthSettings, *, as_json: bool) -> NoReturn:
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(verdict), indent=2))
    else:
        click.echo(verdict_text(verdict, load_checks(), now_ms()))
    sys.stdout.flush()
    # A thread of ours may hang in the driver: the interpreter would wait for nothing.
    os._exit(EXIT[verdict.state])


def _settings() -> HealthSettings:
    return health_settings(config_module.load(config_module.find()))
