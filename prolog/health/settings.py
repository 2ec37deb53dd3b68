# SPDX-License-Identifier: Apache-2.0
"""The health checks' part of the settings, with paths resolved."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from fairwatt.core.config import Config

__all__ = ["HealthSettings", "health_settings"]


@dataclass(frozen=True)
class HealthSettings:
    """What the worker needs to know; see core/settings.py for the meaning of each."""

    node: str
    file: Path
    state_file: Path
    folder: Path
    kmsg: Path
    spool_dir: Path
    proc_root: Path
    slurm_conf: Path
    gres_conf: Path
    mig_file: Path
    catalogue_dir: str | None
    agent_socket: Path
    drains: bool
    max_drains_per_hour: int
    confirm_rounds: int
    heal_rounds: int
    hang_s: float

    @property
    def heartbeat_s(self) -> float:
        """How often the worker says something: well within the agent's patience."""
        return max(0.05, min(10.0, self.hang_s / 4))


def health_settings(config: Config) -> HealthSettings:
    """Return the health checks' settings from the whole configuration."""
    slurm_conf = Path(
        config["site.slurm_conf"] or os.environ.get("SLURM_CONF") or "/etc/slurm/slurm.conf"
    )
    gres_conf = config["agent.gres_conf"]
    return HealthSettings(
        node=config["agent.node"] or socket.gethostname().split(".", 1)[0],
        file=Path(config["health.file"]),
        state_file=Path(config["health.state_file"]),
        folder=Path(config["health.dir"]),
        kmsg=Path(config["health.kmsg"]),
        spool_dir=Path(config["agent.spool_dir"]),
        proc_root=Path(config["agent.proc_root"]),
        slurm_conf=slurm_conf,
        gres_conf=Path(gres_conf) if gres_conf else slurm_conf.with_name("gres.conf"),
        mig_file=Path(config["mig.file"]),
        catalogue_dir=config["site.catalogue_dir"] or None,
        agent_socket=Path(config["agent.socket"]),
        drains=config["health.drain"],
        max_drains_per_hour=config["health.max_drains_per_hour"],
        confirm_rounds=config["health.confirm_rounds"],
        heal_rounds=config["health.heal_rounds"],
        hang_s=max(0.2, config["health.hang_s"]),
    )
