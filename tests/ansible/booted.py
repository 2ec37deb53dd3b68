# SPDX-License-Identifier: Apache-2.0
"""Booted Debian nodes for the tests of the roles: real systemd, one bridge, throw-away roots.

By hand, see `python -m tests.ansible.booted --help`.
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, Self

from tests.ansible.capsule import Capsule, children
from tests.ansible.node_files import File, Files, Link, NodeSpec, merged, write_files
from tests.ansible.roots import base_roots
from tests.lab.waiting import LabError, await_value

__all__ = ["BRIDGE", "BootedLab", "Node"]

BRIDGE = "10.77.0.254"
"""The bridge's own address: what runs in the lab's network but on no node."""
BOOT_S = 60.0
_ZIP_CACHE = Path(__file__).with_name("zip_cache.py")
_PACKAGES = "/usr/lib/python3/dist-packages"
_TAIL = 4000
_CLEAN = ("/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8")

# Everything of a node lies on a tmpfs that only the capsule sees.
_PREPARE = """
set -eu
cd /run; mkdir -p "nodes/$1/u" "nodes/$1/w" "nodes/$1/m" "/sys/fs/cgroup/$2/$1"
mount -t overlay overlay -o "lowerdir=$3,upperdir=nodes/$1/u,workdir=nodes/$1/w" "nodes/$1/m"
"""
_BOOT = """
echo $$ >"/sys/fs/cgroup/$2/$1/cgroup.procs"
exec systemd-nspawn --quiet --directory="/run/nodes/$1/m" --machine="$1" --hostname="$1" --boot \
    --register=no --keep-unit --network-bridge=br0 --console=pipe --link-journal=no \
    --resolv-conf=off
"""
_NETWORK_UNIT = """[Unit]
Description=The address of this node of the lab
DefaultDependencies=no
Before=network-pre.target
Wants=network-pre.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/ip link set lo up
ExecStart=/bin/ip address add {address}/24 dev host0
ExecStart=/bin/ip link set host0 up

[Install]
WantedBy=sysinit.target
"""


class Node:
    """A booted node; `leader` is the process id of its init as seen from here."""

    def __init__(self, spec: NodeSpec, leader: int) -> None:
        self.name, self.address, self.leader = spec.name, spec.address, leader

    @property
    def root(self) -> Path:
        """The node's root folder, reached from outside."""
        return Path(f"/proc/{self.leader}/root")

    def path(self, inside: str) -> Path:
        """Where a path of the node lies as seen from here (links are not followed inside)."""
        return self.root / inside.lstrip("/")

    def enter(self, argv: Sequence[str], env: Mapping[str, str] = {}) -> list[str]:
        """The command line that runs `argv` on the node, with a clean environment plus `env`."""
        settings = [f"{name}={value}" for name, value in env.items()]
        return ["nsenter", f"--target={self.leader}", "--all", "--", *_CLEAN, *settings, *argv]

    def run(
        self,
        argv: Sequence[str],
        *,
        user: str | None = None,
        env: Mapping[str, str] = {},
        text_in: str = "",
        timeout_s: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run `argv` on the node (as `user`, in a login of theirs) and return what it said."""
        if user is not None:
            argv = ["runuser", "-l", user, "-c", shlex.join(argv)]
        return subprocess.run(
            self.enter(argv, env),
            input=text_in,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def out(self, *argv: str, user: str | None = None, env: Mapping[str, str] = {}) -> str:
        """Run `argv`, return its standard output without the last newline.

        Raises:
            LabError: it ended with another status than 0; the message has what it said.
        """
        done = self.run(argv, user=user, env=env)
        if done.returncode != 0:
            said = f"{done.stdout}{done.stderr}"[-_TAIL:]
            raise LabError(f"{self.name}: {shlex.join(argv)}: status {done.returncode}\n{said}")
        return done.stdout.removesuffix("\n")

    def journal(self, unit: str, lines: int = 40) -> str:
        """The end of a unit's journal."""
        argv = ["journalctl", "--no-pager", f"--lines={lines}", f"--unit={unit}"]
        return self.run(argv).stdout

    def put(self, inside: str, content: str | bytes, mode: int = 0o644) -> None:
        """Write a file of root's on the running node."""
        write_files(self.root, {inside: File(content, mode)})


class BootedLab:
    """Several booted nodes on one bridge, by name in `nodes`; a context manager.

    All of it ends with this process, however that ends.

    Raises:
        LabError: a base root cannot be built, or a node does not boot; then nothing is left, and
            the message has the end of the node's console.
    """

    def __init__(self, specs: Iterable[NodeSpec], *, boot_s: float = BOOT_S) -> None:
        self.specs = tuple(specs)
        self.nodes: dict[str, Node] = {}
        self._boot_s = boot_s
        self._started: list[subprocess.Popen[bytes]] = []
        self._consoles: dict[str, IO[bytes]] = {}
        self._files = ExitStack()
        roots = base_roots(spec.suite for spec in self.specs)
        self.capsule = Capsule(f"{BRIDGE}/24")
        try:
            self._boot(roots)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def run(
        self, node: str, argv: Sequence[str], *, user: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `argv` on a node."""
        return self.nodes[node].run(argv, user=user)

    def stop(self) -> None:
        """End all nodes and leave nothing behind; harmless when done again."""
        self.capsule.close()
        for process in self._started:
            process.wait()
        self._files.close()

    def console(self, node: str) -> str:
        """The end of what a node said on its console while it booted."""
        stream = self._consoles[node]
        stream.seek(0)
        return stream.read().decode(errors="replace")[-_TAIL:]

    # -----------------------------------------------------------------------------------------
    def _boot(self, roots: Mapping[str, Path]) -> None:
        hosts = "".join(f"{spec.address} {spec.name}\n" for spec in self.specs)
        for spec in self.specs:
            self.capsule.call(self._script(_PREPARE, spec, str(roots[spec.suite])))
            root = self.capsule.root / "run/nodes" / spec.name / "m"
            write_files(root, merged(_host_files(spec, hosts), spec.files))
            if spec.prepare is not None:
                spec.prepare(root)
        for spec in self.specs:
            # A file without name: it is gone with this process.
            console = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
            self._consoles[spec.name] = console
            self._started.append(self.capsule.spawn(self._script(_BOOT, spec), console))
        for spec, process in zip(self.specs, self._started, strict=True):
            node = Node(spec, self._await_leader(spec, process))
            self.nodes[spec.name] = node
        for spec, process in zip(self.specs, self._started, strict=True):
            self._await_running(spec, process)

    def _script(self, script: str, spec: NodeSpec, *more: str) -> list[str]:
        return ["sh", "-c", script, "lab", spec.name, self.capsule.cgroup, *more]

    def _await_leader(self, spec: NodeSpec, process: subprocess.Popen[bytes]) -> int:
        return await_value(
            partial(self._leader, spec, process),
            what=f"{spec.name}: the first process of the node",
            timeout_s=self._boot_s,
            detail=partial(self.console, spec.name),
        )

    def _leader(self, spec: NodeSpec, process: subprocess.Popen[bytes]) -> int | None:
        self._still_there(spec, process)
        grand = [pid for nspawn in children(process.pid) for pid in children(nspawn)]
        return next((pid for pid in grand if _is_init(pid)), None)

    def _await_running(self, spec: NodeSpec, process: subprocess.Popen[bytes]) -> None:
        node = self.nodes[spec.name]

        def settled() -> str | None:
            self._still_there(spec, process)
            done = node.run(["systemctl", "is-system-running"])
            state = done.stdout.strip()
            return state if state in ("running", "degraded") else None

        def detail() -> str:
            jobs = node.run(["systemctl", "--no-pager", "list-jobs"]).stdout
            return f"{self.console(spec.name)}\n{jobs}"

        what = f"{spec.name}: systemd has started everything"
        state = await_value(
            settled, what=what, timeout_s=self._boot_s, detail=detail, interval_s=0.1
        )
        if state != "running":
            failed = node.run(["systemctl", "--no-pager", "--plain", "--failed"]).stdout
            units = [line.split()[0] for line in failed.splitlines() if " failed " in line]
            log = "\n".join(node.journal(unit) for unit in units)
            raise LabError(f"{spec.name} has booted with failed units\n{failed}\n{log}")

    def _still_there(self, spec: NodeSpec, process: subprocess.Popen[bytes]) -> None:
        status = process.poll()
        if status is not None:
            raise LabError(f"{spec.name} has left (status {status})\n{self.console(spec.name)}")


def _is_init(pid: int) -> bool:
    """Whether a process is number 1 of its namespace and has become systemd."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        ids = next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
        return ids[-1] == "1" and Path(f"/proc/{pid}/exe").readlink().name == "systemd"
    except OSError:
        return False


def _host_files(spec: NodeSpec, hosts: str) -> Files:
    return {
        f"{_PACKAGES}/lab_zip_cache.py": File(_ZIP_CACHE.read_bytes()),
        f"{_PACKAGES}/lab.pth": File("import lab_zip_cache\n"),
        "/etc/hostname": File(f"{spec.name}\n"),
        "/etc/hosts": File(f"127.0.0.1 localhost\n{hosts}"),
        "/etc/systemd/system/lab-network.service": File(
            _NETWORK_UNIT.format(address=spec.address)
        ),
        "/etc/systemd/system/sysinit.target.wants/lab-network.service": Link(
            "../lab-network.service"
        ),
    }
