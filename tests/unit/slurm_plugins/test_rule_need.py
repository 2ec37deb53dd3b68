# SPDX-License-Identifier: Apache-2.0
"""Asking by need: what each word becomes, worked out by hand, and what is never given."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairwatt.core.records import Flavour, GpuAsk, JobRequest
from fairwatt.slurm_plugins.rules.memory_fit import MemoryOptions, memory_fit
from fairwatt.slurm_plugins.rules.need import NeedOptions, need
from fairwatt.slurm_plugins.site import Facts, Site
from tests.fakes.sites import demo, featured, mixed, site

DEMO, MIXED, FEATURED = demo(), mixed(), featured()
BARE = Site(
    Facts(tuple(replace(n, features=()) for n in DEMO.facts.nodes), DEMO.facts.partitions),
    DEMO.catalogue,
)
"""The demo site without node features."""


def ask(type_, count=1, level="node", **fields) -> JobRequest:
    return JobRequest(gpus=(GpuAsk(level=level, type=type_, count=count),), **fields)


def given(outcome) -> list:
    assert outcome.rejection is None, outcome.rejection
    return [gpu.type for gpu in outcome.request.gpus]


def refused(outcome) -> tuple[str, str]:
    assert outcome.rejection is not None
    return outcome.rejection.code, outcome.rejection.text


class TestAnyOf:
    def test_features_that_mark_the_types_make_it_a_constraint(self):
        out = need(ask("a100|h100", 2), FEATURED)
        assert given(out) == [None]
        assert out.request.gpus[0].count == 2
        assert out.request.features == "(a100|h100)"
        assert [(note.code, note.text) for note in out.notes] == [
            (
                "FW113",
                "gpu:a100|h100:2 -> gpu:2 -C '(a100|h100)': "
                "whichever of a100, h100 in partition gpu is free first",
            )
        ]

    @pytest.mark.parametrize(
        ("own", "together"), [("ib", "ib&(a100|h100)"), ("ib|eth", "(ib|eth)&(a100|h100)")]
    )
    def test_the_users_constraint_is_kept(self, own, together):
        assert need(ask("a100|h100", features=own), FEATURED).request.features == together

    def test_a_constraint_that_cannot_be_joined_falls_back_to_a_type(self):
        out = need(ask("h100|a100", features="ib*1"), FEATURED)
        assert given(out) == ["h100"]
        assert out.request.features == "ib*1"
        assert out.request.flavours == (Flavour("a100"),)

    def test_a_constraint_that_leaves_one_type_gives_that_type(self):
        out = need(ask("a100|h100", 8, features="ib"), FEATURED)
        assert given(out) == ["h100"]
        out = need(ask("a100|h100", features="eth"), FEATURED)
        assert (given(out), out.request.features) == (["a100"], "eth")

    def test_a_feature_of_nodes_with_slices_does_not_mark_the_whole_type(self):
        """In partition all the node with slices has the feature a100, too."""
        out = need(ask("a100|h100", partition="all"), DEMO)
        assert given(out) == ["a100"]
        assert out.request.flavours == (Flavour("h100"),)
        assert out.notes[0].text == (
            "gpu:a100|h100:1 -> gpu:a100:1: the first of these in partition all; h100 would do too"
        )

    def test_a_rack_that_has_one_type_today_is_no_mark(self):
        racks = site(
            {"a": ("p", {"a100": 1}), "h": ("p", {"h100": 1}), "v": ("p", {"v100": 1})},
            "p",
            {"a": "rack1", "h": "rack2", "v": "rack3"},
        )
        assert given(need(ask("a100|h100"), racks)) == ["a100"]

    def test_without_features_where_nothing_else_is_it_is_untyped(self):
        out = need(ask("a100|h100"), BARE)
        assert (given(out), out.request.features) == ([None], None)
        assert out.notes[0].code == "FW112"

    def test_a_third_type_in_reach_is_never_risked(self):
        plain = site(
            {"a": ("p", {"a100": 1}), "h": ("p", {"h100": 1}), "v": ("p", {"v100": 1})}, "p"
        )
        out = need(ask("h100|a100"), plain)
        assert given(out) == ["h100"]
        assert out.request.flavours == (Flavour("a100"),)

    def test_as_written_comes_first(self):
        assert given(need(ask("h100|a100", partition="all"), DEMO)) == ["h100"]

    def test_a_type_too_small_for_the_number_is_passed_over(self):
        assert given(need(ask("a100|h100", 8), DEMO)) == ["h100"]

    def test_members_may_be_sizes_families_and_other_names(self):
        out = need(ask("A100|hopper|20gb", partition="all"), DEMO)
        assert given(out) == ["a100"]
        assert out.request.flavours == (Flavour("h100"), Flavour("a100_3g.20gb"))

    def test_a_known_type_that_is_not_here_is_passed_over(self):
        assert given(need(ask("b200|h100"), DEMO)) == ["h100"]

    def test_an_unknown_member_is_refused(self):
        assert refused(need(ask("a100|h10"), DEMO)) == (
            "FW117",
            "gpu:a100|h10:1: h10 is no GPU type or word known here; here: a100, h100",
        )
        assert refused(need(ask("a100|"), DEMO))[0] == "FW117"

    def test_types_in_two_open_partitions_send_the_job_to_both(self):
        out = need(
            ask("v100|t4"),
            site({"v": ("vp", {"v100": 2}), "t": ("tp", {"t4": 4}), "c": ("cpu", {})}, "cpu"),
        )
        assert (given(out), out.request.partition) == ([None], "vp,tp")

    def test_a_named_partition_is_never_left(self):
        assert refused(need(ask("a100|h100", partition="mig"), DEMO)) == (
            "FW115",
            "no GPU in partition mig is a100 or h100; gpu:a100:1 is in partition gpu",
        )

    def test_flavours_say_where_they_are(self):
        out = need(ask("a100|gh200"), FEATURED, NeedOptions(untyped=False))
        assert (given(out), out.request.partition) == (["a100"], None)
        assert out.request.flavours == (Flavour("gh200", "grace"),)
        out = need(ask("gh200|a100"), FEATURED, NeedOptions(untyped=False))
        assert (given(out), out.request.partition) == (["gh200"], "grace")
        assert out.request.flavours == (Flavour("a100", "gpu"),)

    def test_a_partition_with_too_short_a_limit_is_not_chosen(self):
        parts = tuple(
            replace(part, max_time_min=60) if part.name == "grace" else part
            for part in FEATURED.facts.partitions
        )
        short = Site(Facts(FEATURED.facts.nodes, parts), FEATURED.catalogue)
        assert need(ask("gh200", time_limit_min=61), short).rejection is None  # not a need
        code, _ = refused(need(ask("gh200|b200", time_limit_min=61), short))
        assert code == "FW115"
        assert given(need(ask("gh200|b200", time_limit_min=60), short)) == ["gh200"]

    def test_fall_back_can_be_switched_off(self):
        out = need(ask("a100|h100", partition="all"), DEMO, NeedOptions(flavours=False))
        assert out.request.flavours == ()
        assert "would do" not in out.notes[0].text

    @pytest.mark.parametrize("level", ["node", "job", "task", "socket"])
    def test_at_every_level(self, level):
        out = need(ask("a100|h100", 1, level, num_tasks=2), DEMO)
        assert out.request.gpus == (GpuAsk(level=level, type=None, count=1),)

    def test_more_than_any_has(self):
        code, text = refused(need(ask("a100|h100", 9), DEMO))
        assert code == "FW116"
        assert text.endswith("a node has gpu:a100:4, gpu:h100:8")


class TestAny:
    def test_where_only_whole_gpus_are_it_is_untyped(self):
        out = need(ask("any"), DEMO)
        assert (given(out), out.request.exc_nodes, out.request.features) == ([None], None, None)

    def test_nodes_with_slices_are_left_out(self):
        out = need(ask("any", partition="all"), DEMO)
        assert (given(out), out.request.exc_nodes) == ([None], "mig01")
        assert out.notes[0].code == "FW114"

    def test_one_whole_type_beside_slices(self):
        assert given(need(ask("any"), MIXED)) == ["a100"]

    def test_a_change_of_a_pending_job_gets_a_type(self):
        out = need(ask("any", partition="all", exc_known=False), DEMO)
        assert given(out) == ["a100"]

    def test_only_slices_is_refused(self):
        code, text = refused(need(ask("any", partition="mig"), DEMO))
        assert code == "FW115"
        assert "a whole GPU; gpu:a100:1 is in partition gpu" in text

    def test_slices_by_option(self):
        out = need(ask("any", partition="mig"), DEMO, NeedOptions(slices=True))
        assert given(out) == ["a100_1g.5gb"]
        assert out.request.flavours == (Flavour("a100_3g.20gb"),)

    def test_gpus_without_a_type_are_whole_gpus(self):
        plain = site({"n": ("p", {None: 4})}, "p")
        assert given(need(ask("any", 4), plain)) == [None]
        assert refused(need(ask("any", 5), plain))[0] == "FW116"


class TestSlicesAndFamilies:
    @pytest.mark.parametrize(
        ("word", "type_"),
        [
            ("mig", "a100_1g.5gb"),
            ("mig-5gb", "a100_1g.5gb"),
            ("mig-10gb", "a100_3g.20gb"),
            ("MIG-20G", "a100_3g.20gb"),
        ],
    )
    def test_a_slice_of_at_least_that_memory(self, word, type_):
        out = need(ask(word), DEMO)
        assert (given(out), out.request.partition) == ([type_], "mig")

    def test_a_slice_larger_than_any(self):
        assert refused(need(ask("mig-30gb"), DEMO)) == (
            "FW115",
            "no GPU in partition gpu is a slice with 30 GB; here: a100, h100",
        )

    def test_larger_slices_may_follow(self):
        assert need(ask("mig"), DEMO).request.flavours == (Flavour("a100_3g.20gb"),)

    def test_a_family_is_its_whole_boards(self):
        assert given(need(ask("hopper"), DEMO)) == ["h100"]
        assert given(need(ask("Ampere", partition="all"), DEMO)) == ["a100"]

    def test_a_family_that_is_not_here(self):
        assert refused(need(ask("blackwell"), DEMO)) == (
            "FW115",
            "no GPU in partition gpu is of the blackwell family; here: a100, h100",
        )

    def test_least_memory_first_or_most(self):
        two = site({"a": ("p", {"h100": 1}), "b": ("p", {"gh200": 1}), "c": ("p", {"t4": 1})}, "p")
        assert given(need(ask("hopper"), two)) == ["h100"]
        assert given(need(ask("hopper"), two, NeedOptions(order="largest"))) == ["gh200"]

    def test_a_feature_of_the_familys_name(self):
        two = site(
            {"a": ("p", {"h100": 1}), "b": ("p", {"gh200": 1}), "c": ("p", {"t4": 1})},
            "p",
            {"a": "hopper", "b": "hopper", "c": "turing"},
        )
        assert need(ask("hopper"), two).request.features == "hopper"

    def test_a_name_that_means_several_types(self):
        two = site({"a": ("p", {"a100_40": 1, "a100_80": 1}), "b": ("p", {"t4": 1})}, "p")
        out = need(ask("a100"), two)
        assert (given(out), out.request.flavours) == (["a100_40"], (Flavour("a100_80"),))

    def test_a_type_of_the_cluster_is_that_type_whatever_it_is_called(self):
        own = site({"a": ("p", {"hopper": 1}), "b": ("p", {"h100": 1})}, "p")
        request = ask("hopper")
        assert need(request, own).request is request


class TestOwnWords:
    OPTIONS = NeedOptions(words={"training": ("h100", "a100"), "big": ("training", "80gb")})

    def test_a_word_is_its_list_in_order(self):
        out = need(ask("training", partition="all"), DEMO, self.OPTIONS)
        assert given(out) == ["h100"]
        assert out.request.flavours == (Flavour("a100"),)

    def test_words_may_name_words(self):
        assert given(need(ask("Big", 8), DEMO, self.OPTIONS)) == ["h100"]

    def test_words_in_a_circle_end(self):
        round_ = NeedOptions(words={"a": ("b", "h100"), "b": ("a",)})
        assert given(need(ask("a"), DEMO, round_)) == ["h100"]

    def test_nothing_of_it_here(self):
        options = NeedOptions(words={"new": ("b200",)})
        assert refused(need(ask("new"), DEMO, options)) == (
            "FW115",
            "no GPU in partition gpu is for new; here: a100, h100",
        )


class TestOneNeedPerJob:
    def test_two_needs_are_refused(self):
        gpus = (
            GpuAsk(level="node", type="hopper", count=1),
            GpuAsk(level="node", type="a100", count=1),
        )
        assert refused(need(JobRequest(gpus=gpus), DEMO)) == (
            "FW118",
            "gpu:hopper:1,gpu:a100:1: hopper may become any of several types and cannot "
            "stand beside gpu:a100:1",
        )

    def test_the_same_need_at_two_levels_is_one(self):
        gpus = (
            GpuAsk(level="node", type="hopper", count=1),
            GpuAsk(level="job", type="hopper", count=2),
        )
        assert given(need(JobRequest(gpus=gpus, min_nodes=1), DEMO)) == ["h100", "h100"]

    def test_an_untyped_entry_follows(self):
        gpus = (
            GpuAsk(level="node", type="hopper", count=1),
            GpuAsk(level="job", type=None, count=2),
        )
        assert given(need(JobRequest(gpus=gpus), DEMO)) == ["h100", "h100"]


class TestBarredTypes:
    def test_only_what_the_account_may_use_is_chosen(self):
        barred = frozenset({"h100"})
        out = need(ask("any", barred_types=barred), DEMO)
        assert given(out) == ["a100"]
        assert out.request.flavours == ()

    def test_nothing_that_it_may_use(self):
        request = ask("hopper", account="bio", barred_types=frozenset({"h100"}))
        assert refused(need(request, DEMO)) == (
            "FW119",
            "gpu:hopper:1: account bio may not use any GPU that is of the hopper family; "
            "here: a100",
        )

    def test_memory_avoids_them_too(self):
        barred = frozenset({"a100_3g.20gb", "a100"})
        assert given(memory_fit(ask("20gb", barred_types=barred), DEMO)) == ["h100"]


class TestMemoryFlavours:
    def test_larger_types_that_would_do(self):
        out = memory_fit(ask("20gb"), DEMO)
        assert given(out) == ["a100_3g.20gb"]
        assert out.request.flavours == (Flavour("a100", "gpu"), Flavour("h100", "gpu"))

    def test_only_where_the_job_may_go(self):
        out = memory_fit(ask("5gb", partition="mig"), DEMO)
        assert out.request.flavours == (Flavour("a100_3g.20gb"),)

    def test_switched_off(self):
        assert memory_fit(ask("20gb"), DEMO, MemoryOptions(widen=False)).request.flavours == ()

    def test_at_most_four(self):
        many = site(
            {
                f"n{i}": ("p", {t: 1})
                for i, t in enumerate(["t4", "l4", "a40", "l40s", "a100", "h100", "gh200"])
            },
            "p",
        )
        out = memory_fit(ask("1gb"), many)
        # 24, 40, 48, 48 GB follow the 16 of the smallest; l40s and a40 are equal, in name order.
        assert [f.type for f in out.request.flavours] == ["l4", "a100", "a40", "l40s"]

    def test_not_beside_another_type(self):
        gpus = (
            GpuAsk(level="node", type="a100", count=1),
            GpuAsk(level="node", type="80gb", count=1),
        )
        assert memory_fit(JobRequest(gpus=gpus), DEMO).request.flavours == ()

    @pytest.mark.parametrize(("text", "type_"), [("vram40", "a100"), (">=41G", "h100")])
    def test_other_ways_to_write_a_size(self, text, type_):
        assert given(memory_fit(ask(text), DEMO)) == [type_]
