# SPDX-License-Identifier: Apache-2.0
"""The checks of core: configuration, catalogue, munge, Slurm and its GPU accounting."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.config import Config
from fairwatt.core.doctor import Check, Finding, Level
from fairwatt.core.slurm import NodeFacts, SlurmClient

__all__ = ["checks", "unknown_types"]

SLURM_COMMANDS = ("scontrol", "sbatch", "squeue", "sacct")
MUNGE_SOCKET = "/run/munge/munge.socket.2"


def _config(config: Config) -> list[Finding]:
    files = sorted(set(config.origins.values()))
    text = f"settings from {', '.join(files)}" if files else "no settings file: all defaults"
    remedy = "" if files else "write /etc/fairwatt/fairwatt.toml or set FAIRWATT_CONFIG"
    return [Finding(text, remedy, "info")]


def _catalogue(config: Config) -> list[Finding]:
    load_catalogue(config["site.catalogue_dir"] or None)
    return []


def _munge(config: Config) -> list[Finding]:
    path = config["site.munge_socket"] or MUNGE_SOCKET
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(2)
            probe.connect(path)
    except OSError as error:
        remedy = "start munged, or name its socket in site.munge_socket"
        return [Finding(f"{path}: munged does not answer ({error.strerror or error})", remedy)]
    return []


def _slurm(config: Config) -> list[Finding]:
    missing = [name for name in SLURM_COMMANDS if shutil.which(name) is None]
    if missing:
        remedy = "install Slurm's client commands and put them on PATH"
        needless = config["host.policyd"] == config["host.collector"] == "no"
        level: Level = "warn" if needless else "error"
        return [Finding(f"not found: {', '.join(missing)}", remedy, level)]
    conf = config["site.slurm_conf"]
    if conf and not Path(conf).exists():
        return [Finding(f"{conf} does not exist", "correct site.slurm_conf")]
    if not _client(config).is_up():
        remedy = "start slurmctld; see what `scontrol ping` says"
        return [Finding("slurmctld does not answer", remedy)]
    return []


def _slurm_backend(config: Config) -> list[Finding]:
    if _slurm(config):
        return []
    client = _client(config)
    client.snapshot()  # what pyslurm cannot read is found out by reading
    text = f"Slurm is asked through {client.chosen.name}: {client.chosen.reason}"
    return [Finding(text, "", "info")]


def _gpu_accounting(config: Config) -> list[Finding]:
    if _slurm(config):
        return []
    tracked = _client(config).config().get("AccountingStorageTRES", "")
    if "gres/gpu" in tracked.lower().split(","):
        return []
    remedy = "add gres/gpu to AccountingStorageTRES in slurm.conf and restart slurmctld"
    return [Finding(f"Slurm's accounting does not count GPUs (it has {tracked!r})", remedy)]


def _gres_types(config: Config) -> list[Finding]:
    if _slurm(config):
        return []
    return unknown_types(_client(config).nodes(), config["site.catalogue_dir"])


def unknown_types(nodes: Sequence[NodeFacts], catalogue_dir: str) -> list[Finding]:
    """Return one finding per GPU type of the nodes that the catalogue does not know."""
    catalogue = load_catalogue(catalogue_dir or None)
    where: dict[str | None, list[str]] = {}
    for node in nodes:
        for item in node.gres:
            if item.is_gpu and catalogue.milli_of_type(item.type or "") is None:
                where.setdefault(item.type, []).append(node.name)
    return [_unknown_type(type_, names) for type_, names in where.items()]


def _unknown_type(type_: str | None, names: list[str]) -> Finding:
    place = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    if type_ is None:
        remedy = "give the GPUs a Type= in gres.conf and a type in slurm.conf's Gres"
        return Finding(f"untyped GPUs on {place}: their model is unknown to Slurm", remedy, "warn")
    remedy = "add it to slurm_types of its model in a file in site.catalogue_dir"
    return Finding(f"GPU type {type_!r} of {place} is not in the catalogue", remedy)


def _client(config: Config) -> SlurmClient:
    return SlurmClient(config["site.slurm_conf"], config["site.slurm_backend"])


checks: list[Check] = [
    Check("core.config", _config),
    Check("core.catalogue", _catalogue),
    Check("core.munge", _munge),
    Check("core.slurm", _slurm),
    Check("core.slurm_backend", _slurm_backend),
    Check("core.gpu_accounting", _gpu_accounting),
    Check("core.gres_types", _gres_types),
]
