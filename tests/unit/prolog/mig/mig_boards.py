# SPDX-License-Identifier: Apache-2.0
"""Boards and configuration files for the MIG tests; the driver's numbers as it gives them."""

from __future__ import annotations

from pathlib import Path

from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.conf_lines import read_conf
from fairwatt.prolog.mig.layout import Placed
from fairwatt.prolog.mig.live import LiveGpu, LiveInstance, LiveNode
from fairwatt.prolog.mig.node_conf import NodeConf, conf_of_node

CATALOGUE = load_catalogue()
A100_NAME, H100_NAME = "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"
NAMES = {
    "a100-40": (A100_NAME, 40_960),
    "a100-80": ("NVIDIA A100-SXM4-80GB", 81_920),
    "a30": ("NVIDIA A30", 24_576),
    "h100-80": (H100_NAME, 81_559),
    "h200-nvl": ("NVIDIA H200 NVL", 143_771),
}


def board(minor: int, key: str = "a100-40", placed: tuple[Placed, ...] | None = None) -> LiveGpu:
    """A board of a model; `placed` None: MIG off, (): MIG on without instances."""
    name, memory_mib = NAMES[key]
    model = CATALOGUE.model(key)
    instances = []
    for place, each in enumerate(placed or ()):
        profile = model.profile(each.profile)
        assert profile is not None
        instances.append(
            LiveInstance(
                gi=place + 1,
                profile=each.profile,
                start=each.start,
                ci=0,
                uuid=f"MIG-{minor}-{place + 1}",
                slices=profile.compute_slices,
                memory_mib=profile.memory_mib - 256,
            )
        )
    return LiveGpu(f"GPU-{minor}", minor, name, memory_mib, placed is not None, tuple(instances))


def cut(*names: str) -> tuple[Placed, ...]:
    """`cut("3g.20gb@0", "3g.20gb@4")`."""
    return tuple(Placed(name, int(start)) for name, start in (each.split("@") for each in names))


def node(*gpus: LiveGpu) -> LiveNode:
    """Node n1; GI g of board b has cap file 100*b + 10*g, its CI 0 one more."""
    caps: dict[tuple[int, int, int | None], int] = {}
    for gpu in gpus:
        for each in gpu.instances:
            number = 100 * gpu.minor + 10 * each.gi
            caps[gpu.minor, each.gi, None] = number
            caps[gpu.minor, each.gi, 0] = number + 1
    return LiveNode("n1", gpus, caps)


def conf(tmp_path: Path, slurm: str, gres: str) -> NodeConf:
    """Node n1's part of two files with these texts."""
    slurm_conf, gres_conf = tmp_path / "slurm.conf", tmp_path / "gres.conf"
    slurm_conf.write_text(slurm)
    gres_conf.write_text(gres)
    return conf_of_node(
        "n1", list(read_conf(slurm_conf)), list(read_conf(gres_conf)), "slurm.conf", "gres.conf"
    )
