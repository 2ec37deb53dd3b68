# SPDX-License-Identifier: Apache-2.0
"""The agent as a process with a BMC, a dcgm-exporter and processes on a shared board."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from fairwatt.core.events import Flag
from tests.fakes.bmc_server import bmc_server, collection, page
from tests.fakes.machines import a100_node, mig_node

CHASSIS = "/redfish/v1/Chassis"


def configure(lab, **settings: object) -> None:
    """Add settings of the agent to those of the lab."""
    folder = lab.root / "conf.d"
    folder.mkdir(exist_ok=True)
    lines = [f"{key} = {_toml(value)}" for key, value in settings.items()]
    (folder / "more.toml").write_text("[agent]\n" + "\n".join(lines) + "\n")


def _toml(value: object) -> str:
    return repr(value).lower() if isinstance(value, bool) else repr(value)


@pytest.fixture
def server():
    with bmc_server() as made:
        yield made


def activity(values: Mapping[tuple[str, int], float]) -> bytes:
    rows = [
        f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="0",UUID="{uuid}",GPU_I_ID="{gi}"}} {value}\n'
        for (uuid, gi), value in values.items()
    ]
    return page("".join(rows).encode())


def test_the_node_by_redfish_is_windows_of_its_rest(lab, server, wait_until) -> None:
    """500 W at the BMC, one GPU at 100 W inside it: 400 W are the rest of the node."""
    (gpu, *_) = a100_node(lab.fake, "n1", count=1)
    lab.fake.set_power(gpu.uuid, 100_000)
    password = lab.root / "redfish.credentials"
    password.touch(mode=0o600)
    password.write_text("reader\nhunter2\n")
    server.pages[CHASSIS] = collection("Self")
    server.pages[f"{CHASSIS}/Self/Power"] = page({"PowerControl": [{"PowerConsumedWatts": 500}]})
    configure(lab, host_sources=["redfish"], redfish_url=server.url,
              redfish_credentials=str(password), bmc_period_s=0.1)  # fmt: skip
    lab.start()
    wait_until(lambda: server.asked.count(f"{CHASSIS}/Self/Power") > 1, "two questions")
    lab.hook("prolog", 1, gpu.uuid)
    asked = len(server.asked)
    wait_until(lambda: len(server.asked) > asked + 2, "more questions")
    lab.hook("epilog", 1)
    lab.hook("prolog", 2, gpu.uuid)
    rest = [w for w in lab.windows("n1/rest") if w.shares]
    assert rest
    for window in rest:
        assert (window.method, window.kind) == ("redfish", "node")
        assert window.flags & Flag.INTEGRATED
        # The board's counter moves in steps of 100 ms: 10 J more or less at either end.
        assert abs(window.measured_mj - 400 * (window.t1_ms - window.t0_ms)) <= 2 * 10_000
    assert "hunter2" not in lab.log.read_text()


def test_slices_without_nvml_utilisation_by_dcgm(lab, server, wait_until) -> None:
    (board, _) = mig_node(lab.fake, "n1")
    one, two = board.instances[0], board.instances[1]
    server.pages["/metrics"] = activity({(board.uuid, one.gi): 0.9, (board.uuid, two.gi): 0.3})
    configure(lab, dcgm_url=server.url + "/metrics")
    lab.start()
    for job_id, instance in ((1, one), (2, two)):
        lab.fake.set_power(instance.uuid, 60_000)
        lab.hook("prolog", job_id, instance.uuid)
    asked = len(server.asked)
    wait_until(lambda: len(server.asked) > asked + 2, "three pages")
    lab.hook("epilog", 1)
    window = lab.windows(board.uuid)[-1]
    utils = {share.job_id: share.util_permille for share in window.shares}
    assert utils == {1: 900, 2: 300}
    assert window.flags == 0


def test_a_shared_board_by_processes(lab) -> None:
    """Half of the board each by MPS; the processes' use is 60 and 20 %."""
    (gpu, *_) = a100_node(lab.fake, "n1", count=1)
    (lab.root / "gres.conf").write_text(
        "Name=gpu Type=a100 File=/dev/nvidia0\nName=mps Count=100 File=/dev/nvidia0\n"
    )
    proc = lab.root / "proc"
    for pid, job in ((101, "job_1"), (102, "job_2")):
        (proc / str(pid)).mkdir(parents=True)
        text = f"0::/system.slice/slurmstepd.scope/{job}/step_0/user/task_0\n"
        (proc / str(pid) / "cgroup").write_text(text)
    configure(lab, process_utilisation=True, proc_root=str(proc))
    lab.fake.add_process(gpu.uuid, 101, 1000, 60)
    lab.fake.add_process(gpu.uuid, 102, 1000, 20)
    lab.fake.set_power(gpu.uuid, 300_000)
    lab.start()
    for job_id in (1, 2):
        message = lab.message("prolog", job_id, gpu.uuid)
        message["env"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = "50"
        lab.ask(**message)

    time.sleep(1.5)  # some samples, of which nothing tells
    lab.hook("epilog", 1)
    window = lab.windows(gpu.uuid)[-1]
    assert {share.job_id: share.util_permille for share in window.shares} == {1: 600, 2: 200}
    first, second = sorted(window.shares, key=lambda share: share.job_id)
    assert abs(first.active_mj - 3 * second.active_mj) <= 3
