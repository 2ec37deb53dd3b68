# SPDX-License-Identifier: Apache-2.0
"""The node whose agent is weighed: 8 H100, each cut into seven slices, as files in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.fakes.machines import H100_80, FakeGpu, Profile, add_gpu, cut_boards
from tests.fakes.nvml_control import FakeNvml
from tests.lab.fairwatt_conf import toml

__all__ = ["GPUS", "NODE", "SLICES", "NodeSite"]

NODE, GPUS, SLICES = "slices01", 8, 7
# As the board reports them: here GPM measures each slice, the dearest case for the agent.
_SEVENTH = Profile("1g.10gb", 1, 9_856, 16)
_IDS = range(7, 14)


class NodeSite:
    """The node's folders below `root`, its control file, its fairwatt.toml."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config_path = root / "fairwatt.toml"
        self.control_path = root / "nvml.control"
        self.boards: tuple[FakeGpu, ...] = cut_boards(NODE, H100_80, [(_SEVENTH, _IDS)] * GPUS)

    @property
    def socket(self) -> Path:
        """The agent's socket."""
        return self.root / "agent.sock"

    @property
    def instances(self) -> list[str]:
        """The UUIDs of all slices."""
        return [made.uuid for board in self.boards for made in board.instances]

    def make(self, collector_url: str, **settings: Any) -> FakeNvml:
        """Write everything; `settings` replace those of the same dotted name."""
        for name in ("jobs", "inbox", "spool", "proc"):
            (self.root / name).mkdir(parents=True)
        gres = f"gpu:h100_{_SEVENTH.name}:{GPUS * SLICES}"
        (self.root / "slurm.conf").write_text(f"NodeName={NODE} Gres={gres}\n")
        for name in ("kmsg", "health.toml"):
            (self.root / name).write_text("")
        (self.root / "gres.conf").write_text("")
        self.config_path.write_text(toml(self._settings(collector_url) | settings))
        fake = FakeNvml(self.control_path)
        for board in self.boards:
            add_gpu(fake, board)
        return fake

    def _settings(self, collector_url: str) -> dict[str, Any]:
        return {
            "site.cluster": "campus",
            "site.slurm_conf": str(self.root / "slurm.conf"),
            "agent.node": NODE,
            "agent.socket": str(self.socket),
            "agent.job_dir": str(self.root / "jobs"),
            "agent.inbox_dir": str(self.root / "inbox"),
            "agent.spool_dir": str(self.root / "spool"),
            "agent.gres_conf": str(self.root / "gres.conf"),
            "agent.proc_root": str(self.root / "proc"),
            "agent.sys_root": str(self.root / "sys"),
            "agent.collector_url": collector_url,
            "health.enabled": False,  # a process of its own
            "health.file": str(self.root / "health.toml"),
            "health.state_file": str(self.root / "health.json"),
            "health.dir": str(self.root / "health"),
            "health.kmsg": str(self.root / "kmsg"),
            "health.drain": False,
        }
