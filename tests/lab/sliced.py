# SPDX-License-Identifier: Apache-2.0
"""A cluster whose MIG nodes can be cut anew: mig01 as slurm.conf names it, and dyn01, dynamic.

mig01 has hand-written gres.conf lines (two A100: 7 x 1g.5gb, 2 x 3g.20gb); dyn01 (one A100:
7 x 1g.5gb) registers itself and its slurmd detects the slices. Both are in the partition "cut".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes.machines import A100_40, SEVEN_SMALL, cut_boards
from tests.fakes.nvml_control import environment
from tests.lab.cluster import OneHostCluster
from tests.lab.commands import Completed
from tests.lab.devices import make_caps
from tests.lab.fairwatt_conf import node_settings, toml
from tests.lab.layout import NodeLayout
from tests.lab.nodes import LabNode, make_node
from tests.lab.paths import REPOSITORY
from tests.lab.ports import PortBlock
from tests.lab.services import restart_slurmctld, slurmd_start, slurmd_stop
from tests.lab.system import HOST_RELEASE
from tests.lab.waiting import await_value

__all__ = ["DYNAMIC", "STATIC", "SlicedCluster", "sliced_cluster"]

STATIC, DYNAMIC = "mig01", "dyn01"
SMALL, LARGE = "gpu:a100_1g.5gb:7", "gpu:a100_3g.20gb:2"
_DYN01 = NodeLayout(
    DYNAMIC, SMALL, "a100", 1, 8, 64_000, cut_boards(DYNAMIC, A100_40, (SEVEN_SMALL,))
)
_LAYOUTS = """\
[layouts.small]
profiles = { "1g.5gb" = 7 }
[layouts.large]
profiles = ["3g.20gb", "3g.20gb"]
[layouts.left]
profiles = ["3g.20gb@0", "1g.5gb@4"]
[layouts.wide]
profiles = ["7g.40gb"]
[nodes]
"dyn01" = "large"
"mig01" = { "0" = "large", "1" = "large" }
[plan]
allowed = { "dyn01" = ["small", "large"] }
min_wait_s = 0
idle_s = 0
min_hold_s = 0
"""


@dataclass(frozen=True)
class SlicedCluster:
    """The cluster, and what tests do with its MIG nodes."""

    lab: OneHostCluster

    def mig(self, node: str, *args: str, timeout_s: float = 60) -> Completed:
        """Run `fairwatt mig ARGS` on a node."""
        return self.lab.fairwatt("mig", *args, node=node, timeout_s=timeout_s)

    def apply(self, node: str, *args: str) -> dict[str, Any]:
        """Run `fairwatt mig apply ARGS --yes --json` on a node; return what it printed."""
        done = self.mig(node, "apply", *args, "--yes", "--json")
        assert done.stdout, done.stderr
        return dict(json.loads(done.stdout))

    def killed(self, node: str, where: str, *args: str) -> None:
        """Run `fairwatt mig apply ARGS --yes`, killed where tests/lab/mig_killer.py says."""
        known = {
            "FAIRWATT_CONFIG": str(self.lab.nodes[node].config_path),
            **environment(self.lab.nodes[node].control_path),
            "PYTHONPATH": str(REPOSITORY),
        }
        words = [f"{name}={value}" for name, value in known.items()]
        argv = ["env", *words, sys.executable, "-m", "tests.lab.mig_killer", where]
        done = self.lab.run([*argv, "mig", "apply", *args, "--yes"])
        assert done.returncode == -9, f"not killed at {where}\n{done.stdout}{done.stderr}"

    def shown(self, node: str) -> str:
        """The node at slurmctld, on one line; "" where there is none."""
        done = self.lab.run(["scontrol", "--oneliner", "show", "node", node])
        return done.stdout if done.returncode == 0 and "not found" not in done.stdout else ""

    def field(self, node: str, key: str) -> str:
        """One word of `scontrol show node`."""
        words = (word.partition("=") for word in self.shown(node).split())
        return next((value for name, _, value in words if name == key), "")

    def is_back(self, node: str, gres: str) -> bool:
        """Whether jobs may start on the node, with these GPUs."""
        state = self.field(node, "State")
        ill = ("DRAIN", "INVAL", "DOWN", "UNKNOWN", "NOT_RESPONDING")
        entries = sorted(self.field(node, "Gres").split(","))
        return entries == sorted(gres.split(",")) and not any(word in state for word in ill)

    def await_back(self, node: str, gres: str) -> None:
        """Wait for `is_back`."""
        await_value(
            lambda: self.is_back(node, gres),
            what=f"{node} with {gres}",
            timeout_s=20,
            detail=lambda: self.shown(node),
        )


@contextmanager
def sliced_cluster(root: Path, release: str, **settings: Any) -> Iterator[SlicedCluster]:
    """Start the cluster with collector and the agents of both nodes; stop it at the end."""
    ports = PortBlock()
    lab = OneHostCluster(
        root,
        release=release,
        hook="none",
        slurm={
            "MaxNodeCount": 16,
            "SlurmdPort": ports.take(),
            "SlurmdLogFile": f"{root}/log/own-slurmd-%n.log",
            "SlurmctldLogFile": f"{root}/log/own-slurmctld.log",
            "NodeSet": "slices Feature=slices",
            "PartitionName": "cut Nodes=slices,mig01 MaxTime=1-0 DefaultTime=10 State=UP",
        },
        settings={"collector.sync_s": 1.0, **settings},
    )
    try:
        with lab:
            _add_static(lab)
            _add_dynamic(lab)
            lab.start_collector()
            lab.start_agent(STATIC)
            lab.start_agent(DYNAMIC)
            yield SlicedCluster(lab)
    finally:
        ports.release()


def _add_static(lab: OneHostCluster) -> None:
    node = lab.nodes[STATIC]
    make_caps(lab.paths.dev(STATIC), range(2))
    start, stop = slurmd_start(lab, node), slurmd_stop(lab, node)
    ours: dict[str, Any] = {}
    if lab.release == HOST_RELEASE:
        ours["mig.reconfigure_command"] = [str(restart_slurmctld(lab))]
    _configure(lab, node, start, stop, ours)
    lab.kill(f"slurmd-{STATIC}")
    lab.run([str(start)], check=True)


def _add_dynamic(lab: OneHostCluster) -> None:
    node = make_node(lab.paths, _DYN01)
    lab.nodes[DYNAMIC] = node
    make_caps(lab.paths.dev(DYNAMIC), range(1))
    etc, options = node.folder / "etc", node.folder / "slurmd.options"
    etc.mkdir()
    for name in ("slurm.conf", "cgroup.conf", "plugstack.conf"):
        (etc / name).symlink_to(lab.paths.etc / name)
    (etc / "gres.conf").write_text("AutoDetect=nvml\n")
    memory = f"RealMemory={_DYN01.memory_mib} CPUs={_DYN01.cores_per_socket}"
    options.write_text(f"SLURMD_OPTIONS=\"-Z --conf 'Gres={SMALL} Feature=slices {memory}'\"\n")
    start, stop = slurmd_start(lab, node, etc, options), slurmd_stop(lab, node)
    ours = {
        "site.slurm_conf": str(etc / "slurm.conf"),
        "agent.gres_conf": str(etc / "gres.conf"),
        "mig.slurmd_options": str(options),
    }
    _configure(lab, node, start, stop, ours)
    argv = ["env", *(f"{key}={value}" for key, value in node.fake.env.items()), str(start)]
    lab.run(argv, check=True)
    await_value(
        lambda: "State=IDLE" in lab.run(["scontrol", "-o", "show", "node", DYNAMIC]).stdout,
        what="dyn01 registered",
        timeout_s=20,
        detail=lambda: lab.log_text(f"own-slurmd-{DYNAMIC}")[-3000:],
    )


def _configure(
    lab: OneHostCluster, node: LabNode, start: Path, stop: Path, ours: dict[str, Any]
) -> None:
    mig_file = lab.paths.etc / "mig.toml"
    mig_file.write_text(_LAYOUTS)
    port = int(lab.collector_url.rpartition(":")[2])
    settings = {
        **node_settings(lab.paths, node, port),
        "mig.file": str(mig_file),
        "mig.state_dir": str(node.folder / "mig"),
        "mig.start_command": [str(start)],
        "mig.stop_command": [str(stop)],
        "mig.start_wait_s": 10.0,
        **ours,
    }
    node.config_path.write_text(toml(settings))
