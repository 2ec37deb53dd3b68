# SPDX-License-Identifier: Apache-2.0
"""What holds for whatever the rules choose: it is what was needed, allowed, and to be had."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fairwatt.core.records import GpuAsk, JobRequest
from fairwatt.slurm_plugins.constraint import groups
from fairwatt.slurm_plugins.demand import demand, shortfall, wanted
from fairwatt.slurm_plugins.place import Place, moved
from fairwatt.slurm_plugins.rules.account_types import AccountTypesOptions, account_types
from fairwatt.slurm_plugins.rules.homogeneous import homogeneous
from fairwatt.slurm_plugins.rules.known_types import known_types
from fairwatt.slurm_plugins.rules.memory_fit import memory_fit
from fairwatt.slurm_plugins.rules.need import NeedOptions, need
from fairwatt.slurm_plugins.rules.type_spelling import type_spelling
from fairwatt.slurm_plugins.rules.untyped_slices import untyped_slices
from fairwatt.slurm_plugins.words import Vocabulary
from tests.fakes.sites import demo, featured, mixed, site

LOOSE = site(
    {
        "a": ("p,all", {"a100": 4}),
        "h": ("q,all", {"h100": 4, "h100_1g.10gb": 7}),
        "n": ("p,all", {None: 2}),
        "v": ("q", {"v100": 4}),
    },
    "p",
    {"a": "a100,ib", "h": "h100,ib", "v": "v100"},
)
SITES = [demo(), mixed(), featured(), LOOSE]
ACCOUNTS = AccountTypesOptions(
    accounts={"x": ("a100", "mig"), "y": ("hopper", "v100"), "z": ("mig-10gb",)}
)
WORDS = NeedOptions(words={"training": ("h100", "a100")})
NEEDS = [
    "a100|h100",
    "h100|v100|a100",
    "any",
    "mig",
    "mig-10gb",
    "hopper",
    "ampere",
    "training",
    "20gb|v100",
    "A100|hopper",
]
OTHER_TYPES = [None, "a100", "h100", "a100_1g.5gb", "20gb", "5gb", "A100"]
FEATURES = [None, None, "ib", "ib|eth", "ib&(a100|h100)", "[ib|eth]", "new", "ib*2"]
few = st.none() | st.none() | st.integers(1, 4)
entries = st.builds(
    GpuAsk,
    level=st.sampled_from(["node", "job", "task", "socket"]),
    type=st.sampled_from(NEEDS) | st.sampled_from(OTHER_TYPES),
    count=st.sampled_from([1, 1, 2, 4, 0, 6]),
)


@st.composite
def cases(draw):
    """A request that could be meant for a site, the site, and whether one type is a must."""
    known = draw(st.sampled_from(SITES))
    nodes = st.sampled_from([None, None, None, *(node.name for node in known.facts.nodes)])
    request = draw(
        st.builds(
            JobRequest,
            gpus=st.lists(entries, min_size=1, max_size=1).map(tuple)
            | st.lists(entries, min_size=1, max_size=2).map(tuple),
            account=st.sampled_from([None, None, "x", "y", "z", "free"]),
            partition=st.sampled_from([None, None, *known.partitions, ",".join(known.partitions)]),
            features=st.sampled_from(FEATURES),
            req_nodes=nodes,
            exc_nodes=nodes,
            exc_known=st.sampled_from([True, True, False]),
            num_tasks=few,
            min_nodes=few,
            max_nodes=few,
            ntasks_per_node=few,
        )
    )
    return request, known, draw(st.booleans())


def run(request, known, strict):
    """The rules that choose types, in their order; None: refused."""
    steps = [
        lambda r: type_spelling(r, known),
        lambda r: account_types(r, known, ACCOUNTS),
        lambda r: need(r, known, WORDS),
        lambda r: memory_fit(r, known),
        lambda r: untyped_slices(r, known),
        lambda r: known_types(r, known),
        *([lambda r: homogeneous(r, known)] if strict else []),
    ]
    for step in steps:
        outcome = step(request)
        for note in (*outcome.notes, *filter(None, [outcome.rejection])):
            assert note.text.isascii()
            assert "\n" not in note.text
        if outcome.rejection is not None:
            return None
        request = outcome.request
    return request


def types_within_reach(request, known):
    """Per entry the types that Slurm could give it."""
    here = known.pool(request).types
    for gpu in wanted(request):
        yield gpu, ([gpu.type] if gpu.type is not None else here)


def test_any_gpu_is_none_without_a_type_for_an_account_that_may_have_named_types_only():
    """GPUs whose type nobody entered stand beside a100 in p: account x may have a100."""
    any_gpu = (GpuAsk(level="node", type="any", count=1),)
    after = run(JobRequest(gpus=any_gpu, account="x"), LOOSE, strict=False)
    assert [gpu.type for gpu in after.gpus] == ["a100"]


@settings(max_examples=100, deadline=None)
@given(case=cases())
def test_a_second_pass_changes_nothing(case):
    request, known, strict = case
    after = run(request, known, strict)
    if after is not None:
        assert run(after, known, strict) == after


@settings(max_examples=100, deadline=None)
@given(case=cases())
def test_what_is_chosen_can_be_had(case):
    request, known, strict = case
    after = run(request, known, strict)
    if after is None:
        return
    for type_ in dict.fromkeys(gpu.type for gpu in wanted(after)):
        asks = [gpu for gpu in wanted(after) if gpu.type == type_]
        assert shortfall(demand(after, asks), known.pool(after), type_) is None


@settings(max_examples=100, deadline=None)
@given(case=cases())
def test_no_slice_by_accident_and_nothing_that_the_account_may_not_use(case):
    request, known, strict = case
    after = run(request, known, strict)
    if after is None:
        return
    words = ACCOUNTS.accounts.get(request.account or "")
    allowed = None if words is None else Vocabulary(known).types_of(words)
    for gpu, possible in types_within_reach(after, known):
        assert gpu.type is not None or not any(map(known.is_slice, possible))
        assert allowed is None or set(possible) <= allowed
    assert not {flavour.type for flavour in after.flavours} & after.barred_types


@settings(max_examples=100, deadline=None)
@given(case=cases())
def test_only_what_was_needed_can_be_given(case):
    request, known, strict = case
    after = run(request, known, strict)
    words = {gpu.type for gpu in wanted(request)} - {None}
    if after is None or len(words) != 1:
        return
    meant = Vocabulary(known, WORDS.words).read(words.pop())
    for _, possible in types_within_reach(after, known):
        assert meant.kind == "unknown" or set(possible) <= set(meant.types)
    assert {flavour.type for flavour in after.flavours} <= set(meant.types)


@settings(max_examples=100, deadline=None)
@given(case=cases())
def test_flavours_can_be_had_where_they_are(case):
    request, known, strict = case
    after = run(request, known, strict)
    if after is None:
        return
    for flavour in after.flavours:
        assert request.partition is None or flavour.partition is None
        there = moved(after, Place(flavour.partition))
        assert shortfall(demand(after, wanted(after)), known.pool(there), flavour.type) is None


@settings(max_examples=100, deadline=None)
@given(case=cases())
def test_what_the_user_wrote_besides_is_kept(case):
    request, known, strict = case
    after = run(request, known, strict)
    if after is None:
        return
    own, now = groups(request.features), groups(after.features)
    if own is None:
        assert after.features == request.features
    else:
        assert now is not None
        assert set(own) <= set(now)
    assert request.partition in (None, after.partition)
    assert (after.exc_nodes or "").startswith(request.exc_nodes or "")
    for level in ("node", "job", "task", "socket"):
        before = sum(gpu.count for gpu in request.gpus if gpu.level == level)
        assert sum(gpu.count for gpu in after.gpus if gpu.level == level) == before
