# SPDX-License-Identifier: Apache-2.0
"""From sick fake boards through the real nvidia-ml-py to findings."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pynvml
import pytest

from fairwatt.core.errors import ConfigError
from fairwatt.core.verdict import Verdict
from fairwatt.prolog.health.baseline import baseline_of, read_baseline, write_baseline
from fairwatt.prolog.health.draft import Draft
from fairwatt.prolog.health.one_round import one_reading, one_round
from fairwatt.prolog.health.read_nvml import NvmlReader
from fairwatt.prolog.health.reading import NVML_PARTS, Reading
from fairwatt.prolog.health.settings import HealthSettings
from fairwatt.prolog.health.spec import load_checks
from tests.fakes.machines import A100_40, FakeGpu, a100_node, add_gpu, mig_node, whole_boards
from tests.fakes.nvml_control import FakeNvml

SPECS = load_checks()
Sick = Callable[[FakeNvml, str], object]


@pytest.fixture
def gpus(fake: FakeNvml, settings: HealthSettings) -> tuple[FakeGpu, ...]:
    settings.kmsg.touch()
    return a100_node(fake, "n1", count=2)


def verdict(settings: HealthSettings) -> Verdict:
    return one_round(settings, SPECS.values(), None)


def record(settings: HealthSettings) -> None:
    reading = one_reading(settings, SPECS.values())
    write_baseline(settings.folder, baseline_of("n1", reading))


def found(settings: HealthSettings) -> dict[str, str | None]:
    return {finding.code: finding.device for finding in verdict(settings).findings}


def read(reader: NvmlReader) -> Reading:
    draft = Draft(NVML_PARTS)
    reader.read(draft)
    return draft.reading(Reading(t_ms=1), "late")


def test_healthy_boards_are_well(gpus, settings: HealthSettings) -> None:
    result = verdict(settings)
    assert (result.state, result.findings) == ("ok", ())
    states = {check.name: check.state for check in result.checks}
    # Ampere has rows instead of pages; who holds what only the agent knows.
    unknown = {name for name, state in states.items() if state != "ok"}
    assert unknown == {"retired_pages", "retired_pending", "memory_held", "leftover_processes"}
    assert all(check.note.startswith("FWH902: ") for check in result.checks if check.note)


SICKNESS: dict[str, Sick] = {
    "FWH101": FakeNvml.lose,
    "FWH105": FakeNvml.require_reset,
    "FWH203": lambda fake, uuid: fake.set_condition(uuid, "ecc.uncorrected.volatile.dram", 1),
    "FWH204": lambda fake, uuid: fake.set_condition(uuid, "ecc.corrected.volatile.dram", 10_001),
    "FWH207": lambda fake, uuid: fake.set_condition(uuid, "rows.failure", 1),
    "FWH208": lambda fake, uuid: fake.set_condition(uuid, "rows.pending", 1),
    "FWH301": lambda fake, uuid: fake.set_clock_reasons(uuid, 0x40),
    "FWH302": lambda fake, uuid: fake.set_condition(uuid, "pcie.width", 8),
    "FWH303": lambda fake, uuid: (
        fake.set_util(uuid, 90),
        fake.set_condition(uuid, "pcie.generation", 3),
    ),
    "FWH304": lambda fake, uuid: fake.set_nvlink(uuid, 3, False),
    "FWH305": lambda fake, uuid: fake.set_nvlink_errors(uuid, 3, "replay", 101),
    "FWH306": lambda fake, uuid: (
        fake.set_util(uuid, 95),
        fake.set_condition(uuid, "clock.sm", 210),
        fake.set_clock_reasons(uuid, 0x8),
    ),
    "FWH307": lambda fake, uuid: fake.set_condition(uuid, "power.limit", 200_000),
    "FWH308": lambda fake, uuid: fake.set_temperature(uuid, 88),
}


@pytest.mark.parametrize("code", sorted(SICKNESS))
def test_a_sick_board_is_found_alone(code: str, gpus, fake, settings: HealthSettings) -> None:
    uuid = gpus[1].uuid
    record(settings)
    SICKNESS[code](fake, uuid)
    fake.set_clock(time.time_ns() // 1_000_000 + 200)  # utilisation begins at a step
    codes = found(settings)
    assert codes.pop(code) == uuid
    assert set(codes) <= {"FWH301"}  # a slowdown is why the clock is low


def test_pages_of_a_board_before_ampere(fake: FakeNvml, settings: HealthSettings) -> None:
    settings.kmsg.touch()
    fake.add_gpu(0, "GPU-v", 0, "Tesla V100-SXM2-32GB", 32_768, "volta")
    fake.set_condition("GPU-v", "pages.double", 60)
    fake.set_condition("GPU-v", "pages.pending", 1)
    assert found(settings) == {"FWH205": "GPU-v", "FWH206": "GPU-v"}


@pytest.mark.parametrize("function", ["nvmlDeviceGetRemappedRows", "nvmlDeviceGetNvLinkState"])
def test_what_an_old_driver_lacks_is_unknown_without_an_alert(
    function: str, gpus, fake: FakeNvml, settings: HealthSettings
) -> None:
    fake.hide_symbol(function)
    assert verdict(settings).state == "ok"


def test_an_error_of_nvml_is_unknown_and_hides_nothing_else(
    gpus, fake: FakeNvml, settings: HealthSettings
) -> None:
    fake.fail("nvmlDeviceGetTotalEccErrors", pynvml.NVML_ERROR_UNKNOWN, gpus[0].uuid)
    fake.set_temperature(gpus[0].uuid, 99)
    assert found(settings) == {"FWH308": gpus[0].uuid, "FWH903": gpus[0].uuid}


@pytest.mark.parametrize("function", ["nvmlDeviceGetUUID", "nvmlDeviceGetMinorNumber"])
@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_TIMEOUT])
def test_a_board_that_gives_an_error_hides_no_other(
    function: str, error: int, gpus, fake: FakeNvml, settings: HealthSettings
) -> None:
    """`Unable to determine the device handle for GPU`: proof of nothing, but of one board only."""
    record(settings)
    fake.fail(function, error, gpus[0].uuid)
    fake.lose(gpus[1].uuid)
    assert found(settings) == {"FWH903": gpus[0].uuid, "FWH101": gpus[1].uuid}
    with pytest.raises(ConfigError, match="record the baseline when all GPUs work"):
        record(settings)


def test_a_board_without_a_handle_hides_no_other(monkeypatch, gpus, fake, settings) -> None:
    record(settings)
    handle_of = pynvml.nvmlDeviceGetHandleByIndex

    def refuse(index: int) -> object:
        if index == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
        return handle_of(index)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", refuse)
    fake.require_reset(gpus[1].uuid)
    assert found(settings) == {"FWH903": gpus[0].uuid, "FWH105": gpus[1].uuid}


def test_a_board_that_no_longer_tells_its_uuid_is_known_from_before(
    gpus, fake: FakeNvml, tmp_path: Path
) -> None:
    reader = NvmlReader(tmp_path)
    assert [gpu.state for gpu in read(reader).gpus or ()] == ["ok", "ok"]
    fake.lose(gpus[0].uuid)
    for again in (reader, NvmlReader(tmp_path, reader.known)):
        states = {gpu.uuid: gpu.state for gpu in read(again).gpus or ()}
        assert states == {gpus[0].uuid: "lost", gpus[1].uuid: "ok"}
    (nameless,) = [gpu for gpu in read(NvmlReader(tmp_path)).gpus or () if gpu.state == "lost"]
    assert nameless.uuid == "NVML-index-0"


def test_the_driver_goes_away_and_comes_back(gpus, fake: FakeNvml, tmp_path: Path) -> None:
    reader = NvmlReader(tmp_path)
    assert len(read(reader).gpus or ()) == 2
    fake.driver(False)
    for _ in range(2):
        gone = read(reader)
        assert gone.gpus is None
        assert gone.gaps["", "devices"].kind == "fault"
    assert gone.versions is not None
    assert gone.versions.fault == "not-loaded"
    fake.driver(True)
    assert len(read(reader).gpus or ()) == 2


def test_a_driver_of_another_release_is_said_with_both_versions(
    gpus, fake: FakeNvml, settings: HealthSettings
) -> None:
    fake.set_versions("535.129.03", "12.550.54.15")
    version = settings.proc_root / "driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC\n"
    )
    findings = {finding.code: finding for finding in verdict(settings).findings}
    assert findings["FWH601"].value == "535.129.03 / unknown"
    assert {code for code, each in findings.items() if each.action == "drain"} == set()


def test_the_library_is_missing(monkeypatch, gpus, settings: HealthSettings) -> None:
    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    result = verdict(settings)
    assert result.state == "unknown"
    assert {finding.code for finding in result.findings} == {"FWH903"}


def test_processes_are_told_by_instance_and_user(fake: FakeNvml, settings) -> None:
    settings.kmsg.touch()
    board, _ = mig_node(fake, "n1")
    fake.add_process(board.instances[2].uuid, os.getpid(), 100)
    (gpu, _) = one_reading(settings, SPECS.values()).gpus or ()
    assert gpu.memory is not None
    (process,) = gpu.memory.processes
    assert (process.pid, process.uid, process.instance) == (
        os.getpid(),
        os.getuid(),
        board.instances[2].uuid,
    )
    assert gpu.profiles == ("1g.5gb",) * 7


class TestBaseline:
    def test_it_is_kept_and_read(self, gpus, settings: HealthSettings) -> None:
        record(settings)
        baseline = read_baseline(settings.folder)
        assert baseline is not None
        board = baseline.boards[0]
        assert (board.uuid, board.pci) == (gpus[0].uuid, gpus[0].pci[:-2])
        assert (board.links, board.limit_mw, board.profiles) == (12, 400_000, ())
        assert found(settings) == {}

    def test_a_board_that_was_taken_out_is_missing(self, fake, tmp_path, settings) -> None:
        settings.kmsg.touch()
        first, second = whole_boards("n1", A100_40, range(2))
        add_gpu(fake, first)
        add_gpu(fake, second)
        record(settings)
        fewer = FakeNvml(tmp_path / "fewer.control")
        add_gpu(fewer, first)
        fewer.path.replace(fake.path)
        assert found(settings) == {"FWH102": second.uuid}

    def test_mig_switched_on_without_a_declaration_is_found(self, gpus, fake, settings) -> None:
        record(settings)
        fake.set_mig_mode(gpus[0].uuid, True, True)
        fake.add_instance(gpus[0].uuid, 1, 0, "MIG-x", "3g.20gb", 3, 19_968, 42)
        assert found(settings) == {"FWH501": gpus[0].uuid}

    def test_no_sick_state_is_recorded(self, gpus, fake, settings) -> None:
        fake.lose(gpus[1].uuid)
        with pytest.raises(ConfigError, match="record the baseline when all GPUs work"):
            record(settings)

    def test_a_fault_of_ours_in_reading_it_ends_no_other_check(
        self, gpus, fake, settings, monkeypatch
    ) -> None:
        record(settings)

        def broken(*_: object) -> None:
            raise ZeroDivisionError("ours")

        monkeypatch.setattr("fairwatt.prolog.health.round.read_expected", broken)
        fake.lose(gpus[0].uuid)
        assert found(settings) == {"FWH101": gpus[0].uuid, "FWH903": None}

    def test_a_damaged_one_is_unknown_and_drains_nothing(self, gpus, settings) -> None:
        settings.folder.mkdir()
        (settings.folder / "baseline.json").write_text("{")
        assert found(settings) == {"FWH903": None}


class TestExpected:
    def test_boards_of_gres_conf_are_counted_not_slices(self, gpus, settings) -> None:
        settings.gres_conf.write_text(
            "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia[0-2]\n"
            "NodeName=n1 Name=gpu Type=a100_1g.5gb MultipleFiles=/dev/nvidia3,"
            "/dev/nvidia-caps/nvidia-cap30,/dev/nvidia-caps/nvidia-cap31\n"
            "NodeName=n2 Name=gpu File=/dev/nvidia[0-7]\n"
        )
        settings.slurm_conf.write_text("NodeName=n1 Gres=gpu:a100:3,gpu:a100_1g.5gb:1\n")
        (finding,) = verdict(settings).findings
        assert (finding.code, finding.value) == ("FWH103", "2 < 4")

    def test_without_files_slurm_conf_counts(self, gpus, settings) -> None:
        settings.slurm_conf.write_text("NodeName=n[1-4] Gres=gpu:a100:8\n")
        (finding,) = verdict(settings).findings
        assert finding.value == "2 < 8"
        settings.slurm_conf.write_text("NodeName=n[1-4] Gres=gpu:a100_1g.5gb:14\n")
        assert found(settings) == {}

    def test_mig_toml_goes_before_the_baseline(self, fake, settings) -> None:
        settings.kmsg.touch()
        boards = mig_node(fake, "n1")
        record(settings)
        settings.mig_file.write_text(
            '[layouts.small]\nprofiles = { "1g.5gb" = 7 }\n[nodes]\nn1 = "small"\n'
        )
        (finding,) = verdict(settings).findings
        assert (finding.code, finding.device) == ("FWH501", boards[1].uuid)
        assert finding.text.endswith(f"where {settings.mig_file} has 7 x 1g.5gb")


def test_a_call_that_hangs_hides_only_what_comes_after(gpus, fake, settings, tmp_path) -> None:
    """The thread's part: what was read before the hang is judged at the deadline."""
    fake.set_temperature(gpus[0].uuid, 99)
    fake.slow("nvmlDeviceGetTotalEccErrors", 700)
    reader, draft = NvmlReader(tmp_path), Draft(NVML_PARTS)
    thread = threading.Thread(target=partial(reader.read, draft))
    thread.start()
    deadline = 5.0
    while draft.reading(Reading(t_ms=1), "late").gpus is None and deadline > 0:
        thread.join(0.05)
        deadline -= 0.05
    thread.join(0.2)
    reading = draft.reading(Reading(t_ms=1), "late")
    gpu = (reading.gpus or ())[0]
    assert gpu.temperature is not None
    assert gpu.temperature.now_c == 99
    assert reading.gaps[gpu.uuid, "ecc"].kind == "timeout"
    assert ("", "devices") not in reading.gaps
    fake.slow("nvmlDeviceGetTotalEccErrors", 0)
    thread.join()
