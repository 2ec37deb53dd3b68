# SPDX-License-Identifier: Apache-2.0
"""The planner: cases by hand, and against a search that tries everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwatt.core.catalogue import layout_is_legal, load_catalogue
from fairwatt.prolog.mig import plan as plan_module
from fairwatt.prolog.mig.cluster import NodeRecord
from fairwatt.prolog.mig.demand import Demand
from fairwatt.prolog.mig.layout import resolve
from fairwatt.prolog.mig.layout_file import parse_layouts
from fairwatt.prolog.mig.plan import Choice, Option, PlanNode, best_choice, runnable, score
from fairwatt.prolog.mig.plan_options import plan_nodes
from fairwatt.prolog.mig.proposals import Plan, as_text, make_plan, proposed_layout
from fairwatt.prolog.mig.starting import Place, Start, starts

CATALOGUE = load_catalogue()
NOW = 1_000_000
SMALL, LARGE = "a100_1g.5gb", "a100_3g.20gb"
LAYOUTS = """
[layouts.small]
profiles = { "1g.5gb" = 7 }
[layouts.large]
profiles = ["3g.20gb", "3g.20gb"]
[layouts.mixed]
profiles = ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"]
"""


def mig(nodes: str, plan: str = ""):
    return parse_layouts(f"{LAYOUTS}\n[nodes]\n{nodes}\n[plan]\n{plan}", "mig.toml", CATALOGUE)


def record(name: str, gpus: Mapping[str, int], **more) -> NodeRecord:
    facts = {
        "use": "idle",
        "has_jobs": False,
        "used": {},
        "partitions": frozenset(["gpu"]),
        "idle_since_ts": NOW - 7200,
        "started_ts": NOW - 86_400,
        **more,
    }
    return NodeRecord(name=name, gpus=dict(gpus), **facts)


def wants(job: str, count: int = 1, type_: str | None = LARGE, **more) -> Demand:
    facts = {"wait_s": 3600, "partitions": frozenset(["gpu"]), **more}
    return Demand(job, {type_: count}, **facts)


def planned(records, demands, file, **more) -> Plan:
    return make_plan(plan_nodes(records, file, CATALOGUE, NOW), demands, file, **more)


class TestStarts:
    def test_the_tightest_node_is_taken(self) -> None:
        places = [Place("a", {LARGE: 4}), Place("b", {LARGE: 2}), Place("c", {LARGE: 1})]
        found = starts(places, [wants("1", 2, partitions=frozenset())])
        assert found == [Start(0, ("b",), 1)]

    def test_an_array_is_spread_and_a_job_of_two_nodes_takes_two(self) -> None:
        places = [Place("a", {LARGE: 2}), Place("b", {LARGE: 2})]
        array = wants("1_[...]", copies=3, partitions=frozenset())
        pair = wants("2", nodes=2, partitions=frozenset())
        assert starts(places, [array]) == [Start(0, ("a",), 2), Start(0, ("b",), 1)]
        assert starts(places, [array, pair]) == [Start(0, ("a",), 2), Start(0, ("b",), 1)]
        assert starts(places, [pair, array])[0] == Start(0, ("a", "b"), 1)

    def test_any_gpu_is_one_that_nobody_names(self) -> None:
        places = [Place("a", {LARGE: 1, SMALL: 1})]
        demands = [wants("1", 1, None, partitions=frozenset()), wants("2", partitions=frozenset())]
        assert sum(each.copies for each in starts(places, demands)) == 2

    @pytest.mark.parametrize(
        "more",
        [
            {"partitions": frozenset(["cpu"])},
            {"features": frozenset(["nvlink"])},
            {"required": frozenset(["b"])},
            {"excluded": frozenset(["a"])},
        ],
    )
    def test_nodes_that_a_job_may_not_use(self, more) -> None:
        place = Place("a", {LARGE: 1}, frozenset(["gpu"]), frozenset(["ib"]))
        assert starts([place], [wants("1")]) != []
        assert starts([place], [wants("1", **more)]) == []


class TestByHand:
    FILE = 'mig01 = "small"', 'allowed = { mig01 = ["small", "large"] }'

    def test_a_queue_of_large_slices_and_a_node_of_small_ones(self) -> None:
        found = planned([record("mig01", {SMALL: 14})], [wants("1"), wants("2")], mig(*self.FILE))
        (proposal,) = found.proposals
        # One board is enough for two jobs: the other stays.
        assert [(c.number, c.before, c.after) for c in proposal.boards] == [(1, "small", "large")]
        assert proposal.starts == (("1", 1), ("2", 1))
        assert (proposal.gives, proposal.takes) == ({LARGE: 2}, {SMALL: 7})
        assert (found.starts_now, found.starts_then, found.tried_all) == (0, 2, True)
        assert found.dry_run
        layout = proposed_layout(proposal, mig(*self.FILE))
        assert layout.of_gpu(0, "x") is None
        assert layout.of_gpu(1, "x").name == "large"
        text = as_text(found)
        assert "2 wait for a100_3g.20gb (2 GPUs, the oldest for 60 min); 0 could start now" in text
        assert "1. mig01  1: small -> large" in text
        assert "starts 1, 2" in text

    def test_nothing_waits(self) -> None:
        found = planned([record("mig01", {SMALL: 14})], [], mig(*self.FILE))
        assert found.proposals == ()
        assert "nothing to change" in as_text(found)

    def test_what_could_start_anyway_is_no_reason(self) -> None:
        records = [record("mig01", {SMALL: 14}), record("mig02", {LARGE: 2})]
        assert planned(records, [wants("1")], mig(*self.FILE)).proposals == ()

    def test_jobs_that_wait_for_less_than_min_wait(self) -> None:
        found = planned([record("mig01", {SMALL: 7})], [wants("1", wait_s=299)], mig(*self.FILE))
        assert found.proposals == ()
        assert "1 records wait for less" in as_text(found)

    def test_the_node_whose_change_wastes_least_is_idle_and_named_first(self) -> None:
        file = mig(
            '"mig[01-02]" = "small"', 'allowed = { "mig[01-02]" = ["small", "large", "mixed"] }'
        )
        records = [record("mig02", {SMALL: 7}), record("mig01", {SMALL: 7})]
        (one,) = planned(records, [wants("1")], file).proposals
        # large leaves no memory, mixed 40 - 20 - 10 - 10 = 0 too; large stands first in `allowed`.
        assert one.boards[0].after == "large"

    @pytest.mark.parametrize(
        ("change", "note"),
        [
            ({"use": "busy", "has_jobs": True, "used": {SMALL: 1}}, "jobs run on it"),
            ({"use": "out"}, "no jobs start on it"),
            ({"started_ts": NOW - 3599}, "slurmd started 3599 s ago (min_hold_s = 3600)"),
            ({"idle_since_ts": NOW - 59}, "idle for 59 s only"),
            ({"gpus": {SMALL: 8}}, "no mix of the layouts"),
            ({"gpus": {None: 2}}, "no mix of the layouts"),
        ],
    )
    def test_nodes_that_are_left_alone(self, change, note) -> None:
        gpus = change.pop("gpus", {SMALL: 7})
        found = planned([record("mig01", gpus, **change)], [wants("1")], mig(*self.FILE))
        assert found.proposals == ()
        assert note in as_text(found)

    def test_a_busy_node_is_marked_and_only_where_drain_is_allowed(self) -> None:
        file = mig(self.FILE[0], f"{self.FILE[1]}\ndrain = true")
        busy = record("mig01", {SMALL: 7}, use="busy", has_jobs=True, used={SMALL: 1})
        (found,) = planned([busy], [wants("1")], file).proposals
        assert found.drain_first
        assert "(drain first)" in as_text(planned([busy], [wants("1")], file))

    def test_an_idle_node_goes_before_a_busy_one(self) -> None:
        plan = 'allowed = { "mig[01-02]" = ["small", "large"] }\ndrain = true'
        file = mig('"mig[01-02]" = "small"', plan)
        busy = record("mig01", {SMALL: 7}, use="busy", has_jobs=True, used={SMALL: 1})
        (found,) = planned([busy, record("mig02", {SMALL: 7})], [wants("1")], file).proposals
        assert (found.node, found.drain_first) == ("mig02", False)

    def test_a_node_that_is_draining_for_us_is_a_candidate(self) -> None:
        draining = record("mig01", {SMALL: 7}, use="draining", has_jobs=True)
        (found,) = planned([draining], [wants("1")], mig(*self.FILE)).proposals
        assert found.drain_first

    def test_keep_by_profile_and_by_type(self) -> None:
        for word in ('"1g.5gb"', f'"{SMALL}"'):
            file = mig(self.FILE[0], f"{self.FILE[1]}\nkeep = {{ {word} = 8 }}")
            demands = [wants(str(job)) for job in range(4)]
            assert planned([record("mig01", {SMALL: 14})], demands, file).proposals == ()
            (found,) = planned([record("mig01", {SMALL: 21})], demands, file).proposals
            assert found.takes == {SMALL: 7}

    def test_a_waiting_job_never_loses_its_last_node(self) -> None:
        """Slurm would hold it: BadConstraints."""
        demands = [wants("1"), wants("2"), wants("3", 1, SMALL)]
        found = planned([record("mig01", {SMALL: 7})], demands, mig(*self.FILE))
        assert found.proposals == ()
        assert "1 more could start, but no node would be left for 3" in as_text(found)

    def test_a_type_that_no_layout_gives_and_a_held_job(self) -> None:
        demands = [wants("1", 1, "a100_7g.40gb", held=True)]
        text = as_text(planned([record("mig01", {SMALL: 7})], demands, mig(*self.FILE)))
        assert "no node has a100_7g.40gb or may be cut so" in text
        assert "scontrol release 1" in text

    def test_history_decides_between_equals(self) -> None:
        file = mig('mig01 = "small"', 'allowed = { mig01 = ["small", "large", "mixed"] }')
        records = [record("mig01", {SMALL: 7})]
        waits = {"a100_2g.10gb": 900.0}
        (found,) = planned(records, [wants("1")], file, waits=waits).proposals
        assert found.boards[0].after == "mixed"

    def test_a_job_of_two_nodes_needs_both_changed(self) -> None:
        file = mig('"mig[01-02]" = "small"', 'allowed = { "mig[01-02]" = ["small", "large"] }')
        records = [record("mig01", {SMALL: 7}), record("mig02", {SMALL: 7})]
        found = planned(records, [wants("1", nodes=2)], file)
        assert [each.node for each in found.proposals] == ["mig01", "mig02"]
        assert found.starts_then == 1

    def test_whole_boards_that_are_not_allowed_to_change_stay(self) -> None:
        file = mig(
            'mix01 = { "0-1" = "whole", "2-3" = "small" }',
            'allowed = { mix01 = ["small", "large"] }',
        )
        records = [record("mix01", {"a100": 2, SMALL: 14})]
        (found,) = planned(records, [wants(str(job)) for job in range(9)], file).proposals
        assert [(c.number, c.after) for c in found.boards] == [(2, "large"), (3, "large")]

    def test_a_layout_other_than_declared_is_read_from_gres(self) -> None:
        file = mig('mig01 = { "0" = "small", "1" = "small" }', self.FILE[1])
        nodes = plan_nodes([record("mig01", {SMALL: 7, LARGE: 2})], file, CATALOGUE, NOW)
        assert sorted(nodes[0].options[0].layouts) == ["large", "small"]


TYPES = ("a", "b", "c")


@st.composite
def problems(draw):
    """A few nodes with a few options, a few jobs, sometimes a least to keep."""
    counts = st.dictionaries(st.sampled_from(TYPES), st.integers(1, 3), min_size=1, max_size=2)
    nodes = []
    for index in range(draw(st.integers(1, 4))):
        gives = draw(counts)
        used = draw(st.integers(0, 1))
        free = {t: max(0, n - used) for t, n in gives.items()}
        options = [Option(("p",), gives, free)]
        for _ in range(draw(st.integers(0, 2))):
            new = draw(counts)
            wasted = draw(st.integers(0, 2))
            options.append(Option(("q",), new, new, draw(st.integers(1, 2)), bool(used), wasted))
        partitions = frozenset([draw(st.sampled_from("xy"))])
        nodes.append(PlanNode(f"n{index}", tuple(options), partitions))
    wanted = st.one_of(st.none(), st.sampled_from(TYPES))
    demands = [
        Demand(
            str(job),
            {draw(wanted): draw(st.integers(1, 2))},
            draw(st.sampled_from([1, 1, 1, 2])),
            draw(st.integers(1, 3)),
            partitions=frozenset(draw(st.sampled_from(["x", "y", "xy"]))),
        )
        for job in range(draw(st.integers(0, 4)))
    ]
    keep = draw(st.dictionaries(st.sampled_from(TYPES), st.integers(0, 3), max_size=1))
    return nodes, demands, keep


def every_legal_choice(
    nodes: Sequence[PlanNode], demands: Sequence[Demand], keep: Mapping[str, int]
) -> Iterator[Choice]:
    """All choices that keep what must be kept, written down anew and without any short cut."""
    present = {t: sum(node.options[0].gives.get(t, 0) for node in nodes) for t in TYPES}
    able = set(runnable(nodes, demands, {}))
    for picks in product(*(range(len(node.options)) for node in nodes)):
        choice = {node.name: pick for node, pick in zip(nodes, picks, strict=True)}
        options = [node.options[pick] for node, pick in zip(nodes, picks, strict=True)]
        enough = all(
            sum(option.gives.get(t, 0) for option in options) >= min(least, present[t])
            for t, least in keep.items()
        )
        if enough and able <= set(runnable(nodes, demands, choice)):
            yield choice


@given(problems())
@settings(max_examples=150, deadline=None)
def test_no_choice_is_better_than_the_chosen(problem) -> None:
    nodes, demands, keep = problem
    choice, tried_all = best_choice(nodes, demands, keep)
    assert tried_all
    legal = list(every_legal_choice(nodes, demands, keep))
    found = {node.name: choice.get(node.name, 0) for node in nodes}
    assert found in legal
    most = max(score(nodes, demands, each) for each in legal)
    assert score(nodes, demands, choice) == most


@given(problems())
@settings(max_examples=100, deadline=None)
def test_step_by_step_is_legal_and_never_worse_than_nothing(problem) -> None:
    nodes, demands, keep = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "EXACT_CHOICES", 0)
        choice, _ = best_choice(nodes, demands, keep)
    legal = list(every_legal_choice(nodes, demands, keep))
    assert {node.name: choice.get(node.name, 0) for node in nodes} in legal
    assert score(nodes, demands, choice) >= score(nodes, demands, {})


@given(st.lists(st.sampled_from(["small", "large", "mixed", "whole"]), min_size=1, max_size=4))
def test_layouts_of_a_node_are_read_back_from_its_counts(names) -> None:
    """And every option of it is a set of legal boards."""
    file = mig("", 'allowed = { n1 = ["small", "large", "mixed", "whole"] }')
    model = CATALOGUE.model("a100-40")
    gpus: dict[str | None, int] = {}
    for name in names:
        layout = file.layouts[name]
        for type_ in [f"a100_{piece.profile}" for piece in layout.pieces] or ["a100"]:
            gpus[type_] = gpus.get(type_, 0) + 1
    (node,) = plan_nodes([record("n1", gpus)], file, CATALOGUE, NOW)
    assert node.note is None
    assert node.options[0].gives == gpus
    for option in node.options:
        for name in option.layouts:
            layout = file.layouts[name]
            assert layout_is_legal(model, resolve(layout, model))


def test_a_large_cluster_is_planned_step_by_step_and_in_time() -> None:
    file = mig('"m[001-400]" = "small"', 'allowed = { "m[001-400]" = ["small", "large"] }')
    records = [record(f"m{n:03}", {SMALL: 56}) for n in range(1, 401)]
    demands = [wants(f"{n}", 2) for n in range(20)] + [wants("x", 1, SMALL)]
    found = planned(records, demands, file)
    assert not found.tried_all
    assert found.starts_then == 21
    # Two nodes with 8 boards of two large slices each hold 16 jobs; 20 jobs need 20 boards.
    assert sum(len(each.boards) for each in found.proposals) == 20
