# SPDX-License-Identifier: Apache-2.0
"""The control file: torn lines, wrong lines, two writers."""

from __future__ import annotations

import fcntl
import multiprocessing
import threading
import time

import pytest

from tests.fakes.machines import h100_node, mig_node
from tests.fakes.nvml_control import FakeNvml

WRITERS, STEPS = 3, 6


def say(fake, text):
    with fake.path.open("a", encoding="utf-8") as file:
        file.write(text)


def test_a_torn_last_line_waits_for_its_end(fake, nvml, capfd):
    say(fake, "gpu GPU-a 1000 0 0 hopper 81559 0 70000 700000 0 0 0000:07:00 NVIDIA H1")
    assert nvml.nvmlDeviceGetCount() == 0
    say(fake, "00\n")
    assert nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(0)) == "NVIDIA H100"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "line",
    [
        "volcano GPU-a 3",
        "power GPU-none 1000 5",
        "power GPU-a 1000",
        "power GPU-a 1000 5 6",
        "power GPU-a soon 5",
        "gpu GPU-a 1000 0 0 hopper 1 0 1 1 0 0 0000:07:00 again",
        "gpu GPU-b 1000 1 0 tulip 1 0 1 1 0 0 0000:07:00 no such generation",
        "instance MIG-x GPU-none 1 0 - 1 1 1 1 0 1g.5gb",
        "health GPU-a poorly",
        "driver 5 maybe",
    ],
)
def test_a_wrong_line_is_named_once_and_the_rest_goes_on(fake, nvml, capfd, line):
    h100_node(fake, "h01", count=0)
    fake.add_gpu(0, "GPU-a", 0, "Board", 1, "hopper")
    say(fake, f"# a comment\n\n{line}\n")
    fake.set_temperature("GPU-a", 61)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetTemperature(gpu, 0) == 61
    assert nvml.nvmlDeviceGetCount() == 1
    said = capfd.readouterr().err
    assert said == f"fake nvml: {fake.path}:5: unknown or malformed fact: {line}\n"


def test_writing_after_a_torn_line_keeps_the_new_fact(fake, nvml, capfd):
    say(fake, "power GPU-a 10")
    fake.add_gpu(0, "GPU-a", 0, "Board", 1, "hopper")
    assert nvml.nvmlDeviceGetCount() == 1
    assert "malformed fact: power GPU-a 10\n" in capfd.readouterr().err


def test_another_file_in_its_place_is_read_anew(fake, nvml, tmp_path):
    mig_node(fake, "mig01")
    assert nvml.nvmlDeviceGetCount() == 2
    other = FakeNvml(tmp_path / "other")
    h100_node(other, "h01", count=16)
    assert other.path.stat().st_size > fake.path.stat().st_size
    other.path.rename(fake.path)
    assert nvml.nvmlDeviceGetCount() == 16


@pytest.mark.parametrize(
    ("held", "call", "answer"),
    [
        (fcntl.LOCK_EX, lambda nvml, _: nvml.nvmlDeviceGetCount(), 2),
        (fcntl.LOCK_SH, lambda _, fake: fake.set_power("GPU-a", 1), 7_100),
    ],
    ids=["a reader waits for a writer", "a writer waits for a reader"],
)
def test_the_time_of_a_fact_is_chosen_under_the_lock(fake, nvml, held, call, answer):
    fake.add_gpu(0, "GPU-a", 0, "Board", 1, "hopper")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(call(nvml, fake)))
    with fake.path.open("a", encoding="utf-8") as file:
        fcntl.flock(file, held)
        thread.start()
        thread.join(0.1)
        assert answers == []
        file.write("clock 7000\ngpu GPU-b 0 1 1 hopper 1 0 1 1 0 0 0000:0f:00 Board\n")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_UN)
    thread.join()
    assert answers == [answer]  # with what was written meanwhile


def _write(path, uuid, stop, written):
    fake = FakeNvml(path)
    while not stop.wait(0.002):
        written.value += 1
        fake.set_power(uuid, 1_000 * written.value)


def test_reported_values_stay_true_while_several_processes_write(fake, nvml):
    fake.set_clock(None)
    gpu, _ = mig_node(fake, "mig01")
    before = len(fake.path.read_text().splitlines())
    context = multiprocessing.get_context("spawn")
    stop, counts = context.Event(), [context.Value("i", 0) for _ in range(WRITERS)]
    writers = [
        context.Process(target=_write, args=(fake.path, instance.uuid, stop, count))
        for instance, count in zip(gpu.instances, counts, strict=False)
    ]
    for writer in writers:
        writer.start()
    reported = _watch(nvml, nvml.nvmlDeviceGetHandleByUUID(gpu.uuid), counts)
    stop.set()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    lines = fake.path.read_text().splitlines()
    assert len(lines) - before == sum(count.value for count in counts)
    assert all(len(line.split()) == 4 for line in lines[before:])
    truth = fake.truth()
    assert reported == {step_ms: truth.counter_mj(gpu.uuid, step_ms) for step_ms in reported}


def _watch(nvml, handle, counts):
    """Read the counter through several steps in which all writers write."""
    reported, end = {}, time.monotonic() + 30
    while len(reported) < STEPS:
        assert time.monotonic() < end, "the writers do not write"
        field = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_ENERGY])[0]
        step_ms = field.timestamp // 1_000
        if all(count.value for count in counts):
            assert reported.setdefault(step_ms, field.value.ullVal) == field.value.ullVal
    return reported


def test_threads_may_ask_at_once(fake, nvml):
    gpus = h100_node(fake, "h01")
    fake.set_clock(11_000)
    wrong = []

    def ask(uuid, expected):
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        for _ in range(200):
            if nvml.nvmlDeviceGetTotalEnergyConsumption(handle) != expected:
                wrong.append(uuid)

    threads = [
        threading.Thread(target=ask, args=(gpu.uuid, 1_000_000_007 * (gpu.index + 1) + 700_000))
        for gpu in gpus
    ]
    for thread in threads:
        thread.start()
    for number in range(50):
        fake.set_temperature(gpus[0].uuid, number)
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("text", ["GPU a", "GPU-a\npower", "", " GPU-a"])
def test_a_word_that_would_break_the_line_is_refused(fake, text):
    with pytest.raises(ValueError, match="one word"):
        fake.set_power(text, 1)


@pytest.mark.parametrize("name", ["two\nlines", "", "two  blanks", " lead"])
def test_a_name_that_would_break_the_line_is_refused(fake, name):
    with pytest.raises(ValueError, match="single blanks"):
        fake.add_gpu(0, "GPU-a", 0, name, 1, "hopper")
