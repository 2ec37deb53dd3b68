# SPDX-License-Identifier: Apache-2.0
"""Asks NVML for the parts of a reading; every call may take long or never return.

All methods belong to one thread. What was read is in the draft at once, so that a call that hangs
hides nothing but itself and what comes after it.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pynvml

from fairwatt.prolog.health.draft import Draft
from fairwatt.prolog.health.nvml_parts import ABSENT, PARTS, pci_of
from fairwatt.prolog.health.reading import GPU_PARTS, BoardState, Gap, Gpu, Versions

__all__ = ["NvmlReader"]

_DEAD = (pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
_GONE: dict[int, BoardState] = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "lost",
    pynvml.NVML_ERROR_RESET_REQUIRED: "reset-required",
}
_KERNEL_VERSION = re.compile(r"^NVRM version:.*?\s(\d+\.\d[\d.]*)\s", re.MULTILINE)
_log = logging.getLogger(__name__)
_Handle = Any


class NvmlReader:
    """Initialises NVML when first needed, and anew after the driver went away.

    Args:
        proc_root: where the driver writes its version (/proc).
        known: the boards as an earlier process saw them: a lost one no longer tells its UUID.
    """

    def __init__(self, proc_root: Path, known: Iterable[Gpu] = ()) -> None:
        self._proc_root = proc_root
        self._ready = False
        self.known: tuple[Gpu, ...] = tuple(known)

    def read(self, draft: Draft) -> Draft:
        """Put all that the draft wants into it; whatever goes wrong is put as a Gap."""
        try:
            self._start()
        except pynvml.NVMLError as error:
            self._without(draft, error)
            return draft
        try:
            self._read(draft)
        except pynvml.NVMLError as error:
            self._note(error)
            draft.put_gpus(Gap("fault", f"NVML: {error}"))
        return draft

    def _start(self) -> None:
        if not self._ready:
            pynvml.nvmlInit()
            self._ready = True

    def _note(self, error: pynvml.NVMLError) -> None:
        if error.value in _DEAD and self._ready:
            self._ready = False
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def _without(self, draft: Draft, error: pynvml.NVMLError) -> None:
        """Put what can be said where NVML does not begin."""
        kernel = self._kernel_version()
        gap = Gap("fault", f"NVML: {error}")
        draft.put_gpus(gap)
        if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            draft.put_versions(Versions(kernel, None, "mismatch"))
        elif error.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED:
            draft.put_versions(Versions(kernel, None, "not-loaded"))
        else:
            draft.put_versions(gap)

    def _read(self, draft: Draft) -> None:
        pairs = list(self._boards(draft))
        draft.put_gpus(tuple(gpu for gpu, _ in pairs))
        if "versions" in draft.wanted:
            draft.put_versions(self._versions())
        parts = [part for part in GPU_PARTS if part in draft.wanted]
        for gpu, handle in pairs:
            if handle is not None:
                self._fill(draft, gpu.uuid, handle, parts)

    def _fill(self, draft: Draft, uuid: str, handle: _Handle, parts: Sequence[str]) -> None:
        for part in parts:
            try:
                draft.put_part(uuid, part, PARTS[part](handle))
            except pynvml.NVMLError as error:
                if error.value in _DEAD:
                    raise
                if error.value in _GONE:
                    draft.put_state(uuid, _GONE[error.value])
                    return
                kind: Literal["not-offered", "fault"] = (
                    "not-offered" if error.value in ABSENT else "fault"
                )
                draft.put_part(uuid, part, Gap(kind, f"{part}: {error}"))
            except Exception as error:
                _log.exception("%s: %s", uuid, part)
                draft.put_part(uuid, part, Gap("fault", f"{part}: {type(error).__name__}"))

    def _boards(self, draft: Draft) -> Iterator[tuple[Gpu, _Handle | None]]:
        """The boards in NVML's order; one that is lost or silent as it was seen before."""
        found: list[tuple[Gpu, _Handle]] = []
        gone: list[tuple[int, pynvml.NVMLError]] = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                found.append((_board(index, handle), handle))
            except pynvml.NVMLError as error:
                if error.value in _DEAD:
                    raise
                gone.append((index, error))
        there = {gpu.uuid for gpu, _ in found}
        lost = [_as_known(index, why, there, self.known) for index, why in gone]
        for gpu, (_, why) in zip(lost, gone, strict=True):
            if gpu.state == "silent":
                draft.put_part(gpu.uuid, "devices", Gap("fault", f"NVML: {why}"))
        self._remember([gpu for gpu, _ in found], lost)
        yield from found
        yield from ((gpu, None) for gpu in lost)

    def _remember(self, found: Sequence[Gpu], lost: Sequence[Gpu]) -> None:
        """Keep boards that vanished until others come in their place."""
        slots = {gpu.pci for gpu in found}
        before = [gpu for gpu in self.known if gpu.pci not in slots and gpu not in lost]
        self.known = (*found, *before)

    def _versions(self) -> Versions | Gap:
        try:
            kernel = str(pynvml.nvmlSystemGetDriverVersion())
            library = str(pynvml.nvmlSystemGetNVMLVersion())
        except pynvml.NVMLError as error:
            return Gap("not-offered" if error.value in ABSENT else "fault", f"versions: {error}")
        return Versions(kernel, library.partition(".")[2] or None)

    def _kernel_version(self) -> str | None:
        try:
            path = self._proc_root / "driver/nvidia/version"
            text = path.read_text(encoding="ascii", errors="replace")
        except OSError:
            return None
        match = _KERNEL_VERSION.search(text)
        return match[1] if match else None


def _board(index: int, handle: _Handle) -> Gpu:
    return Gpu(
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        index=index,
        minor=pynvml.nvmlDeviceGetMinorNumber(handle),
        pci=pci_of(handle),
        name=pynvml.nvmlDeviceGetName(handle),
    )


def _as_known(
    index: int,
    error: pynvml.NVMLError,
    there: set[str],
    known: Iterable[Gpu],
) -> Gpu:
    """The board that was at this NVML index before; one without a past has no UUID."""
    state = _GONE.get(error.value, "silent")
    for gpu in known:
        if gpu.index == index and gpu.uuid not in there:
            return Gpu(
                uuid=gpu.uuid,
                index=index,
                minor=gpu.minor,
                pci=gpu.pci,
                name=gpu.name,
                state=state,
            )
    return Gpu(uuid=f"NVML-index-{index}", index=index, minor=-1, pci="unknown", state=state)
