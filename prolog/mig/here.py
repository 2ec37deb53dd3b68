# SPDX-License-Identifier: Apache-2.0
"""Gathers what the MIG commands look at: mig.toml, Slurm's files, slurmctld, the boards."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path

from fairwatt.core.catalogue import Catalogue, load_catalogue
from fairwatt.core.conf_lines import ConfLine, read_conf
from fairwatt.core.config import Config
from fairwatt.core.errors import CommandError, ConfigError, SlurmError
from fairwatt.core.slurm import SlurmClient
from fairwatt.core.slurm_cli import CliBackend
from fairwatt.core.slurm_pyslurm import find_slurm_conf
from fairwatt.prolog.mig.cluster import read_nodes
from fairwatt.prolog.mig.demand import read_demand
from fairwatt.prolog.mig.generate import Style
from fairwatt.prolog.mig.history import read_waits
from fairwatt.prolog.mig.layout import MigFile, NodeLayout
from fairwatt.prolog.mig.layout_file import load_layouts
from fairwatt.prolog.mig.live import LiveNode
from fairwatt.prolog.mig.names import Spelling
from fairwatt.prolog.mig.node_conf import NodeConf, conf_of_node, conf_of_slurm
from fairwatt.prolog.mig.plan_options import plan_nodes
from fairwatt.prolog.mig.proposals import Plan, make_plan

__all__ = ["Here", "mig_path", "read_catalogue", "read_here", "read_node_conf", "read_plan"]


@dataclass(frozen=True)
class Here:
    """A node with all that is said of it; `declared` None: mig.toml does not name it."""

    node: str
    mig: MigFile
    declared: NodeLayout | None
    conf: NodeConf
    live: LiveNode
    catalogue: Catalogue

    @property
    def style(self) -> Style:
        """How gres.conf is written now: by hand if it has lines and detects nothing."""
        by_hand = bool(self.conf.lines) and self.conf.autodetect != "nvml"
        return "files" if by_hand else "nvml"

    def spelling(self, *, must_match: bool) -> Spelling:
        """Return how types are written on this node."""
        return Spelling(self.catalogue, self.mig.types, self.conf.types, must_match)


def read_here(config: Config, node: str | None = None) -> Here:
    """Return this host's node; `node` where its name in Slurm is not that of the settings.

    Raises:
        ConfigError: mig.toml or Slurm's files cannot be read.
        DeviceError: the boards cannot be read.
    """
    # Only nodes have nvidia-ml-py; `plan` runs on the controller.
    from fairwatt.prolog.mig.read_live import read_live

    name = node or config["agent.node"] or socket.gethostname().partition(".")[0]
    catalogue = read_catalogue(config)
    mig = load_layouts(mig_path(config), catalogue)
    live = read_live(name, Path(config["agent.proc_root"]))
    conf = read_node_conf(config, name)
    return Here(name, mig, mig.of_node(name), conf, live, catalogue)


def read_node_conf(config: Config, node: str) -> NodeConf:
    """Return what Slurm's files say of a node; what slurmctld says where they do not name it.

    Raises:
        ConfigError: there is no slurm.conf, or a file or line cannot be read.
    """
    named = find_slurm_conf(config["site.slurm_conf"] or None)
    if named is None:
        raise ConfigError(
            "no slurm.conf can be read here", place="site.slurm_conf", remedy="name the file"
        )
    slurm_conf = Path(named)
    gres_conf = Path(config["agent.gres_conf"] or slurm_conf.with_name("gres.conf"))
    conf = conf_of_node(
        node,
        list(read_conf(slurm_conf)),
        _lines(gres_conf),
        str(slurm_conf),
        str(gres_conf),
    )
    return conf if conf.gres is not None else _dynamic(config, node, conf)


def read_plan(config: Config, path: Path | None = None, history_days: int = 0) -> Plan:
    """Ask Slurm what waits and what nodes there are; return what to cut anew.

    With `history_days` types for which jobs of the last days waited long are preferred.

    Raises:
        ConfigError: mig.toml cannot be read.
        CommandError: Slurm does not answer.
        SlurmError: its answer has no known shape.
    """
    catalogue = read_catalogue(config)
    mig = load_layouts(path or mig_path(config), catalogue)
    slurm = CliBackend(config["site.slurm_conf"] or None)
    now_ts = int(time.time())
    demands, _ = read_demand(slurm.pending_json(), now_ts)
    records = read_nodes(slurm.nodes_json())
    asked = [type_ for each in demands for type_ in each.needs if type_ is not None]
    nodes = plan_nodes(records, mig, catalogue, now_ts, asked)
    waits = read_waits(history_days, config["site.slurm_conf"] or None) if history_days else None
    return make_plan(nodes, demands, mig, waits)


def mig_path(config: Config) -> Path:
    """Return the file of declared layouts."""
    return Path(config["mig.file"])


def read_catalogue(config: Config) -> Catalogue:
    """Return the catalogue with the site's own models."""
    return load_catalogue(config["site.catalogue_dir"] or None)


def _lines(path: Path) -> list[ConfLine]:
    return list(read_conf(path)) if path.exists() else []


def _dynamic(config: Config, node: str, conf: NodeConf) -> NodeConf:
    """A dynamic node stands in no file; without slurmctld's answer it stays unknown."""
    try:
        nodes = SlurmClient(config["site.slurm_conf"] or None, "cli").nodes()
    except (CommandError, SlurmError):
        return conf
    gres = next((each.gres for each in nodes if each.name == node), None)
    return conf if gres is None else conf_of_slurm(node, gres, conf)
