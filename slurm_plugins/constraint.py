# SPDX-License-Identifier: Apache-2.0
"""Jobs' constraints on node features (`-C`), as far as they are groups joined by AND.

Slurm reads `a&b|c` strictly from left to right, counts nodes in `[a*2&b*3]` and has no nested
brackets. Only what means the same under every reading is understood here: names and
OR-groups, joined by `&` or `,`. The rest is left to Slurm.

>>> combined("ib", ["a100", "h100"])
'ib&(a100|h100)'
>>> combined("skylake|cascade", ["a100", "h100"])
'(skylake|cascade)&(a100|h100)'
>>> combined("[rack1|rack2]", ["a100", "h100"]) is None
True
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

__all__ = ["Groups", "combined", "groups", "holds", "same_for_all"]

Groups = tuple[frozenset[str], ...]
"""A node satisfies a constraint if it has a feature of every group."""

_NAME = r"[^\s&|,()\[\]*]+"
_LIST = rf"{_NAME}(?:\|{_NAME})*"
_TERM = re.compile(rf"({_NAME})|\(({_LIST})\)|\[({_LIST})\]")
_ALTERNATIVES = re.compile(rf"{_NAME}(?:\|{_NAME})+")
MAX_CONSTRAINT_BYTES = 1000


def groups(text: str | None) -> Groups | None:
    """Read a constraint; None: it means more than groups can say.

    `[a|b]`, one feature for all nodes of a job, is read as what it asks of each node.
    """
    if not text:
        return ()
    if len(text) > MAX_CONSTRAINT_BYTES:
        return None
    if _ALTERNATIVES.fullmatch(text):
        return (frozenset(text.split("|")),)
    found = [_TERM.fullmatch(part) for part in re.split("[&,]", text)]
    if None in found:
        return None
    return tuple(
        frozenset(next(filter(None, match.groups())).split("|"))
        for match in found
        if match is not None
    )


def combined(text: str | None, names: Sequence[str]) -> str | None:
    """Add "one of these features" to a constraint; None: it cannot be done safely."""
    one_of = f"({'|'.join(names)})" if len(names) > 1 else names[0]
    if not text:
        return one_of
    own = groups(text)
    if own is None or "[" in text:
        return None
    if any(group.issubset(names) for group in own):
        return text
    whole = f"({text})" if _ALTERNATIVES.fullmatch(text) else text
    return f"{whole}&{one_of}"


def same_for_all(text: str | None) -> bool:
    """Whether a constraint asks for one feature that all nodes of the job share: `[a|b]`."""
    match = _TERM.fullmatch(text or "")
    return match is not None and match[3] is not None


def holds(wanted: Iterable[frozenset[str]], features: Collection[str]) -> bool:
    """Whether a node with these features satisfies every group."""
    return all(not group.isdisjoint(features) for group in wanted)
