# SPDX-License-Identifier: Apache-2.0
"""Constraints on node features: which are understood, and how one more condition is added.

The readings are those of slurmctld 22.05, 24.11 and 26.05 for `sbatch -w NODE -C TEXT`.
"""

from __future__ import annotations

import pytest

from fairwatt.slurm_plugins.constraint import combined, groups, holds, same_for_all

NODES = {"gpu01": {"a100", "x"}, "gpu02": {"a100", "y"}, "h01": {"h100", "x"}}


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("a100", ["gpu01", "gpu02"]),
        ("(a100|h100)", ["gpu01", "gpu02", "h01"]),
        ("[a100|h100]", ["gpu01", "gpu02", "h01"]),
        ("x&(a100|h100)", ["gpu01", "h01"]),
        ("(a100|h100)&x", ["gpu01", "h01"]),
        ("(x|y)&(a100|h100)", ["gpu01", "gpu02", "h01"]),
        ("(x|y)&h100", ["h01"]),
        ("x,a100", ["gpu01"]),
        ("x&y", []),
        ("(a100)", ["gpu01", "gpu02"]),
        ("a100|h100", ["gpu01", "gpu02", "h01"]),
    ],
)
def test_what_slurm_takes_it_for(text, nodes):
    wanted = groups(text)
    assert wanted is not None
    assert [name for name, features in NODES.items() if holds(wanted, features)] == nodes


@pytest.mark.parametrize(
    "text",
    [
        "x&a100|h100",
        "a|b&c",
        "(x&a100)|h100",
        "((a|b))",
        "a*2",
        "[a*1&b*2]",
        "a&",
        "|a",
        "(a|b",
        "a b",
    ],
)
def test_what_has_more_than_one_reading_is_left_to_slurm(text):
    assert groups(text) is None
    assert combined(text, ["a100"]) is None


@pytest.mark.parametrize(
    ("own", "result"),
    [
        (None, "(a100|h100)"),
        ("", "(a100|h100)"),
        ("ib", "ib&(a100|h100)"),
        ("ib&nvme", "ib&nvme&(a100|h100)"),
        ("ib,nvme", "ib,nvme&(a100|h100)"),
        ("ib|eth", "(ib|eth)&(a100|h100)"),
        ("ib&(x|y)", "ib&(x|y)&(a100|h100)"),
        ("a100|h100", "a100|h100"),
        ("ib&(a100|h100)", "ib&(a100|h100)"),
        ("[rack1|rack2]", None),
        ("ib|eth&nvme", None),
        ("ib*2", None),
    ],
)
def test_the_users_own_constraint_is_kept(own, result):
    assert combined(own, ["a100", "h100"]) == result


def test_one_feature_needs_no_brackets():
    assert combined("ib", ["hopper"]) == "ib&hopper"


def test_one_feature_for_all_nodes():
    assert same_for_all("[a|b]")
    assert not any(map(same_for_all, [None, "a", "(a|b)", "a|b", "[a|b]&c"]))
