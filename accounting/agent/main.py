# SPDX-License-Identifier: Apache-2.0
"""The agent as a process: `python -P -m fairwatt.accounting.agent.main VERSION [-v] [--host=…]`.

`fairwatt agent` becomes this program, which does not load what only the command line needs: on
every GPU node that is several MB.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial

from fairwatt.accounting.agent.asker import job_text
from fairwatt.accounting.agent.daemon import Daemon
from fairwatt.accounting.agent.dcgm_activity import DcgmActivity
from fairwatt.accounting.agent.health import HealthSettings, health_settings
from fairwatt.accounting.agent.host.cgroup import Cgroups
from fairwatt.accounting.agent.host.keeper import HostKeeper
from fairwatt.accounting.agent.host.places import made
from fairwatt.accounting.agent.host.source import HostSource
from fairwatt.accounting.agent.host.topology import read_topology
from fairwatt.accounting.agent.inbox import Inbox
from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.keeper import Keeper
from fairwatt.accounting.agent.nvml import NvmlSource
from fairwatt.accounting.agent.process_use import ProcessMeter
from fairwatt.accounting.agent.records import Origin
from fairwatt.accounting.agent.settings import AgentSettings, agent_settings
from fairwatt.core import config, logs, munge
from fairwatt.core.boot import read_boot_id, read_boot_ms
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.errors import FairwattError, SpoolError
from fairwatt.core.post import Answer, post_events
from fairwatt.core.slurm_cli import CliBackend

__all__ = ["main", "run"]


def main(argv: list[str]) -> int:
    """Run the agent until it is stopped; our own errors become one line on stderr and status 1."""
    version, *options = argv
    logs.setup(verbose="-v" in options, limited=True)
    try:
        run(version, [option for option in options if option.startswith("--host=")])
    except FairwattError as error:
        sys.stderr.write(f"fairwatt: {error}\n")
        return 1
    return 0


def run(version: str, hosts: Sequence[str] = ()) -> None:
    """Run the agent until it is stopped; `hosts` say where its host sources are made.

    Raises:
        FairwattError: a setting is wrong, or its socket or folders cannot be used.
    """
    known = config.load(config.find())
    settings = agent_settings(known)
    try:
        health = health_settings(known, settings.node)
        _daemon(settings, version, health, made(hosts, known)).run()
    except OSError as error:
        raise SpoolError(
            f"cannot be used: {error.strerror}",
            place=str(error.filename or settings.socket),
            remedy="check agent.socket and agent.inbox_dir: folder, owner, free space",
        ) from error


def _daemon(
    settings: AgentSettings,
    version: str,
    health: HealthSettings | None,
    sources: Sequence[HostSource],
) -> Daemon:
    origin = Origin(settings.node, read_boot_id(settings.proc_root))
    catalogue = load_catalogue(settings.catalogue_dir)
    Inbox(settings.inbox_dir).prepare()
    now_ms = time.time_ns() // 1_000_000
    journal = Journal(
        settings.spool_dir / "journal", first_seq=now_ms, max_bytes=settings.spool_max_bytes
    )
    keeper = Keeper(settings, journal, origin, catalogue, version=version)
    host = HostKeeper(
        origin,
        journal,
        sources,
        Cgroups(settings.sys_root / "fs" / "cgroup", settings.node).look,
        read_topology(settings.sys_root, settings.proc_root),
        idle_mw=settings.idle_mw,
        has_gpus=settings.node_power_has_gpus,
    )
    boot_ms = read_boot_ms(settings.proc_root) or now_ms
    host.resume(boot_ms)
    keeper.resume(boot_ms)

    def send(body: bytes) -> Answer:
        return post_events(
            settings.collector_url,
            body,
            lambda digest: munge.encode(digest, settings.munge_socket),
        )

    source = NvmlSource(
        settings.node,
        catalogue,
        processes=ProcessMeter(settings.proc_root) if settings.process_utilisation else None,
        dcgm=DcgmActivity(settings.dcgm_place) if settings.dcgm_place else None,
    )
    slurm = CliBackend(str(settings.slurm_conf) if settings.slurm_conf.exists() else None)
    return Daemon(settings, source, journal, keeper, host, send, partial(job_text, slurm), health)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
