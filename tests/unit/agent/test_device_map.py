# SPDX-License-Identifier: Apache-2.0
"""Which devices a job holds: by UUID, or by position → device file → minor → UUID."""

from __future__ import annotations

import pytest

from fairwatt.accounting.agent.device_map import NodeDevices, Place, map_job, places_of_node
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


def node(devices, files, caps=NO_CAPS, configured=None) -> NodeDevices:
    return NodeDevices(devices, files, caps, minor_of, configured)


REVERSED = [board(index, 3 - index) for index in range(4)]
FILES = gres(*((f"/dev/nvidia{n}",) for n in range(4)))
CUT = [board(0, 4, instance(7), instance(8, slices=3)), board(1, 5)]


def test_positions_go_by_minor_never_by_nvml_index() -> None:
    """gpu02's trap: NVML's order is the reverse of the minors."""
    found = map_job({"SLURM_JOB_GPUS": "0,1"}, node(REVERSED, FILES))
    assert [hold.device for hold in found.holds] == ["GPU-3", "GPU-2"]
    assert [(h.instance, h.numerator, h.denominator) for h in found.holds] == [("", 1, 1)] * 2
    assert found.places == (Place(0, "gpu", "GPU-3", "3"), Place(1, "gpu", "GPU-2", "2"))
    assert found.mapped_by == "device-file"


def test_shuffled_lines_decide_not_the_file_numbers() -> None:
    shuffled = gres(*((f"/dev/nvidia{n}",) for n in (2, 1, 0, 3)))
    found = map_job({"SLURM_JOB_GPUS": "0"}, node(REVERSED, shuffled))
    assert found.holds[0].device == "GPU-1"


def test_uuids_win_over_positions() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "GPU-2", "SLURM_JOB_GPUS": "0"}
    found = map_job(env, node(REVERSED, FILES))
    assert (found.places, found.mapped_by) == ((Place(0, "gpu", "GPU-2", "2"),), "uuid")


@pytest.mark.parametrize("word", ["MIG-8", "MIG-GPU-0/8/0"])
def test_mig_uuids_of_both_driver_generations(word: str) -> None:
    found = map_job({"CUDA_VISIBLE_DEVICES": word}, node(CUT, None))
    (hold,) = found.holds
    assert (hold.device, hold.instance) == ("GPU-0", "MIG-8")
    assert (hold.numerator, hold.denominator) == (3, 7)
    assert found.places == (Place(None, "mig", "MIG-8", "0.8"),)


def test_mig_by_capability_files() -> None:
    files = gres(
        ("/dev/nvidia4", "/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap31"),
        ("/dev/nvidia4", "/dev/nvidia-caps/nvidia-cap39", "/dev/nvidia-caps/nvidia-cap40"),
        ("/dev/nvidia5",),
    )
    env = {"SLURM_JOB_GPUS": "1,2", "CUDA_VISIBLE_DEVICES": "1,2"}
    found = map_job(env, node(CUT, files, parse_mig_minors(MIG_MINORS)))
    assert found.places == (Place(1, "mig", "MIG-8", "0.8"), Place(2, "gpu", "GPU-1", "1"))


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
    found = map_job({"SLURM_JOB_GPUS": "0"}, node(CUT, gres(files), caps))
    assert (found.holds, found.places, found.mapped_by) == ((), (), "unmapped")
    assert why in str(found.problem)


def test_an_instance_that_nvml_does_not_show_is_unmapped() -> None:
    files = gres(("/dev/nvidia5", "/x/nvidia-cap300", "/x/nvidia-cap301"))
    caps = parse_mig_minors(MIG_MINORS)
    found = map_job({"SLURM_JOB_GPUS": "0"}, node(CUT, files, caps))
    assert found.problem == "position 0: NVML shows no GI 7, CI 0 on GPU GPU-1"


def test_one_unknown_device_makes_the_whole_job_unmapped() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-9"}
    found = map_job(env, node(REVERSED, FILES))
    assert (found.holds, found.mapped_by) == ((), "unmapped")


@pytest.mark.parametrize("gpus", ["4", "0,x", "$(id)", "-1"])
def test_strange_positions_are_unmapped(gpus: str) -> None:
    found = map_job({"SLURM_JOB_GPUS": gpus}, node(REVERSED, FILES))
    assert found.mapped_by == "unmapped"


@pytest.mark.parametrize(
    "env", [{}, {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, {"SLURM_JOB_GPUS": ""}]
)
def test_a_job_without_gpus_holds_none(env) -> None:
    found = map_job(env, node(REVERSED, FILES))
    assert (found.holds, found.mapped_by, found.problem) == ((), "none", None)


def test_autodetect_counts_only_where_both_orders_agree() -> None:
    straight = [board(index, index) for index in range(4)]
    found = map_job({"SLURM_JOB_GPUS": "2-3"}, node(straight, None))
    assert [hold.device for hold in found.holds] == ["GPU-2", "GPU-3"]
    assert found.mapped_by == "enumeration"
    for devices in (REVERSED, CUT):
        found = map_job({"SLURM_JOB_GPUS": "0"}, node(devices, None))
        assert found.mapped_by == "unmapped"


def test_a_mixed_node_names_whole_gpus_by_position_beside_uuids() -> None:
    """Slurm before 25.11: unique ids for MIG only, so CUDA_VISIBLE_DEVICES has both kinds."""
    files = gres(("/dev/nvidia5",), ("/dev/nvidia4", "/x/nvidia-cap30", "/x/nvidia-cap31"))
    here = node(CUT, files, parse_mig_minors(MIG_MINORS))
    env = {"CUDA_VISIBLE_DEVICES": "0,MIG-8", "SLURM_JOB_GPUS": "0,2"}
    found = map_job(env, here)
    assert [(hold.device, hold.instance) for hold in found.holds] == [
        ("GPU-1", ""),
        ("GPU-0", "MIG-8"),
    ]
    assert [place.dcgm for place in found.places] == ["1", "0.8"]
    lost = map_job({"CUDA_VISIBLE_DEVICES": "0,MIG-8"}, here)
    assert "beside UUIDs" in str(lost.problem)


@pytest.mark.parametrize(
    ("minors", "configured", "position", "uuid"),
    [
        ((1, 2, 3), 4, 1, "GPU-0"),  # GPU 0 was lost after slurmd counted four: position = minor
        ((1, 2, 3), 4, 0, None),  # … and position 0 is the lost one
        ((1, 2, 3), 3, 1, "GPU-1"),  # slurmd started without it: position = rank
        ((1, 2, 3), None, 1, None),  # configless: which of the two cannot be known
        ((0, 1, 2), 4, 2, "GPU-2"),  # the last one is lost
        ((0, 1, 2), 4, 3, None),
        ((1, 2, 3), 2, 1, None),  # slurm.conf does not fit
    ],
)
def test_autodetect_with_a_gpu_missing(minors, configured, position, uuid) -> None:
    devices = [board(index, minor) for index, minor in enumerate(minors)]
    found = map_job({"SLURM_JOB_GPUS": str(position)}, node(devices, None, configured=configured))
    assert [hold.device for hold in found.holds] == ([uuid] if uuid else [])
    assert found.mapped_by == ("enumeration" if uuid else "unmapped")


def test_files_go_on_where_a_gpu_is_missing_at_the_front() -> None:
    devices = [board(index, minor) for index, minor in enumerate((1, 2, 3))]
    found = map_job({"SLURM_JOB_GPUS": "1,0"}, node(devices, FILES))
    assert found.problem == "position 0: NVML shows no GPU with the minor of /dev/nvidia0"
    found = map_job({"SLURM_JOB_GPUS": "3,1"}, node(devices, FILES))
    assert [hold.device for hold in found.holds] == ["GPU-2", "GPU-0"]


def test_all_places_of_a_node_with_and_without_positions() -> None:
    files = gres(("/dev/nvidia4", "/x/nvidia-cap39", "/x/nvidia-cap40"), ("/dev/nvidia5",))
    places = places_of_node(node(CUT, files, parse_mig_minors(MIG_MINORS)))
    assert [(p.position, p.uuid, p.dcgm) for p in places] == [
        (0, "MIG-8", "0.8"),
        (1, "GPU-1", "1"),
        (None, "MIG-7", "0.7"),
    ]
