# SPDX-License-Identifier: Apache-2.0
"""The lab of booted nodes itself: it ends with its process, clashes with none, and says why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ansible.booted import BootedLab
from tests.ansible.node_files import File, Link, NodeSpec, mask
from tests.ansible.roots import TRIXIE
from tests.lab.waiting import LabError, await_value

pytestmark = pytest.mark.ansible

QUIET = mask("slurmd.service", "mariadb.service")
REPOSITORY = Path(__file__).resolve().parents[2]
HOLDER = """
import sys
from tests.ansible.booted import BootedLab
from tests.ansible.test_booted import spec
lab = BootedLab([spec("one", 1), spec("two", 2)])
print(lab.capsule.cgroup, flush=True)
sys.stdin.read()
"""


def spec(name: str, last: int, **files: File | Link) -> NodeSpec:
    """A node without Slurm."""
    return NodeSpec(name, TRIXIE, f"10.77.0.{last}", {**QUIET, **files})


def outside() -> dict[str, set[str]]:
    """What a lab could leave on this host: mounts, interfaces, names in /run."""
    names = [Path("/run").glob("*"), Path("/run/netns").glob("*"), Path("/run/systemd").rglob("*")]
    return {
        "mounts": set(Path("/proc/self/mounts").read_text().splitlines()),
        "interfaces": {entry.name for entry in Path("/sys/class/net").iterdir()},
        "run": {str(entry) for found in names for entry in found},
    }


def of_the_lab(cgroup: str) -> list[str]:
    """Processes in the lab's control groups, and those groups that are left."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            found += [f"{entry.parent.name}"] if cgroup in entry.read_text() else []
        except OSError:
            continue  # it has ended
    for top in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        found += [str(path) for path in top.glob(f"{cgroup}*")]
    return found


def test_nodes_see_each_other_and_nothing_else():
    with BootedLab([spec("one", 1), spec("two", 2)]) as lab:
        assert lab["one"].out("hostname") == "one"
        connect = "import socket,sys; print(socket.create_connection((sys.argv[1],22)))"
        refused = lab["one"].run(["python3", "-c", connect, "two"]).stderr
        assert "Connection refused" in refused  # two answers; no service is there
        beyond = lab["one"].run(["python3", "-c", connect, "192.0.2.1"]).stderr
        assert "Network is unreachable" in beyond


def test_two_labs_with_the_same_names_do_not_meet():
    with BootedLab([spec("one", 1)]) as left, BootedLab([spec("one", 1)]) as right:
        left["one"].out("touch", "/root/left")
        assert right["one"].run(["test", "-e", "/root/left"]).returncode == 1
        left["one"].out("systemctl", "stop", "munge")
        assert right["one"].out("systemctl", "is-active", "munge") == "active"
        left.stop()
        assert right["one"].out("systemctl", "is-system-running") == "running"


def test_kill_minus_9_leaves_nothing():
    before = outside()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        cgroup = holder.stdout.readline().strip()
        assert of_the_lab(cgroup)
        holder.kill()
    await_value(
        lambda: not of_the_lab(cgroup),
        what="the killed lab is gone",
        timeout_s=10,
        detail=lambda: str(of_the_lab(cgroup)),
    )
    assert outside() == before


def test_a_node_that_cannot_boot_is_an_error_with_its_console():
    init = "#!/bin/sh\necho I am no init; exit 7\n"
    broken = spec("one", 1, **{"/usr/lib/systemd/systemd": File(init, 0o755)})
    with pytest.raises(LabError, match=r"(?s)one has left \(status 7\).*I am no init"):
        BootedLab([broken])


def test_a_failed_unit_is_an_error_with_its_journal():
    unit = "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo no such luck; exit 3'\n"
    name = "/etc/systemd/system/luckless.service"
    wants = "/etc/systemd/system/multi-user.target.wants/luckless.service"
    files = {name: File(unit), wants: Link("../luckless.service")}
    with pytest.raises(LabError, match="no such luck"):
        BootedLab([spec("one", 1, **files)])


def test_a_boot_that_hangs_is_an_error_in_time():
    unit = "[Service]\nType=oneshot\nExecStart=/bin/sleep 600\n"
    name = "/etc/systemd/system/sleeper.service"
    wants = "/etc/systemd/system/multi-user.target.wants/sleeper.service"
    files = {name: File(unit), wants: Link("../sleeper.service")}
    with pytest.raises(LabError, match=r"(?s)not within 5 s.*sleeper\.service"):
        BootedLab([spec("one", 1, **files)], boot_s=5.0)
