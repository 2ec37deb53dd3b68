# SPDX-License-Identifier: Apache-2.0
"""Which devices a job holds: by UUID, or by position → device file → minor → UUID."""

from __future__ import annotations

import pytest

from fairwatt.accounting.agent.device_map import Place, map_job
from fairwatt.core.gres_conf import GresConf, GresDevice
from fairwatt.core.mig_minors import CapMinors, parse_mig_minors
from fairwatt.core.records import Device, GpuInstance

NO_CAPS = CapMinors({}, {})
MIG_MINORS = """config 1
monitor 2
gpu4/gi7/access 30
gpu4/gi7/ci0/access 31
gpu4/gi8/access 39
gpu4/gi8/ci0/access 40
gpu5/gi7/access 300
gpu5/gi7/ci0/access 301
"""


def board(index: int, minor: int, *instances: GpuInstance) -> Device:
    return Device(
        node="n1",
        uuid=f"GPU-{index}",
        name="NVIDIA A100-SXM4-40GB",
        model="a100-40",
        minor=minor,
        nvml_index=index,
        memory_mib=40_960,
        mig_enabled=bool(instances),
        compute_slices=7,
        instances=instances,
    )


def instance(gi: int, slices: int = 1) -> GpuInstance:
    return GpuInstance(
        uuid=f"MIG-{gi}", gi=gi, ci=0, profile=f"{slices}g", compute_slices=slices, memory_mib=4864
    )


def gres(*devices: tuple[str, ...]) -> GresConf:
    return GresConf(tuple(GresDevice("a100", files) for files in devices))


def minor_of(path: str) -> int:
    """The trailing number of a path is its minor; `gone` does not exist."""
    if path.endswith("gone"):
        raise FileNotFoundError(2, "No such file or directory", path)
    return int("".join(c for c in path.rsplit("/", 1)[-1] if c.isdigit()))


REVERSED = [board(index, 3 - index) for index in range(4)]
FILES = gres(*((f"/dev/nvidia{n}",) for n in range(4)))
CUT = [board(0, 4, instance(7), instance(8, slices=3)), board(1, 5)]


def test_positions_go_by_minor_never_by_nvml_index() -> None:
    """gpu02's trap: NVML's order is the reverse of the minors."""
    found = map_job({"SLURM_JOB_GPUS": "0,1"}, REVERSED, FILES, NO_CAPS, minor_of)
    assert [hold.device for hold in found.holds] == ["GPU-3", "GPU-2"]
    assert [(h.instance, h.numerator, h.denominator) for h in found.holds] == [("", 1, 1)] * 2
    assert found.places == (Place(0, "gpu", "GPU-3"), Place(1, "gpu", "GPU-2"))
    assert found.mapped_by == "device-file"


def test_shuffled_lines_decide_not_the_file_numbers() -> None:
    shuffled = gres(*((f"/dev/nvidia{n}",) for n in (2, 1, 0, 3)))
    found = map_job({"SLURM_JOB_GPUS": "0"}, REVERSED, shuffled, NO_CAPS, minor_of)
    assert found.holds[0].device == "GPU-1"


def test_uuids_win_over_positions() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "GPU-2", "SLURM_JOB_GPUS": "0"}
    found = map_job(env, REVERSED, FILES, NO_CAPS, minor_of)
    assert (found.places, found.mapped_by) == ((Place(0, "gpu", "GPU-2"),), "uuid")


@pytest.mark.parametrize("word", ["MIG-8", "MIG-GPU-0/8/0"])
def test_mig_uuids_of_both_driver_generations(word: str) -> None:
    found = map_job({"CUDA_VISIBLE_DEVICES": word}, CUT, None, NO_CAPS, minor_of)
    (hold,) = found.holds
    assert (hold.device, hold.instance) == ("GPU-0", "MIG-8")
    assert (hold.numerator, hold.denominator) == (3, 7)
    assert found.places == (Place(None, "mig", "MIG-8"),)


def test_mig_by_capability_files() -> None:
    files = gres(
        ("/dev/nvidia4", "/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap31"),
        ("/dev/nvidia4", "/dev/nvidia-caps/nvidia-cap39", "/dev/nvidia-caps/nvidia-cap40"),
        ("/dev/nvidia5",),
    )
    env = {"SLURM_JOB_GPUS": "1,2", "CUDA_VISIBLE_DEVICES": "1,2"}
    found = map_job(env, CUT, files, parse_mig_minors(MIG_MINORS), minor_of)
    assert found.places == (Place(1, "mig", "MIG-8"), Place(2, "gpu", "GPU-1"))


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (("/dev/nvidia4",), "MIG mode"),
        (("/dev/nvidia9",), "no GPU with the minor"),
        ((), "without File="),
        (("/dev/gone",), "No such file"),
        (("/dev/nvidia4", "/dev/nvidia-caps/nvidia-cap30"), "not one instance"),
        (("/dev/nvidia4", "/x/nvidia-cap30", "/x/nvidia-cap40"), "not one instance"),
        (("/dev/nvidia4", "/x/nvidia-cap300", "/x/nvidia-cap301"), "not one instance"),
        (("/dev/nvidia4", "/x/nvidia-cap77", "/x/nvidia-cap78"), "not one instance"),
    ],
)
def test_what_cannot_be_known_is_unmapped_with_its_reason(files, why) -> None:
    caps = parse_mig_minors(MIG_MINORS)
    found = map_job({"SLURM_JOB_GPUS": "0"}, CUT, gres(files), caps, minor_of)
    assert (found.holds, found.places, found.mapped_by) == ((), (), "unmapped")
    assert why in str(found.problem)


def test_an_instance_that_nvml_does_not_show_is_unmapped() -> None:
    files = gres(("/dev/nvidia5", "/x/nvidia-cap300", "/x/nvidia-cap301"))
    caps = parse_mig_minors(MIG_MINORS)
    found = map_job({"SLURM_JOB_GPUS": "0"}, CUT, files, caps, minor_of)
    assert found.problem == "position 0: NVML shows no GI 7, CI 0 on GPU GPU-1"


def test_one_unknown_device_makes_the_whole_job_unmapped() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-9"}
    found = map_job(env, REVERSED, FILES, NO_CAPS, minor_of)
    assert (found.holds, found.mapped_by) == ((), "unmapped")


@pytest.mark.parametrize("gpus", ["4", "0,x", "$(id)", "-1"])
def test_strange_positions_are_unmapped(gpus: str) -> None:
    found = map_job({"SLURM_JOB_GPUS": gpus}, REVERSED, FILES, NO_CAPS, minor_of)
    assert found.mapped_by == "unmapped"


@pytest.mark.parametrize(
    "env", [{}, {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, {"SLURM_JOB_GPUS": ""}]
)
def test_a_job_without_gpus_holds_none(env) -> None:
    found = map_job(env, REVERSED, FILES, NO_CAPS, minor_of)
    assert (found.holds, found.mapped_by, found.problem) == ((), "none", None)


def test_autodetect_counts_only_where_both_orders_agree() -> None:
    straight = [board(index, index) for index in range(4)]
    found = map_job({"SLURM_JOB_GPUS": "2-3"}, straight, None, NO_CAPS, minor_of)
    assert [hold.device for hold in found.holds] == ["GPU-2", "GPU-3"]
    assert found.mapped_by == "enumeration"
    for devices in (REVERSED, CUT):
        found = map_job({"SLURM_JOB_GPUS": "0"}, devices, None, NO_CAPS, minor_of)
        assert found.mapped_by == "unmapped"
