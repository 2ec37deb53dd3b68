# SPDX-License-Identifier: Apache-2.0
"""Each check on plain data: what it must find, and what it must let pass."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from fairwatt.core.verdict import Holder
from fairwatt.prolog.health.reading import (
    Clocks,
    Disk,
    Ecc,
    Expected,
    Gpu,
    GpuProcess,
    Instance,
    Link,
    Memory,
    Pcie,
    Power,
    Reading,
    RemappedRows,
    RetiredPages,
    Temperature,
    Versions,
    Xid,
)
from fairwatt.prolog.health.registry import CHECKS
from fairwatt.prolog.health.spec import load_checks

NOW_MS = 1_800_000_000_000
A = Gpu(uuid="GPU-a", index=0, minor=0, pci="0000:07:00", name="board")
B = Gpu(uuid="GPU-b", index=1, minor=1, pci="0000:0f:00", name="board")
BASE = {"GPU-a": "0000:07:00", "GPU-b": "0000:0f:00"}


def found(name: str, reading: Reading, **parameters: object) -> dict[str | None, str]:
    """The problems of one check with its own parameters, those given before them."""
    own = load_checks()[name].parameters
    return {item.device: item.value for item in CHECKS[name](reading, {**own, **parameters})}


def with_gpus(*gpus: Gpu, **parts: object) -> Reading:
    return Reading(t_ms=NOW_MS, gpus=gpus, **parts)  # type: ignore[arg-type]


def one(**parts: object) -> Reading:
    return with_gpus(replace(A, **parts))


def mig(*profiles: str) -> Gpu:
    instances = [Instance(f"MIG-{n}", name, n, 0) for n, name in enumerate(profiles)]
    return replace(A, instances=tuple(instances))


def xids(*numbers: int, age_s: float = 1) -> Reading:
    seen = tuple(Xid(int(NOW_MS - 1000 * age_s), n, A.pci, A.uuid) for n in numbers)
    return with_gpus(A, xids=seen)


WELL = {
    "gpu_lost": one(),
    "gpu_missing": with_gpus(A, B, expected=Expected(boards=BASE)),
    "gpu_count": with_gpus(A, B, expected=Expected(count=2)),
    "gpu_exchanged": with_gpus(A, B, expected=Expected(boards=BASE)),
    "gpu_reset_required": one(),
    "xid_fault": xids(13, 31, 43, 45, 63, 94),
    "xid_notice": xids(13, 31, 43, 45, 79),
    "ecc_uncorrected": one(ecc=Ecc(0, 5)),
    "ecc_corrected": one(ecc=Ecc(0, 10_000)),
    "retired_pending": one(retired=RetiredPages(3, False)),
    "retired_pages": one(retired=RetiredPages(59, True)),
    "rows_failed": one(rows=RemappedRows(3, True, False)),
    "rows_pending": one(rows=RemappedRows(3, False, True)),
    "throttled": one(throttle=0x1 | 0x2 | 0x4 | 0x10 | 0x100),
    "pcie_width": one(pcie=Pcie(1, 4, 16, 16)),
    "pcie_generation": one(pcie=Pcie(1, 4, 16, 16), clocks=Clocks(210, 1410, 0)),
    "nvlink_down": with_gpus(*(replace(gpu, links=(Link(0, True),)) for gpu in (A, B))),
    "nvlink_errors": one(links=(Link(0, True, 60), Link(1, True, 40))),
    "clocks_low": one(clocks=Clocks(500, 1410, 100), throttle=0x4),
    "power_limit": one(power=Power(400_000, 400_000)),
    "hot": one(temperature=Temperature(85, 89)),
    "memory_held": with_gpus(replace(A, memory=Memory(1024)), holders=()),
    "leftover_processes": with_gpus(
        replace(A, memory=Memory(0, (GpuProcess(7, 1000),))), holders=(Holder(A.uuid),)
    ),
    "mig_layout": with_gpus(
        mig("3g.20gb", "3g.20gb"), expected=Expected(profiles={A.uuid: ("3g.20gb", "3g.20gb")})
    ),
    "driver_mismatch": Reading(t_ms=NOW_MS, versions=Versions("550.54.15", "550.54.15")),
    "driver_missing": Reading(t_ms=NOW_MS, versions=Versions("550.54.15", None, "mismatch")),
    "disk_room": Reading(t_ms=NOW_MS, disks=(Disk("/spool", 200, 1000),)),
}
SICK: Mapping[str, tuple[Reading, dict[str | None, str]]] = {
    "gpu_lost": (with_gpus(replace(A, state="lost"), B), {"GPU-a": "lost"}),
    "gpu_missing": (with_gpus(A, expected=Expected(boards=BASE)), {"GPU-b": "missing"}),
    "gpu_count": (with_gpus(A, expected=Expected(count=8)), {None: "1 < 8"}),
    "gpu_exchanged": (with_gpus(A, B, expected=Expected(boards={})), dict.fromkeys(BASE, "new")),
    "gpu_reset_required": (one(state="reset-required"), {"GPU-a": "reset required"}),
    "xid_fault": (xids(48, 79), {"GPU-a": "XID 79"}),
    "xid_notice": (xids(63), {"GPU-a": "XID 63"}),
    "ecc_uncorrected": (one(ecc=Ecc(1, 0)), {"GPU-a": "1"}),
    "ecc_corrected": (one(ecc=Ecc(0, 10_001)), {"GPU-a": "10001"}),
    "retired_pending": (one(retired=RetiredPages(0, True)), {"GPU-a": "pending"}),
    "retired_pages": (one(retired=RetiredPages(60, False)), {"GPU-a": "60"}),
    "rows_failed": (one(rows=RemappedRows(0, False, True)), {"GPU-a": "failed"}),
    "rows_pending": (one(rows=RemappedRows(0, True, False)), {"GPU-a": "pending"}),
    "throttled": (one(throttle=0x80 | 0x8), {"GPU-a": "hw_slowdown,hw_power_brake"}),
    "pcie_width": (one(pcie=Pcie(4, 4, 8, 16)), {"GPU-a": "x8 < x16"}),
    "pcie_generation": (
        one(pcie=Pcie(3, 4, 16, 16), clocks=Clocks(1410, 1410, 20)),
        {"GPU-a": "gen 3 < 4"},
    ),
    "nvlink_down": (
        with_gpus(
            replace(A, links=(Link(0, True), Link(1, False))),
            replace(B, links=(Link(0, True), Link(1, True))),
        ),
        {"GPU-a": "1 < 2"},
    ),
    "nvlink_errors": (one(links=(Link(0, True, 101),)), {"GPU-a": "101"}),
    "clocks_low": (one(clocks=Clocks(700, 1410, 90), throttle=0x8), {"GPU-a": "700 MHz"}),
    "power_limit": (one(power=Power(300_000, 400_000)), {"GPU-a": "300 W < 400 W"}),
    "hot": (one(temperature=Temperature(86, 89)), {"GPU-a": "86 C"}),
    "memory_held": (
        with_gpus(replace(A, memory=Memory(1025)), holders=(Holder("GPU-b"),)),
        {"GPU-a": "1025 MiB"},
    ),
    "leftover_processes": (
        with_gpus(replace(A, memory=Memory(0, (GpuProcess(7, 1000),))), holders=()),
        {"GPU-a": "pid 7"},
    ),
    "mig_layout": (
        with_gpus(mig("1g.5gb"), expected=Expected(profiles={A.uuid: ("3g.20gb", "3g.20gb")})),
        {"GPU-a": "1 x 1g.5gb"},
    ),
    "driver_mismatch": (
        Reading(t_ms=NOW_MS, versions=Versions("535.1.2", "550.54.15")),
        {None: "535.1.2 / 550.54.15"},
    ),
    "driver_missing": (
        Reading(t_ms=NOW_MS, versions=Versions(None, None, "not-loaded")),
        {None: "not loaded"},
    ),
    "disk_room": (Reading(t_ms=NOW_MS, disks=(Disk("/spool", 199),)), {None: "199 MiB"}),
}
"""What is just beyond each limit, by the check that must find it; the rest are in WELL."""


def test_every_check_has_its_two_cases() -> None:
    assert set(WELL) == set(SICK) == set(load_checks()) == set(CHECKS)


@pytest.mark.parametrize("name", sorted(WELL))
def test_what_is_just_within_the_limit_passes(name: str) -> None:
    assert found(name, WELL[name]) == {}


@pytest.mark.parametrize("name", sorted(SICK))
def test_what_is_just_beyond_is_found_on_that_device(name: str) -> None:
    reading, expected = SICK[name]
    assert found(name, reading) == expected


@pytest.mark.parametrize("name", sorted(WELL))
def test_nothing_is_found_where_nothing_was_read(name: str) -> None:
    """A part that is missing is unknown, never bad: no check stumbles over it."""
    for reading in (Reading(t_ms=NOW_MS), with_gpus(A, B), with_gpus()):
        assert found(name, reading) == {}


def test_a_lost_board_is_judged_by_nothing_else() -> None:
    reading = with_gpus(replace(A, state="lost", ecc=Ecc(9, 9), throttle=0x8))
    assert {name for name in CHECKS if found(name, reading)} == {"gpu_lost"}


def test_another_board_in_its_slot_is_an_exchange_not_a_loss() -> None:
    other = replace(B, uuid="GPU-new")
    reading = with_gpus(A, other, expected=Expected(boards=BASE))
    assert found("gpu_missing", reading) == {}
    assert found("gpu_exchanged", reading) == {"GPU-new": "new"}


def test_no_gpu_at_all_is_not_a_missing_board() -> None:
    """The driver's trouble: a count that is too low, and no drain."""
    reading = with_gpus(expected=Expected(boards=BASE, count=2))
    assert found("gpu_missing", reading) == {}
    assert found("gpu_count", reading) == {None: "0 < 2"}


def test_an_xid_is_over_after_its_time_and_may_be_named_or_left_out() -> None:
    assert found("xid_fault", xids(79, age_s=86_399)) == {"GPU-a": "XID 79"}
    assert found("xid_fault", xids(79, age_s=86_400)) == {}
    assert found("xid_fault", xids(79), ignore=[79]) == {}
    assert found("xid_fault", xids(199), also=[199]) == {"GPU-a": "XID 199"}


def test_an_xid_of_a_board_that_nobody_knows_is_the_nodes() -> None:
    reading = with_gpus(A, xids=(Xid(NOW_MS, 79, "0000:ff:00"),))
    assert found("xid_fault", reading) == {None: "XID 79"}


def test_an_idle_board_lowers_its_link_on_purpose() -> None:
    gen1 = Pcie(1, 4, 16, 16)
    assert found("pcie_generation", one(pcie=gen1, clocks=Clocks(210, 1410, 19))) == {}
    assert found("pcie_generation", one(pcie=gen1, clocks=Clocks(210, 1410, None))) == {}


def test_a_link_counts_by_the_baseline_before_the_neighbours() -> None:
    pair = [replace(A, links=(Link(0, False),)), replace(B, links=(Link(0, True),))]
    recorded = Expected(links={"GPU-a": 0, "GPU-b": 2})
    assert found("nvlink_down", with_gpus(*pair, expected=recorded)) == {"GPU-b": "1 < 2"}


def test_a_board_that_is_cut_lacks_no_nvlink() -> None:
    """MIG takes a board off NVLink: on a mixed node, and against a baseline from before."""
    cut = replace(mig("3g.20gb"), links=(Link(0, False), Link(1, False)))
    whole = replace(B, links=(Link(0, True), Link(1, True)))
    recorded = Expected(links={"GPU-a": 2, "GPU-b": 2})
    assert found("nvlink_down", with_gpus(cut, whole)) == {}
    assert found("nvlink_down", with_gpus(cut, whole, expected=recorded)) == {}


def test_a_board_that_never_told_who_it_is_accuses_no_other() -> None:
    nameless = Gpu(uuid="NVML-index-1", index=1, minor=-1, pci="unknown", state="silent")
    reading = with_gpus(A, nameless, expected=Expected(boards=BASE))
    assert found("gpu_missing", reading) == {}
    assert found("gpu_exchanged", reading) == {}


def test_a_power_limit_counts_by_the_baseline_with_tolerance() -> None:
    recorded = Expected(limits_mw={"GPU-a": 300_000})
    limited = replace(A, power=Power(294_000, 400_000))
    assert found("power_limit", with_gpus(limited, expected=recorded)) == {}
    lower = replace(A, power=Power(293_999, 400_000))
    assert found("power_limit", with_gpus(lower, expected=recorded)) == {"GPU-a": "293 W < 300 W"}


def test_heat_is_judged_by_a_fixed_limit_where_the_board_tells_none() -> None:
    assert found("hot", one(temperature=Temperature(89))) == {}
    assert found("hot", one(temperature=Temperature(90))) == {"GPU-a": "90 C"}


def test_a_process_may_be_on_its_own_instance_and_nowhere_else() -> None:
    board = replace(
        mig("1g.5gb", "1g.5gb"),
        memory=Memory(0, (GpuProcess(7, 1000, "MIG-0"), GpuProcess(8, 1000, "MIG-1"))),
    )
    assert found("leftover_processes", with_gpus(board, holders=(Holder(A.uuid, "MIG-0"),))) == {
        "GPU-a": "pid 8"
    }
    both = (Holder(A.uuid, "MIG-0"), Holder(A.uuid, "MIG-1"))
    assert found("leftover_processes", with_gpus(board, holders=both)) == {}


def test_services_of_root_may_stay() -> None:
    board = replace(A, memory=Memory(0, (GpuProcess(7, 0), GpuProcess(8, None))))
    reading = with_gpus(board, holders=())
    assert found("leftover_processes", reading) == {"GPU-a": "pid 8"}
    assert found("leftover_processes", reading, allow_uids=[]) == {"GPU-a": "pid 7"}


def test_memory_and_processes_are_unjudged_until_the_agent_tells_of_jobs() -> None:
    board = replace(A, memory=Memory(9999))
    assert found("memory_held", with_gpus(board, holders=None)) == {}


def test_compute_instances_and_media_engines_do_not_change_a_layout() -> None:
    parts = (
        Instance("MIG-0", "1c.3g.20gb", 1, 0),
        Instance("MIG-1", "2c.3g.20gb", 1, 1),
        Instance("MIG-2", "1g.5gb+me", 9, 0),
    )
    expected = Expected(profiles={A.uuid: ("1g.5gb", "3g.20gb")})
    assert found("mig_layout", with_gpus(replace(A, instances=parts), expected=expected)) == {}


def test_declared_whole_and_cut_is_found() -> None:
    reading = with_gpus(mig("1g.5gb"), expected=Expected(profiles={A.uuid: ()}))
    assert found("mig_layout", reading) == {"GPU-a": "1 x 1g.5gb"}
    assert (
        found("mig_layout", with_gpus(replace(A, instances=()), expected=reading.expected)) == {}
    )


def test_few_inodes_are_found_where_the_file_system_counts_them() -> None:
    few = Reading(t_ms=NOW_MS, disks=(Disk("/spool", 9999, 999),))
    assert found("disk_room", few) == {None: "999 inodes"}
