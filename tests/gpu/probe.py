# SPDX-License-Identifier: Apache-2.0
"""Measures on a machine with an NVIDIA GPU what the tests elsewhere take for granted.

`python tests/gpu/probe.py [--out FILE] [--seconds S] [--index N]`, within three minutes: the step
of the energy counter and its agreement with integrated power, idle and under load; whether GPM is
there; the cost of each NVML call that the agent makes; what the agent itself costs. No MIG mode is
changed and nothing is reset. The JSON can be replayed by the fake library (tests/fakes/
probe_replay.py). Without a GPU the reason is printed and the status is 77.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

SKIP = 77
FORMAT = 1
LIMIT_S = 175
SAMPLE_S = 0.1
RAMP_S = 4.0
STEP_S = 5.0
CALLS = 200
CALLS_S = 2.0
LOAD = Path(__file__).with_name("cuda_load.py")
AGENT_SAMPLE_S = 10.0

try:
    import pynvml
except ImportError:
    pynvml = None


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write the JSON; 77 and a reason where there is no GPU to measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="where to write; else to stdout")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each phase")
    parser.add_argument("--index", type=int, default=0, help="the GPU's NVML index")
    options = parser.parse_args(argv)
    reason = _missing()
    if reason:
        print(f"no GPU to probe: {reason}")
        return SKIP
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT_S)
    text = json.dumps(measured(options.index, options.seconds), indent=1) + "\n"
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


def _too_long(_number: int, _frame: object) -> None:
    raise TimeoutError(f"the probe took longer than {LIMIT_S} s")


def _missing() -> str:
    if pynvml is None:
        return "nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
        return "" if pynvml.nvmlDeviceGetCount() else "NVML shows no GPU"
    except pynvml.NVMLError as error:
        return str(error)


def measured(index: int, seconds: float) -> dict[str, Any]:
    """Return all that the JSON holds; see `main` for the limits."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    uuid = pynvml.nvmlDeviceGetUUID(handle)
    result: dict[str, Any] = {
        "format": FORMAT,
        "made_ts": int(time.time()),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "nvml": pynvml.nvmlSystemGetNVMLVersion(),
        "python": platform.python_version(),
        "gpu": facts(handle, index),
        "offers": offers(handle),
        "step": {"idle": step(handle, min(STEP_S, seconds))},
        "phases": [phase(handle, "idle", seconds)],
    }
    with loaded(uuid, RAMP_S + STEP_S + seconds + 10) as fault:
        result["load_fault"] = fault
        if not fault:
            time.sleep(RAMP_S)
            result["step"]["load"] = step(handle, min(STEP_S, seconds))
            result["phases"].append(phase(handle, "load", seconds))
        result["gpm"] = gpm(handle)
    result["calls"] = [cost for each in calls(handle) if (cost := each) is not None]
    result["agent"] = agent_cost()
    return result


def facts(handle: Any, index: int) -> dict[str, Any]:
    """Return what the board is; not its UUID or serial number."""
    mig = given(pynvml.nvmlDeviceGetMigMode, handle)
    return {
        "index": index,
        "name": pynvml.nvmlDeviceGetName(handle),
        "memory_mib": pynvml.nvmlDeviceGetMemoryInfo(handle).total >> 20,
        "architecture": given(pynvml.nvmlDeviceGetArchitecture, handle),
        "mig": bool(mig and mig[0]),
        "power_limit_mw": given(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle),
        "persistence": given(pynvml.nvmlDeviceGetPersistenceMode, handle),
    }


def offers(handle: Any) -> dict[str, bool]:
    """Return which of the functions that the agent calls are there."""
    support = given(pynvml.nvmlGpmQueryDeviceSupport, handle)
    mode = given(pynvml.nvmlDeviceGetC2cModeInfoV, handle)
    return {
        "energy": given(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle) is not None,
        "power": given(pynvml.nvmlDeviceGetPowerUsage, handle) is not None,
        "utilisation": given(pynvml.nvmlDeviceGetUtilizationRates, handle) is not None,
        "gpm": bool(support is not None and support.isSupportedDevice),
        "c2c": bool(mode is not None and mode.isC2cEnabled),
    }


def step(handle: Any, seconds: float) -> dict[str, Any] | None:
    """Return how often and by how much the counter moves; None where there is no counter."""
    moves: list[tuple[float, int]] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        energy_mj = given(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        if energy_mj is None:
            return None
        if not moves or moves[-1][1] != energy_mj:
            moves.append((time.monotonic(), energy_mj))
    pairs = list(pairwise(moves[1:]))  # the first was seen at any moment
    return {
        "seconds": seconds,
        "moves": len(pairs),
        "ms": spread([1000 * (b[0] - a[0]) for a, b in pairs]),
        "mj": spread([b[1] - a[1] for a, b in pairs]),
    }


def phase(handle: Any, name: str, seconds: float) -> dict[str, Any]:
    """Return samples [ms, mJ, mW, %] and how counter and integrated power agree."""
    begun = time.monotonic()
    samples = []
    while (passed := time.monotonic() - begun) < seconds or len(samples) < 2:
        rates = given(pynvml.nvmlDeviceGetUtilizationRates, handle)
        samples.append(
            [
                round(1000 * passed),
                given(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle),
                given(pynvml.nvmlDeviceGetPowerUsage, handle),
                None if rates is None else int(rates.gpu),
            ]
        )
        time.sleep(SAMPLE_S)
    return {"name": name, **agreement(samples), "samples": samples}


def agreement(samples: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Compare the counter with power integrated by trapezoids; None where one is missing.

    >>> agreement([[0, 0, 100_000, 0], [1000, 110_000, 100_000, 0]])["difference_permille"]
    100
    """
    counter_mj = None
    if samples[0][1] is not None and samples[-1][1] is not None:
        counter_mj = samples[-1][1] - samples[0][1]
    integrated_mj = None
    if all(sample[2] is not None for sample in samples):
        areas = ((a[2] + b[2]) * (b[0] - a[0]) // 2 for a, b in pairwise(samples))
        integrated_mj = sum(areas) // 1000
    difference = None
    if counter_mj is not None and integrated_mj:
        difference = round(1000 * (counter_mj - integrated_mj) / integrated_mj)
    return {
        "counter_mj": counter_mj,
        "integrated_mj": integrated_mj,
        "difference_permille": difference,
    }


@contextmanager
def loaded(uuid: str, seconds: float) -> Iterator[str]:
    """Keep the GPU busy for so long at most; give the reason if it cannot be, else ""."""
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": uuid}
    argv = [sys.executable, str(LOAD), str(seconds)]
    process = subprocess.Popen(
        argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            running = process.stdout.readline().strip() == "running"
            yield "" if running else process.stderr.read().strip() or "it ended"
        finally:
            process.kill()


def gpm(handle: Any) -> dict[str, Any] | None:
    """Return two GPM metrics over a second; None where GPM is not offered."""
    support = given(pynvml.nvmlGpmQueryDeviceSupport, handle)
    if support is None or not support.isSupportedDevice:
        return None
    names = {
        "graphics_util": pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
        "sm_util": pynvml.NVML_GPM_METRIC_SM_UTIL,
    }
    first, second = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    try:
        pynvml.nvmlGpmSampleGet(handle, first)
        time.sleep(1.0)
        pynvml.nvmlGpmSampleGet(handle, second)
        return {name: _metric(first, second, number) for name, number in names.items()}
    except pynvml.NVMLError as error:
        return {"fault": str(error)}
    finally:
        pynvml.nvmlGpmSampleFree(first)
        pynvml.nvmlGpmSampleFree(second)


def _metric(first: Any, second: Any, number: int) -> float | None:
    query = pynvml.c_nvmlGpmMetricsGet_t()
    query.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    query.numMetrics = 1
    query.sample1, query.sample2 = first, second
    query.metrics[0].metricId = number
    pynvml.nvmlGpmMetricsGet(query)
    metric = query.metrics[0]
    return float(metric.value) if metric.nvmlReturn == pynvml.NVML_SUCCESS else None


def calls(handle: Any) -> Iterator[dict[str, Any] | None]:
    """Yield the cost of each call that the agent makes, those that are not offered left out."""
    now_us = time.time_ns() // 1000
    asked: dict[str, Callable[[], Any]] = {
        "energy": lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle),
        "power": lambda: pynvml.nvmlDeviceGetPowerUsage(handle),
        "utilisation": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle),
        "sm_clock": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "memory": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2),
        "processes": lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle),
        "process_utilisation": lambda: _process_use(handle, now_us - 1_000_000),
        "mig_mode": lambda: pynvml.nvmlDeviceGetMigMode(handle),
        "uuid": lambda: pynvml.nvmlDeviceGetUUID(handle),
        "gpm_sample": lambda: _gpm_sample(handle),
    }
    for name, function in asked.items():
        yield _cost(name, function)


def _process_use(handle: Any, since_us: int) -> None:
    try:
        pynvml.nvmlDeviceGetProcessUtilization(handle, since_us)
    except pynvml.NVMLError as error:
        # No process, or no news of any: the call itself has cost what it costs.
        if error.value not in (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND):
            raise


def _gpm_sample(handle: Any) -> None:
    sample = pynvml.nvmlGpmSampleAlloc()
    try:
        pynvml.nvmlGpmSampleGet(handle, sample)
    finally:
        pynvml.nvmlGpmSampleFree(sample)


def _cost(name: str, function: Callable[[], Any]) -> dict[str, Any] | None:
    times: list[float] = []
    until = time.monotonic() + CALLS_S
    try:
        while len(times) < CALLS and time.monotonic() < until:
            begun = time.perf_counter()
            function()
            times.append(1e6 * (time.perf_counter() - begun))
    except pynvml.NVMLError:
        return None
    return {"name": name, "count": len(times), "us": spread(times)}


def agent_cost() -> dict[str, Any]:
    """Return what a visit of the agent's own source costs, as it samples every 10 s."""
    try:
        from fairwatt.accounting.agent.daemon import observe
        from fairwatt.accounting.agent.nvml import NvmlSource
        from fairwatt.core.catalogue import load_catalogue
    except ImportError as error:
        return {"fault": str(error)}
    source = NvmlSource("probe", load_catalogue())
    uuids = [device.uuid for device in source.devices()]
    kinds = {"hook": (True, None), "sample": (True, ())}
    result: dict[str, Any] = {"gpus": len(uuids)}
    for kind, (with_utils, shared) in kinds.items():
        times, cpu_s = [], time.process_time()
        until = time.monotonic() + CALLS_S
        while len(times) < CALLS and time.monotonic() < until:
            begun = time.perf_counter()
            observe(source, uuids, False, with_utils, shared)
            times.append(1e6 * (time.perf_counter() - begun))
        cpu_us = 1e6 * (time.process_time() - cpu_s) / len(times)
        result[kind] = {"us": spread(times), "cpu_us": round(cpu_us)}
    of_a_core = result["sample"]["cpu_us"] / (1e6 * AGENT_SAMPLE_S)
    result["core_permille_at_10_s"] = round(1000 * of_a_core, 3)
    result["max_rss_kib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return result


def given(function: Callable[..., Any], *arguments: object) -> Any:
    """Return what NVML gives; None where it does not offer it, or not to us."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value not in (
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            pynvml.NVML_ERROR_NO_PERMISSION,
        ):
            raise
        return None


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Return least, median, 99th percentile and most; None of nothing.

    >>> spread([3, 1, 2])
    {'min': 1, 'median': 2, 'p99': 3, 'max': 3}
    """
    if not values:
        return None
    ordered = sorted(values)
    at = {
        "min": ordered[0],
        "median": statistics.median(ordered),
        "p99": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
        "max": ordered[-1],
    }
    return {name: round(value, 2) for name, value in at.items()}


if __name__ == "__main__":
    sys.exit(main())
