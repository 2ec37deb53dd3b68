# SPDX-License-Identifier: Apache-2.0
"""The rhythm of samples on a scripted clock, whatever hooks come; and what a hook asks."""

from __future__ import annotations

import pytest

from fairwatt.accounting.agent.daemon import observe
from fairwatt.accounting.agent.extras import NO_EXTRAS
from fairwatt.accounting.agent.sampling import Sampling
from fairwatt.accounting.agent.sources import Sample
from fairwatt.accounting.agent.timers import Timers


class Bench:
    """Samples whose looks take `look_ms`; None: the driver hangs."""

    def __init__(self, most_s: float = 10, look_ms: int | None = 0) -> None:
        self.now_ms = 0
        self.looks: list[float] = []
        self.beside: list[float] = []
        self._look_ms = look_ms
        self._timers = Timers(lambda: self.now_ms / 1000)
        self.sampling = Sampling(self._timers, most_s, self._look, self._beside)

    def _look(self, done) -> None:
        self.looks.append(self.now_ms / 1000)
        if self._look_ms is not None:
            self._timers.set("answer", self._look_ms / 1000, done)

    def _beside(self) -> None:
        self.beside.append(self.now_ms / 1000)

    def until(self, end_ms: int, hook_every_ms: int | None = None) -> None:
        while self.now_ms < end_ms:
            self.now_ms += 20
            self._timers.run_due()
            if hook_every_ms and self.now_ms % hook_every_ms == 0:
                self.sampling.soon()


def test_after_a_change_samples_come_soon_then_less_often():
    """1 s after it, then after 2, 4, 8 and 10 s, and 10 s again."""
    bench = Bench()
    bench.sampling.soon()
    bench.until(40_000)
    assert bench.looks == [1, 3, 7, 15, 25, 35]


@pytest.mark.parametrize("look_ms", [0, 20, 400])
def test_a_storm_of_hooks_puts_no_sample_off(look_ms):
    """5 hooks a second for 5 minutes: a sample each second, as after any change."""
    bench = Bench(look_ms=look_ms)
    bench.sampling.soon()
    bench.until(300_000, hook_every_ms=200)
    assert len(bench.looks) == 300
    assert bench.beside == bench.looks
    assert max(b - a for a, b in zip(bench.looks, bench.looks[1:], strict=False)) <= 1.2


def test_a_driver_that_hangs_is_asked_once_and_the_host_goes_on():
    bench = Bench(most_s=1, look_ms=None)
    bench.sampling.soon()
    bench.until(60_000, hook_every_ms=200)
    assert (len(bench.looks), len(bench.beside)) == (1, 60)


class Recorder:
    """A source that notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def devices(self):
        self.asked.append("devices")
        return ()

    def driver_version(self) -> str:
        return "550.54"

    def read(self, devices):
        self.asked.append("read")
        return [Sample(device, 1, energy_mj=1) for device in devices]

    def utilisation(self, devices):
        self.asked.append("utilisation")
        return {}

    def clocks(self, devices):
        self.asked.append("clocks")
        return {}

    def memory(self, devices):
        self.asked.append("memory")
        return {}

    def extras(self, devices, shared):
        self.asked.append("extras")
        return NO_EXTRAS


def test_a_hook_asks_for_counters_and_utilisation_alone():
    source = Recorder()
    observe(source, ["GPU-1"], False, True)
    assert source.asked == ["read", "utilisation"]


def test_a_sample_asks_for_all():
    source = Recorder()
    assert observe(source, ["GPU-1"], True, True, frozenset()).driver == "550.54"
    assert source.asked == ["devices", "read", "utilisation", "clocks", "memory", "extras"]
