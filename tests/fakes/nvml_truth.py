# SPDX-License-Identifier: Apache-2.0
"""What the fake devices really used, worked out from the control file without the library.

Deliberately plain: facts are read, sorted and summed, so that it can judge the library.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.fakes.gpu_load import STEP_MS

__all__ = ["GpuTruth", "Truth", "read_truth"]

Steps = list[tuple[int, int]]


@dataclass
class GpuTruth:
    """A GPU: when it began to count and from where, its idle power, its counter's resets."""

    start_ms: int
    counter_start_mj: int
    idle_mw: int
    instances: set[str] = field(default_factory=set)
    resets_ms: list[int] = field(default_factory=list)


@dataclass
class Truth:
    """All facts that bear on energy: GPUs, power steps by UUID, reloads of the driver."""

    gpus: dict[str, GpuTruth] = field(default_factory=dict)
    power: dict[str, Steps] = field(default_factory=dict)
    driver_loads_ms: list[int] = field(default_factory=list)
    driver_loaded: bool = True

    def power_mw(self, uuid: str, t_ms: int) -> int:
        """Return a board's power, or what an instance adds to it, at t_ms."""
        return sum(_value(self._steps(part), t_ms) for part in self._parts(uuid))

    def area_uj(self, uuid: str, t0_ms: int, t1_ms: int) -> int:
        """Return the exact energy in [t0_ms, t1_ms) in µJ (mW times ms)."""
        return sum(_area(self._steps(part), t0_ms, t1_ms) for part in self._parts(uuid))

    def counter_mj(self, gpu_uuid: str, t_ms: int) -> int:
        """Return what the GPU's energy counter shows at t_ms, the driver being loaded."""
        gpu = self.gpus[gpu_uuid]
        step_ms = t_ms // STEP_MS * STEP_MS
        restarts = [t for t in gpu.resets_ms if t <= step_ms]
        restarts += [t for t in self.driver_loads_ms if gpu.start_ms <= t <= t_ms]
        start_ms = max(restarts, default=gpu.start_ms)
        base_mj = 0 if restarts else gpu.counter_start_mj
        return base_mj + self.area_uj(gpu_uuid, start_ms, max(start_ms, step_ms)) // 1000

    def _parts(self, uuid: str) -> Iterable[str]:
        return {uuid} | (self.gpus[uuid].instances if uuid in self.gpus else set())

    def _steps(self, uuid: str) -> Steps:
        # sorted() is stable: of two facts for one time the later written comes last and wins.
        return sorted(self.power.get(uuid, []), key=lambda step: step[0])

    def apply(self, line: str) -> None:
        """Take in a line of the file; those that do not bear on energy change nothing."""
        fact, *words = line.split()
        match fact, words:
            case "gpu", [uuid, at, _, _, _, _, _, idle, _, counter, *_]:
                self.gpus[uuid] = GpuTruth(int(at), int(counter), int(idle))
                self.power[uuid] = [(int(at), int(idle))]
            case "instance" | "compute-instance", [uuid, gpu, *_]:
                self.gpus[gpu].instances.add(uuid)
            case "power", [uuid, at, "idle"]:
                gpu_or_none = self.gpus.get(uuid)
                idle_mw = gpu_or_none.idle_mw if gpu_or_none else 0
                self.power.setdefault(uuid, []).append((int(at), idle_mw))
            case "power", [uuid, at, milliwatts]:
                self.power.setdefault(uuid, []).append((int(at), int(milliwatts)))
            case "reset", [uuid, at]:
                self.gpus[uuid].resets_ms.append(int(at))
            case "driver", [at, loaded]:
                if loaded == "1" and not self.driver_loaded:
                    self.driver_loads_ms.append(int(at))
                self.driver_loaded = loaded == "1"


def _value(steps: Steps, t_ms: int) -> int:
    value = 0
    for at_ms, milliwatts in steps:
        if at_ms <= t_ms:
            value = milliwatts
    return value


def _area(steps: Steps, t0_ms: int, t1_ms: int) -> int:
    ends = [at_ms for at_ms, _ in steps[1:]] + [t1_ms] * bool(steps)
    return sum(
        milliwatts * max(0, min(end_ms, t1_ms) - max(at_ms, t0_ms))
        for (at_ms, milliwatts), end_ms in zip(steps, ends, strict=True)
    )


def read_truth(text: str) -> Truth:
    """Return the truth that a control file's whole lines tell; a torn last line is left out."""
    truth = Truth()
    whole = text[: text.rfind("\n") + 1]
    for line in whole.splitlines():
        if line.strip() and not line.startswith("#"):
            truth.apply(line)
    return truth
