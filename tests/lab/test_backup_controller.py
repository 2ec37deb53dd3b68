# SPDX-License-Identifier: Apache-2.0
"""The submit hook in a backup controller that takes over: it means the same there.

Both controllers run on this host, the backup under a host name and an address of its own. As on
two hosts, each has its own Lua, its own connection and its own counts.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.faulty_policyd import GIVEN, SAID, FaultyPolicyd
from tests.lab.cluster import OneHostCluster
from tests.lab.commands import SubmitResult
from tests.lab.hooks import load_anew, write_settings
from tests.lab.paths import REPOSITORY, Paths
from tests.lab.system import HOST_RELEASE, OTHER_RELEASES
from tests.lab.waiting import await_value

pytestmark = [
    pytest.mark.lab,
    pytest.mark.parametrize("release", [HOST_RELEASE, OTHER_RELEASES[0]], indirect=True),
]

NOT_APPLIED = "fairwatt: the site's GPU policy could not be applied"
BACKUP, BACKUP_ADDRESS = "backup", "127.0.0.2"
TAKE_OVER_S = 30

# slurmctld knows by the host's name which of the controllers it is, and listens where it resolves.
_BACKUP = """
set -eu
hosts=$1
mount --bind "$hosts" /etc/hosts
if [ -e "$2/etc/hosts" ]; then mount --bind "$hosts" "$2/etc/hosts"; fi
hostname {name}
exec slurmctld -D
"""


def two_controllers() -> dict[str, object]:
    """What slurm.conf needs for both of them on one host, and for a quick take-over."""
    primary = socket.gethostname().partition(".")[0]
    return {
        "SlurmctldHost": (f"{primary}(127.0.0.1)", f"{BACKUP}({BACKUP_ADDRESS})"),
        "CommunicationParameters": "NoCtldInAddrAny",
        "SlurmctldTimeout": 4,
        "DebugFlags": "NO_CONF_HASH",
    }


def start_backup(lab: OneHostCluster) -> None:
    """Start the second slurmctld; return when it answers."""
    paths = lab.paths
    hosts = paths.etc / "backup.hosts"
    hosts.write_text(f"{BACKUP_ADDRESS} {BACKUP}\n" + Path("/etc/hosts").read_text())
    conf = paths.etc / "backup.conf"  # a pid file of its own, or it would end the primary
    conf.write_text(paths.slurm_conf.read_text().replace("slurmctld.pid", "backup.pid"))
    root = paths.root / "system" / "root"
    script = _BACKUP.format(name=BACKUP)
    argv = ["unshare", "--uts", "--mount", "sh", "-c", script, "backup", str(hosts), str(root)]
    lab.spawn("backup", argv, SLURM_CONF=str(conf)).ready(
        lambda: lab.run(["scontrol", "ping"]).stdout.count(" is UP") == 2, TAKE_OVER_S
    )


def configure(paths: Paths, mode: str) -> None:
    write_settings(paths, fail_mode=mode, deadline_ms=200, breaker_s=0.001)
    load_anew(paths)


def submit(lab: OneHostCluster) -> SubmitResult:
    return lab.sbatch(["--gres=gpu:a100:1", "--begin=now+1hour"], "true")


@pytest.fixture
def lab(release: str, lab_root: Path) -> Iterator[OneHostCluster]:
    with OneHostCluster(
        lab_root / f"b{release}",
        node_hooks=REPOSITORY / "tests" / "lab" / "recorder",
        release=release,
        slurm=two_controllers(),
    ) as running:
        start_backup(running)
        yield running


def test_the_backup_judges_as_the_primary_did(lab):
    with FaultyPolicyd(lab.paths.policyd_socket) as far:
        configure(lab.paths, "open")
        assert submit(lab).stderr == f"sbatch: {SAID}\n"
        # A backup that never saw the primary's heartbeat does not take over at all.
        await_value(
            (lab.paths.state / "heartbeat").exists,
            what="the primary's first heartbeat",
            timeout_s=TAKE_OVER_S,
        )
        lab.kill("slurmctld")
        done = await_value(
            lambda: made if (made := submit(lab)).job_id else None,
            what="a job at the backup",
            timeout_s=TAKE_OVER_S,
            detail=lambda: lab.log_text("backup"),
        )
        assert done.stderr == f"sbatch: {SAID}\n"
        shown = lab.run(["scontrol", "show", "job", str(done.job_id)]).stdout
        assert GIVEN in shown

        far.fault("garbage")
        done = submit(lab)
        assert done.job_id is not None
        assert done.stderr.startswith(f"sbatch: {NOT_APPLIED}")
        configure(lab.paths, "closed")
        done = submit(lab)
        assert done.job_id is None
        assert done.stderr.startswith(f"sbatch: error: {NOT_APPLIED}")
        assert NOT_APPLIED in lab.log_text("backup")
        assert NOT_APPLIED not in lab.log_text("slurmctld")
