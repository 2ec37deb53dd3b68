# SPDX-License-Identifier: Apache-2.0
"""The TRES grammar: cases E1-E4 and E11 of the energy reference, exact memory, round trips."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.core.errors import GrammarError
from fairwatt.core.tres import NO_VAL64, Tres, TresEntry, format_tres, parse_tres


def test_typed_entries_split_the_generic_one() -> None:  # E1
    tres = parse_tres("cpu=8,gres/gpu=4,gres/gpu:a100=2,gres/gpu:h100=2")
    assert (tres.cpus, tres.gpu_count, tres.gpus) == (8, 4, {"a100": 2, "h100": 2})


def test_usage_text_does_not_count_as_gpus() -> None:  # E2
    tres = parse_tres("gres/gpu=8,gres/gpu:a100=8,gres/gpumem=320G,gres/gpuutil=800")
    assert tres.gpus == {"a100": 8}
    assert tres.gpu_util_ratio == 1.0
    assert tres.amount("gres/gpumem") == 320 * 2**30


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("mem=250.5G", 268_972_326_912),  # E3
        ("mem=512000M", 500 * 2**30),
        ("mem=1.95T", round(Decimal("1.95") * 2**40)),
        ("mem=4000", 4000 * 2**20),
        ("mem=16g", 16 * 2**30),
        ("mem=1.0005K", 1025),  # 1024.512 bytes: the nearest whole
        ("mem=1.0004K", 1024),
        ("mem=18446744073709551614", None),
        ("cpu=1", None),
    ],
)
def test_memory_is_exact_in_bytes(text: str, wanted: int | None) -> None:
    assert parse_tres(text).mem_bytes == wanted


def test_a_terabyte_fraction_is_what_slurm_meant() -> None:  # E3, to a byte
    mem_bytes = parse_tres("mem=1.95T").mem_bytes
    assert mem_bytes is not None
    assert abs(mem_bytes / 2**20 - 2_044_723.2) < 1e-6


@pytest.mark.parametrize("amount", ["18446744073709551614", "18446744073709551615"])
def test_no_val_is_unknown_and_the_rest_is_read(amount: str) -> None:  # E4
    tres = parse_tres(f"energy={amount},cpu=2")
    assert tres.amount("energy") is None
    assert tres.cpus == 2


@pytest.mark.parametrize(
    ("text", "count", "gpus"),
    [
        ("cpu=4", 0, {}),
        ("gres/gpu=3", 3, {None: 3}),
        ("gres/gpu:a100=2", 2, {"a100": 2}),
        ("gres/gpu=4,gres/gpu:a100=1", 4, {"a100": 1, None: 3}),
        ("gres/gpu=0", 0, {}),
        ("gres/gpu:nvidia_h200_nvl_4g.71gb=2", 2, {"nvidia_h200_nvl_4g.71gb": 2}),
        ("billing=8,cpu=8,gres/gpu=8,mem=100G,node=1", 8, {None: 8}),  # E11
        ("gres/shard=4,gres/gpuutil=90", 0, {}),
    ],
)
def test_counts_gpus(text: str, count: int, gpus: dict[str | None, int]) -> None:
    tres = parse_tres(text)
    assert (tres.gpu_count, tres.gpus) == (count, gpus)


def test_keeps_unknown_names_and_times() -> None:
    text = "cpu=00:01:59,energy=12,fs/disk=2332,mem=1060K,pages=0,fancy/thing:x=3"
    tres = parse_tres(text, bare_mem_bytes=1)
    assert tres.amount("fancy/thing:x") == 3
    assert tres.cpus is None
    assert tres.mem_bytes == 1060 * 1024
    assert format_tres(tres) == text


def test_bare_memory_of_usage_is_bytes() -> None:
    assert parse_tres("mem=1085440", bare_mem_bytes=1).mem_bytes == 1_085_440


@pytest.mark.parametrize("text", ["", "(null)", "N/A"])
def test_nothing_is_an_empty_list(text: str) -> None:
    assert parse_tres(text) == Tres()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("cpu", "cpu"),
        ("=3", "=3"),
        ("cpu=", ""),
        ("cpu=-1", "-1"),
        ("cpu=1.5", "1.5"),
        ("cpu=x", "x"),
        ("cpu=1,,mem=2G", ""),
        ("mem=1.2.3G", "1.2.3G"),
        ("cpu=" + "9" * 5000, "9" * 5000),
    ],
)
def test_names_the_faulty_piece(text: str, part: str) -> None:
    with pytest.raises(GrammarError) as caught:
        parse_tres(text)
    assert caught.value.part == part


def test_never_writes_what_it_cannot_read() -> None:
    for entry in (TresEntry("a=b", 1), TresEntry("cpu", -1), TresEntry("cpu", NO_VAL64)):
        with pytest.raises(GrammarError):
            format_tres([entry])


KEYS = st.sampled_from(["cpu", "mem", "node", "billing", "energy", "gres/gpu", "gres/gpu:a|b.c"])
AMOUNTS = st.none() | st.integers(0, 2**63 - 1)


@given(st.lists(st.builds(TresEntry, KEYS, AMOUNTS), max_size=5))
def test_a_written_list_reads_back(entries: list[TresEntry]) -> None:
    tres = Tres(tuple(entries))
    assert parse_tres(format_tres(tres)) == tres


@given(st.text() | st.text("cpumemgres/:=,.0123KMG", max_size=24))
def test_any_text_gives_a_list_or_a_grammar_error(text: str) -> None:
    try:
        tres = parse_tres(text)
    except GrammarError:
        return
    assert tres.gpu_count >= 0
    assert all(count > 0 for count in tres.gpus.values())
