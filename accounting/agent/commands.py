# SPDX-License-Identifier: Apache-2.0
"""`fairwatt agent`: the daemon on every GPU node."""

from __future__ import annotations

import time
from functools import partial
from importlib.metadata import version

import click

from fairwatt.accounting.agent.asker import job_text
from fairwatt.accounting.agent.daemon import Daemon
from fairwatt.accounting.agent.inbox import Inbox
from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.keeper import Keeper
from fairwatt.accounting.agent.nvml import NvmlSource
from fairwatt.accounting.agent.records import Origin
from fairwatt.accounting.agent.settings import AgentSettings, agent_settings
from fairwatt.core import config, logs, munge
from fairwatt.core.boot import read_boot_id, read_boot_ms
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.errors import SpoolError
from fairwatt.core.post import Answer, post_events
from fairwatt.core.slurm_cli import CliBackend

__all__ = ["agent"]


@click.command()
@click.option("-v", "--verbose", is_flag=True, help="Log what is done in detail.")
def agent(verbose: bool) -> None:
    """Measure this node's GPUs and account their energy to jobs, until stopped."""
    logs.setup(verbose)
    settings = agent_settings(config.load(config.find()))
    try:
        _daemon(settings).run()
    except OSError as error:
        raise SpoolError(
            f"cannot be used: {error.strerror}",
            place=str(error.filename or settings.socket),
            remedy="check agent.socket and agent.inbox_dir: folder, owner, free space",
        ) from error


def _daemon(settings: AgentSettings) -> Daemon:
    origin = Origin(settings.node, read_boot_id(settings.proc_root))
    catalogue = load_catalogue(settings.catalogue_dir)
    Inbox(settings.inbox_dir).prepare()
    now_ms = time.time_ns() // 1_000_000
    journal = Journal(settings.spool_dir / "journal", first_seq=now_ms)
    keeper = Keeper(settings, journal, origin, catalogue, version=version("fairwatt"))
    keeper.resume(read_boot_ms(settings.proc_root) or now_ms)

    def send(body: bytes) -> Answer:
        return post_events(
            settings.collector_url,
            body,
            lambda digest: munge.encode(digest, settings.munge_socket),
        )

    source = NvmlSource(settings.node, catalogue)
    slurm = CliBackend(str(settings.slurm_conf) if settings.slurm_conf.exists() else None)
    return Daemon(settings, source, journal, keeper, send, partial(job_text, slurm))
