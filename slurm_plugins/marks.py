# SPDX-License-Identifier: Apache-2.0
"""Node features that mark GPU types: every node that has only the type, and no other GPU node.

A feature counts only if its name says so, too: that all nodes of a rack have one type today is
no promise for tomorrow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fairwatt.slurm_plugins.site import Pool, Site

__all__ = ["marking"]


def marking(pool: Pool, types: Collection[str], word: str, site: Site) -> list[str] | None:
    """The features that mark exactly the nodes with these types: one for all, or one for each.

    `word` is what the user wrote; a feature of that name may stand for all. None: there are none.
    """
    wanted = frozenset[str | None](types)
    whole = [f for f in _exact(pool, wanted) if f.casefold() == word.casefold()]
    if whole:
        return [whole[0]]
    found = [_named_after(type_, pool, site) for type_ in types]
    return None if None in found else [name for name in found if name is not None]


def _named_after(type_: str, pool: Pool, site: Site) -> str | None:
    """The feature of one type: of its own name, else of its model, else with it in its name."""
    exact = sorted(_exact(pool, frozenset({type_})))
    model = site.types[type_].model
    tests = (
        lambda name: name.casefold() == type_.casefold(),
        lambda name: model is not None and _model(name, site) == model,
        lambda name: type_.casefold() in name.casefold(),
    )
    return next((name for test in tests for name in exact if test(name)), None)


def _model(name: str, site: Site) -> str | None:
    found = site.catalogue.model_of_type(name)
    return None if found is None else found.key


def _exact(pool: Pool, types: frozenset[str | None]) -> Iterable[str]:
    """The features whose GPU nodes are those that have no other types than these."""
    nodes = sum(count for held, count in pool.holdings.items() if held <= types)
    return (name for name, (held, count) in pool.marks.items() if held <= types and count == nodes)
