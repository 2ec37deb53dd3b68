# SPDX-License-Identifier: Apache-2.0
"""Used GPU memory: what the driver tells, and its largest and mean value by window."""

from __future__ import annotations

import pytest

from fairwatt.accounting.agent.nvml import NvmlSource
from fairwatt.accounting.agent.usage import Usage
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.events import GpuMemory, decode_event, encode_event
from tests.fakes.loaded import build_library, loaded_nvml, missing_tools
from tests.fakes.nvml_control import FakeNvml

BOARD, CUT = "GPU-board", "GPU-cut"


def gpu_memory(instance: str, most: int, mean: int) -> GpuMemory:
    return GpuMemory(instance=instance, max_mib=most, mean_mib=mean)


def test_largest_and_mean_are_weighted_by_time() -> None:
    """1,000 MiB for 10 s, then 4,000 for 20 s: mean 3,000, largest 4,000."""
    usage = Usage()
    usage.open("g", 0)
    usage.add("g", 10_000, {}, used_mib={"": 1000})
    usage.add("g", 30_000, {}, used_mib={"": 4000})
    assert usage.memory("g") == (gpu_memory("", 4000, 3000),)
    usage.open("g", 30_000)
    assert usage.memory("g") == ()


def test_a_window_tells_its_memory_and_a_gap_does_not(bench) -> None:
    bench.hook("prolog", 1)
    for used in (1000, 3000):
        bench.pass_time(1_000, 100_000)
        bench.keeper.sample(bench.look({"": 900}, used_mib={"": used}))
    bench.pass_time(1, 0)
    # At the end the program has gone: that the memory is free then says nothing of the job.
    bench.keeper.hook(bench.request("epilog", 1, ""), bench.look({"": 0}, used_mib={"": 0}))
    assert bench.windows()[-1].memory == (gpu_memory("", 3000, 2000),)
    bench.hook("prolog", 2)
    bench.crash()
    bench.pass_time(1_000, 100_000)
    bench.start()
    assert bench.windows()[-1].memory == ()


def test_a_window_without_memory_reads_as_an_older_agents(bench) -> None:
    bench.hook("prolog", 1)
    bench.pass_time(1_000, 100_000)
    bench.cut_now()
    line = encode_event(bench.windows()[-1])
    assert b"memory" not in line
    assert encode_event(decode_event(line)) == line


@pytest.fixture
def fake(tmp_path) -> FakeNvml:
    if reason := missing_tools():
        pytest.skip(reason)
    build_library()
    return FakeNvml(tmp_path / "nvml.control")


def test_the_driver_tells_boards_and_instances_without_its_reserve(fake) -> None:
    fake.add_gpu(0, BOARD, 0, "NVIDIA H100 80GB HBM3", 81_559, "hopper")
    fake.add_gpu(1, CUT, 1, "NVIDIA H100 80GB HBM3", 81_559, "hopper", mig=True)
    for gi, uuid in enumerate(("MIG-a", "MIG-b"), start=1):
        fake.add_instance(CUT, gi, 0, uuid, "1g.10gb", 1, 9_856, 16)
    fake.add_process(BOARD, 4711, 7_000)
    fake.add_process("MIG-b", 4712, 900)
    with loaded_nvml(fake.path):
        source = NvmlSource("n1", load_catalogue())
        source.devices()
        used = {BOARD: {"": 7_000}, CUT: {"MIG-a": 0, "MIG-b": 900}}
        assert source.memory([BOARD, CUT]) == used
        fake.remove_instance("MIG-a")
        assert source.memory([CUT]) == {CUT: {"MIG-b": 900}}


def test_a_driver_that_does_not_tell_its_reserve_leaves_it_unknown(fake) -> None:
    fake.add_gpu(0, BOARD, 0, "NVIDIA H100 80GB HBM3", 81_559, "hopper")
    fake.hide_symbol("nvmlDeviceGetMemoryInfo_v2")
    with loaded_nvml(fake.path):
        source = NvmlSource("n1", load_catalogue())
        source.devices()
        assert source.memory([BOARD]) == {BOARD: {}}
