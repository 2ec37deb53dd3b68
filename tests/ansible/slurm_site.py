# SPDX-License-Identifier: Apache-2.0
"""A site's own Slurm, as it is before fairwatt comes: the files of every host; pure.

The site has a submit script and a prolog of its own, accounting with GPUs, and one plain user.
Nothing here is taken from the roles: they meet what they did not write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.ansible.node_files import File, Files, Link, mask, merged
from tests.fakes.machines import FakeGpu, FakeInstance
from tests.lab.devices import CAPS_MAJOR, NVIDIA_MAJOR
from tests.lab.layout import NodeLayout, cap_minor
from tests.lab.slurm_conf import ON_ONE_HOST

__all__ = ["SITE_REFUSAL", "USER", "SlurmSite", "host_files"]

USER, USER_ID = "alice", 2001
SITE_REFUSAL = "site: no job may be called 'forbidden'"
_DAEMONS = ("slurmctld.service", "slurmdbd.service", "mariadb.service", "slurmd.service")

_SUBMIT_SCRIPT = f"""-- The site's own rules.
function slurm_job_submit(job_desc, part_list, submit_uid)
  if job_desc.name == "forbidden" then
    slurm.log_user("{SITE_REFUSAL}")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end
return slurm.SUCCESS
"""
_PROLOG_PART = """#!/bin/sh
echo "$SLURM_JOB_ID" >>/var/log/site-prolog.log
"""
# slurmctld leaves at once when it cannot reach slurmdbd at its very first start.
_AFTER_SLURMDBD = """[Service]
ExecStartPre=/usr/bin/python3 -c "import socket, time\\nfor _ in range(300):\\n\\
    time.sleep(0.1)\\n\\
    if not socket.socket().connect_ex(('{host}', 6819)): break"
TimeoutStartSec=90
"""
_MARIADB = """[mariadbd]
skip-networking
skip-log-bin
innodb_buffer_pool_size=32M
innodb_flush_log_at_trx_commit=2
init-file=/etc/mysql/lab.sql
"""
_DATABASE = """CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
"""
_DEVICES_UNIT = """[Unit]
Description=Device files of the fake GPUs
DefaultDependencies=no
Before=slurmd.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh /opt/lab/make-devices

[Install]
WantedBy=sysinit.target
"""


@dataclass(frozen=True)
class SlurmSite:
    """A cluster: its hosts by role, its GPU nodes, and how much of its own the site has."""

    cluster: str
    controller: str
    accounting: str
    nodes: tuple[NodeLayout, ...]
    munge_key: bytes
    release: tuple[int, int]
    own_hooks: bool = True

    @property
    def gres_types(self) -> tuple[str, ...]:
        """Every GPU and slice type of the site, as Slurm writes it."""
        pairs = [word for node in self.nodes for word in node.gres.split(",")]
        return tuple(dict.fromkeys(pair.split(":")[1] for pair in pairs))


def host_files(site: SlurmSite, host: str) -> Files:
    """What this host of the site has before it boots, by its role or roles."""
    needed = _daemons(site, host)
    return merged(
        _common(site),
        mask(*(unit for unit in _DAEMONS if unit not in needed)),
        _controller(site) if host == site.controller else {},
        _accounting(site) if host == site.accounting else {},
        *(_gpu_node(site, node) for node in site.nodes if node.name == host),
    )


def _daemons(site: SlurmSite, host: str) -> set[str]:
    needed = {"slurmctld.service"} if host == site.controller else set()
    if host == site.accounting:
        needed |= {"slurmdbd.service", "mariadb.service"}
    if host in {node.name for node in site.nodes}:
        needed.add("slurmd.service")
    return needed


def _common(site: SlurmSite) -> Files:
    return {
        "/etc/munge/munge.key": File(site.munge_key, 0o400, "munge"),
        "/etc/slurm/slurm.conf": File(_slurm_conf(site)),
        "/etc/slurm/gres.conf": File(_gres_conf(site)),
        "/etc/slurm/cgroup.conf": File(_cgroup_conf(site)),
        "/etc/passwd": File(
            f"{USER}:x:{USER_ID}:{USER_ID}::/home/{USER}:/bin/bash\n", append=True
        ),
        "/etc/group": File(f"{USER}:x:{USER_ID}:\n", append=True),
        "/etc/shadow": File(f"{USER}:*:20000::::::\n", append=True),
        "/etc/tmpfiles.d/lab-home.conf": File(f"d /home/{USER} 0755 {USER} {USER}\n"),
    }


def _controller(site: SlurmSite) -> Files:
    after = {
        "/etc/systemd/system/slurmctld.service.d/after-slurmdbd.conf": File(
            _AFTER_SLURMDBD.format(host=site.accounting)
        )
    }
    script = {"/etc/slurm/job_submit.lua": File(_SUBMIT_SCRIPT)}
    return {**after, **(script if site.own_hooks else {})}


def _accounting(site: SlurmSite) -> Files:
    return {
        "/etc/slurm/slurmdbd.conf": File(_slurmdbd_conf(site), 0o600, "slurm"),
        "/etc/mysql/mariadb.conf.d/90-lab.cnf": File(_MARIADB),
        "/etc/mysql/lab.sql": File(_DATABASE),
    }


def _gpu_node(site: SlurmSite, node: NodeLayout) -> Files:
    wants = "/etc/systemd/system/sysinit.target.wants/lab-devices.service"
    prolog = {"/etc/slurm/prolog.d/50-site.sh": File(_PROLOG_PART, 0o755)}
    return {
        "/opt/lab/make-devices": File(_make_devices(node)),
        "/etc/systemd/system/lab-devices.service": File(_DEVICES_UNIT),
        wants: Link("../lab-devices.service"),
        **(prolog if site.own_hooks else {}),
    }


def _slurm_conf(site: SlurmSite) -> str:
    keys: dict[str, object] = {
        "ClusterName": site.cluster,
        "SlurmctldHost": site.controller,
        "SlurmUser": "slurm",
        "StateSaveLocation": "/var/lib/slurm/slurmctld",
        "SlurmdSpoolDir": "/var/lib/slurm/slurmd",
        "SlurmctldPidFile": "/run/slurmctld.pid",
        "SlurmdPidFile": "/run/slurmd.pid",
        "MailProg": "/bin/true",
        **ON_ONE_HOST,
        "ReturnToService": 2,
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": site.accounting,
        "AccountingStorageEnforce": "associations",
        "AccountingStorageTRES": ",".join(
            ["gres/gpu", *(f"gres/gpu:{kind}" for kind in site.gres_types)]
        ),
        "JobAcctGatherType": "jobacct_gather/linux",
    }
    if site.own_hooks:
        keys |= {"JobSubmitPlugins": "lua", "Prolog": "/etc/slurm/prolog.d/*"}
    lines = [
        "# The slurm.conf of this site, kept by hand.",
        *(f"{k}={v}" for k, v in keys.items()),
    ]
    return "\n".join([*lines, *_node_lines(site), *_partition_lines(site), ""])


def _node_lines(site: SlurmSite) -> list[str]:
    return [
        f"NodeName={node.name} Sockets={node.sockets} CoresPerSocket={node.cores_per_socket}"
        f" ThreadsPerCore=1 RealMemory={node.memory_mib} Gres={node.gres} State=UNKNOWN"
        for node in site.nodes
    ]


def _partition_lines(site: SlurmSite) -> Sequence[str]:
    names = ",".join(node.name for node in site.nodes)
    return [f"PartitionName=gpu Nodes={names} Default=YES MaxTime=1-0 DefaultTime=10 State=UP"]


def _gres_conf(site: SlurmSite) -> str:
    return "".join(line for node in site.nodes for line in _gres_lines(node))


def _gres_lines(node: NodeLayout) -> list[str]:
    head = f"NodeName={node.name} Name=gpu Type={node.gres_type}"
    lines = []
    for gpu in sorted(node.gpus, key=lambda gpu: gpu.minor):
        if not gpu.instances:
            lines.append(f"{head} File=/dev/nvidia{gpu.minor}\n")
        for made in gpu.instances:
            files = ",".join([f"/dev/nvidia{gpu.minor}", *_caps(gpu, made)])
            lines.append(f"{head}_{made.profile} MultipleFiles={files}\n")
    return lines


def _caps(gpu: FakeGpu, made: FakeInstance) -> list[str]:
    minors = (cap_minor(gpu.minor, made.gi), cap_minor(gpu.minor, made.gi, made.ci))
    return [f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in minors]


def _make_devices(node: NodeLayout) -> str:
    boards = [
        f"mknod -m 666 /dev/nvidia{gpu.minor} c {NVIDIA_MAJOR} {gpu.minor}" for gpu in node.gpus
    ]
    caps = [cap for gpu in node.gpus for made in gpu.instances for cap in _caps(gpu, made)]
    made = [f"mknod -m 666 {cap} c {CAPS_MAJOR} {cap.rpartition('cap')[2]}" for cap in caps]
    control = f"mknod -m 666 /dev/nvidiactl c {NVIDIA_MAJOR} 255"
    return "\n".join(["set -eu", "mkdir -p /dev/nvidia-caps", control, *boards, *made, ""])


def _cgroup_conf(site: SlurmSite) -> str:
    # Nothing is constrained. "disabled" came with 23.02; before, a host with v1 and v2 is refused
    # unless one is named.
    plugin = "disabled" if site.release >= (23, 2) else "cgroup/v1"
    return f"CgroupPlugin={plugin}\nConstrainCores=no\nConstrainDevices=no\nConstrainRAMSpace=no\n"


def _slurmdbd_conf(site: SlurmSite) -> str:
    keys = {
        "AuthType": "auth/munge",
        "DbdHost": site.accounting,
        "SlurmUser": "slurm",
        "PidFile": "/run/slurmdbd/slurmdbd.pid",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": "slurm",
        "StorageLoc": "slurm_acct_db",
        "CommitDelay": 1,
    }
    return "".join(f"{key}={value}\n" for key, value in keys.items())
