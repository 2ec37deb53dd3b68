# SPDX-License-Identifier: Apache-2.0
"""From one cut of a board to another, worked out and carried out on the fake driver."""

from __future__ import annotations

import os

import pytest

from fairwatt.core.errors import DeviceError
from fairwatt.prolog.mig.cuts import Create, Cut, Destroy, SetMode, changes, is_cut
from fairwatt.prolog.mig.live import LiveGpu, LiveInstance
from fairwatt.prolog.mig.nvml_mig import carry_out
from fairwatt.prolog.mig.read_live import read_live
from tests.fakes.loaded import build_library, loaded_nvml, missing_tools
from tests.fakes.machines import a100_node, mig_node
from tests.fakes.nvml_control import FakeNvml

SEVEN = tuple(("1g.5gb", start) for start in range(7))
LARGE = (("3g.20gb", 0), ("3g.20gb", 4))


def board(*placed: tuple[str, int], mig: bool = True, ci: int | None = 0) -> LiveGpu:
    found = tuple(
        LiveInstance(7 + number, profile, start, ci)
        for number, (profile, start) in enumerate(placed)
    )
    return LiveGpu("GPU-a", 0, "A100", mig=mig, instances=found, mig_pending=mig)


def test_instances_that_stay_are_not_touched() -> None:
    have = board(("3g.20gb", 0), ("1g.5gb", 4), ("1g.5gb", 5))
    wanted = Cut("GPU-a", 0, True, (("3g.20gb", 0), ("1g.5gb", 5), ("1g.5gb", 6)))
    assert changes([have], [wanted]) == [Destroy("GPU-a", 8), Create("GPU-a", "1g.5gb", 6)]


def test_an_instance_without_compute_instance_is_made_anew() -> None:
    have = board(("3g.20gb", 0), ci=None)
    wanted = Cut("GPU-a", 0, True, (("3g.20gb", 0),))
    assert changes([have], [wanted]) == [Destroy("GPU-a", 7), Create("GPU-a", "3g.20gb", 0)]


def test_mig_off_destroys_all_first_and_mig_on_creates_last() -> None:
    off = Cut("GPU-a", 0, False)
    assert changes([board(("3g.20gb", 0))], [off]) == [
        Destroy("GPU-a", 7),
        SetMode("GPU-a", False),
    ]
    on = Cut("GPU-a", 0, True, (("3g.20gb", 4),))
    assert changes([board(mig=False)], [on]) == [
        SetMode("GPU-a", True),
        Create("GPU-a", "3g.20gb", 4),
    ]


def test_a_board_without_a_cut_or_already_cut_is_left_alone() -> None:
    assert changes([board(("3g.20gb", 0))], []) == []
    assert is_cut([board(*LARGE)], [Cut("GPU-a", 0, True, LARGE)])
    assert not is_cut([], [Cut("GPU-a", 0, True, LARGE)])


needs_driver = pytest.mark.skipif(
    os.geteuid() != 0 or missing_tools() is not None,
    reason="NVML lets only root change MIG; the fake library needs a compiler",
)


@pytest.fixture
def fake(tmp_path):
    build_library()
    made = FakeNvml(tmp_path / "control")
    with loaded_nvml(made.path):
        yield made


def placed(fake: FakeNvml) -> list[tuple[tuple[str, int], ...]]:
    return [
        tuple((each.profile, each.start) for each in gpu.placed or ())
        for gpu in read_live("n").gpus
    ]


@needs_driver
def test_seven_small_ones_become_two_large_ones_and_back(fake) -> None:
    first, second = mig_node(fake, "n")
    before = {each.uuid for gpu in read_live("n").gpus for each in gpu.instances}
    for wanted in (LARGE, SEVEN):
        cut = Cut(first.uuid, 0, True, wanted)
        carry_out(changes(read_live("n").gpus, [cut]))
        assert placed(fake) == [wanted, LARGE]
        assert is_cut(read_live("n").gpus, [cut])
    after = {each.uuid for gpu in read_live("n").gpus for each in gpu.instances}
    kept = {made.uuid for made in second.instances}
    assert before & after == kept, "instances made anew have other UUIDs"


@needs_driver
def test_mig_mode_goes_on_and_off(fake) -> None:
    (gpu,) = a100_node(fake, "n", 1)
    on = Cut(gpu.uuid, 0, True, LARGE)
    carry_out(changes(read_live("n").gpus, [on]))
    assert placed(fake) == [LARGE]
    carry_out(changes(read_live("n").gpus, [Cut(gpu.uuid, 0, False)]))
    assert not read_live("n").gpus[0].mig


@needs_driver
def test_what_is_in_use_is_refused_with_a_remedy(fake) -> None:
    first, _ = mig_node(fake, "n")
    fake.add_process(first.instances[3].uuid, 4711)
    with pytest.raises(DeviceError, match="a process still uses it"):
        carry_out(changes(read_live("n").gpus, [Cut(first.uuid, 0, True, LARGE)]))
    assert len(placed(fake)[0]) == 4, "those before it are gone, it and those after it are not"


@needs_driver
def test_what_the_driver_has_not(fake) -> None:
    first, _ = mig_node(fake, "n")
    with pytest.raises(DeviceError, match="no such profile"):
        carry_out([Create(first.uuid, "5g.30gb", 0)])
    with pytest.raises(DeviceError, match="no such place; it has 0, 4"):
        carry_out([Create(first.uuid, "3g.20gb", 2)])


@needs_driver
def test_mig_mode_waits_while_the_board_is_in_use(fake) -> None:
    (gpu,) = a100_node(fake, "n", 1)
    fake.add_process(gpu.uuid, 4711)
    with pytest.raises(DeviceError, match="MIG mode does not change"):
        carry_out([SetMode(gpu.uuid, True)])
