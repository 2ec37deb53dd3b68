# SPDX-License-Identifier: Apache-2.0
"""Steers the fake NVML library of one node by appending facts to its control file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.fakes.gpu_load import STEP_MS, append, ceil_step, next_step
from tests.fakes.mig_profiles import profile_facts
from tests.fakes.nvml_conditions import Conditions
from tests.fakes.nvml_truth import Truth, read_truth

__all__ = ["FEATURES", "LIBRARY", "FakeNvml", "environment", "pci_slot"]

LIBRARY = Path(__file__).resolve().parents[2] / "build" / "fakes" / "libnvidia-ml.so.1"
"""Where `make fakes` puts the library."""
FEATURES: dict[str, tuple[str, ...]] = {
    "energy": ("nvmlDeviceGetTotalEnergyConsumption", "field:83", "field:191"),
    "power": ("nvmlDeviceGetPowerUsage", "field:185", "field:186"),
    "util": ("nvmlDeviceGetUtilizationRates",),
    "processes": ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetProcessUtilization"),
    "memory": ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"),
    "gpm": ("nvmlGpmQueryDeviceSupport", "nvmlGpmSampleGet", "nvmlGpmMigSampleGet"),
    "minor": ("nvmlDeviceGetMinorNumber",),
    "temperature": ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"),
}
"""Short names for `unsupport`; any other name is taken as an NVML function's or as `field:ID`."""
_PCI_BUSES = (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)
_NOT_SUPPORTED = 3


def environment(control: Path) -> dict[str, str]:
    """Return the variables that make a program load the fake library with this control file."""
    return {"LD_LIBRARY_PATH": str(LIBRARY.parent), "FAIRWATT_FAKE_NVML": str(control)}


class FakeNvml(Conditions):
    """The fake devices of one node.

    Facts that change an integral (power, utilisation, reset) take effect at the next 100 ms step,
    or at the step at or after `at_ms` if that is later; the time used is returned. All others take
    effect with the next call into the library. Times are UTC epoch milliseconds. Several objects
    and processes may write one file at once.

    Args:
        path: the control file; made, writable for all (job users raise the power), if missing.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.exists():
            self.path.touch()
            self.path.chmod(0o666)

    @property
    def env(self) -> dict[str, str]:
        """The environment for a program that shall see these devices."""
        return environment(self.path)

    # --- devices -----------------------------------------------------------------------------
    def add_gpu(
        self,
        index: int,
        uuid: str,
        minor: int,
        name: str,
        memory_mib: int,
        arch: str,
        mig: bool = False,
        idle_mw: int = 50_000,
        *,
        max_mw: int = 400_000,
        counter_start_mj: int = 0,
        c2c: bool = False,
        pci: str | None = None,
    ) -> None:
        """Add a GPU whose counter starts now at counter_start_mj.

        Args:
            arch: kepler, maxwell, pascal, volta, turing, ga100 (A100, A30), ampere (the others of
                that generation), ada, hopper or blackwell.
            c2c: the counter covers a whole module of GPU and CPU (GH200).
            pci: domain:bus:slot in hexadecimal; by default one that fits the NVML index.
        """
        place = pci or pci_slot(index)

        def compose(now_ms: int) -> list[str]:
            at_ms = next_step(now_ms) - STEP_MS
            return [
                f"gpu {_word(uuid)} {at_ms} {index} {minor} {_word(arch)} {memory_mib} {mig:d} "
                f"{idle_mw} {max_mw} {counter_start_mj} {c2c:d} {_word(place)} {_text(name)}",
                *profile_facts(uuid, name, memory_mib),
            ]

        append(self.path, compose)

    def add_instance(
        self,
        gpu_uuid: str,
        gi: int,
        ci: int,
        uuid: str,
        profile: str,
        slices: int,
        memory_mib: int,
        sms: int,
        *,
        index: int | None = None,
        copy_engines: int | None = None,
        decoders: int = 0,
    ) -> None:
        """Add a MIG instance, at the lowest free MIG index of its GPU unless `index` is given.

        A GPU instance that is not there yet is made with it, at the place that its id stands for
        if that is legal and free, else at the first one that is.
        """
        place = "-" if index is None else index
        engines = slices if copy_engines is None else copy_engines
        self._say(
            f"instance {_word(uuid)} {_word(gpu_uuid)} {gi} {ci} {place} {slices} {memory_mib} "
            f"{sms} {engines} {decoders} {_text(profile)}"
        )

    def remove_instance(self, uuid: str) -> int:
        """Destroy a MIG instance: its handle is void at once, its power ends at the step.

        A GPU instance that `add_instance` made goes with its last compute instance.
        """
        return self._at(None, lambda at_ms: [*_end_load(uuid, at_ms), f"remove-instance {uuid}"])

    def clear_instances(self, gpu_uuid: str) -> int:
        """Destroy all instances of a board, as a reboot does; return the step of their last power.

        The MIG mode stays.
        """
        uuids = self.truth().gpus[gpu_uuid].instances
        return self._at(
            None,
            lambda at_ms: [
                *(f"power {uuid} {at_ms} 0" for uuid in sorted(uuids)),
                f"clear-instances {gpu_uuid}",
            ],
        )

    def set_mig_mode(self, gpu_uuid: str, current: bool, pending: bool) -> None:
        """Set the MIG mode that is in force, and the one that the next reset would bring."""
        self._say(f"mig {_word(gpu_uuid)} {current:d} {pending:d}")

    # --- load --------------------------------------------------------------------------------
    def set_power(self, uuid: str, mw: int, at_ms: int | None = None) -> int:
        """Set a GPU's base power, or what a MIG instance adds to it; return the step used."""
        return self._at(at_ms, lambda used_ms: [f"power {_word(uuid)} {used_ms} {mw}"])

    def set_util(
        self,
        uuid: str,
        percent: int,
        at_ms: int | None = None,
        *,
        memory: int | None = None,
        sm: int | None = None,
        occupancy: int | None = None,
        dram: int | None = None,
    ) -> int:
        """Set utilisation in whole percent; return the step used.

        What is not given follows from `percent`: SM activity equals it, the rest is half of it.
        """
        half = percent // 2
        rest = [half if value is None else value for value in (occupancy, dram)]
        words = [percent, half if memory is None else memory, percent if sm is None else sm, *rest]
        numbers = " ".join(map(str, words))
        return self._at(at_ms, lambda used_ms: [f"util {_word(uuid)} {used_ms} {numbers}"])

    def set_temperature(self, gpu_uuid: str, celsius: int) -> None:
        """Set a GPU's temperature (35 °C until then)."""
        self._say(f"temperature {_word(gpu_uuid)} {celsius}")

    def add_process(
        self, uuid: str, pid: int, memory_mib: int | None = None, sm_util: int = 0
    ) -> None:
        """Let a process use a device; memory None is "not available", as in some containers."""
        self._say(
            f"process {_word(uuid)} {pid} {'-' if memory_mib is None else memory_mib} {sm_util}"
        )

    def remove_process(self, uuid: str, pid: int) -> None:
        """Let a process leave a device."""
        self._say(f"process-gone {_word(uuid)} {pid}")

    # --- faults ------------------------------------------------------------------------------
    def reset(self, gpu_uuid: str, at_ms: int | None = None) -> int:
        """Reset a GPU: its energy counter begins at 0, a pending MIG mode is in force.

        Its instances stay (a real reset needs a board without any). Return the step used.
        """
        return self._at(at_ms, lambda used_ms: [f"reset {_word(gpu_uuid)} {used_ms}"])

    def lose(self, gpu_uuid: str) -> None:
        """Let a GPU fall off the bus: every call on it fails with GPU_IS_LOST (15)."""
        self._say(f"health {_word(gpu_uuid)} lost")

    def require_reset(self, gpu_uuid: str) -> None:
        """Let every call on a GPU fail with RESET_REQUIRED (16)."""
        self._say(f"health {_word(gpu_uuid)} reset-required")

    def heal(self, gpu_uuid: str) -> None:
        """Let a GPU answer again; its counter goes on."""
        self._say(f"health {_word(gpu_uuid)} ok")

    def driver(self, loaded: bool) -> None:
        """Unload or load the driver.

        Unloaded, every call fails with DRIVER_NOT_LOADED (9). Loading restarts every counter at 0,
        and clients from before get UNINITIALIZED (1) until they call nvmlInit again.
        """
        append(self.path, lambda now_ms: [f"driver {now_ms} {loaded:d}"])

    def hide_symbol(self, name: str) -> None:
        """Let a function look as if an old driver lacked it: FUNCTION_NOT_FOUND (13)."""
        self._say(f"hide {_word(name)}")

    def show_symbol(self, name: str) -> None:
        """Take `hide_symbol` back."""
        self._say(f"show {_word(name)}")

    def fail(self, function: str, code: int, uuid: str = "*") -> None:
        """Let a function (or `field:ID`) return a code on a device ("*": all); 0 takes it back."""
        self._say(f"fail {_word(function)} {_word(uuid)} {code}")

    def unsupport(self, what: str, uuid: str = "*") -> None:
        """Let a feature (see FEATURES) or function be NOT_SUPPORTED (3) on a device."""
        self._say(*(f"fail {name} {_word(uuid)} {_NOT_SUPPORTED}" for name in _functions(what)))

    def support(self, what: str, uuid: str = "*") -> None:
        """Take `unsupport` back."""
        self._say(*(f"fail {name} {_word(uuid)} 0" for name in _functions(what)))

    def slow(self, function: str, delay_ms: int) -> None:
        """Let every call of a function hang for delay_ms first; 0 takes it back."""
        self._say(f"slow {_word(function)} {delay_ms}")

    def kill(self, function: str, when: str, count: int = 1) -> None:
        """Kill (SIGKILL) the process that makes the count-th call of a function; 0: take it back.

        Args:
            function: one that changes MIG (create, destroy, set the mode).
            when: "before" its effect, or "after" it succeeded and before it returns.
        """
        self._say(f"kill {_word(function)} {_word(when)} {count}")

    def set_clock(self, t_ms: int | None) -> None:
        """Stop the library's clock (and this object's) at t_ms; None lets real time run again."""
        self._say(f"clock {'real' if t_ms is None else t_ms}")

    # --- truth -------------------------------------------------------------------------------
    def truth(self) -> Truth:
        """Return all that the file says about energy, for several questions at one moment."""
        return read_truth(self.path.read_text(encoding="utf-8"))

    def energy_mj(self, gpu_uuid: str, t_ms: int) -> int:
        """Return what the GPU's energy counter shows at t_ms."""
        return self.truth().counter_mj(gpu_uuid, t_ms)

    def integral_mj(self, uuid: str, t0_ms: int, t1_ms: int) -> float:
        """Return the energy in [t0_ms, t1_ms) of a board, or what an instance added to it."""
        return self.truth().area_uj(uuid, t0_ms, t1_ms) / 1000

    def power_mw(self, uuid: str, t_ms: int) -> int:
        """Return the power of a board, or what an instance adds, at t_ms."""
        return self.truth().power_mw(uuid, t_ms)

    # -----------------------------------------------------------------------------------------
    def _say(self, *lines: str) -> None:
        append(self.path, lambda _now_ms: lines)

    def _at(self, at_ms: int | None, compose: Callable[[int], list[str]]) -> int:
        used_ms = 0

        def timed(now_ms: int) -> list[str]:
            nonlocal used_ms
            used_ms = max(next_step(now_ms), ceil_step(at_ms or 0))
            return compose(used_ms)

        append(self.path, timed)
        return used_ms


def _end_load(uuid: str, at_ms: int) -> list[str]:
    return [f"power {_word(uuid)} {at_ms} 0", f"util {uuid} {at_ms} 0 0 0 0 0"]


def _functions(what: str) -> tuple[str, ...]:
    return FEATURES.get(what, (_word(what),))


def pci_slot(index: int) -> str:
    """Return domain:bus:slot of the board at an NVML index: NVML counts in their order."""
    bus = _PCI_BUSES[index] if index < len(_PCI_BUSES) else 0xC0 + index
    return f"0000:{bus:02x}:00"


def _word(text: str) -> str:
    if text.split() != [text]:
        raise ValueError(f"a fact's word must be one word without blanks, not {text!r}")
    return text


def _text(text: str) -> str:
    if not text or text != " ".join(text.split()):
        raise ValueError(f"a fact's text must be words with single blanks, not {text!r}")
    return text
