# SPDX-License-Identifier: Apache-2.0
"""A real Slurm cluster of four GPU nodes on one host, for the demo and for tests.

>>> with OneHostCluster(Path("/tmp/lab")) as cluster:  # doctest: +SKIP
...     job = cluster.sbatch(["--gres=gpu:1"], "sleep 1", user="ada")
...     cluster.wait_job(job.job_id)
['COMPLETED']

munged, MariaDB, slurmdbd, slurmctld and four slurmd are the real ones, on ports of their own; all
files lie below one root folder, which `stop` removes. Only the GPUs are fake.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.fakes.nvml_control import environment
from tests.lab.accounts import sacctmgr_file
from tests.lab.commands import ENDED, Completed, SlurmCommands, SubmitResult
from tests.lab.daemons import Daemon, Daemons, answers_tcp
from tests.lab.database import ready_mariadb, start_mariadb
from tests.lab.fairwatt_conf import controller_settings, node_settings, toml
from tests.lab.hooks import (
    LAB_DEADLINE_MS,
    PACKAGE_NODE_HOOKS,
    install_node_hooks,
    install_submit_hook,
)
from tests.lab.layout import NODES
from tests.lab.munged import start_munged
from tests.lab.nodes import LabNode, make_node
from tests.lab.paths import Paths
from tests.lab.ports import PortBlock
from tests.lab.programs import answers_http, answers_ping, command
from tests.lab.slurm_conf import SlurmSettings, cgroup_conf, gres_conf, slurm_conf, slurmdbd_conf
from tests.lab.system import HOST_RELEASE, System
from tests.lab.users import install_users
from tests.lab.waiting import await_value

__all__ = ["OneHostCluster"]

START_S = 30.0
KEEP_VARIABLE = "FAIRWATT_KEEP_LAB"


class OneHostCluster:
    """One cluster, below `root`, from `start` to `stop` or as a context manager.

    Args:
        root: a folder that does not exist or is empty; below a folder that all users may pass,
            and short (socket paths end at 107 bytes). `stop` removes it, unless the environment
            has FAIRWATT_KEEP_LAB.
        with_fairwatt: submit and node hooks of the package. Its daemons are started apart:
            `start_fairwatt`, or one by one.
        hook: the submit hook: "none", "trivial", "fairwatt" or a Lua file; by default as
            `with_fairwatt` says.
        deadline_ms: how long the hook waits for policyd; a site's is 10.
        node_hooks: a folder with prolog, epilog and task-prolog to use instead of the package's.
        slurm: keys of slurm.conf that differ from the lab's; a tuple is one line per value.
        settings: fairwatt's settings by dotted key that differ from the lab's, for every daemon.
        release: of Slurm: the host's own, or that of another Debian release (system.py).

    Attributes:
        nodes: LabNode by name.
        paths: where things lie.
        env: the variables of a command as root.
        start_s: how long `start` took.
        release: as given.
    """

    def __init__(
        self,
        root: Path,
        *,
        with_fairwatt: bool = True,
        hook: str | Path | None = None,
        deadline_ms: int = LAB_DEADLINE_MS,
        node_hooks: Path | None = None,
        slurm: Mapping[str, object] | None = None,
        settings: Mapping[str, Any] | None = None,
        release: str = HOST_RELEASE,
    ) -> None:
        self.paths = Paths(Path(root))
        self.nodes: dict[str, LabNode] = {}
        self.env: dict[str, str] = {}
        self.start_s = 0.0
        self._deadline_ms = deadline_ms
        self._hook = hook or ("fairwatt" if with_fairwatt else "none")
        self._node_hooks = node_hooks or (PACKAGE_NODE_HOOKS if with_fairwatt else None)
        self._slurm = dict(slurm or {})
        self._settings = dict(settings or {})
        self.release = release
        self._system = System(release, self.paths)
        self._daemons: Daemons | None = None
        self._ports: PortBlock | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- Slurm ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start Slurm and return when its four nodes are idle; nothing is left when it fails."""
        began = time.monotonic()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        self.start_s = time.monotonic() - began

    def _start(self) -> None:
        self.paths.make()
        self._ports = PortBlock()
        self._daemons = Daemons(self.paths.log, self.paths.root)
        self.env = {"PATH": self._system.search_path, "LANG": "C.UTF-8"}
        mariadb = start_mariadb(self._daemons, self.paths, self.env)
        users = install_users(self.paths)
        self._system.mount(self._daemons, users)
        start_munged(self._daemons, self.paths, self.env)
        self.env |= {"SLURM_CONF": str(self.paths.slurm_conf), **users}
        self.commands = SlurmCommands(self.paths, self.env, self._system)
        self.nodes = {layout.name: make_node(self.paths, layout) for layout in NODES}
        slurm = self._write_configuration()
        ready_mariadb(mariadb, self.paths)
        self._start_accounting(slurm)
        self._start_slurm(slurm)

    def _write_configuration(self) -> SlurmSettings:
        paths, take = self.paths, self._held_ports.take
        with_plugin = install_submit_hook(paths, self._hook, self._deadline_ms)
        if self._node_hooks:
            install_node_hooks(paths, self._node_hooks)
        slurm = SlurmSettings(
            paths=paths,
            hostname=socket.gethostname().split(".")[0],
            dbd_port=take(),
            ctld_port=take(),
            node_ports={name: take() for name in self.nodes},
            submit_plugin=with_plugin,
            node_hooks=self._node_hooks is not None,
            changes=self._slurm,
        )
        paths.slurm_conf.write_text(slurm_conf(slurm))
        (paths.etc / "gres.conf").write_text(gres_conf(paths))
        old = self.release == HOST_RELEASE
        (paths.etc / "cgroup.conf").write_text(cgroup_conf(with_plugin=old))
        (paths.etc / "plugstack.conf").write_text("")
        secret = paths.etc / "slurmdbd.conf"
        secret.touch(mode=0o600)
        secret.write_text(slurmdbd_conf(slurm))
        self._write_fairwatt_configuration(take(), take())
        return slurm

    def _write_fairwatt_configuration(self, collector_port: int, dashboard_port: int) -> None:
        self.collector_url = f"http://127.0.0.1:{collector_port}"
        ours = controller_settings(self.paths, collector_port, dashboard_port) | self._settings
        self.dashboard_url = f"http://{ours['dashboard.listen']}"
        self.config_path.write_text(toml(ours))
        for node in self.nodes.values():
            its = node_settings(self.paths, node, collector_port) | self._settings
            node.config_path.write_text(toml(its))

    def _start_accounting(self, slurm: SlurmSettings) -> None:
        env = {**self.env, "MYSQL_UNIX_PORT": str(self.paths.database_socket)}
        slurmdbd = self._programs.start("slurmdbd", ["slurmdbd", "-D"], env)
        slurmdbd.ready(lambda: answers_tcp(slurm.dbd_port))
        accounts = self.paths.etc / "accounts"
        accounts.write_text(sacctmgr_file("campus"))
        # slurmdbd answers before its plugin has made all tables: a first try may be refused.
        argv = ["sacctmgr", "--immediate", "load", f"file={accounts}"]
        await_value(
            lambda: self.run(argv).returncode == 0,
            what="accounts loaded",
            timeout_s=START_S,
            detail=slurmdbd.tail,
        )

    def _start_slurm(self, slurm: SlurmSettings) -> None:
        slurmctld = self._programs.start("slurmctld", ["slurmctld", "-D", "-c"], self.env)
        for name in self.nodes:
            self._programs.start(f"slurmd-{name}", ["slurmd", "-D", "-N", name], self.env)
        slurmctld.ready(lambda: answers_tcp(slurm.ctld_port), START_S)
        await_value(
            self._all_idle,
            what="four idle nodes",
            timeout_s=START_S,
            detail=lambda: self.run(["sinfo", "-N", "-R"]).stdout + slurmctld.tail(),
        )

    def _all_idle(self) -> bool:
        rows = self.run(["sinfo", "--noheader", "--Node", "-o", "%N %T"]).stdout.split("\n")
        states = dict(row.split() for row in rows if row)
        return states == dict.fromkeys(self.nodes, "idle")

    def stop(self) -> None:
        """End all processes, jobs included, and remove the root folder; may be called twice."""
        if self._daemons is not None:
            self._daemons.close()
            self._daemons = None
        if self._ports is not None:
            self._ports.release()
            self._ports = None
        if not os.environ.get(KEEP_VARIABLE):
            shutil.rmtree(self.paths.root, ignore_errors=True)

    @property
    def _programs(self) -> Daemons:
        assert self._daemons is not None, "the cluster is not started"
        return self._daemons

    @property
    def _held_ports(self) -> PortBlock:
        assert self._ports is not None, "the cluster is not started"
        return self._ports

    # -- Commands -------------------------------------------------------------------------------

    def run(self, argv: Sequence[str], user: str | None = None, **options: Any) -> Completed:
        """Run a command in the cluster's environment; see SlurmCommands.run."""
        return self.commands.run(argv, user, **options)

    def sbatch(self, args: Sequence[str], script: str, user: str = "ada") -> SubmitResult:
        """Submit a job script as that user."""
        return self.commands.sbatch(args, script, user)

    def wait_job(
        self, job_id: int | str, states: Collection[str] = ENDED, timeout_s: float = 60
    ) -> list[str]:
        """Wait until all tasks of the job are in one of `states`; return their states."""
        return self.commands.wait_job(job_id, states, timeout_s)

    def wait_recorded(self, job_id: int | str, timeout_s: float = 60) -> list[dict[str, str]]:
        """Wait until sacct knows the end of every run of the job; return its rows."""
        return self.commands.wait_recorded(job_id, timeout_s)

    def sacct_rows(self, *args: str, **options: Any) -> list[dict[str, str]]:
        """Rows of sacct; see SlurmCommands.sacct_rows."""
        return self.commands.sacct_rows(*args, **options)

    # -- fairwatt's daemons ---------------------------------------------------------------------

    @property
    def database(self) -> Path:
        """The collector's SQLite file."""
        return self.paths.store

    @property
    def namespace(self) -> Path:
        """The folder of files by which a program outside enters the daemons' namespaces."""
        return self._programs.mount_namespace.parent

    @property
    def config_path(self) -> Path:
        """fairwatt.toml of policyd, collector, dashboard and of commands on the controller."""
        return self.paths.etc / "fairwatt.toml"

    def fairwatt(self, *args: str, node: str | None = None, timeout_s: float = 60) -> Completed:
        """Run `fairwatt ARGS` as root as on the controller, or as on that node."""
        known = self._node_env(node) if node else self._controller_env
        settings = [f"{name}={value}" for name, value in known.items()]
        return self.run(["env", *settings, *command(*args)], timeout_s=timeout_s)

    @property
    def _controller_env(self) -> dict[str, str]:
        return {"FAIRWATT_CONFIG": str(self.config_path)}

    def _node_env(self, name: str) -> dict[str, str]:
        node = self.nodes[name]
        return {"FAIRWATT_CONFIG": str(node.config_path), **environment(node.control_path)}

    def start_fairwatt(self) -> None:
        """Start collector, four agents and policyd, all at once; return when all are ready."""
        started = [self._spawn_collector(), self._spawn_policyd()]
        started += [self._spawn_agent(name) for name in self.nodes]
        _await_all(started)

    def start_policyd(self) -> None:
        """Start policyd; return when it answers."""
        _await_all([self._spawn_policyd()])

    def stop_policyd(self) -> None:
        """End policyd by SIGTERM; LabError unless its exit status is 0."""
        self._programs.end("policyd")

    def kill_policyd(self) -> None:
        """End policyd by SIGKILL."""
        self._programs.kill("policyd")

    def start_collector(self) -> None:
        """Start the collector; return when it answers."""
        _await_all([self._spawn_collector()])

    def stop_collector(self) -> None:
        """End the collector by SIGTERM; LabError unless its exit status is 0."""
        self._programs.end("collector")

    def kill_collector(self) -> None:
        """End the collector by SIGKILL."""
        self._programs.kill("collector")

    def start_dashboard(self) -> None:
        """Start the dashboard; return when it answers."""
        env = {**self.env, "FAIRWATT_CONFIG": str(self.config_path)}
        daemon = self._programs.start("dashboard", command("dashboard"), env)
        daemon.ready(lambda: answers_tcp(int(self.dashboard_url.rsplit(":", 1)[1])))

    def start_agent(self, node: str) -> None:
        """Start that node's agent; return when it answers."""
        _await_all([self._spawn_agent(node)])

    def stop_agent(self, node: str) -> None:
        """End that node's agent by SIGTERM; LabError unless its exit status is 0."""
        self._programs.end(f"agent-{node}")

    def kill_agent(self, node: str) -> None:
        """End that node's agent by SIGKILL."""
        self._programs.kill(f"agent-{node}")

    def spawn(self, name: str, argv: Sequence[str], **env: str) -> Daemon:
        """Start one more daemon among the cluster's; `env` is added to their variables."""
        return self._programs.start(name, argv, {**self.env, **env})

    def kill(self, name: str) -> None:
        """End any daemon by SIGKILL."""
        self._programs.kill(name)

    def daemon(self, name: str) -> Daemon | None:
        """A running daemon with its pid and log: policyd, collector, agent-NODE, slurmctld, …"""
        return self._programs.get(name)

    def log_text(self, name: str) -> str:
        """All that a daemon has logged, over restarts."""
        return (self.paths.log / f"{name}.log").read_text(errors="replace")

    def _spawn_policyd(self) -> _Starting:
        env = {**self.env, **self._controller_env}
        daemon = self._programs.start("policyd", command("policyd"), env)
        return daemon, lambda: answers_ping(self.paths.policyd_socket)

    def _spawn_collector(self) -> _Starting:
        env = {**self.env, **self._controller_env}
        daemon = self._programs.start("collector", command("collector"), env)
        return daemon, lambda: answers_http(f"{self.collector_url}/healthz")

    def _spawn_agent(self, name: str) -> _Starting:
        env = {**self.env, **self._node_env(name)}
        daemon = self._programs.start(f"agent-{name}", command("agent"), env)
        return daemon, lambda: answers_ping(self.nodes[name].agent_socket)


_Starting = tuple[Daemon, Callable[[], bool]]


def _await_all(started: Iterable[_Starting]) -> None:
    for daemon, probe in started:
        daemon.ready(probe)
