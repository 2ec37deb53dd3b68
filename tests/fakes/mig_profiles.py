# SPDX-License-Identifier: Apache-2.0
"""The MIG profiles of a board as NVML tells them.

Names, sizes and places come from fairwatt's catalogue. What the catalogue has no use for is added
here: the ids that NVML gives the profiles, and the multiprocessors and engines of each.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairwatt.core.catalogue import GpuModel, MigProfile, load_catalogue

__all__ = ["NvmlProfile", "nvml_profiles", "profile_facts"]

_KINDS = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
"""NVML_GPU_INSTANCE_PROFILE_n_SLICE by compute slices."""
_MEDIA_KINDS = {1: 7, 2: 8}
_WIDE_KIND = 9
"""One compute slice with the memory of two: ..._1_SLICE_REV2."""
_IDS = {7: {0: 19, 7: 20, 9: 15, 1: 14, 2: 9, 3: 5, 4: 0}, 4: {0: 14, 7: 21, 1: 5, 8: 6, 3: 0}}
"""Profile ids by the board's compute slices and the kind, as nvidia-smi mig -lgip prints them."""
_SMS = {
    "ampere": {1: 14, 2: 28, 3: 42, 4: 56, 7: 98},
    "hopper": {1: 16, 2: 32, 3: 60, 4: 64, 7: 132},
    "blackwell": {1: 18, 2: 36, 3: 70, 4: 72, 7: 148},
}
_AMPERE_DECODERS = {1: 0, 2: 1, 3: 2, 4: 2, 7: 5}
_RESERVED_MIB = 256
"""What the driver keeps of an instance's nominal memory; twice that of four slices or more."""


@dataclass(frozen=True)
class NvmlProfile:
    """A GPU instance profile; `kind` is NVML's NVML_GPU_INSTANCE_PROFILE_* number."""

    name: str
    id: int
    kind: int
    size: int
    slices: int
    memory_mib: int
    sms: int
    copy_engines: int
    decoders: int
    starts: tuple[int, ...]


def nvml_profiles(nvml_name: str, memory_mib: int) -> tuple[NvmlProfile, ...]:
    """Return the profiles of a board by NVML's name and memory; none if it cannot do MIG."""
    model = load_catalogue().model_of_name(nvml_name, memory_mib)
    return tuple(_nvml_profile(model, each) for each in model.profiles) if model else ()


def profile_facts(gpu_uuid: str, nvml_name: str, memory_mib: int) -> list[str]:
    """Return the control file's `profile` facts of a board."""
    return [
        f"profile {gpu_uuid} {each.name} {each.id} {each.kind} {each.size} {each.slices} "
        f"{each.memory_mib} {each.sms} {each.copy_engines} {each.decoders} "
        f"{','.join(map(str, each.starts))}"
        for each in nvml_profiles(nvml_name, memory_mib)
    ]


def _nvml_profile(model: GpuModel, profile: MigProfile) -> NvmlProfile:
    slices, kind = profile.compute_slices, _kind(model, profile)
    reserved_mib = _RESERVED_MIB * (2 if profile.size >= 4 else 1)
    decoders = _AMPERE_DECODERS[slices] if model.family == "ampere" else slices
    return NvmlProfile(
        name=profile.name,
        id=_IDS[model.compute_slices][kind],
        kind=kind,
        size=profile.size,
        slices=slices,
        memory_mib=model.memory_mib // model.memory_slices * profile.size - reserved_mib,
        sms=_SMS[model.family][slices],
        copy_engines=slices,
        decoders=max(decoders, int(profile.media)),
        starts=profile.placements,
    )


def _kind(model: GpuModel, profile: MigProfile) -> int:
    if profile.media:
        return _MEDIA_KINDS[profile.compute_slices]
    narrow = min(p.size for p in model.profiles if p.compute_slices == profile.compute_slices)
    return _WIDE_KIND if profile.size > narrow else _KINDS[profile.compute_slices]
