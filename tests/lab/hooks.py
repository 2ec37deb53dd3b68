# SPDX-License-Identifier: Apache-2.0
"""Installs the submit hook and the node hooks into the cluster's folder."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
from pathlib import Path

from tests.lab.paths import REPOSITORY, Paths

__all__ = [
    "HOOKS",
    "LAB_DEADLINE_MS",
    "PACKAGE_NODE_HOOKS",
    "install_node_hooks",
    "install_submit_hook",
    "load_anew",
    "write_settings",
]

LAB_DEADLINE_MS = 250
"""A site waits 10 ms. Here twenty daemons share two cores with the jobs and the tests: the system
may leave policyd or slurmctld without a core for longer than that."""

HOOKS = ("none", "trivial", "fairwatt")
PACKAGE_NODE_HOOKS = REPOSITORY / "prolog" / "hooks"
NODE_HOOKS = ("prolog", "epilog", "task-prolog")
NODE_HOOK_MODULES = ("client.py", "away.py", "cleanup.py")

_TRIVIAL = """\
function slurm_job_submit(job_desc, part_list, submit_uid) return slurm.SUCCESS end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""


def install_submit_hook(paths: Paths, hook: str | Path, deadline_ms: int) -> bool:
    """Put job_submit.lua beside slurm.conf; return whether slurm.conf has to name the plugin.

    `hook` is "none", "trivial" (accepts everything), "fairwatt", or a Lua file.
    """
    target = paths.etc / "job_submit.lua"
    if hook == "none":
        return False
    if hook == "trivial":
        target.write_text(_TRIVIAL)
    elif hook == "fairwatt":
        lua = REPOSITORY / "slurm_plugins" / "lua"
        shutil.copy(lua / "job_submit.lua", target)
        shutil.copy(lua / "cli_filter.lua", paths.etc)  # in use where CliFilterPlugins says so
        write_settings(paths, deadline_ms=deadline_ms)
    else:
        shutil.copy(hook, target)
    return True


def write_settings(paths: Paths, **settings: str | float) -> None:
    """Write fairwatt_hook.lua: the lab's settings but for those named."""
    known = {"socket": str(paths.policyd_socket), "deadline_ms": LAB_DEADLINE_MS, **settings}
    pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in known.items())
    (paths.etc / "fairwatt_hook.lua").write_text(f"return {{ {pairs} }}\n")


def load_anew(paths: Paths) -> None:
    """Let slurmctld load job_submit.lua with the next job: its time must be a later second."""
    script = paths.etc / "job_submit.lua"
    newer = max(time.time(), script.stat().st_mtime) + 2
    os.utime(script, (newer, newer))


def install_node_hooks(paths: Paths, source: Path) -> None:
    """Copy the hooks of `source` and write the three wrappers that slurm.conf names.

    A wrapper sets the node's folders by $SLURMD_NODENAME, since all nodes share one slurm.conf.
    """
    copies = paths.etc / "node" / "hooks"
    shutil.copytree(source, copies)
    for name in NODE_HOOK_MODULES:
        if (source.parent / name).exists():
            shutil.copy(source.parent / name, copies.parent)
    for name in NODE_HOOKS:
        wrapper = paths.etc / name
        wrapper.write_text(_wrapper(paths, copies / name))
        wrapper.chmod(0o755)


def _wrapper(paths: Paths, hook: Path) -> str:
    # Users must be able to run it: a virtual environment may lie in a closed home folder.
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    return f"""\
#!/bin/sh
node={shlex.quote(str(paths.root))}/nodes/$SLURMD_NODENAME
export FAIRWATT_PYTHON={shlex.quote(python)}
export FAIRWATT_AGENT_SOCKET=$node/agent.sock
export FAIRWATT_INBOX_DIR=$node/inbox
export FAIRWATT_JOB_DIR=$node/jobs
export FAIRWATT_LOG_SOCKET=$node/log
exec {shlex.quote(str(hook))}
"""
