# SPDX-License-Identifier: Apache-2.0
"""Host lists as Slurm reads them, and what a hostile one may cost."""

from __future__ import annotations

import contextlib
import time

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.core.errors import GrammarError
from fairwatt.slurm_plugins.hostlist import NodeNames, fold, size

SITE = NodeNames(
    ["login", *(f"n{i}" for i in range(12)), *(f"g{i:03d}" for i in range(120))]
    + [f"r{r}c{c:02d}" for r in (1, 2) for c in range(1, 9)]
    + [f"x{i:02d}-ib" for i in range(20)]
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", 0),
        ("login", 1),
        ("n[1-4,7],login", 6),
        ("r[1-2]c[01-08]", 16),
        ("n[0-9999999]", 10**7),
    ],
)
def test_the_size_of_a_list(text, names):
    assert size(text) == names


def test_a_list_of_many_racks_is_read():
    """`-x` of 40 racks is no attack; it was refused with FW304 where Slurm takes it."""
    racks = NodeNames(f"r{rack}n{n}" for rack in range(150) for n in range(4))
    assert len(racks.named(",".join(f"r{rack}n[0-3]" for rack in range(150)))) == 600


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("login", ["login"]),
        ("login,n1,nowhere", ["login", "n1"]),
        ("n[1-2]", ["n1", "n2"]),
        ("n[8-11]", ["n10", "n11", "n8", "n9"]),
        ("n[01-02]", []),  # the first number's width counts
        ("n[0-999999999999]", [f"n{i}" for i in range(12)]),
        ("g[008-011]", ["g008", "g009", "g010", "g011"]),
        ("g[8-11]", []),
        ("g0[08-11]", ["g008", "g009", "g010", "g011"]),
        ("g[098-102,005]", ["g005", "g098", "g099", "g100", "g101", "g102"]),
        ("g1[1-2]", []),
        ("g11[1-2]", ["g111", "g112"]),
        ("r[1-2]c[01-02]", ["r1c01", "r1c02", "r2c01", "r2c02"]),
        ("r[1-2]c01", ["r1c01", "r2c01"]),
        ("r1c0[7-9]", ["r1c07", "r1c08"]),
        ("x[03-04]-ib", ["x03-ib", "x04-ib"]),
        ("g[5-1]", []),
        ("", []),
    ],
)
def test_a_list_names_what_slurm_takes_it_for(text, names):
    assert sorted(SITE.named(text)) == sorted(names)


@pytest.mark.parametrize(
    "text",
    ["g[", "g[a-b]", "g[1-2", "a[1]b[1]c[1]d[1]", ",".join(f"g[{i}]" for i in range(201))],
)
def test_what_is_no_list_is_refused(text):
    with pytest.raises(GrammarError):
        SITE.named(text)


BIG = NodeNames(f"gpu{i:05d}" for i in range(10_000))


@pytest.mark.parametrize(
    "text",
    [
        "gpu[1-999999999]",
        "gpu[00000-99999]," * 31 + "gpu[00000-99999]",
        "gpu[" + ",".join(["00000-99999"] * 400) + "]",
        "gpu[0-9][0-9][0-999999]",
        "gpu[0-999][0-999]",
        "gpu[00000-99999]x1",
    ],
)
def test_no_list_holds_the_daemon_up(text):
    start = time.thread_time()
    with contextlib.suppress(GrammarError):
        BIG.named(text)
    assert time.thread_time() - start < 0.05


names = st.sets(
    st.one_of(
        st.integers(0, 200).map("n{}".format),
        st.integers(0, 200).map("n{:03d}".format),
        st.tuples(st.integers(1, 3), st.integers(0, 20)).map(lambda t: f"r{t[0]}c{t[1]:02d}"),
        st.sampled_from(["login", "x1-ib", "x2-ib", "dgx1a"]),
    ),
    min_size=1,
    max_size=30,
)


@given(names)
def test_folding_is_undone_by_reading(names):
    """ClusterShell, which others wrote, reads it alike."""
    folded = fold(names)
    assert NodeNames(names).named(folded) == names
    assert set(NodeSet(folded)) == names


def test_folded_by_number_and_width():
    assert fold(["g002", "g001", "g004", "n2", "n10", "login"]) == "g[001-002,004],n2,n10,login"
