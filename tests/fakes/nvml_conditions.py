# SPDX-License-Identifier: Apache-2.0
"""What a health check reads of a fake GPU: errors, links, clocks, limits, held memory."""

from __future__ import annotations

from typing import Literal

__all__ = ["NVLINK_ERRORS", "Conditions"]

NVLINK_ERRORS = ("replay", "recovery", "crc-flit", "crc-data", "ecc-data")
"""NVLink's error counters in the order of NVML's numbers 0 to 4."""


class Conditions:
    """The part of FakeNvml that makes a board sick and well; facts hold from the next call on.

    What no fact has told is as on a healthy board of its generation. Arguments that are not given
    change nothing; `set_condition(…, None)` and `make_healthy` take facts back.
    """

    def _say(self, *lines: str) -> None:
        raise NotImplementedError

    def set_condition(self, uuid: str, what: str, value: int | None) -> None:
        """Set one condition by its name (README); None: as on a healthy board."""
        self._set(uuid, **{what: "-" if value is None else str(value)})

    def make_healthy(self, gpu_uuid: str) -> None:
        """Take back all conditions, its instances' too, and a lost or to-be-reset state.

        The temperature is 35 °C again; processes, MIG and rules of `fail` and `slow` stay.
        """
        self._say(f"healthy {gpu_uuid}")

    # --- errors ------------------------------------------------------------------------------
    def set_ecc_errors(
        self,
        gpu_uuid: str,
        kind: Literal["corrected", "uncorrected"],
        *,
        volatile: int | None = None,
        aggregate: int | None = None,
        memory: Literal["dram", "sram"] = "dram",
    ) -> None:
        """Set ECC error counts since the driver's load (volatile) and over the board's life."""
        counts = {"volatile": volatile, "aggregate": aggregate}
        self._set_given(
            gpu_uuid, **{f"ecc.{kind}.{span}.{memory}": count for span, count in counts.items()}
        )

    def set_ecc_mode(self, gpu_uuid: str, current: bool, pending: bool | None = None) -> None:
        """Switch ECC; off, its counters are NotSupported. `pending` is the same if not given."""
        after = current if pending is None else pending
        self._set_given(gpu_uuid, **{"ecc.mode": current, "ecc.pending-mode": after})

    def set_retired_pages(
        self,
        gpu_uuid: str,
        *,
        single: int | None = None,
        double: int | None = None,
        pending: bool | None = None,
    ) -> None:
        """Set the pages retired for single and double bit errors (boards before Ampere only)."""
        pages = {"pages.single": single, "pages.double": double, "pages.pending": pending}
        self._set_given(gpu_uuid, **pages)

    def set_remapped_rows(
        self,
        gpu_uuid: str,
        *,
        corrected: int | None = None,
        uncorrected: int | None = None,
        pending: bool | None = None,
        failure: bool | None = None,
    ) -> None:
        """Set the remapped rows by the kind of error (Ampere and newer only)."""
        rows = {
            "rows.corrected": corrected,
            "rows.uncorrected": uncorrected,
            "rows.pending": pending,
            "rows.failure": failure,
        }
        self._set_given(gpu_uuid, **rows)

    def set_spare_rows(
        self, gpu_uuid: str, full: int, high: int, partial: int, low: int, none: int
    ) -> None:
        """Set how many memory banks have so many of their spare rows left."""
        names = ("max", "high", "partial", "low", "none")
        counts = (full, high, partial, low, none)
        self._set_given(
            gpu_uuid,
            **{f"banks.{name}": count for name, count in zip(names, counts, strict=True)},
        )

    # --- speed -------------------------------------------------------------------------------
    def set_clock_reasons(self, gpu_uuid: str, mask: int | None) -> None:
        """Set the bits of nvmlClocksEventReason…; None: GpuIdle (1) if idle, else 0."""
        self.set_condition(gpu_uuid, "reasons", mask)

    def set_clocks(
        self,
        gpu_uuid: str,
        *,
        sm_mhz: int | None = None,
        memory_mhz: int | None = None,
        max_sm_mhz: int | None = None,
        max_memory_mhz: int | None = None,
    ) -> None:
        """Set clocks; a healthy board has the highest ones when used and a low SM clock idle."""
        clocks = {
            "clock.sm": sm_mhz,
            "clock.memory": memory_mhz,
            "clock.max-sm": max_sm_mhz,
            "clock.max-memory": max_memory_mhz,
        }
        self._set_given(gpu_uuid, **clocks)

    def set_pcie(
        self,
        gpu_uuid: str,
        *,
        generation: int | None = None,
        width: int | None = None,
        max_generation: int | None = None,
        max_width: int | None = None,
        replays: int | None = None,
    ) -> None:
        """Set the PCIe link's generation, width in lanes, their maxima, and replays so far."""
        link = {
            "pcie.generation": generation,
            "pcie.width": width,
            "pcie.max-generation": max_generation,
            "pcie.max-width": max_width,
            "pcie.replays": replays,
        }
        self._set_given(gpu_uuid, **link)

    def set_nvlinks(self, gpu_uuid: str, count: int | None) -> None:
        """Set how many NVLinks a board has (0 to 18); None: as usual, none with a PCIe name."""
        self.set_condition(gpu_uuid, "nvlink.count", count)

    def set_nvlink(self, gpu_uuid: str, link: int, up: bool) -> None:
        """Set whether an NVLink is active."""
        self._say(f"nvlink {gpu_uuid} {link} {'up' if up else 'down'}")

    def set_nvlink_errors(self, gpu_uuid: str, link: int, kind: str, count: int) -> None:
        """Set an error counter (one of NVLINK_ERRORS) of an NVLink."""
        self._say(f"nvlink-error {gpu_uuid} {link} {kind} {count}")

    def set_power_limits(
        self,
        gpu_uuid: str,
        *,
        limit_mw: int | None = None,
        default_mw: int | None = None,
        min_mw: int | None = None,
        max_mw: int | None = None,
        enforced_mw: int | None = None,
    ) -> None:
        """Set power limits: set by the admin, default, constraints, in force."""
        limits = {
            "power.limit": limit_mw,
            "power.default": default_mw,
            "power.min": min_mw,
            "power.max": max_mw,
            "power.enforced": enforced_mw,
        }
        self._set_given(gpu_uuid, **limits)

    def set_power_sensor(self, gpu_uuid: str, shown_permille: int | None) -> None:
        """Let the power sensor show so much of what the counter counts; None: all of it."""
        self.set_condition(gpu_uuid, "power.shown-permille", shown_permille)

    # --- the rest ----------------------------------------------------------------------------
    def set_temperatures(
        self,
        gpu_uuid: str,
        *,
        memory_c: int | None = None,
        shutdown_c: int | None = None,
        slowdown_c: int | None = None,
        gpu_max_c: int | None = None,
        memory_max_c: int | None = None,
    ) -> None:
        """Set the memory's temperature and the thresholds; see also `set_temperature`."""
        temperatures = {
            "temperature.memory": memory_c,
            "temperature.shutdown": shutdown_c,
            "temperature.slowdown": slowdown_c,
            "temperature.gpu-max": gpu_max_c,
            "temperature.memory-max": memory_max_c,
        }
        self._set_given(gpu_uuid, **temperatures)

    def hold_memory(self, uuid: str, mib: int) -> None:
        """Let memory of a GPU or a MIG instance be used that no process accounts for."""
        self._set_given(uuid, **{"memory.held": mib})

    def set_persistence(self, gpu_uuid: str, enabled: bool) -> None:
        """Set the persistence mode (on until then)."""
        self._set_given(gpu_uuid, persistence=enabled)

    def set_versions(self, driver: str, nvml: str) -> None:
        """Set the driver's and the library's version, "580.95.05" and "13.580.95.05" until then.

        If the library's does not end in the driver's, nvmlInit fails with
        LIB_RM_VERSION_MISMATCH (18); who has it open goes on and reads both.
        """
        self._say(f"versions {driver} {nvml}")

    def _set_given(self, uuid: str, **values: int | None) -> None:
        self._set(uuid, **{what: str(int(v)) for what, v in values.items() if v is not None})

    def _set(self, uuid: str, **values: str) -> None:
        self._say(*(f"condition {uuid} {what} {value}" for what, value in values.items()))
