# SPDX-License-Identifier: Apache-2.0
"""A real controller of a large site: slurmctld, slurmdbd, munge; its nodes are down, but known.

One controller for every hook that is compared: job_submit.lua is replaced between the rounds, so
that all see the same queue, and the host's moods fall on all of them.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from tests.bench.sites import BenchSite
from tests.lab.cluster import OneHostCluster
from tests.lab.daemons import answers_tcp
from tests.lab.fairwatt_conf import controller_settings, toml
from tests.lab.hooks import write_settings
from tests.lab.paths import REPOSITORY
from tests.lab.programs import answers_ping, command
from tests.lab.slurm_conf import SlurmSettings
from tests.lab.waiting import await_value

__all__ = ["SITE_DEADLINE_MS", "BenchCluster"]

SITE_DEADLINE_MS = 10
BREAKER_S = 2
MAX_JOBS = 80_000
REPLACED = ("NodeName=", "PartitionName=", "AccountingStorageEnforce=")
"""Lines of the lab's slurm.conf that go: its nodes, and that only its users may submit."""

NO_NODE_HOOKS = REPOSITORY / "tests" / "lab" / "recorder"

TRIVIAL = """\
function slurm_job_submit(job_desc, part_list, submit_uid) return slurm.SUCCESS end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""


class BenchCluster(OneHostCluster):
    """The controller of a BenchSite, with one policyd per variant of its settings.

    Args:
        root: as for OneHostCluster.
        site: the nodes and partitions.
        policy: the text of policy.toml.
    """

    def __init__(self, root: Path, site: BenchSite, policy: str) -> None:
        super().__init__(
            root,
            hook="trivial",
            node_hooks=NO_NODE_HOOKS,
            slurm={"MaxJobCount": MAX_JOBS},
        )
        self._site = site
        self._policy = policy
        self._newest_s = 0

    def use_hook(self, policyd: str | None) -> None:
        """From the next submission on: our hook asking that policyd, or None: trivial Lua."""
        new = self.paths.etc / "job_submit.lua.new"
        if policyd is None:
            new.write_text(TRIVIAL)
        else:
            shutil.copy(REPOSITORY / "slurm_plugins" / "lua" / "job_submit.lua", new)
            write_settings(
                self.paths,
                socket=str(self.socket_of(policyd)),
                deadline_ms=SITE_DEADLINE_MS,
                breaker_s=BREAKER_S,
            )
        # slurmctld loads a script whose time is a later second than that of the last one.
        self._newest_s = max(self._newest_s + 1, int(time.time()))
        os.utime(new, (self._newest_s, self._newest_s))
        new.rename(self.paths.etc / "job_submit.lua")

    def start_policyd_named(self, name: str, **policyd: object) -> Path:
        """Start a policyd with settings of its own; return its socket when it knows the site."""
        path = self.socket_of(name)
        settings: dict[str, Any] = controller_settings(self.paths, 9, 9)
        settings |= {
            "policyd.socket": str(path),
            "policyd.journal_dir": str(self.paths.root / f"journal-{name}"),
            "policyd.refresh_s": 30,
            "policyd.policy_file": str(self.paths.etc / "policy.toml"),
        }
        settings |= {f"policyd.{key}": value for key, value in policyd.items()}
        config = self.paths.etc / f"{name}.toml"
        config.write_text(toml(settings))
        env = {**self.env, "FAIRWATT_CONFIG": str(config)}
        daemon = self._programs.start(name, command("policyd"), env)
        daemon.ready(lambda: answers_ping(path), 60)
        return path

    def freeze(self, name: str) -> None:
        """Stop a daemon as a debugger would: it holds its sockets and does nothing."""
        daemon = self.daemon(name)
        assert daemon is not None, f"{name} does not run"
        os.kill(daemon.process.pid, signal.SIGSTOP)

    def kill_daemon(self, name: str) -> None:
        """End a daemon by SIGKILL."""
        self._programs.kill(name)

    def cpu_s(self, name: str | None) -> float:
        """CPU time that a daemon has used so far; 0 for none."""
        daemon = self.daemon(name) if name else None
        if daemon is None:
            return 0.0
        stat = Path(f"/proc/{daemon.process.pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def socket_of(self, name: str) -> Path:
        """The socket of a policyd."""
        return self.paths.run / f"{name}.sock"

    def _write_configuration(self) -> SlurmSettings:
        slurm = super()._write_configuration()
        lines = self.paths.slurm_conf.read_text().splitlines()
        kept = [line for line in lines if not line.startswith(REPLACED)]
        kept += self._site.slurm_conf(slurm.hostname)
        self.paths.slurm_conf.write_text("\n".join([*kept, ""]))
        (self.paths.etc / "gres.conf").write_text("")
        (self.paths.etc / "policy.toml").write_text(self._policy)
        return slurm

    def _start_slurm(self, slurm: SlurmSettings) -> None:
        slurmctld = self._programs.start("slurmctld", ["slurmctld", "-D", "-c"], self.env)
        slurmctld.ready(lambda: answers_tcp(slurm.ctld_port), 60)
        await_value(
            lambda: self.run(["scontrol", "ping"]).returncode == 0,
            what="slurmctld's answer",
            timeout_s=30,
            detail=slurmctld.tail,
        )
        time.sleep(1)  # its first pass over all nodes
