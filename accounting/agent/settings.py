# SPDX-License-Identifier: Apache-2.0
"""The agent's part of the settings, with paths resolved."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairwatt.accounting.agent.dcgm_activity import dcgm_place
from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError
from fairwatt.core.http_get import HttpPlace

__all__ = ["AgentSettings", "agent_settings", "idle_powers"]

_IDLE = re.compile(r"(cpu|dram)=(\d{1,4}(?:\.\d{1,3})?)")


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
    spool_max_bytes: int = 0
    metrics_file: Path | None = None
    sys_root: Path = Path("/sys")
    idle_mw: Mapping[str, int] = field(default_factory=dict)
    node_power_has_gpus: bool = True
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
        sys_root=Path(config["agent.sys_root"]),
        idle_mw=idle_powers(config["agent.host_idle_w"]),
        node_power_has_gpus=config["agent.node_power_has_gpus"],
        spool_max_bytes=config["agent.spool_max_mib"] * 1024 * 1024,
        metrics_file=Path(config["agent.metrics_file"]) if config["agent.metrics_file"] else None,
        hook={
            "clean": "yes" if config["epilog.clean"] else "no",
            "temp": config["epilog.temp_dir"],
        },
    )


def idle_powers(items: Sequence[str]) -> dict[str, int]:
    """Return idle powers in mW by kind from texts such as `cpu=45`.

    Raises:
        ConfigError: one is no such text.
    """
    powers = {}
    for item in items:
        match = _IDLE.fullmatch(item)
        if match is None:
            raise ConfigError(
                "not an idle power",
                place="agent.host_idle_w",
                value=item,
                remedy='give watts of a package and of its DRAM, as ["cpu=45", "dram=6"]',
            )
        powers[match.group(1)] = round(1000 * float(match.group(2)))
    return powers
