# SPDX-License-Identifier: Apache-2.0
"""What one GPU's share of a node is: CPUs and memory, from the site's table or from its nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from fairwatt.slurm_plugins.pool import Kind, Pool
from fairwatt.slurm_plugins.site import Site

__all__ = ["DEFAULT", "Share", "of_node", "of_table", "whole_gb"]

DEFAULT = "default"
"""The key of a table that holds for every type that it does not name."""


class Share(msgspec.Struct, frozen=True):
    """CPUs and memory in MiB; None: not known, or not limited."""

    cpus: int | None = None
    mem_mib: int | None = None


def of_table(table: Mapping[str, float], type_: str | None, site: Site) -> float | None:
    """A type's entry; a slice without one gets its thousandths of its board's or the default."""
    if type_ is not None and type_ in table:
        return table[type_]
    known = site.types.get(type_)
    whole = table.get(DEFAULT)
    if known is not None and known.model is not None:
        same = (value for name, value in table.items() if _model(name, site) == known.model)
        whole = next(same, whole)
    if whole is None:
        return None
    return whole * (known.milli if known else 1000) / 1000


def of_node(pool: Pool, type_: str | None, site: Site) -> Share:
    """What every node of the pool that has the type can give to one; all boards count alike."""
    share = pool.shares.get(type_)
    if not isinstance(share, Share):
        share = _of_node(pool, type_, site)
        if type_ is None or type_ in pool.types:  # other names are the users' to choose
            pool.shares[type_] = share
    return share


def _of_node(pool: Pool, type_: str | None, site: Site) -> Share:
    kinds = [kind for kind, _ in pool.kinds if kind.count(type_)]
    memory = _least(kinds, type_, site, lambda kind: kind.mem_mib)
    return Share(
        _least(kinds, type_, site, lambda kind: kind.cpus),
        None if memory is None else whole_gb(memory),
    )


def whole_gb(mib: int) -> int:
    """Round memory down to whole GB, as people write it; less than one stays."""
    return mib - mib % 1024 if mib >= 1024 else mib


def _least(
    kinds: list[Kind], type_: str | None, site: Site, amount: Callable[[Kind], int | None]
) -> int | None:
    known = site.types.get(type_)
    milli = known.milli if known else 1000
    found = [
        None if held is None else max(1, held * milli // (1000 * _boards(kind, site)))
        for kind in kinds
        for held in [amount(kind)]
    ]
    return None if None in found or not found else min(each for each in found if each is not None)


def _boards(kind: Kind, site: Site) -> int:
    """Boards of a node: whole ones, and what its slices fill together.

    Seven sevenths add up to 1001 thousandths, hence the tolerance.
    """
    milli = sum(site.types[stock.type].milli * stock.count for stock in kind.gpus)
    return max(1, -(-milli * 997 // 1_000_000))


def _model(type_: str, site: Site) -> str | None:
    model = site.catalogue.model_of_type(type_)
    return model.key if model else None
