# SPDX-License-Identifier: Apache-2.0
"""What each node could be: finds its present layout from its Gres= and lists the others; pure.

slurmctld tells counts by type, not boards. They are read back: the declared layout first, else any
mix of known layouts with the same counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

from fairwatt.core.catalogue import Catalogue, GpuModel
from fairwatt.prolog.mig.cluster import NodeRecord
from fairwatt.prolog.mig.layout import Layout, MigFile, NodeLayout, memory_left_mib, pack
from fairwatt.prolog.mig.names import Spelling
from fairwatt.prolog.mig.plan import Option, PlanNode

__all__ = ["Boards", "boards_of", "plan_nodes", "yields"]

MOST_BOARDS = 16
_MOST_OPTIONS, _MOST_LAYOUTS = 500, 8
_Counts = Mapping[str, int]


@dataclass(frozen=True)
class Boards:
    """A node's boards as read from its Gres=: their model, numbers and present layouts."""

    model: GpuModel
    numbers: tuple[int, ...]
    layouts: tuple[str, ...]


def plan_nodes(
    records: Sequence[NodeRecord],
    mig: MigFile,
    catalogue: Catalogue,
    now_ts: int,
    asked: Iterable[str] = (),
) -> list[PlanNode]:
    """Return every node with its options; `note` says why one that may be changed is not now.

    `asked` are types that jobs ask for: they show how the site spells types.
    """
    known = [t for record in records for t in record.gpus if t is not None]
    every = tuple(dict.fromkeys([*known, *asked]))
    return [_node(record, mig, catalogue, now_ts, every) for record in records]


def yields(layout: Layout, model: GpuModel, spelling: Spelling) -> Counter[str]:
    """Return how many GPUs of each type one board gives under a layout."""
    if layout.is_whole:
        return Counter([spelling.type_of(model)])
    return Counter(spelling.type_of(model, piece.profile) for piece in layout.pieces)


def boards_of(
    gpus: Mapping[str | None, int],
    declared: NodeLayout | None,
    mig: MigFile,
    catalogue: Catalogue,
    spelling: Spelling,
    first: Iterable[str] = (),
) -> Boards | None:
    """Return the boards that explain a node's GPUs by type; None if no layouts do.

    The declared layout is tried first, then mixes of it with the layouts `first` and all others.
    """
    if None in gpus or not any(gpus.values()):
        return None
    counts = {str(type_): count for type_, count in gpus.items() if count}
    order = dict.fromkeys([*(layout.name for _, layout in _parts(declared)), *first, *mig.layouts])
    here = [mig.layouts[name] for name in order if name in mig.layouts]
    wished = [mig.layouts[name] for name in first]
    for model in _models(counts, catalogue, wished):
        fitting = [each for each in here if _fits(each, model)]
        gives = {each.name: yields(each, model, spelling) for each in fitting}
        found = _declared(counts, declared, gives) or _mixed(counts, declared, gives)
        if found is not None:
            return Boards(model, *found)
    return None


def _node(
    record: NodeRecord,
    mig: MigFile,
    catalogue: Catalogue,
    now_ts: int,
    every: Sequence[str],
) -> PlanNode:
    own = tuple(type_ for type_ in record.gpus if type_ is not None)
    spelling = Spelling(catalogue, mig.types, (*own, *every))
    allowed = mig.plan.allowed.get(record.name, ())
    note = _why_not_now(record, mig, now_ts) if allowed else None
    boards = None
    if allowed and note is None:
        boards = boards_of(
            record.gpus, mig.of_node(record.name), mig, catalogue, spelling, allowed
        )
        if boards is None:
            note = "its Gres= is no mix of the layouts of mig.toml: fairwatt mig lint"
    others = () if boards is None else _others(record, boards, allowed, mig, spelling)
    present = Option(
        layouts=boards.layouts if boards else (),
        gives=record.gpus,
        free=_free(record),
        wasted_mib=_wasted(boards.model, boards.layouts, mig) if boards else 0,
    )
    return PlanNode(
        record.name,
        (present, *others),
        record.partitions,
        record.features,
        boards.numbers if boards else (),
        note,
        record.use,
    )


def _why_not_now(record: NodeRecord, mig: MigFile, now_ts: int) -> str | None:
    """Each change restarts slurmd, so its start stands for the last change."""
    rules = mig.plan
    if record.use == "out":
        return "no jobs start on it (down, drained or reserved)"
    if record.started_ts is not None and now_ts - record.started_ts < rules.min_hold_s:
        ago = now_ts - record.started_ts
        return f"its slurmd started {ago} s ago (min_hold_s = {rules.min_hold_s})"
    if record.use == "busy" and not rules.drain:
        return "jobs run on it (drain = false)"
    idle_s = None if record.idle_since_ts is None else now_ts - record.idle_since_ts
    if record.use == "idle" and idle_s is not None and idle_s < rules.idle_s:
        return f"idle for {max(0, idle_s)} s only (idle_s = {rules.idle_s})"
    return None


def _free(record: NodeRecord) -> dict[str | None, int]:
    if record.use in ("out", "draining"):
        return {}
    return {t: max(0, count - record.used.get(t, 0)) for t, count in record.gpus.items()}


def _others(
    record: NodeRecord,
    boards: Boards,
    allowed: Sequence[str],
    mig: MigFile,
    spelling: Spelling,
) -> Iterator[Option]:
    """Boards that have an allowed layout get another allowed one; others stay."""
    fits = [name for name in allowed if _fits(mig.layouts[name], boards.model)]
    gives = {name: yields(mig.layouts[name], boards.model, spelling) for name in fits}
    gives |= {
        name: yields(mig.layouts[name], boards.model, spelling) for name in set(boards.layouts)
    }
    movable = sum(name in fits for name in boards.layouts)
    ways = combinations_with_replacement(fits, movable)
    for _, target in zip(range(_MOST_OPTIONS), ways, strict=False):
        layouts = _assigned(boards.layouts, fits, target)
        changed = sum(a != b for a, b in zip(boards.layouts, layouts, strict=True))
        if changed:
            total: Counter[str | None] = Counter()
            for name in layouts:
                total.update(gives[name])
            wasted = _wasted(boards.model, layouts, mig)
            yield Option(layouts, total, total, changed, record.has_jobs, wasted)


def _assigned(
    present: Sequence[str], movable: Sequence[str], target: Sequence[str]
) -> tuple[str, ...]:
    """Give the target layouts to the movable boards so that as few as possible change."""
    left = Counter(target)
    found: list[str | None] = []
    for name in present:
        if name not in movable:
            found.append(name)
        elif left[name] > 0:
            left[name] -= 1
            found.append(name)
        else:
            found.append(None)
    rest = iter(left.elements())
    return tuple(name if name is not None else next(rest) for name in found)


def _wasted(model: GpuModel, layouts: Iterable[str], mig: MigFile) -> int:
    return sum(memory_left_mib(model, mig.layouts[name]) for name in layouts)


def _parts(declared: NodeLayout | None) -> Sequence[tuple[object, Layout]]:
    return declared.parts if declared else ()


def _fits(layout: Layout, model: GpuModel) -> bool:
    if layout.model not in (None, model.key):
        return False
    return layout.is_whole or pack(model, layout.pieces) is not None


def _models(counts: _Counts, catalogue: Catalogue, wished: Sequence[Layout]) -> list[GpuModel]:
    """The models that all types of a node can be of; first those that most layouts are for."""
    found = [
        model
        for model in catalogue.models
        if all(_is_of(type_, model, catalogue) for type_ in counts)
    ]
    return sorted(found, key=lambda model: -sum(_fits(layout, model) for layout in wished))


def _is_of(type_: str, model: GpuModel, catalogue: Catalogue) -> bool:
    head, _, tail = type_.rpartition("_")
    is_slice = catalogue.slice_type(tail) is not None
    if not is_slice:
        return model in catalogue.models_of_type(type_)
    has = any(profile.name == tail.lower() for profile in model.profiles)
    return has and (not head or model in catalogue.models_of_type(head))


def _declared(
    counts: _Counts, declared: NodeLayout | None, gives: Mapping[str, Counter[str]]
) -> tuple[tuple[int, ...], tuple[str, ...]] | None:
    """The node as declared: numbered boards, or so many boards of one layout."""
    parts = declared.parts if declared else ()
    if any(layout.name not in gives for _, layout in parts):
        return None
    numbered = {n: layout.name for gpus, layout in parts for n in gpus.numbers}
    everything = [layout.name for gpus, layout in parts if gpus.all]
    if numbered and not everything:
        names = tuple(numbered[n] for n in sorted(numbered))
        total = sum((gives[name] for name in names), Counter[str]())
        return (tuple(sorted(numbered)), names) if total == counts else None
    for boards in range(1, MOST_BOARDS + 1):
        for name in everything:
            if {type_: count * boards for type_, count in gives[name].items()} == counts:
                return tuple(range(boards)), (name,) * boards
    return None


def _mixed(
    counts: _Counts, declared: NodeLayout | None, gives: Mapping[str, Counter[str]]
) -> tuple[tuple[int, ...], tuple[str, ...]] | None:
    """Any mix of layouts with these counts; where boards are numbered, of just so many."""
    parts = declared.parts if declared else ()
    numbers = sorted(n for gpus, _ in parts for n in gpus.numbers)
    for names in _mixes(Counter(counts), list(gives)[:_MOST_LAYOUTS], gives):
        if len(names) <= MOST_BOARDS and len(names) == (len(numbers) or len(names)):
            return tuple(numbers) or tuple(range(len(names))), tuple(names)
    return None


def _mixes(
    left: Counter[str], names: Sequence[str], gives: Mapping[str, Counter[str]]
) -> Iterator[list[str]]:
    if not +left:
        yield []
        return
    if not names:
        return
    head, rest = names[0], names[1:]
    most = min(left[type_] // count for type_, count in gives[head].items())
    for boards in range(min(most, MOST_BOARDS), -1, -1):
        taken = Counter({type_: count * boards for type_, count in gives[head].items()})
        for more in _mixes(left - taken, rest, gives):
            yield [head] * boards + more
