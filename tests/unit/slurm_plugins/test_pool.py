# SPDX-License-Identifier: Apache-2.0
"""Pools: what nodes taken together have, the same as when each node is looked at."""

from __future__ import annotations

import pytest

from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.pool import Kindred, Node, Stock
from fairwatt.slurm_plugins.site import MAX_POOLS, Facts, Partition, Site

A100, SLICE = Stock("a100", 4), Stock("a100_1g.5gb", 7)
NODES = (
    Node("g1", ("gpu", "all"), (A100,), 64, 1000, ("ib",)),
    Node("g2", ("gpu", "all"), (A100,), 64, 1000, ("ib",)),
    Node("g3", ("gpu", "all"), (Stock("a100", 2), SLICE), 64, 1000),
    Node("m1", ("mig", "all"), (SLICE, Stock("a100_1g.5gb", 7)), 32, 500),
    Node("c1", ("all",), (), 128, 500, ("ib",)),
)
PARTITIONS = tuple(Partition(name, default=name == "gpu") for name in ("gpu", "mig", "all"))


@pytest.fixture(scope="module")
def site() -> Site:
    return Site(Facts(NODES, PARTITIONS), load_catalogue())


def test_groups_are_devices_per_node_and_nodes_largest_first():
    pool = Kindred().pool(NODES)
    assert pool.types == ["a100", "a100_1g.5gb"]
    assert pool.groups("a100") == [(4, 2), (2, 1)]
    assert pool.groups("a100_1g.5gb") == [(14, 1), (7, 1)]
    assert pool.groups(None) == [(14, 1), (9, 1), (4, 2)]
    assert pool.groups("h100") == []
    assert (pool.most("a100"), pool.most(None), pool.most("h100")) == (4, 14, 0)
    assert len(pool) == 5


def test_nodes_that_are_alike_are_one_kind():
    pool = Kindred().pool(NODES)
    assert [(kind.cpus, count) for kind, count in pool.kinds] == [
        (64, 2),
        (64, 1),
        (32, 1),
        (128, 1),
    ]
    large = pool.of_kinds(lambda kind: kind.count("a100") == 4)
    assert (len(large), large.most(None), large.types) == (2, 4, ["a100"])


@pytest.mark.parametrize(
    ("fields", "nodes"),
    [
        ({}, "g1 g2 g3"),  # the default partition
        ({"partition": "mig"}, "m1"),
        ({"partition": "gpu,mig"}, "g1 g2 g3 m1"),
        ({"partition": "nowhere"}, ""),
        ({"partition": "all", "exc_nodes": "g[1-2]"}, "c1 g3 m1"),
        ({"partition": "all", "req_nodes": "g[1-2]"}, "g1 g2"),
        ({"partition": "all", "req_nodes": "g[1-2]", "exc_nodes": "g2"}, "g1"),
        ({"partition": "all", "req_nodes": "g1", "max_nodes": 2}, "c1 g1 g2 g3 m1"),
        ({"partition": "mig", "req_nodes": "g1"}, ""),
        ({"partition": "all", "features": "ib"}, "c1 g1 g2"),
        ({"partition": "all", "features": "ib", "exc_nodes": "g1"}, "c1 g2"),
    ],
)
def test_a_request_reaches(site, fields, nodes):
    pool = site.pool(JobRequest(gpus=(), **fields))
    assert sorted(name for cell in pool.cells for name in cell.names) == nodes.split()
    assert site.pool(JobRequest(gpus=(), **fields)) is pool


def test_slice_nodes_are_a_host_list(site):
    assert site.slice_nodes(JobRequest(gpus=())) == "g3"
    assert site.slice_nodes(JobRequest(gpus=(), partition="all")) == "g3,m1"


def test_partitions_that_hold_a_type_small_ones_first(site):
    assert site.partitions_with("a100_1g.5gb") == ("mig", "gpu", "all")
    assert site.partitions_with("a100") == ("gpu", "all")
    assert site.partitions_with(None) == ("mig", "gpu", "all")
    assert site.partitions_with("h100") == ()


def test_users_lists_cannot_fill_the_memory(site):
    for number in range(MAX_POOLS + 10):
        site.pool(JobRequest(gpus=(), exc_nodes=f"x{number}"))
    assert len(site._listed) == MAX_POOLS
