# SPDX-License-Identifier: Apache-2.0
"""What people want of GPUs, and by hand what their jobs must ask for afterwards.

Each intent is written in every form, in every spelling, at every entry point; the decision must
be the one that stands here. The site is the lab's (layout.py): partition gpu (the default) has
A100 and H100 boards, mig has slices of 5 and 20 GB on mig01, all has both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["INTENTS", "SPELLED", "Intent", "find_intent"]


@dataclass(frozen=True)
class Intent:
    """One wish: `type` as users write it (None: untyped), `count` None where they write none.

    `partition`, `node`, `exclude` and `one_node` are the job's other options.

    `given` (None: untyped), `where`, `without` and `features` are the type, the partition, the
    excluded nodes and the constraint that the job's record must show; `refused` is the code of
    the refusal instead. `told` are the codes of the lines that the user must see.
    """

    name: str
    type: str | None
    count: int | None
    partition: str | None = None
    node: str | None = None
    exclude: str | None = None
    one_node: bool = False
    given: str | None = None
    where: str = "gpu"
    without: str | None = None
    features: str | None = None
    refused: str | None = None
    told: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """How many devices are meant: one where no count is written."""
        return 1 if self.count is None else self.count

    @property
    def options(self) -> tuple[str, ...]:
        """The job's other options on a command line."""
        named = {"--partition": self.partition, "--nodelist": self.node, "--exclude": self.exclude}
        words = [f"{flag}={value}" for flag, value in named.items() if value]
        return (*words, "--nodes=1") if self.one_node else tuple(words)

    @property
    def renamed(self) -> bool:
        """Whether the type that the user named is another one afterwards."""
        return self.type is not None and self.refused is None and self.given != self.type

    @property
    def filtered(self) -> bool:
        """Whether the client filter sees by the look of the type that srun needs help."""
        plain = re.fullmatch(r"(?!mig-|nvidia)[a-z][a-z0-9_.-]*", self.type or "a1")
        return plain is None or not re.search(r"\d", self.type or "a1")


INTENTS: tuple[Intent, ...] = (
    Intent("one GPU", None, 1),
    Intent("a GPU, no count", None, None),
    Intent("two A100", "a100", 2, given="a100"),
    Intent("an A100, no count", "a100", None, given="a100"),
    Intent("two A100 in capitals", "A100", 2, given="a100", told=("FW301",)),
    Intent("an A100 by the driver's name", "nvidia_a100", 1, given="a100", told=("FW301",)),
    Intent("20 GB", "20gb", 1, given="a100_3g.20gb", where="mig", told=("FW101",)),
    Intent("20 GB, no count", "20gb", None, given="a100_3g.20gb", where="mig", told=("FW101",)),
    Intent("20 GB in capitals", "20GB", 1, given="a100_3g.20gb", where="mig", told=("FW101",)),
    Intent("20 GB, partition named", "20gb", 1, "gpu", given="a100", told=("FW101",)),
    Intent("20 GB, node named", "20gb", 1, node="h01", given="h100", told=("FW101",)),
    Intent("two of 5 GB", "5gb", 2, given="a100_1g.5gb", where="mig", told=("FW101",)),
    Intent("two of 70 GB", "70gb", 2, given="h100", told=("FW101",)),
    Intent("a slice by its type", "a100_3g.20gb", 1, given="a100_3g.20gb", where="mig",
           told=("FW308",)),
    Intent("a slice by its profile", "1g.5gb", 1, given="a100_1g.5gb", where="mig",
           told=("FW301", "FW308")),
    Intent("one GPU where slices are", None, 1, "all", where="all", without="mig01",
           told=("FW202",)),
    Intent("the same, a node excluded", None, 1, "all", exclude="gpu01", where="all",
           without="gpu01,mig01", told=("FW202",)),
    Intent("two A100 where slices are", "a100", 2, "all", given="a100", where="all"),
    Intent("A100 or H100", "a100|h100", 1, features="(a100|h100)", told=("FW113",)),
    Intent("A100 or H100 where slices are", "a100|h100", 1, "all", given="a100", where="all",
           told=("FW111",)),
    Intent("any whole GPU", "any", 1, told=("FW112",)),
    Intent("any where slices are", "any", 1, "all", where="all", without="mig01",
           told=("FW114",)),
    Intent("a slice with 10 GB", "mig-10gb", 1, given="a100_3g.20gb", where="mig",
           told=("FW111",)),
    Intent("two of a family", "hopper", 2, given="h100", told=("FW111",)),
    Intent("a family of another partition", "hopper", 1, "mig", refused="FW115"),
    Intent("a list with an unknown word", "a100|h10", 1, refused="FW117"),
    Intent("one GPU, only slices there", None, 1, "mig", refused="FW203"),
    Intent("a type that is nowhere", "h10", 1, refused="FW302"),
    Intent("a type of another partition", "a100", 1, "mig", refused="FW303"),
    Intent("more than a node has", "a100", 5, one_node=True, refused="FW305"),
    Intent("more memory than any has", "200gb", 1, refused="FW102"),
    Intent("no GPU, said by a zero", None, 0),
)  # fmt: skip

SPELLED = (
    "one GPU",
    "two A100",
    "an A100, no count",
    "two A100 in capitals",
    "20 GB",
    "20 GB, no count",
    "A100 or H100",
    "a type that is nowhere",
)
"""The intents that are tried in every spelling; emulated, all are."""


def find_intent(name: str) -> Intent:
    """The intent of that name; KeyError where there is none."""
    return {intent.name: intent for intent in INTENTS}[name]
