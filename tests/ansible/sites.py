# SPDX-License-Identifier: Apache-2.0
"""The two sites of the tests, booted and with Slurm at work: a campus, and one small old host."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from tests.ansible.booted import BootedLab, Node
from tests.ansible.fake_gpus import fake_gpu_files, prepare_gpus
from tests.ansible.node_files import NodeSpec, merged
from tests.ansible.roots import BOOKWORM, TRIXIE
from tests.ansible.slurm_site import USER, SlurmSite, host_files
from tests.lab.layout import NODES, NodeLayout
from tests.lab.waiting import await_value

__all__ = ["CAMPUS", "SMALL", "BootedSite", "SitePlan", "booted_site"]


@dataclass(frozen=True)
class SitePlan:
    """A site to boot: suite and Slurm release, hosts with addresses, which of them do what."""

    cluster: str
    suite: str
    release: tuple[int, int]
    addresses: dict[str, str]
    controller: str
    accounting: str
    nodes: tuple[NodeLayout, ...]
    own_hooks: bool


def _layout(name: str, of: str) -> NodeLayout:
    return replace(next(node for node in NODES if node.name == of), name=name)


CAMPUS = SitePlan(
    cluster="campus",
    suite=TRIXIE,
    release=(24, 11),
    addresses={
        "ctl": "10.77.0.1",
        "acct": "10.77.0.2",
        "gpu01": "10.77.0.11",
        "mig01": "10.77.0.12",
    },
    controller="ctl",
    accounting="acct",
    nodes=(_layout("gpu01", "gpu01"), _layout("mig01", "mig01")),
    own_hooks=True,
)
SMALL = SitePlan(
    cluster="small",
    suite=BOOKWORM,
    release=(22, 5),
    addresses={"old": "10.77.0.3"},
    controller="old",
    accounting="old",
    nodes=(_layout("old", "mig01"),),
    own_hooks=False,
)


@dataclass(frozen=True)
class BootedSite:
    """A site whose Slurm runs, and its booted nodes."""

    plan: SitePlan
    lab: BootedLab

    @property
    def controller(self) -> Node:
        """The host of slurmctld."""
        return self.lab[self.plan.controller]

    @property
    def accounting(self) -> Node:
        """The host of slurmdbd."""
        return self.lab[self.plan.accounting]

    @property
    def gpu_nodes(self) -> list[Node]:
        """The hosts of slurmd."""
        return [self.lab[layout.name] for layout in self.plan.nodes]


@contextmanager
def booted_site(plan: SitePlan) -> Iterator[BootedSite]:
    """Boot the site's hosts, and wait until all its nodes are idle and its user has an account."""
    with BootedLab(_specs(plan)) as lab:
        site = BootedSite(plan, lab)
        _await_idle(site)
        _make_account(site)
        yield site


def _specs(plan: SitePlan) -> list[NodeSpec]:
    slurm = SlurmSite(
        plan.cluster,
        plan.controller,
        plan.accounting,
        plan.nodes,
        secrets.token_bytes(128),
        plan.release,
        plan.own_hooks,
    )
    return [_spec(plan, slurm, host) for host in plan.addresses]


def _spec(plan: SitePlan, slurm: SlurmSite, host: str) -> NodeSpec:
    layout = next((node for node in plan.nodes if node.name == host), None)
    files = merged(host_files(slurm, host), fake_gpu_files() if layout else {})
    prepare = partial(prepare_gpus, layout) if layout else None
    return NodeSpec(host, plan.suite, plan.addresses[host], files, prepare)


def _await_idle(site: BootedSite) -> None:
    wanted = sorted(f"{layout.name} idle" for layout in site.plan.nodes)

    def idle() -> bool:
        done = site.controller.run(["sinfo", "--noheader", "--Node", "--format=%N %T"])
        return sorted(done.stdout.split("\n")[:-1]) == wanted

    def detail() -> str:
        logs = [site.controller.journal("slurmctld"), site.accounting.journal("slurmdbd")]
        return "\n".join([*logs, *(node.journal("slurmd") for node in site.gpu_nodes)])

    await_value(
        idle,
        what=f"nodes of {site.plan.cluster} idle",
        timeout_s=60,
        detail=detail,
        interval_s=0.2,
    )


def _make_account(site: BootedSite) -> None:
    account = ["add", "account", "physics", "Description=Department of Physics"]
    for words in (account, ["add", "user", USER, "Account=physics"]):
        site.accounting.out("sacctmgr", "--immediate", *words)
