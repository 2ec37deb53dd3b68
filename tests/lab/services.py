# SPDX-License-Identifier: Apache-2.0
"""Scripts that stop and start a cluster's daemons by name, as systemctl does on a host.

They work from outside the cluster's process namespace, and what they start dies with it.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tests.lab.cluster import OneHostCluster
from tests.lab.nodes import LabNode
from tests.lab.paths import REPOSITORY

__all__ = ["restart_slurmctld", "slurmd_start", "slurmd_stop"]

_HEAD = """\
#!/bin/sh
set -eu
inside() { nsenter --mount=%(namespace)s/mnt --pid=%(namespace)s/pid --wd=/ -- "$@"; }
# A zombie counts as gone: a test that started it itself has yet to wait for it.
runs() {
    [ -s %(pidfile)s ] && inside sh -c '
        grep -qs "^State:.[^ZX]" /proc/$1/status && grep -qs "$2" /proc/$1/cmdline
    ' sh "$(cat %(pidfile)s)" %(program)s
}
settle() { # settle COMMAND...: wait until it succeeds
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 500 ] || { echo "$0: $* never came true" >&2; exit 1; }
        sleep 0.02
    done
}
start() {
    unset LD_LIBRARY_PATH FAIRWATT_FAKE_NVML
    inside env SLURM_CONF=%(slurm_conf)s "$@" </dev/null >>%(log)s 2>&1
}
gone() { ! runs; }
stop() {
    if runs; then
        inside sh -c 'kill $1' sh "$(cat %(pidfile)s)"
        settle gone
    fi
}
"""
_START_SLURMD = """\
runs && exit 0
%(detect)s
SLURMD_OPTIONS=
[ ! -e %(options)s ] || . %(options)s
eval "set -- $SLURMD_OPTIONS"
start slurmd -N %(node)s "$@"
settle runs
"""
_RESTART_SLURMCTLD = """\
stop
start slurmctld
settle runs
"""
_DETECT = "PYTHONPATH=%(repository)s %(python)s -m tests.lab.autodetect %(dev)s %(file)s"


def slurmd_stop(cluster: OneHostCluster, node: LabNode) -> Path:
    """Write the script that ends a node's slurmd; it succeeds where none runs."""
    head = _head(cluster, node, cluster.paths.slurm_conf)
    return _script(node.folder / "slurmd-stop", head + "stop\n")


def slurmd_start(
    cluster: OneHostCluster, node: LabNode, etc: Path | None = None, options: Path | None = None
) -> Path:
    """Write the script that starts a node's slurmd where it does not run.

    Args:
        cluster: whose node it is.
        node: the node.
        etc: its own folder of Slurm's files: AutoDetect=nvml is emulated there.
        options: file with SLURMD_OPTIONS.
    """
    detect = _DETECT % {
        "repository": shlex.quote(str(REPOSITORY)),
        "python": shlex.quote(sys.executable),
        "dev": shlex.quote(str(cluster.paths.dev(node.name))),
        "file": shlex.quote(str((etc or node.folder) / "fake_gpus.conf")),
    }
    words = {
        "detect": detect if etc else ":",
        "options": shlex.quote(str(options or node.folder / "no-options")),
        "node": node.name,
    }
    head = _head(cluster, node, (etc or cluster.paths.etc) / "slurm.conf")
    return _script(node.folder / "slurmd-start", head + _START_SLURMD % words)


def restart_slurmctld(cluster: OneHostCluster) -> Path:
    """Write the script that restarts slurmctld, which keeps its jobs."""
    head = _head_of(cluster, "slurmctld", "slurmctld", cluster.paths.slurm_conf)
    return _script(cluster.paths.root / "slurmctld-restart", head + _RESTART_SLURMCTLD)


def _head(cluster: OneHostCluster, node: LabNode, slurm_conf: Path) -> str:
    return _head_of(cluster, "slurmd", f"slurmd-{node.name}", slurm_conf)


def _head_of(cluster: OneHostCluster, program: str, name: str, slurm_conf: Path) -> str:
    return _HEAD % {
        "namespace": cluster.namespace,
        "pidfile": shlex.quote(str(cluster.paths.run / f"{name}.pid")),
        "program": program,
        "slurm_conf": shlex.quote(str(slurm_conf)),
        "log": shlex.quote(str(cluster.paths.log / f"{name}.log")),
    }


def _script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path
