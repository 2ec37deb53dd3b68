# SPDX-License-Identifier: Apache-2.0
"""One node of the cluster as tests see it: its folders, fake device and configuration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.fakes.machines import FakeGpu, FakeInstance, add_gpu
from tests.fakes.nvml_control import FakeNvml
from tests.lab.devices import make_devices, make_proc
from tests.lab.layout import NodeLayout
from tests.lab.paths import Paths

__all__ = ["LabNode", "add_gpu", "make_node"]


@dataclass(frozen=True)
class LabNode:
    """A node's layout and everything that would lie on its own disk, below `folder`."""

    layout: NodeLayout
    folder: Path

    @property
    def name(self) -> str:
        """Its Slurm node name."""
        return self.layout.name

    @property
    def config_path(self) -> Path:
        """The agent's fairwatt.toml."""
        return self.folder / "fairwatt.toml"

    @property
    def agent_socket(self) -> Path:
        """The agent's unix socket."""
        return self.folder / "agent.sock"

    @property
    def job_dir(self) -> Path:
        """Device tables of the running jobs, for TaskProlog."""
        return self.folder / "jobs"

    @property
    def spool_dir(self) -> Path:
        """The agent's journal."""
        return self.folder / "spool"

    @property
    def inbox_dir(self) -> Path:
        """What the hooks leave while the agent is away."""
        return self.folder / "inbox"

    @property
    def proc_root(self) -> Path:
        """The node's /proc, as far as the driver writes it."""
        return self.folder / "proc"

    @property
    def control_path(self) -> Path:
        """The fake NVML library's control file."""
        return self.folder / "nvml.control"

    @property
    def health_file(self) -> Path:
        """The site's changes to the health checks."""
        return self.folder / "health.toml"

    @property
    def health_state(self) -> Path:
        """The newest verdict."""
        return self.folder / "health.json"

    @property
    def kmsg(self) -> Path:
        """What stands for the kernel's log."""
        return self.folder / "kmsg"

    @cached_property
    def fake(self) -> FakeNvml:
        """The fake NVML library's control and truth."""
        return FakeNvml(self.control_path)

    @property
    def devices(self) -> tuple[FakeGpu | FakeInstance, ...]:
        """What Slurm gives out, by position (SLURM_JOB_GPUS): boards by minor, or their slices."""
        boards = sorted(self.layout.gpus, key=lambda gpu: gpu.minor)
        return tuple(device for board in boards for device in board.instances or (board,))


def make_node(paths: Paths, layout: NodeLayout) -> LabNode:
    """Create the node's folders, device files, /proc entries and fake devices."""
    node = LabNode(layout, paths.node(layout.name))
    for folder in (node.folder / "slurmd", node.job_dir, node.spool_dir):
        folder.mkdir(parents=True)
    make_devices(paths.dev(layout.name), layout)
    make_proc(node.proc_root, layout)
    for gpu in layout.gpus:
        add_gpu(node.fake, gpu)
    return node
