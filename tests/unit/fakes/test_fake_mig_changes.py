# SPDX-License-Identifier: Apache-2.0
"""Instances made and destroyed through NVML, by the driver's rules of place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from tests.fakes.loaded import loaded_nvml
from tests.fakes.machines import a100_node, empty_mig_node, h100_node, mig_node
from tests.fakes.mig_calls import (
    gpu_instances,
    make,
    mig_uuids,
    orphans,
    placements,
    profile_id,
    where,
)
from tests.fakes.nvml_control import FakeNvml

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="NVML lets only root change MIG")


@pytest.fixture
def board(fake):
    return empty_mig_node(fake, "mig01")[0]


@pytest.fixture
def gpu(nvml, board):
    return nvml.nvmlDeviceGetHandleByIndex(0)


def test_what_an_a100_offers(nvml, gpu):
    info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, nvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE)
    assert (info.id, info.name, info.sliceCount, info.instanceCount) == (9, "MIG 3g.20gb", 3, 2)
    assert (info.multiprocessorCount, info.memorySizeMB) == (42, 19_968)
    assert (info.copyEngineCount, info.decoderCount, info.ofaCount) == (3, 2, 0)
    # The ids that `nvidia-smi mig -lgip` prints.
    names = ["1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]
    ids = [profile_id(nvml, gpu, name) for name in names]
    assert ids == [19, 20, 15, 14, 9, 5, 0]
    most = [nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, each) for each in ids]
    assert most == [7, 1, 4, 3, 2, 1, 1]
    assert placements(nvml, gpu, 9) == [(0, 4), (4, 4)]
    assert placements(nvml, gpu, 14) == [(0, 2), (2, 2), (4, 2)]
    assert nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, 0, version=1).id == 19
    assert nvml.nvmlDeviceGetGpuInstanceProfileInfoById(gpu, 14).name == "MIG 2g.10gb"


def test_a_profile_that_the_board_lacks(nvml, gpu):
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, nvml.NVML_GPU_INSTANCE_PROFILE_8_SLICE)
    for call in (
        lambda: nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, 99),
        lambda: nvml.nvmlDeviceCreateGpuInstance(gpu, 99),
        lambda: nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, 99),
    ):
        with pytest.raises(nvml.NVMLError_InvalidArgument):
            call()


def test_versioned_structures_are_checked(nvml, gpu):
    info = nvml.c_nvmlGpuInstanceProfileInfo_v2_t()
    info.version = 0x02000090
    assert nvml.nvmlLib.nvmlDeviceGetGpuInstanceProfileInfoV(gpu, 0, nvml.byref(info)) == 25


def test_made_without_a_place_it_takes_the_first(nvml, gpu, board):
    made = [make(nvml, gpu, "3g.20gb")[0] for _ in range(2)]
    assert [where(nvml, each) for each in made] == [(1, 0, 4), (2, 4, 4)]
    with pytest.raises(nvml.NVMLError_InsufficientResources):
        make(nvml, gpu, "1g.5gb")  # 6 of 7 compute slices, but all memory
    assert nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, 19) == 0


def test_seven_small_ones_and_no_eighth(nvml, gpu, board):
    made = [make(nvml, gpu, "1g.5gb")[0] for _ in range(7)]
    assert [where(nvml, each) for each in made] == [(7 + i, i, 1) for i in range(7)]
    with pytest.raises(nvml.NVMLError_InsufficientResources):
        make(nvml, gpu, "1g.5gb")
    uuids = mig_uuids(nvml, gpu)
    assert len(set(uuids)) == 7
    handle = nvml.nvmlDeviceGetHandleByUUID(uuids[3])
    assert nvml.nvmlDeviceGetName(handle) == "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    assert nvml.nvmlDeviceGetGpuInstanceId(handle) == 10
    shares = nvml.nvmlDeviceGetAttributes(handle)
    assert (shares.multiprocessorCount, shares.memorySizeMB) == (14, 4_864)


def test_a_place_is_checked(nvml, gpu, board):
    made, _ = make(nvml, gpu, "3g.20gb", 4, 4)
    assert where(nvml, made) == (2, 4, 4)
    for start, size in ((2, 4), (0, 3)):
        with pytest.raises(nvml.NVMLError_InvalidArgument):
            make(nvml, gpu, "3g.20gb", start, size)
    with pytest.raises(nvml.NVMLError_InsufficientResources):
        make(nvml, gpu, "2g.10gb", 4, 2)
    small, _ = make(nvml, gpu, "2g.10gb", 2, 2)
    assert where(nvml, small) == (4, 2, 2)


def test_seven_compute_slices_are_all_there_are(nvml, gpu, board):
    make(nvml, gpu, "4g.20gb")
    make(nvml, gpu, "2g.10gb", 4, 2)
    make(nvml, gpu, "1g.5gb", 6, 1)
    for name in ("1g.5gb", "1g.10gb", "7g.40gb"):
        with pytest.raises(nvml.NVMLError_InsufficientResources):
            make(nvml, gpu, name)


def test_one_media_profile_a_board(nvml, gpu, board):
    make(nvml, gpu, "1g.5gb+me")
    with pytest.raises(nvml.NVMLError_InsufficientResources):
        make(nvml, gpu, "1g.5gb+me")
    make(nvml, gpu, "1g.5gb")


def test_a30_has_four_slices(fake, nvml):
    fake.add_gpu(0, "GPU-a30", 0, "NVIDIA A30", 24_576, "ga100", mig=True)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    made = [make(nvml, gpu, name)[0] for name in ("2g.12gb", "1g.6gb", "1g.6gb")]
    assert [where(nvml, each) for each in made] == [(1, 0, 2), (5, 2, 1), (6, 3, 1)]
    assert profile_id(nvml, gpu, "4g.24gb") == 0


def test_parts_of_a_gpu_instance(nvml, gpu, board):
    made = nvml.nvmlDeviceCreateGpuInstance(gpu, 9)
    info = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(made, 1, 0)
    assert (info.name, info.instanceCount, info.multiprocessorCount) == ("MIG 2c.3g.20gb", 1, 28)
    assert nvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(made, 0) == 3
    two = nvml.nvmlGpuInstanceCreateComputeInstance(made, 1)
    one = nvml.nvmlGpuInstanceCreateComputeInstance(made, 0)
    with pytest.raises(nvml.NVMLError_InsufficientResources):
        nvml.nvmlGpuInstanceCreateComputeInstance(made, 0)
    places = [nvml.nvmlComputeInstanceGetInfo(each).placement for each in (two, one)]
    assert [(place.start, place.size) for place in places] == [(0, 2), (2, 1)]
    handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 1)
    assert nvml.nvmlDeviceGetName(handle) == "NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb"
    shares = nvml.nvmlDeviceGetAttributes(handle)
    assert (shares.gpuInstanceSliceCount, shares.computeInstanceSliceCount) == (3, 1)
    assert (shares.memorySizeMB, shares.multiprocessorCount) == (19_968, 14)
    with pytest.raises(nvml.NVMLError_NotSupported):  # 4 slices in one of 3
        nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(made, 3, 0)


def test_destroyed_in_order_and_made_anew(nvml, gpu, board):
    made, part = make(nvml, gpu, "7g.40gb")
    (before,) = mig_uuids(nvml, gpu)
    with pytest.raises(nvml.NVMLError_InUse):
        nvml.nvmlGpuInstanceDestroy(made)
    nvml.nvmlComputeInstanceDestroy(part)
    assert mig_uuids(nvml, gpu) == []
    assert orphans(nvml, gpu, 0) == [0]
    nvml.nvmlGpuInstanceDestroy(made)
    for call in (nvml.nvmlGpuInstanceGetInfo, nvml.nvmlGpuInstanceDestroy):
        with pytest.raises(nvml.NVMLError_InvalidArgument):
            call(made)
    make(nvml, gpu, "7g.40gb")
    (after,) = mig_uuids(nvml, gpu)
    assert after != before


def test_a_process_holds_its_instance(fake, nvml, gpu, board):
    made, part = make(nvml, gpu, "1g.5gb")
    (uuid,) = mig_uuids(nvml, gpu)
    fake.add_process(uuid, 77, memory_mib=100)
    for call in (
        lambda: nvml.nvmlComputeInstanceDestroy(part),
        lambda: nvml.nvmlGpuInstanceDestroy(made),
    ):
        with pytest.raises(nvml.NVMLError_InUse):
            call()
    assert mig_uuids(nvml, gpu) == [uuid]
    fake.remove_process(uuid, 77)
    nvml.nvmlComputeInstanceDestroy(part)


def test_another_client_holds_an_instance(fake, nvml, gpu, board):
    _, part = make(nvml, gpu, "1g.5gb")
    (uuid,) = mig_uuids(nvml, gpu)
    fake.fail("nvmlComputeInstanceDestroy", 19, uuid)
    with pytest.raises(nvml.NVMLError_InUse):
        nvml.nvmlComputeInstanceDestroy(part)
    fake.fail("nvmlComputeInstanceDestroy", 0, uuid)
    nvml.nvmlComputeInstanceDestroy(part)


def test_instances_told_by_facts_are_destroyed_and_resliced(fake, nvml):
    _, large = mig_node(fake, "mig01")
    gpu = nvml.nvmlDeviceGetHandleByUUID(large.uuid)
    made = gpu_instances(nvml, gpu, 9)
    assert [where(nvml, each) for each in made] == [(1, 0, 4), (2, 4, 4)]
    nvml.nvmlComputeInstanceDestroy(nvml.nvmlGpuInstanceGetComputeInstanceById(made[0], 0))
    assert orphans(nvml, gpu, 9) == [1]
    nvml.nvmlGpuInstanceDestroy(made[0])
    small = [make(nvml, gpu, "1g.5gb")[0] for _ in range(4)]
    assert [where(nvml, each)[1] for each in small] == [0, 1, 2, 3]
    assert len(mig_uuids(nvml, gpu)) == 5


def test_power_of_a_destroyed_instance_ends(fake, nvml, gpu, board):
    _, part = make(nvml, gpu, "1g.5gb")
    (uuid,) = mig_uuids(nvml, gpu)
    assert fake.set_power(uuid, 30_000) == 1_100
    fake.set_clock(2_000)
    nvml.nvmlComputeInstanceDestroy(part)  # its power ends at 2,100 ms
    fake.set_clock(3_000)
    # The board's 52 W from 1,000 ms on and 30 W from 1,100 to 2,100 ms.
    expected = 1_000_000_007 + 2_000 * 52 + 1_000 * 30
    assert nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) == expected
    assert fake.energy_mj(board.uuid, 3_000) == expected


def test_whole_boards_and_boards_without_mig(fake, nvml):
    a100_node(fake, "gpu01", count=1)
    fake.add_gpu(1, "GPU-v", 1, "Tesla V100-SXM2-32GB", 32_768, "volta")
    off, without = (nvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
    assert profile_id(nvml, off, "3g.20gb") == 9  # what it offers is told with MIG off too
    assert placements(nvml, off, 9) == [(0, 4), (4, 4)]
    for call in (
        lambda: nvml.nvmlDeviceCreateGpuInstance(off, 9),
        lambda: nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(off, 9),
        lambda: nvml.nvmlDeviceCreateGpuInstance(without, 9),
        lambda: nvml.nvmlDeviceGetGpuInstanceProfileInfo(without, 0),
        lambda: nvml.nvmlDeviceSetMigMode(without, 1),
    ):
        with pytest.raises(nvml.NVMLError_NotSupported):
            call()


def test_mode_of_an_a100_needs_a_reset_which_an_idle_board_gets(fake, nvml):
    (told,) = a100_node(fake, "gpu01", count=1)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    fake.add_process(told.uuid, 5)
    assert nvml.nvmlDeviceSetMigMode(gpu, 1) == nvml.NVML_ERROR_IN_USE
    assert nvml.nvmlDeviceGetMigMode(gpu) == [0, 1]
    fake.remove_process(told.uuid, 5)
    assert nvml.nvmlDeviceSetMigMode(gpu, 1) == nvml.NVML_SUCCESS
    assert nvml.nvmlDeviceGetMigMode(gpu) == [1, 1]
    assert mig_uuids(nvml, gpu) == []
    fake.set_clock(2_000)  # the counter began again at 1,100 ms
    assert nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) == 900 * 52
    assert fake.energy_mj(told.uuid, 2_000) == 900 * 52
    make(nvml, gpu, "1g.5gb")
    assert nvml.nvmlDeviceSetMigMode(gpu, 0) == nvml.NVML_ERROR_IN_USE
    assert nvml.nvmlDeviceGetMigMode(gpu) == [1, 0]
    fake.clear_instances(told.uuid)
    fake.reset(told.uuid)
    assert nvml.nvmlDeviceGetMigMode(gpu) == [0, 0]


def test_mode_of_an_h100_needs_no_reset(fake, nvml):
    (told,) = h100_node(fake, "h01", count=1)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceSetMigMode(gpu, 1) == nvml.NVML_SUCCESS
    assert nvml.nvmlDeviceGetMigMode(gpu) == [1, 1]
    fake.set_clock(2_000)
    assert nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) == 1_000_000_007 + 1_000 * 70
    make(nvml, gpu, "3g.40gb")
    assert fake.energy_mj(told.uuid, 2_000) == 1_000_000_007 + 1_000 * 70


def test_what_one_process_made_another_sees(fake, nvml, gpu, board):
    make(nvml, gpu, "2g.10gb")
    script = """
        import pynvml
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        made = pynvml.nvmlDeviceGetGpuInstanceById(gpu, 3)
        print(pynvml.nvmlGpuInstanceGetInfo(made).placement.size)
        pynvml.nvmlComputeInstanceDestroy(pynvml.nvmlGpuInstanceGetComputeInstanceById(made, 0))
    """
    assert child(fake, script).stdout == "2\n"
    assert mig_uuids(nvml, gpu) == []


def child(fake, script):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, **fake.env},
        capture_output=True,
        text=True,
        check=False,
    )


TWO_INSTANCES = """
    import pynvml
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    for _ in range(2):
        made = pynvml.nvmlDeviceCreateGpuInstance(gpu, 9)
        pynvml.nvmlGpuInstanceCreateComputeInstance(made, 2)
"""


@pytest.mark.parametrize(
    ("function", "when", "count", "whole", "orphaned"),
    [
        ("nvmlDeviceCreateGpuInstance", "before", 1, 0, []),
        ("nvmlDeviceCreateGpuInstance", "after", 1, 0, [1]),
        ("nvmlGpuInstanceCreateComputeInstance", "before", 1, 0, [1]),
        ("nvmlGpuInstanceCreateComputeInstance", "after", 1, 1, []),
        ("nvmlGpuInstanceCreateComputeInstance", "before", 2, 1, [2]),
    ],
)
def test_killed_in_between_leaves_what_was_done(
    fake, nvml, gpu, board, function, when, count, whole, orphaned
):
    fake.kill(function, when, count)
    assert child(fake, TWO_INSTANCES).returncode == -signal.SIGKILL
    assert len(mig_uuids(nvml, gpu)) == whole
    assert orphans(nvml, gpu, 9) == orphaned
    fake.clear_instances(board.uuid)
    assert child(fake, TWO_INSTANCES).returncode == 0  # it kills once


GRAB = """
    import pynvml
    pynvml.nvmlInit()
    gpu, count = pynvml.nvmlDeviceGetHandleByIndex(0), 0
    try:
        while True:
            made = pynvml.nvmlDeviceCreateGpuInstance(gpu, 19)
            pynvml.nvmlGpuInstanceCreateComputeInstance(made, 0)
            count += 1
    except pynvml.NVMLError_InsufficientResources:
        print(count)
"""


def test_two_processes_at_once_share_the_seven_slices(fake, nvml, gpu):
    grabbing = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(GRAB)],
            env={**os.environ, **fake.env},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    counts = [int(each.communicate()[0]) for each in grabbing]
    assert sum(counts) == 7
    assert len(set(mig_uuids(nvml, gpu))) == 7


def test_only_root_changes_mig(fake, board):
    script = """
        import os, pynvml
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        os.seteuid(65534)
        for call in (lambda: pynvml.nvmlDeviceCreateGpuInstance(gpu, 19),
                     lambda: pynvml.nvmlDeviceSetMigMode(gpu, 0)):
            try:
                call()
            except pynvml.NVMLError_NoPermission:
                print("no")
    """
    with tempfile.TemporaryDirectory() as folder:  # tmp_path is closed to other users
        Path(folder).chmod(0o755)
        open_to_all = FakeNvml(Path(folder) / "control")
        open_to_all.path.write_text(fake.path.read_text())
        assert child(open_to_all, script).stdout == "no\nno\n"


def test_uuids_do_not_depend_on_the_process(library, fake, board, tmp_path):
    seen = []
    for name in ("a", "b"):
        path = tmp_path / name
        path.write_text(fake.path.read_text())
        with loaded_nvml(path) as nvml:
            nvml.nvmlInit()
            gpu = nvml.nvmlDeviceGetHandleByIndex(0)
            make(nvml, gpu, "1g.5gb")
            seen += mig_uuids(nvml, gpu)
    assert seen[0] == seen[1]
