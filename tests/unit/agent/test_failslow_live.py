# SPDX-License-Identifier: Apache-2.0
"""Clocks in the agent: their mean by window, and a GPU that falls behind while the job runs."""

from __future__ import annotations

import random

import pytest

from fairwatt.accounting.agent.pace import LivePace
from fairwatt.accounting.agent.sources import Observation, Sample
from fairwatt.accounting.agent.usage import Usage
from fairwatt.core.events import DeviceHold, RunStarted
from tests.fakes.machines import a100_node
from tests.unit.agent.keeper_bench import board

TICK_MS = 10_000


class TestMeans:
    def test_a_clock_is_the_mean_over_busy_time(self):
        """1,000 MHz for 10 s and 1,600 for 20 s; idle at 300 MHz for 30 s does not count."""
        usage = Usage()
        usage.open("g", 0)
        usage.add("g", 10_000, {"": 900}, 1000)
        usage.add("g", 30_000, {"": 100}, 1600)
        usage.add("g", 60_000, {"": 99}, 300)
        assert usage.clock_mhz("g") == 1400
        assert usage.means("g") == {"": 233}  # (900·10 + 100·20 + 99·30) / 60 = 232.8

    def test_unknown_stays_unknown(self):
        usage = Usage()
        usage.open("g", 0)
        usage.add("g", 10_000, {}, 1000)
        usage.add("g", 20_000, {"": 900}, None)
        assert usage.clock_mhz("g") is None
        assert usage.clock_mhz("other") is None

    def test_a_new_window_begins_anew(self):
        usage = Usage()
        usage.open("g", 0)
        usage.add("g", 10_000, {"": 900}, 1000)
        usage.open("g", 10_000)
        assert usage.clock_mhz("g") is None


def test_a_window_tells_its_clock(bench):
    bench.hook("prolog", 1)
    for clock in (1300, 1500):
        bench.pass_time(1_000, 100_000)
        bench.keeper.sample(bench.look({"": 900}, clock))
    bench.pass_time(1, 0)
    bench.keeper.hook(bench.request("epilog", 1, ""), bench.look({"": 0}, 200))
    window = bench.windows()[-1]
    assert window.clock_mhz == 1400


def test_after_a_gap_the_clock_is_unknown(bench):
    bench.hook("prolog", 1)
    bench.crash()
    bench.pass_time(1_000, 100_000)
    bench.start()
    assert bench.windows()[-1].clock_mhz is None


class Node:
    """Some boards under one job, looked at every ten seconds."""

    def __init__(self, count=8, fraction=(1, 1)):
        self.devices = {f"g{n}": board(f"g{n}") for n in range(count)}
        holds = tuple(
            DeviceHold(device=uuid, instance="", numerator=fraction[0], denominator=fraction[1])
            for uuid in self.devices
        )
        self.run = RunStarted(
            node="n1", boot_id="b", seq=0, t_ms=0, job_id=7, restart_cnt=None, sluid=None,
            uid=None, account=None, holds=holds, mapped_by="uuid",
        )  # fmt: skip
        self.pace = LivePace()
        self.now_ms = 0

    def look(self, clocks, util=900):
        self.now_ms += TICK_MS
        samples = tuple(Sample(uuid, self.now_ms) for uuid in self.devices)
        utils = {uuid: {"": util} for uuid in self.devices}
        seen = Observation(
            None, samples, utils, clocks=dict(zip(self.devices, clocks, strict=True))
        )
        self.pace.look(seen, [self.run], self.devices)

    def late(self):
        return {uuid: one.job_id for uuid, one in self.pace.late.items()}


class TestLive:
    def test_a_fifth_off_one_clock_is_told_within_two_minutes(self, caplog):
        node = Node()
        for _ in range(40):
            node.look([1400] * 8)
        begun = node.now_ms
        while not node.late():
            node.look([1400] * 5 + [1120] + [1400] * 2)
        assert node.now_ms - begun == 70_000
        assert node.late() == {"g5": 7}
        (told,) = node.pace.status()
        assert (told["device"], told["below_permille"]) == ("g5", 200)
        # The smoothed lag passes a tenth with the second sample: 0.2 · (1 − 1/4) = 0.15.
        assert told["since_ms"] == begun + 2 * TICK_MS
        assert told["text"] == "job 7: clock 20% below the job's other GPUs here"
        assert caplog.text.count("g5: job 7: clock 20% below") == 1

    def test_it_ends_when_the_clock_is_back(self):
        node = Node()
        for _ in range(10):
            node.look([1120] + [1400] * 7)
        since_ms = node.pace.late["g0"].since_ms
        for _ in range(30):
            node.look([1120] + [1400] * 7)
        assert node.pace.late["g0"].since_ms == since_ms
        for _ in range(3):
            node.look([1400] * 8)
        assert node.late() == {}

    def test_it_ends_with_the_job(self):
        node = Node()
        for _ in range(10):
            node.look([1120] + [1400] * 7)
        node.run = RunStarted(
            node="n1", boot_id="b", seq=0, t_ms=node.now_ms, job_id=8, restart_cnt=None,
            sluid=None, uid=None, account=None, holds=node.run.holds, mapped_by="uuid",
        )  # fmt: skip
        node.look([1120] + [1400] * 7)
        assert node.late() == {}

    @pytest.mark.parametrize(
        "node", [Node(2), Node(8, (1, 2))], ids=["two cannot tell who", "parts of boards"]
    )
    def test_what_cannot_be_compared(self, node):
        for _ in range(20):
            node.look([700] + [1400] * (len(node.devices) - 1))
        assert node.late() == {}

    def test_idle_boards_are_not_compared(self):
        node = Node()
        for _ in range(20):
            node.look([210] + [1400] * 7, util=50)
        assert node.late() == {}

    def test_no_alarm_in_a_hundred_healthy_jobs(self):
        """Boards that differ by 2 %, readings by 2 %; load moves all by ± 40 % at once."""
        rng = random.Random(5)
        for _ in range(100):
            node = Node(rng.randint(3, 8))
            own = [1400 * rng.uniform(0.98, 1.02) for _ in node.devices]
            for _ in range(100):
                load = rng.uniform(0.6, 1.4)
                node.look([round(x * load * rng.gauss(1, 0.02)) for x in own])
                assert node.late() == {}


def test_a_real_agent_tells_clocks_and_who_is_late(lab, wait_until):
    gpus = a100_node(lab.fake, "n1", count=4)
    for gpu in gpus:
        lab.fake.set_util(gpu.uuid, 90)
        lab.fake.set_clocks(gpu.uuid, sm_mhz=1400)
    lab.fake.set_clocks(gpus[2].uuid, sm_mhz=1000)
    lab.start()
    lab.hook("prolog", 1, *(gpu.uuid for gpu in gpus))
    wait_until(lambda: lab.ask(verb="status")["slow"], "a GPU that is late")
    (slow,) = lab.ask(verb="status")["slow"]
    assert (slow["device"], slow["job_id"], slow["below_permille"]) == (gpus[2].uuid, 1, 286)
    lab.hook("epilog", 1)
    last = {gpu.uuid: lab.windows(gpu.uuid)[-1].clock_mhz for gpu in gpus}
    assert last == {gpu.uuid: 1000 if gpu is gpus[2] else 1400 for gpu in gpus}
