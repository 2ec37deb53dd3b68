# SPDX-License-Identifier: Apache-2.0
"""The catalogue of GPU models and MIG profiles: data files, which a site can extend.

Memory sizes are nominal, as people and profile names say them (3g.20gb = 20 x 1024 MiB);
what a program can use is a few per cent less and differs by driver.

>>> load_catalogue().slice_type("nvidia_a100_3g.20gb")[1].compute_slices
3
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairwatt.core import catalogue_data
from fairwatt.core.errors import CatalogueError

__all__ = ["Catalogue", "GpuModel", "MigProfile", "layout_is_legal", "load_catalogue"]

WHOLE_MILLI = 1000
# Not importlib.resources: it cannot read an editable install of packages without __init__.py.
_OWN_FILE = Path(__file__).with_name("data") / "gpus.toml"
_PROFILE = re.compile(r"(?:(\d)c\.)?(\d)g\.(\d{1,3})gb(\+me)?")
_MEMORY_TOLERANCE = 0.12
_WORDS_KEPT = 512
"""Readings of names that are kept: policyd asks for the same few with every job."""

_VENDOR_WORDS = ("nvidia-", "tesla-", "mig-", "gpu-")


@dataclass(frozen=True)
class MigProfile:
    """One way to cut a GPU instance: it takes `size` memory slices from one of `placements`.

    `media` marks the `+me` profiles, of which a board can hold one. `memory_slices` = `size`.
    """

    name: str
    memory_mib: int
    compute_slices: int
    memory_slices: int
    placements: tuple[int, ...]
    media: bool = False

    @property
    def size(self) -> int:
        """Memory slices taken; NVML calls it the size of a placement."""
        return self.memory_slices


@dataclass(frozen=True)
class GpuModel:
    """One board as sold: how NVML (`names`) and Slurm (`aliases`) call it, its slices and power.

    Boards without MIG have one slice of each kind and no profiles. Powers are defaults in mW
    of an idle board, of an idle board in MIG mode, and of the board's limit.
    """

    key: str
    title: str
    family: str
    names: tuple[str, ...]
    aliases: tuple[str, ...]
    memory_mib: int
    compute_slices: int
    memory_slices: int
    idle_mw: int
    idle_mig_mw: int
    max_mw: int
    profiles: tuple[MigProfile, ...] = ()

    def profile(self, name: str) -> MigProfile | None:
        """Return a profile by its name without the model (`3g.20gb`, `1g.5gb+me`), or None."""
        return next((item for item in self.profiles if item.name == name), None)


class Catalogue:
    """Models in the order of their files; the first wins where a name fits several."""

    def __init__(self, models: Iterable[GpuModel]) -> None:
        self.models: tuple[GpuModel, ...] = tuple(models)

    def model(self, key: str) -> GpuModel:
        """Return a model by key or by a Slurm type name.

        Raises:
            CatalogueError: no data file names it; the message offers the nearest.
        """
        for model in self.models:
            if model.key == key:
                return model
        named = self.model_of_type(key)
        if named is None:
            raise self._unknown(key)
        return named

    def family(self, name: str) -> tuple[GpuModel, ...]:
        """Return all models of a family (`ampere`), in order; unknown families are empty."""
        return tuple(model for model in self.models if model.family == name.lower())

    def model_of_name(self, nvml_name: str, memory_mib: int | None) -> GpuModel | None:
        """Return the model of a board by NVML's name and total memory in MiB.

        The longest fitting name wins among the models whose memory is within 12 per cent;
        None when no model fits.
        """
        plain = _plain(nvml_name)
        best: tuple[int, GpuModel] | None = None
        for model in self.models:
            length = max((len(name) for name in model.names if _holds(plain, name)), default=0)
            if length and _memory_fits(model, memory_mib) and (best is None or length > best[0]):
                best = (length, model)
        return None if best is None else best[1]

    def model_of_type(self, gres_type: str) -> GpuModel | None:
        """Return the model of a whole GPU by its Slurm type (`a100`, `nvidia_h100_80gb_hbm3`)."""
        return next(iter(self.models_of_type(gres_type)), None)

    def models_of_type(self, gres_type: str) -> tuple[GpuModel, ...]:
        """Return all models that a whole GPU's Slurm type can mean (`a100`: of 40 or 80 GB)."""
        return self._models_of_word(_word(gres_type))

    def slice_type(self, gres_type: str) -> tuple[GpuModel, MigProfile] | None:
        """Read a slice's Slurm type: `a100_3g.20gb`, `nvidia_a100_1g.5gb`, `1g.5gb`; else None.

        Where several models have the profile, the one that spends fewest memory slices on it
        is meant. `2c.3g.20gb` is a compute instance of 2 slices in a 3g GPU instance.
        """
        return _read_slice(self, gres_type)

    def memory_mib_of_type(self, gres_type: str) -> int | None:
        """Return the nominal memory in MiB of a Slurm type, whole board or slice; else None."""
        part = self.slice_type(gres_type)
        if part is not None:
            return part[1].memory_mib
        model = self.model_of_type(gres_type)
        return None if model is None else model.memory_mib

    def milli_of_type(self, gres_type: str) -> int | None:
        """Return thousandths of a board: 1000 for a whole one, 429 for 3 of 7 slices, or None."""
        part = self.slice_type(gres_type)
        if part is not None:
            return round(WHOLE_MILLI * part[1].compute_slices / part[0].compute_slices)
        return None if self.model_of_type(gres_type) is None else WHOLE_MILLI

    def _models_of_word(self, word: str) -> tuple[GpuModel, ...]:
        return _models_of_word(self, word)

    def _unknown(self, key: str) -> CatalogueError:
        known = [model.key for model in self.models]
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
        remedy = f"did you mean {near[0]}?" if near else "add it to a file in site.catalogue_dir"
        return CatalogueError("no such GPU model", place="catalogue", value=key, remedy=remedy)


@functools.lru_cache(maxsize=8)
def load_catalogue(extra_dir: str | None = None) -> Catalogue:
    """Return the models that come with fairwatt, changed and extended by `extra_dir`/*.toml.

    The result is kept per folder: a changed file is seen by the next process.

    Raises:
        CatalogueError: a file cannot be read or has a wrong key or value; it names both.
    """
    sources = [("core/data/gpus.toml", _text(_OWN_FILE))]
    if extra_dir:
        sources += [(str(path), _text(path)) for path in _extra_files(Path(extra_dir))]
    return Catalogue(_model(key, data) for key, data in catalogue_data.read(sources).items())


def layout_is_legal(model: GpuModel, layout: Sequence[tuple[str, int]]) -> bool:
    """Tell whether GPU instances (profile name, first memory slice) can exist at once on a board.

    Raises:
        CatalogueError: the model has no such profile.
    """
    used: set[int] = set()
    compute = media = 0
    for name, start in layout:
        profile = model.profile(name)
        if profile is None:
            raise _no_profile(model, name)
        slices = set(range(start, start + profile.size))
        if start not in profile.placements or used & slices:
            return False
        used |= slices
        compute += profile.compute_slices
        media += profile.media
    return compute <= model.compute_slices and media <= 1


def _no_profile(model: GpuModel, name: str) -> CatalogueError:
    known = ", ".join(item.name for item in model.profiles) or "none, it has no MIG"
    return CatalogueError(
        "no such MIG profile", place=model.key, value=name, remedy=f"known: {known}"
    )


@functools.lru_cache(maxsize=_WORDS_KEPT)
def _models_of_word(catalogue: Catalogue, word: str) -> tuple[GpuModel, ...]:
    return tuple(
        model
        for model in catalogue.models
        if word == model.key or word in model.aliases or word in model.names
    )


@functools.lru_cache(maxsize=_WORDS_KEPT)
def _read_slice(catalogue: Catalogue, gres_type: str) -> tuple[GpuModel, MigProfile] | None:
    plain = _plain(gres_type)
    match = _PROFILE.search(plain)
    if match is None or match.end() != len(plain):
        return None
    word = _strip_vendor(plain[: match.start()]).rstrip("-")
    models = catalogue._models_of_word(word) if word else catalogue.models
    name = f"{match[2]}g.{match[3]}gb{match[4] or ''}"
    found = [
        (model, profile) for model in models for profile in model.profiles if profile.name == name
    ]
    if not found:
        return None
    model, profile = min(found, key=lambda pair: pair[1].memory_slices)
    return model, _compute_part(profile, match[1])


def _compute_part(profile: MigProfile, slices: str | None) -> MigProfile:
    """Narrow a GPU instance to a compute instance of it, if the name has an `Nc.` part."""
    if slices is None:
        return profile
    return replace(profile, name=f"{slices}c.{profile.name}", compute_slices=int(slices))


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", name.strip().lower())


@functools.lru_cache(maxsize=_WORDS_KEPT)
def _word(gres_type: str) -> str:
    return _strip_vendor(_plain(gres_type))


def _strip_vendor(plain: str) -> str:
    for word in _VENDOR_WORDS:
        plain = plain.removeprefix(word)
    return plain


def _holds(plain: str, name: str) -> bool:
    """Whether `name` stands in `plain` as whole words: a100 is not in a1000."""
    return re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", plain) is not None


def _memory_fits(model: GpuModel, memory_mib: int | None) -> bool:
    if not memory_mib:
        return True
    return abs(memory_mib - model.memory_mib) <= _MEMORY_TOLERANCE * model.memory_mib


def _extra_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise CatalogueError(
            "no such folder",
            place="site.catalogue_dir",
            value=str(folder),
            remedy="create it or clear the setting",
        )
    return sorted(folder.glob("*.toml"))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogueError(f"cannot be read: {error}", place=str(path)) from error


def _model(key: str, data: catalogue_data.ModelData) -> GpuModel:
    values: Mapping[str, int] = {
        "memory_mib": data.memory_gb * 1024,
        "compute_slices": data.compute_slices,
        "memory_slices": data.memory_slices,
        "idle_mw": data.idle_w * 1000,
        "idle_mig_mw": data.idle_mig_w * 1000,
        "max_mw": data.max_w * 1000,
    }
    return GpuModel(
        key=key,
        title=data.title,
        family=data.family.lower(),
        names=tuple(_strip_vendor(_plain(name)) for name in data.nvml_names),
        aliases=tuple(_plain(name) for name in data.slurm_types),
        profiles=tuple(_profile(item) for item in data.profiles),
        **values,
    )


def _profile(item: catalogue_data.ProfileData) -> MigProfile:
    match = _PROFILE.fullmatch(item.name)
    assert match is not None, "catalogue_data checked the name"  # noqa: S101
    return MigProfile(
        name=item.name,
        memory_mib=int(match[3]) * 1024,
        compute_slices=int(match[2]),
        memory_slices=item.size,
        placements=item.starts,
        media=match[4] is not None,
    )
