# SPDX-License-Identifier: Apache-2.0
"""What a node should have: by gres.conf and slurm.conf, by mig.toml, by the recorded baseline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.conf_lines import read_conf
from fairwatt.core.gres_conf import devices_of_node, gres_of_node
from fairwatt.prolog.health.baseline import Baseline, read_baseline
from fairwatt.prolog.health.reading import Expected, Gpu, plain_profile
from fairwatt.prolog.health.settings import HealthSettings
from fairwatt.prolog.mig.layout import NodeLayout
from fairwatt.prolog.mig.layout_file import load_layouts

__all__ = ["boards_of_files", "expected_of", "read_expected"]

_BOARD = re.compile(r"/nvidia(\d+)$")


def read_expected(settings: HealthSettings, gpus: Sequence[Gpu]) -> Expected:
    """Return what is said of this node, read anew.

    Raises:
        FairwattError: one of the files cannot be read.
    """
    baseline = read_baseline(settings.folder)
    count, count_from = _count(settings)
    declared = None
    if settings.mig_file.exists():
        catalogue = load_catalogue(settings.catalogue_dir)
        declared = load_layouts(settings.mig_file, catalogue).of_node(settings.node)
    return expected_of(baseline, count, count_from, declared, str(settings.mig_file), gpus)


def expected_of(
    baseline: Baseline | None,
    count: int | None,
    count_from: str,
    declared: NodeLayout | None,
    declared_in: str,
    gpus: Iterable[Gpu],
) -> Expected:
    """Put together what the sources say; mig.toml goes before the baseline."""
    boards = baseline.boards if baseline else ()
    profiles = {board.uuid: board.profiles for board in boards if board.profiles is not None}
    if declared is not None:
        profiles |= {
            gpu.uuid: tuple(sorted(plain_profile(piece.profile) for piece in layout.pieces))
            for gpu in gpus
            if (layout := declared.of_gpu(gpu.minor, gpu.uuid)) is not None
        }
    return Expected(
        count=count,
        count_from=count_from,
        boards={board.uuid: board.pci for board in boards} if baseline else None,
        links={board.uuid: board.links for board in boards if board.links is not None},
        limits_mw={board.uuid: board.limit_mw for board in boards if board.limit_mw is not None},
        profiles=profiles,
        profiles_from="the baseline" if declared is None else declared_in,
    )


def _count(settings: HealthSettings) -> tuple[int | None, str]:
    """How many boards Slurm is told of, and by which file."""
    if settings.gres_conf.exists():
        devices = devices_of_node(read_conf(settings.gres_conf), settings.node)
        count = boards_of_files(name for device in devices for name in device.files)
        if count:
            return count, str(settings.gres_conf)
    if settings.slurm_conf.exists():
        gres = gres_of_node(read_conf(settings.slurm_conf), settings.node)
        gpus = [item for item in gres if item.name == "gpu"]
        # Slices stand there by their own type: how many boards they are cut from is not said.
        if gpus and not any(re.search(r"\dg\.\d", item.type or "") for item in gpus):
            return sum(item.count or 1 for item in gpus), str(settings.slurm_conf)
    return None, ""


def boards_of_files(names: Iterable[str]) -> int:
    """Return how many boards these device files belong to (/dev/nvidia0, not the caps)."""
    return len({match[1] for name in names if (match := _BOARD.search(name))})
