# SPDX-License-Identifier: Apache-2.0
"""Health under real Slurm: our own faults drain nothing, a sick GPU drains its node alone."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairwatt.core.boot import read_boot_ms
from tests.lab.cluster import OneHostCluster
from tests.lab.fairwatt_conf import toml
from tests.lab.programs import command
from tests.lab.waiting import await_value

pytestmark = pytest.mark.lab

QUICK = (
    "[defaults]\nperiod_s = 0.4\ndeadline_s = 1.0\n\n[checks.xid_fault]\nparameters.hold_s = 3\n"
)
HANG_S = 2.0
ALL = ("gpu01", "gpu02", "h01", "mig01")
WAIT_S = 20.0


@pytest.fixture(scope="module")
def site(release: str, lab_root: Path) -> Iterator[OneHostCluster]:
    settings = {"health.enabled": True, "health.hang_s": HANG_S, "agent.ship_s": 60.0}
    root = lab_root / f"h{release}"
    with OneHostCluster(root, hook="none", settings=settings, release=release) as running:
        for node in running.nodes.values():
            node.health_file.write_text(QUICK)
            node.kmsg.touch()
        for name in ALL:
            running.start_agent(name)
        for name in ALL:
            await_state(running, name, "ok")
        yield running


def verdict(site: OneHostCluster, node: str) -> dict[str, Any]:
    """The node's newest verdict; {} where there is none yet."""
    try:
        return json.loads(site.nodes[node].health_state.read_bytes())
    except FileNotFoundError:
        return {}


def codes(site: OneHostCluster, node: str) -> set[str]:
    return {finding["code"] for finding in verdict(site, node).get("findings", ())}


def await_state(site: OneHostCluster, node: str, state: str) -> dict[str, Any]:
    return await_value(
        lambda: verdict(site, node) if verdict(site, node).get("state") == state else None,
        what=f"{node} is {state}",
        timeout_s=WAIT_S,
        detail=lambda: f"{verdict(site, node)}\n{site.log_text(f'agent-{node}')[-3000:]}",
    )


def slurm(site: OneHostCluster, *nodes: str) -> dict[str, tuple[str, str]]:
    """State and reason of nodes, as sinfo tells them."""
    rows = site.run(["sinfo", "-hN", "-n", ",".join(nodes or ALL), "-o", "%N|%T|%E"]).stdout
    parts = [row.split("|", 2) for row in rows.splitlines()]
    return {name: (state, reason.strip()) for name, state, reason in parts}


def drained(site: OneHostCluster) -> dict[str, str]:
    """The reasons of the nodes that are drained."""
    return {name: reason for name, (state, reason) in slurm(site).items() if "drain" in state}


def await_drained(site: OneHostCluster, *nodes: str) -> dict[str, str]:
    """Wait until exactly these nodes are drained; return their reasons."""

    def look() -> bool:
        return set(drained(site)) == set(nodes)

    await_value(
        look,
        what=f"{nodes or 'no node'} drained",
        timeout_s=WAIT_S,
        detail=lambda: f"{slurm(site)}\n{[verdict(site, name) for name in nodes]}",
    )
    return drained(site)


def scontrol(site: OneHostCluster, node: str, *assignments: str) -> None:
    site.run(["scontrol", "update", f"nodename={node}", *assignments], check=True)


def log_kernel(site: OneHostCluster, node: str, sequence: int, text: str) -> None:
    """Write a record as the kernel does, in the facility of `text`: none is 0, the kernel."""
    micros = 1000 * (time.time_ns() // 1_000_000 - (read_boot_ms(Path("/proc")) or 0))
    with site.nodes[node].kmsg.open("a") as log:
        log.write(f"3,{sequence},{micros},-;{text}\n")


def restart_agent(site: OneHostCluster, node: str, **settings: Any) -> None:
    """Restart the agent with more settings, those of its file before them."""
    site.stop_agent(node)
    path = site.nodes[node].config_path
    mine = {key.replace("__", "."): value for key, value in settings.items()}
    kept = [line for line in path.read_text().splitlines() if line.split(" =")[0] not in mine]
    path.write_text("\n".join([*kept, toml(mine)]))
    site.start_agent(node)
    await_value(lambda: verdict(site, node).get("rounds", 9) < 9, what="anew", timeout_s=WAIT_S)


def run_job(site: OneHostCluster, node: str, *args: str) -> int:
    done = site.sbatch([f"--nodelist={node}", "-pall", "--output=/dev/null", *args], "true")
    assert done.job_id is not None, done.stderr
    return done.job_id


def test_own_faults_drain_nothing_and_jobs_run(site: OneHostCluster) -> None:
    """Agent dead, agent hung, NVML hung for 60 s, NVML library missing."""
    site.kill_agent("gpu01")
    hung = site.daemon("agent-gpu02")
    assert hung is not None
    os.killpg(hung.process.pid, signal.SIGSTOP)
    site.nodes["h01"].fake.slow("nvmlDeviceGetCurrPcieLinkWidth", 60_000)
    site.stop_agent("mig01")
    site.nodes["mig01"].health_state.unlink()
    config = str(site.nodes["mig01"].config_path)
    site.spawn("agent-mig01", command("agent"), FAIRWATT_CONFIG=config)
    assert "FWH903" in {f["code"] for f in await_state(site, "mig01", "unknown")["findings"]}
    await_value(lambda: "FWH904" in codes(site, "h01"), what="no answer", timeout_s=WAIT_S)
    await_value(lambda: "FWH908" in codes(site, "h01"), what="begun anew", timeout_s=WAIT_S)
    jobs = [run_job(site, name, "--gres=gpu:1", "--comment=skip_checks") for name in ALL]
    for job_id in jobs:
        assert site.wait_job(job_id) == ["COMPLETED"]
    assert drained(site) == {}
    os.killpg(hung.process.pid, signal.SIGCONT)
    site.nodes["h01"].fake.slow("nvmlDeviceGetCurrPcieLinkWidth", 0)
    site.kill_agent("mig01")
    for name in ("gpu01", "mig01"):
        site.start_agent(name)
    for name in ALL:
        await_state(site, name, "ok")


def test_a_lost_gpu_drains_exactly_its_node_until_it_is_healed(site: OneHostCluster) -> None:
    node = site.nodes["gpu01"]
    lost = node.layout.gpus[2].uuid
    scontrol(site, "gpu02", "state=drain", "reason=my own")
    site.nodes["gpu02"].fake.lose(site.nodes["gpu02"].layout.gpus[0].uuid)
    node.fake.lose(lost)
    reasons = await_drained(site, "gpu01", "gpu02")
    assert reasons["gpu02"] == "my own"
    assert reasons["gpu01"].startswith(f"fairwatt FWH101 {lost}: ")
    shown = site.fairwatt("health", node="gpu01")
    assert shown.returncode == 4
    assert ["FWH101", "gpu_lost", "bad", lost] in [
        line.split()[:4] for line in shown.stdout.splitlines()
    ]
    assert re.search(r"the node is (being )?drained", shown.stdout)
    site.kill_agent("gpu01")  # nothing is forgotten with the process
    site.start_agent("gpu01")
    node.fake.heal(lost)
    site.nodes["gpu02"].fake.heal(site.nodes["gpu02"].layout.gpus[0].uuid)
    assert await_drained(site, "gpu02") == {"gpu02": "my own"}
    assert slurm(site, "gpu01")["gpu01"][1] == "none"
    await_state(site, "gpu02", "ok")
    assert drained(site) == {"gpu02": "my own"}
    scontrol(site, "gpu02", "state=resume")


def test_xid_79_drains_and_what_an_admin_adds_to_the_reason_is_his(site: OneHostCluster) -> None:
    first, second = site.nodes["h01"].layout.gpus[:2]
    log_kernel(site, "h01", 10, f"NVRM: Xid (PCI:{first.pci[:-2]}): 31, pid=7, MMU Fault")
    log_kernel(site, "h01", 11, f"python NVRM: Xid (PCI:{first.pci[:-2]}): 79, pid=7")
    log_kernel(site, "h01", 12, f"NVRM: Xid (PCI:{second.pci[:-2]}): 79, pid='<unknown>'")
    (reason,) = await_drained(site, "h01").values()
    assert reason.startswith(f"fairwatt FWH201 {second.uuid}: XID 79 ")
    await_drained(site)  # three seconds after the last one
    log_kernel(site, "h01", 13, f"NVRM: Xid (PCI:{second.pci[:-2]}): 79, pid='<unknown>'")
    (reason,) = await_drained(site, "h01").values()
    scontrol(site, "h01", f"reason={reason} - ticket 7")
    await_state(site, "h01", "ok")
    assert drained(site) == {"h01": f"{reason} - ticket 7"}
    scontrol(site, "h01", "state=resume")


def test_no_more_nodes_than_the_limit_are_drained(site: OneHostCluster) -> None:
    sick = {name: site.nodes[name].layout.gpus[0].uuid for name in ("gpu01", "gpu02", "h01")}
    for name, uuid in sick.items():
        site.nodes[name].fake.lose(uuid)
    spared = await_value(
        lambda: [name for name in sick if "FWH907" in codes(site, name)],
        what="an alert instead of a drain",
        timeout_s=WAIT_S,
        detail=lambda: str(slurm(site)),
    )
    reasons = await_drained(site, *(set(sick) - set(spared)))
    assert len(reasons) == 2
    for name, reason in reasons.items():
        assert reason.startswith(f"fairwatt FWH101 {sick[name]}: ")
    for name, uuid in sick.items():
        site.nodes[name].fake.heal(uuid)
    await_drained(site)


def test_j22_a_job_on_a_lost_gpu_is_held_and_its_node_drained_by_slurm(
    site: OneHostCluster,
) -> None:
    """Slurm's own doing when a prolog fails; fairwatt leaves it alone where it may not drain."""
    node = site.nodes["gpu01"]
    restart_agent(site, "gpu01", health__drain=False)
    node.fake.lose(node.layout.gpus[1].uuid)
    await_value(
        lambda: any(f["drain"] == "off" for f in verdict(site, "gpu01")["findings"]),
        what="a confirmed fault",
        timeout_s=WAIT_S,
    )
    job_id = run_job(site, "gpu01", "--gres=gpu:a100:4")
    await_drained(site, "gpu01")
    assert slurm(site, "gpu01")["gpu01"][1] == "Prolog error"
    held = ("JobState=PENDING", "Reason=launch_failed_requeued_held", "Restarts=1")
    await_value(
        lambda: all(word in show_job(site, job_id) for word in held),
        what="a held job",
        timeout_s=WAIT_S,
        detail=lambda: show_job(site, job_id),
    )
    site.run(["scancel", str(job_id)], check=True)
    restart_agent(site, "gpu01", health__prolog_fails=False)
    await_value(lambda: "FWH101" in codes(site, "gpu01"), what="still lost", timeout_s=WAIT_S)
    scontrol(site, "gpu01", "state=resume")
    assert site.wait_job(run_job(site, "gpu01", "--gres=gpu:a100:4")) == ["COMPLETED"]
    assert drained(site) == {}


def show_job(site: OneHostCluster, job_id: int) -> str:
    return site.run(["scontrol", "-o", "show", "job", str(job_id)]).stdout
