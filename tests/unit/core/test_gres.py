# SPDX-License-Identifier: Apache-2.0
"""The GRES grammar: Slurm's own examples, the corpus of other tools' failures, round trips."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fairwatt.core.errors import GrammarError
from fairwatt.core.gres import (
    MAX_COUNT,
    Gres,
    Spelling,
    format_node_gres,
    format_request,
    parse_node_gres,
    parse_request,
    server_reads,
)


def gpu(type_: str | None, count: int) -> tuple[Gres, ...]:
    return (Gres("gpu", type_, count),)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ()),
        ("(null)", ()),
        # every option of slurm-facts section 6: 20.11, 22.05 and 25.11 spellings
        ("gpu", gpu(None, 1)),
        ("gpu:2", gpu(None, 2)),
        ("gpu:a100:2", gpu("a100", 2)),
        ("gres:gpu:a100:1", gpu("a100", 1)),
        ("gres/gpu:a100:1", gpu("a100", 1)),
        ("gres:gpu", gpu(None, 1)),
        ("gres/gpu", gpu(None, 1)),
        ("gres:gpu:h100:1", gpu("h100", 1)),
        ("gres/gpu:h100=1", gpu("h100", 1)),
        ("gres/gpu=2", gpu(None, 2)),
        # count implied after a type
        ("gres:gpu:a100", gpu("a100", 1)),
        ("gres/gpu:1g.5gb", gpu("1g.5gb", 1)),
        # suffixes count in steps of 1024; a lone number is a count, between colons it is a type
        ("gpu:4K", gpu(None, 4096)),
        ("gpu:2m", gpu(None, 2 * 1024**2)),
        ("gpu:1G", gpu(None, 1024**3)),
        ("gpu:1080", gpu(None, 1080)),
        ("gpu:1080:2", gpu("1080", 2)),
        ("gpu:20gb:1", gpu("20gb", 1)),
        # wishes that the client lets through
        ("gres:gpu:a100|h100:1", gpu("a100|h100", 1)),
        ("gres:gpu:any:2", gpu("any", 2)),
        ("gres:gpu:mem40g:1", gpu("mem40g", 1)),
        ("gres:gpu:mig-10gb:1", gpu("mig-10gb", 1)),
        ("gres:gpu:A100:1", gpu("A100", 1)),
        ("gres:gpu:>=40G:1", gpu(">=40G", 1)),
        ("gres/gpu:nvidia_h200_nvl_4g.71gb:2", gpu("nvidia_h200_nvl_4g.71gb", 2)),
        ("gres/gpu:a100l.1=3", gpu("a100l.1", 3)),
        ("gres:gpu:0", gpu(None, 0)),
    ],
)
def test_reads_requests(text: str, wanted: tuple[Gres, ...]) -> None:
    assert parse_request(text) == wanted


def test_reads_a_list_of_two_types() -> None:
    assert parse_request("gres:gpu:tesla:2,gres:gpu:kepler:2") == (
        Gres("gpu", "tesla", 2),
        Gres("gpu", "kepler", 2),
    )


def test_other_names_stay_untouched_in_a_mixed_list() -> None:
    text = "cpu=3,gres/gpu=1,gres/mps:50,license/matlab=2"
    cpu, gpus, mps, license_ = parse_request(text)
    assert (cpu.name, cpu.count, cpu.kind, cpu.is_gpu) == ("cpu", 3, "", False)
    assert gpus == Gres("gpu", None, 1)
    assert mps == Gres("mps", None, 50)
    assert (license_.kind, license_.name, license_.count) == ("license", "matlab", 2)
    assert format_request([cpu, gpus, mps, license_], Spelling.SLASH) == (
        "cpu=3,gres/gpu:1,gres/mps:50,license/matlab=2"
    )


def test_shard_is_not_a_gpu() -> None:
    assert [item.is_gpu for item in parse_request("gres/shard:4,gres/gpu:1")] == [False, True]


@pytest.mark.parametrize(
    ("spelling", "per_task", "wanted"),
    [
        (Spelling.BARE, False, "gpu:a100:2"),
        (Spelling.COLON, False, "gres:gpu:a100:2"),
        (Spelling.COLON, True, "gres:gpu:a100:2"),
        (Spelling.SLASH, False, "gres/gpu:a100:2"),
        (Spelling.SLASH, True, "gres/gpu:a100=2"),
    ],
)
def test_writes_the_servers_spelling(spelling: Spelling, per_task: bool, wanted: str) -> None:
    assert format_request(gpu("a100", 2), spelling, per_task=per_task) == wanted


@pytest.mark.parametrize(
    ("text", "readers"),
    [
        ("gpu:2", {Spelling.BARE}),
        ("gpu", {Spelling.BARE}),
        ("gres:gpu:2", {Spelling.COLON}),
        ("gres:gpu:a100=2", set()),
        ("gres/gpu:2", {Spelling.SLASH}),
        ("cpu=3,gres/gpu=1", {Spelling.SLASH}),
        ("gres/gpu:1,gpu:h100:1", set()),
        ("gres/gres:gpu:2", set()),
        ("gres:gres/gpu:2", set()),
        ("cpu=3", set(Spelling)),
        ("", set(Spelling)),
    ],
)
def test_tells_which_servers_read_it(text: str, readers: set[Spelling]) -> None:
    assert {spelling for spelling in Spelling if server_reads(text, spelling)} == readers


@pytest.mark.parametrize("text", ["gres/gres:gpu:a100:2", "gres:gres/gpu:a100:2"])
def test_a_prefix_before_a_prefix_says_nothing_more(text: str) -> None:
    """`scontrol update Gres=gres:gpu:a100:2` on 24.11 and its like on 22.05."""
    assert parse_request(text) == gpu("a100", 2)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("gpu:", "gpu:"),
        ("gres:", "gres:"),
        ("gpu::2", "gpu::2"),
        ("gpu:a100:", ""),
        ("gpu:a100:two", "two"),
        ("gpu:a100:2:3", "gpu:a100:2:3"),
        ("gpu:-1", "-1"),
        ("gpu:1.5", "1.5"),
        ("gpu:1,", ""),
        ("gpu :1", "gpu "),
        ("gpu:a100=2=3", "a100=2"),
        ("gres/cpu:1", "gres/cpu:1"),
        ("gpu:a100\n:1", "a100\n"),
        ("gpu:18446744073709551614", "18446744073709551614"),
        ("gpu:99999999999999999999P", "99999999999999999999P"),
        ("gpu:" + "9" * 5000, "9" * 5000),
        ("gpu:٣", "٣"),
    ],
)
def test_names_the_faulty_piece(text: str, part: str) -> None:
    if text == "gpu:٣":  # an Arabic-Indic three is a type, not a count
        assert parse_request(text) == gpu("٣", 1)
        return
    with pytest.raises(GrammarError) as caught:
        parse_request(text)
    assert caught.value.part == part


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("(null)", ()),
        ("gpu:a100:4", gpu("a100", 4)),
        ("gpu:8(S:0-3)", (Gres("gpu", None, 8, suffixes=("S:0-3",)),)),
        ("gpu:(null):4(IDX:0-3)", (Gres("gpu", None, 4, suffixes=("IDX:0-3",)),)),
        ("gpu:a100:2(IDX:0,2)", (Gres("gpu", "a100", 2, suffixes=("IDX:0,2",)),)),
        ("gpu:a100:4(S:0-1)(IDX:0-3)", (Gres("gpu", "a100", 4, suffixes=("S:0-1", "IDX:0-3")),)),
        ("gpu:h100:0(IDX:N/A)", (Gres("gpu", "h100", 0, suffixes=("IDX:N/A",)),)),
        (
            "bandwidth:lustre:no_consume:4G",
            (Gres("bandwidth", "lustre", 4 * 1024**3, no_consume=True),),
        ),
        ("craynetwork:no_consume:4", (Gres("craynetwork", None, 4, no_consume=True),)),
        ("shard:(null):2(1/4,1/4)", (Gres("shard", None, 2, suffixes=("1/4,1/4",)),)),
    ],
)
def test_reads_nodes(text: str, wanted: tuple[Gres, ...]) -> None:
    assert parse_node_gres(text) == wanted


def test_reads_a_node_with_two_types() -> None:
    first, second = parse_node_gres(
        "gpu:nvidia_a100_1g.5gb:7(S:0,1),gpu:nvidia_h200_nvl_4g.71gb:1(S:1)"
    )
    assert (first.type, first.count, first.sockets) == ("nvidia_a100_1g.5gb", 7, "0,1")
    assert (second.type, second.count, second.sockets) == ("nvidia_h200_nvl_4g.71gb", 1, "1")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("gpu:4(IDX:0-1,3)", (0, 1, 3)),
        ("gpu:4(IDX:N/A)", ()),
        ("gpu:4(S:0-1)", ()),
        ("gpu:4(IDX:0-999999999)", ()),
    ],
)
def test_lists_the_indices(text: str, wanted: tuple[int, ...]) -> None:
    assert parse_node_gres(text)[0].indices == wanted


@pytest.mark.parametrize("text", ["gpu:4(S:0", "gpu:(S:0)", "gpu:4)S:0(", "gpu:4(IDX:0)x", "gpu:"])
def test_refuses_a_malformed_node(text: str) -> None:
    with pytest.raises(GrammarError):
        parse_node_gres(text)


@pytest.mark.parametrize(
    "item",
    [
        Gres("gpu", "a,b", 1),
        Gres("gpu", "", 1),
        Gres("g pu", None, 1),
        Gres("cpu", None, 1),
        Gres("gpu", None, -1),
        Gres("gpu", None, MAX_COUNT + 1),
    ],
)
def test_never_writes_what_it_cannot_read(item: Gres) -> None:
    with pytest.raises(GrammarError):
        format_request([item], Spelling.SLASH)
    with pytest.raises(GrammarError):
        format_node_gres([item])


NAMES = st.sampled_from(["gpu", "mps", "shard", "craynetwork", "nic", "fpga-v2"])
TYPES = (
    st.none()
    | st.sampled_from(
        ["a100", "1080", "a100_3g.20gb", "a100|h100", ">=40G", "20g", "1g.5gb", "a100l.1", "K80"]
    )
    | st.from_regex(r"[A-Za-z0-9_.|&+-]{1,12}", fullmatch=True)
)
COUNTS = st.integers(0, MAX_COUNT)
GRES = st.builds(Gres, NAMES, TYPES, COUNTS)
OTHERS = st.sampled_from(["cpu=3", "cpu:3", "license/matlab=2", "mem=4G", "bb/datawarp=7"]).map(
    lambda text: parse_request(text)[0]
)


@given(st.lists(GRES | OTHERS, max_size=4), st.sampled_from(Spelling), st.booleans())
def test_a_written_request_reads_back(
    items: list[Gres], spelling: Spelling, per_task: bool
) -> None:
    text = format_request(items, spelling, per_task=per_task)
    assert parse_request(text) == tuple(items)


@given(
    st.builds(
        Gres,
        NAMES,
        TYPES,
        COUNTS,
        no_consume=st.booleans(),
        suffixes=st.lists(st.from_regex(r"[A-Z0-9:,/-]{0,8}", fullmatch=True), max_size=2).map(
            tuple
        ),
    )
)
def test_a_written_node_reads_back(item: Gres) -> None:
    assume(item.type != "no_consume")
    assert parse_node_gres(format_node_gres([item])) == (item,)


@given(st.text() | st.text("gpures:/=,()0123.gKn_|>", max_size=24))
def test_any_text_gives_entries_or_a_grammar_error(text: str) -> None:
    for parse in (parse_request, parse_node_gres, lambda text: server_reads(text, Spelling.COLON)):
        with contextlib.suppress(GrammarError):
            parse(text)


@given(st.text("gpures:/=,0123.gKn_|>c", min_size=1, max_size=16))
def test_whatever_was_read_can_be_written(text: str) -> None:
    try:
        items = parse_request(text)
    except GrammarError:
        return
    for spelling in Spelling:
        assert parse_request(format_request(items, spelling)) == items
