# SPDX-License-Identifier: Apache-2.0
"""How slurmd names what NVML shows, and how a site spells a GRES type; pure.

slurmd (22.05 to 25.11, gpu_nvml.c) takes NVML's name in lower case with `_` for spaces; for a MIG
device it cuts that at the first `-` and adds `_Ng.Mgb`, with the memory rounded to GiB and without
`+me`. So an `NVIDIA A100-SXM4-40GB` has nvidia_a100_1g.5gb, but an `NVIDIA H100 80GB HBM3` has
nvidia_h100_80gb_hbm3_1g.10gb, of which h100_1g.10gb is no part. A type of slurm.conf is used if
it is a substring of the detected name, longest types first.

>>> detected_name("NVIDIA H100 80GB HBM3", "1g.10gb")
'nvidia_h100_80gb_hbm3_1g.10gb'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fairwatt.core.catalogue import Catalogue, GpuModel
from fairwatt.prolog.mig.live import LiveGpu

__all__ = ["Spelling", "detected_name", "detected_names", "normalised", "slice_word"]


def detected_name(nvml_name: str, profile: str | None = None) -> str:
    """Return slurmd's name of a board (profile None), or of a MIG device of it."""
    name = nvml_name.strip().lower().replace(" ", "_").replace("\t", "_")
    return name if profile is None else f"{name.partition('-')[0]}_{slice_word(profile)}"


def slice_word(profile: str) -> str:
    """Return a profile as Slurm writes it: without `+me`."""
    return profile.partition("+")[0]


def detected_names(gpu: LiveGpu) -> list[str]:
    """Return the names under which slurmd's AutoDetect=nvml finds a board and its instances."""
    if not gpu.mig:
        return [detected_name(gpu.name)]
    usable = [each for each in gpu.instances if each.ci is not None]
    return [detected_name(gpu.name, each.seen_profile) for each in usable]


def normalised(types: Iterable[str | None], detected: Sequence[str]) -> list[str | None]:
    """Return the type that slurmd gives each detected device, in their order; None: it is ignored.

    `types` has one entry per configured device (None: untyped). This is what slurmd does: both
    lists longest first, each device takes the first type left that is a substring of its name.
    """
    left = sorted(types, key=lambda type_: (-len(type_ or ""), type_ or ""))
    found: dict[int, str | None] = {}
    for place in sorted(range(len(detected)), key=lambda i: (-len(detected[i]), detected[i])):
        name = detected[place].lower()
        match = next((type_ for type_ in left if (type_ or "").lower() in name), None)
        fits = match is not None or None in left
        if fits:
            left.remove(match)
        found[place] = (match or "") if fits else None
    return [found[place] for place in range(len(detected))]


@dataclass(frozen=True)
class Spelling:
    """How a site spells GRES types.

    Attributes:
        catalogue: models and profiles.
        words: by a model's key, as mig.toml's [types] says.
        known: types that are in use, of slurm.conf first.
        must_match: types must be substrings of the detected names (AutoDetect=nvml).
    """

    catalogue: Catalogue
    words: Mapping[str, str] = field(default_factory=dict)
    known: tuple[str, ...] = ()
    must_match: bool = False

    def type_of(
        self, model: GpuModel, profile: str | None = None, detected: str | None = None
    ) -> str:
        """Return the type of a whole board (profile None) or of a slice of it.

        `detected` is slurmd's name for it, where it is known.
        """
        word = self.word(model)
        plain = word if profile is None else self._slice(model, word, slice_word(profile))
        if not self.must_match or detected is None or plain.lower() in detected.lower():
            return plain
        return _tail(detected, [word, *model.aliases])

    def word(self, model: GpuModel) -> str:
        """Return the site's word for a model: of [types], else in use, else the catalogue's."""
        if model.key in self.words:
            return self.words[model.key]
        whole = [type_ for type_ in self.known if model in self.catalogue.models_of_type(type_)]
        heads = [head for head in self._heads(model) if head]
        if whole or heads:
            return _commonest(whole or heads)
        return model.aliases[0] if model.aliases else model.key

    def _slice(self, model: GpuModel, word: str, profile: str) -> str:
        heads = [] if model.key in self.words else self._heads(model)
        head = _commonest(heads) if heads else word
        return f"{head}_{profile}" if head else profile

    def _heads(self, model: GpuModel) -> list[str]:
        """What stands before the profile in the slice types in use; "" where nothing does."""
        parts = [_split(type_) for type_ in self.known]
        profiles = {slice_word(profile.name) for profile in model.profiles}
        return [
            head
            for head, profile in parts
            if profile in profiles and (not head or model in self.catalogue.models_of_type(head))
        ]


def _split(type_: str) -> tuple[str, str]:
    """A slice's type as head and profile: a100_1g.5gb, 1g.5gb."""
    head, _, tail = type_.rpartition("_")
    return head, tail.lower()


def _commonest(words: Sequence[str]) -> str:
    counts = Counter(words)
    return max(counts, key=lambda word: (counts[word], -len(word), word))


def _tail(detected: str, words: Iterable[str]) -> str:
    """The detected name from the model's word on; if it has none, all but the vendor."""
    for word in words:
        place = detected.lower().find(word.lower())
        if word and place >= 0:
            return detected[place:]
    return detected.removeprefix("nvidia_")
