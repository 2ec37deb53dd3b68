# SPDX-License-Identifier: Apache-2.0
"""The agent's part of the settings, with paths resolved."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairwatt.accounting.agent.dcgm_activity import dcgm_place
from fairwatt.core.config import Config
from fairwatt.core.http_get import HttpPlace

__all__ = ["AgentSettings", "agent_settings"]


@dataclass(frozen=True)
class AgentSettings:
    """What the agent needs to know; see core/settings.py for the meaning of each."""

    node: str
    socket: Path
    job_dir: Path
    inbox_dir: Path
    spool_dir: Path
    slurm_conf: Path
    gres_conf: Path
    proc_root: Path
    collector_url: str
    munge_socket: str | None
    catalogue_dir: str | None
    sample_s: float
    window_ms: int
    ship_s: float
    dcgm_job_dir: Path | None = None
    process_utilisation: bool = False
    dcgm_place: HttpPlace | None = None
    hook: Mapping[str, str] = field(default_factory=dict)


def agent_settings(config: Config) -> AgentSettings:
    """Return the agent's settings from the whole configuration.

    Raises:
        ConfigError: agent.dcgm_url is no page on this host.
    """
    slurm_conf = Path(
        config["site.slurm_conf"] or os.environ.get("SLURM_CONF") or "/etc/slurm/slurm.conf"
    )
    gres_conf = config["agent.gres_conf"]
    return AgentSettings(
        node=config["agent.node"] or socket.gethostname().split(".", 1)[0],
        socket=Path(config["agent.socket"]),
        job_dir=Path(config["agent.job_dir"]),
        inbox_dir=Path(config["agent.inbox_dir"]),
        spool_dir=Path(config["agent.spool_dir"]),
        slurm_conf=slurm_conf,
        gres_conf=Path(gres_conf) if gres_conf else slurm_conf.with_name("gres.conf"),
        proc_root=Path(config["agent.proc_root"]),
        collector_url=config["agent.collector_url"],
        munge_socket=config["site.munge_socket"] or None,
        catalogue_dir=config["site.catalogue_dir"] or None,
        sample_s=max(0.05, config["agent.sample_s"]),
        window_ms=max(1, config["agent.window_s"]) * 1000,
        ship_s=max(0.05, config["agent.ship_s"]),
        dcgm_job_dir=Path(config["agent.dcgm_job_dir"]) if config["agent.dcgm_job_dir"] else None,
        process_utilisation=config["agent.process_utilisation"],
        dcgm_place=dcgm_place(config["agent.dcgm_url"]),
        hook={
            "clean": "yes" if config["epilog.clean"] else "no",
            "temp": config["epilog.temp_dir"],
        },
    )
