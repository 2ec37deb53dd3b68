# SPDX-License-Identifier: Apache-2.0
"""Runs the collection's playbooks against a booted site, as an admin would from a control host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ansible.booted import BRIDGE
from tests.ansible.fake_gpus import PROC_ROOT
from tests.ansible.roots import BOOKWORM, TRIXIE
from tests.ansible.sites import BootedSite

__all__ = ["COLLECTION", "Outcome", "Playbooks", "ansible_env", "inventory"]

REPOSITORY = Path(__file__).resolve().parents[2]
COLLECTION = REPOSITORY / "ansible"
PLUGINS = Path(__file__).parent / "plugins"
NAME = "fairwatt.cluster"
_RECAP = re.compile(r"^(\S+)\s+: (ok=\d+.*)$", re.MULTILINE)
SETTINGS = {
    "site.timezone": "Europe/Berlin",
    "agent.proc_root": PROC_ROOT,
    "agent.sample_s": 1.0,
    "agent.ship_s": 1.0,
    "collector.sync_s": 2.0,
    "policyd.refresh_s": 2,
    "updater.wait_s": 2,
    "updater.interval_s": 1.0,
}
"""What a lab's site sets: quick rounds, and where the fake driver's /proc is."""


@dataclass(frozen=True)
class Outcome:
    """What a run of a playbook left: status, PLAY RECAP by host, all it said, how long it took."""

    status: int
    recap: Mapping[str, Mapping[str, int]]
    output: str
    seconds: float

    @property
    def changed(self) -> int:
        """How many changes there were (or would be) on all hosts."""
        return sum(counts["changed"] for counts in self.recap.values())

    def why(self) -> str:
        """Which tasks failed or changed something: for the message of a failing test."""
        task, found = "", []
        for line in self.output.splitlines():
            if line.startswith(("TASK [", "RUNNING HANDLER [")):
                task = line.rstrip(" *")
            if line.startswith(("changed: ", "fatal: ", "failed: ", "[ERROR]")):
                found.append(f"{task} {line}")
        return "\n".join(found) or self.output


class Playbooks:
    """Playbooks of the collection against one site; `folder` is for inventory and temporaries.

    The collection is installed from a tarball's copy by ansible-galaxy, not run from the checkout.
    """

    def __init__(self, site: BootedSite, folder: Path) -> None:
        self._folder = folder
        self._inventory = folder / "inventory.json"
        self._inventory.write_text(json.dumps(inventory(site), indent=1), encoding="utf-8")
        self._env = ansible_env(folder)
        self._tool("ansible-galaxy", "collection", "install", "--offline", f"{COLLECTION}/")

    def run(self, playbook: str, *options: str, extra: Mapping[str, Any] = {}) -> Outcome:
        """Run a playbook (site, check, uninstall) with `extra` variables; it may fail."""
        began = time.monotonic()
        argv = ["ansible-playbook", f"{NAME}.{playbook}", "-i", str(self._inventory), *options]
        done = self._tool(*argv, "--extra-vars", json.dumps(extra), check=False)
        recap = {host: _counts(text) for host, text in _RECAP.findall(done.stdout)}
        return Outcome(done.returncode, recap, done.stdout, time.monotonic() - began)

    def _tool(
        self, name: str, *arguments: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(Path(sys.executable).with_name(name)), *arguments],
            env=self._env,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{name} {' '.join(arguments)}\n{done.stdout}")
        return done


def _counts(text: str) -> dict[str, int]:
    return {key: int(value) for key, value in (word.split("=") for word in text.split())}


def ansible_env(folder: Path) -> dict[str, str]:
    """The environment of Ansible's tools: collections, caches and temporaries below `folder`."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_COLLECTIONS_PATH": str(folder),
        "ANSIBLE_CONNECTION_PLUGINS": str(PLUGINS / "connection"),
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PIPELINING": "1",
    }


def inventory(site: BootedSite) -> dict[str, Any]:
    """The inventory of a booted site, with the variables that its admin has to set."""
    plan = site.plan
    groups = {
        "fairwatt_controllers": [plan.controller],
        "fairwatt_accounting": [plan.accounting],
        "fairwatt_nodes": [layout.name for layout in plan.nodes],
    }
    hosts = {name: {"nspawn_leader": node.leader} for name, node in site.lab.nodes.items()}
    children = {group: {"hosts": {name: {} for name in names}} for group, names in groups.items()}
    return {"all": {"hosts": hosts, "children": children, "vars": _variables(site)}}


def _variables(site: BootedSite) -> dict[str, Any]:
    return {
        "ansible_connection": "nspawn",
        "ansible_python_interpreter": "/usr/bin/python3",
        "fairwatt_install_wheelhouse": str(_wheelhouse(site.plan.suite)),
        "fairwatt_install_cluster": site.plan.cluster,
        "fairwatt_install_settings": SETTINGS,
        "fairwatt_controller_manage_slurm_conf": True,
        "fairwatt_controller_updater": True,
        "fairwatt_collector_listen": "0.0.0.0:8181",
        "fairwatt_dashboard_listen": "0.0.0.0:8080",
        "fairwatt_dashboard_trusted_proxies": [BRIDGE],
        "fairwatt_dashboard_admins": ["root"],
    }


def _wheelhouse(suite: str) -> Path:
    """What `make dist` made for the suite's Python: the archive for one, else the folder."""
    forms = {TRIXIE: "fairwatt-*-wheelhouse-cp313.tar.gz", BOOKWORM: "wheelhouse-cp311"}
    found = sorted((REPOSITORY / "dist").glob(forms[suite]))
    assert found, f"no {forms[suite]} in dist/: run `make dist` first"
    return found[-1]
