# SPDX-License-Identifier: Apache-2.0
"""Declared layouts: packing by hand and against the catalogue's rules, every fault of a file."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.core.catalogue import layout_is_legal, load_catalogue
from fairwatt.core.errors import ConfigError
from fairwatt.prolog.mig.layout import Layout, Piece, memory_left_mib, pack, resolve
from fairwatt.prolog.mig.layout_file import inspect_layouts, load_layouts, parse_layouts

CATALOGUE = load_catalogue()
A100 = CATALOGUE.model("a100-40")
MIG_MODELS = [model for model in CATALOGUE.models if model.profiles]


def pieces(*names: str) -> list[Piece]:
    return [Piece(name) for name in names]


@pytest.mark.parametrize(
    ("names", "starts"),
    [
        (["1g.5gb"] * 7, [0, 1, 2, 3, 4, 5, 6]),
        (["3g.20gb"] * 2, [0, 4]),
        (["4g.20gb", "3g.20gb"], [0, 4]),
        (["7g.40gb"], [0]),
        # 4 to 5 keeps 4g at 0, 2g at 0 and 2 and 1g at 0 to 3 and 6 possible; so does no other.
        (["2g.10gb"], [4]),
        # One end of the board: 3g.20gb at 0 stays possible, and 2g.10gb at 0, 2 and 4.
        (["1g.5gb"], [6]),
        ([], []),
    ],
)
def test_packings_worked_out_by_hand(names, starts) -> None:
    placed = pack(A100, pieces(*names))
    assert placed is not None
    assert [each.start for each in placed] == starts


def test_a_fixed_start_is_kept_and_the_others_go_around_it() -> None:
    placed = pack(A100, [Piece("1g.5gb", 6), Piece("3g.20gb")])
    assert placed == (("3g.20gb", 0), ("1g.5gb", 6))


@pytest.mark.parametrize(
    "names",
    [
        ["1g.5gb"] * 8,
        ["3g.20gb"] * 3,
        ["4g.20gb", "4g.20gb"],
        ["7g.40gb", "1g.5gb"],
        ["3g.20gb", "3g.20gb", "1g.5gb"],  # 7 compute slices, but 9 of 8 memory slices
        ["1g.5gb+me", "1g.5gb+me"],
        ["3g.40gb"],
    ],
)
def test_what_no_board_can_hold(names) -> None:
    assert pack(A100, pieces(*names)) is None


def test_memory_that_no_instance_can_use() -> None:
    assert memory_left_mib(A100, Layout("l", tuple(pieces("3g.20gb", "3g.20gb")))) == 0
    assert memory_left_mib(A100, Layout("s", tuple(pieces(*["1g.5gb"] * 7)))) == 5 * 1024
    assert memory_left_mib(A100, Layout("whole")) == 0


@st.composite
def boards(draw):
    model = draw(st.sampled_from(MIG_MODELS))
    names = st.sampled_from([profile.name for profile in model.profiles])
    return model, draw(st.lists(names, max_size=7))


@given(boards())
def test_a_packing_is_legal_and_there_is_one_if_any_placement_is_legal(board) -> None:
    model, names = board
    placed = pack(model, pieces(*names))
    if placed is not None:
        assert sorted(each.profile for each in placed) == sorted(names)
        assert layout_is_legal(model, placed)
    elif len(names) <= 4:
        choices = [model.profile(name).placements for name in names]
        everything = (list(zip(names, starts, strict=True)) for starts in product(*choices))
        assert not any(layout_is_legal(model, each) for each in everything)


@given(boards(), st.randoms())
def test_the_order_of_the_list_does_not_matter(board, random) -> None:
    model, names = board
    mixed = list(names)
    random.shuffle(mixed)
    assert pack(model, pieces(*names)) == pack(model, pieces(*mixed))


GOOD = """
[layouts.inference]
profiles = ["3g.20gb", "3g.20gb"]
[layouts.small]
profiles = { "1g.5gb" = 7 }
gpus = [2, 3]
model = "a100-40"
[layouts.front]
profiles = ["7g.40gb"]
gpus = "0-1"
[nodes]
"mig[01-02]" = "inference"
mix01 = { "0-1" = "whole", "2,GPU-ab" = "inference" }
mix02 = ["front", "small"]
[types]
a100-40 = "a100"
[plan]
allowed = { "mig[01-02]" = ["inference", "whole"] }
keep = { "1g.5gb" = 14 }
min_hold_s = 60
drain = true
"""


class TestFile:
    def test_a_good_file(self) -> None:
        found = parse_layouts(GOOD, "mig.toml", CATALOGUE)
        assert set(found.layouts) == {"whole", "inference", "small", "front"}
        assert set(found.nodes) == {"mig01", "mig02", "mix01", "mix02"}
        mix01, mix02 = found.nodes["mix01"], found.nodes["mix02"]
        names = [
            (layout.name if (layout := node.of_gpu(minor, uuid)) else None)
            for node in (mix01, mix02)
            for minor, uuid in ((0, "GPU-x"), (2, "GPU-x"), (3, "GPU-x"), (4, "GPU-ab"))
        ]
        assert names == ["whole", "inference", None, "inference", "front", "small", "small", None]
        assert found.types == {"a100-40": "a100"}
        assert found.plan.allowed["mig02"] == ("inference", "whole")
        assert (found.plan.keep, found.plan.min_hold_s) == ({"1g.5gb": 14}, 60)
        assert (found.plan.drain, found.plan.dry_run, found.plan.idle_s) == (True, True, 60)

    @pytest.mark.parametrize(
        ("text", "line", "said"),
        [
            ('[layouts.x]\nprofiles = ["3g.21gb"]', 2, "did you mean 3g.20gb?"),
            ('[layouts.x]\nprofiles = ["3g.20gb", "3g.20gb", "3g.20gb"]', 2, "(9 of 7)"),
            ('[layouts.x]\nprofiles = { "1g.5gb" = 8 }', 2, "too many compute slices (8 of 7)"),
            ('[layouts.x]\n\nprofiles = ["3g.20gb@2"]', 3, "possible: 0, 4"),
            ('[layouts.x]\nprofiles = { "1g.5gb+me" = 2 }', 2, "a board has one"),
            (
                '[layouts.x]\nprofiles = ["3g.20gb", "3g.20gb", "1g.5gb"]',
                2,
                "too many memory slices (9 of 8)",
            ),
            ('[layouts.x]\nprofiles = ["3g.20gb@0", "1g.5gb@0"]', 2, "no placement for all"),
            ('[layouts.x]\nmodel = "a30"\nprofiles = ["3g.20gb"]', 3, "NVIDIA A30"),
            ('[layouts.x]\nmodel = "l4"\nprofiles = ["1g.5gb"]', 3, 'use the layout "whole"'),
            ('[layouts.x]\nmodel = "a100"\nprofiles = []', 2, "did you mean a100-"),
            ('[layouts.x]\nprofiles = "3g.20gb"', 2, "write a list"),
            ("[layouts.x]\nprofiles = [3]", 2, "write a list"),
            ('[layouts.x]\nprofiles = { "1g.5gb" = 0 }', 2, "write a list"),
            ('[layouts.x]\nprofiles = { "1g.5gb" = 2000000000 }', 2, "write a list"),
            ("[layouts.x]\ngpus = [0]", 1, "write a list"),
            ('[layouts.x]\nprofiles = []\ngpus = "3-1"', 3, "/dev/nvidiaN"),
            ("[layouts.x]\nprofiles = []\ngpus = [-1]", 3, "/dev/nvidiaN"),
            ("[layouts.x]\nprofiles = []\ngpu = [1]", 3, "did you mean gpus?"),
            ("[layouts.whole]\nprofiles = []", 1, "always known"),
            ("[layout.x]\nprofiles = []", 1, "did you mean layouts?"),
            ("layouts = 3", 1, "write [layouts]"),
            ('[nodes]\nn1 = "smal"\n[layouts.small]\nprofiles=["1g.5gb"]', 2, "mean small?"),
            ('[nodes]\n"n[1-3]" = "whole"\nn2 = "whole"', 3, "see mig.toml:2"),
            ('[nodes]\nn1 = { "0-2" = "whole", "2-3" = "whole" }', 2, "name each GPU once"),
            ('[nodes]\nn1 = { "all" = "whole", "GPU-1" = "whole" }', 2, "name each GPU once"),
            ('[nodes]\nn1 = ["whole", "whole"]', 2, "name each GPU once"),
            ('[nodes]\nn1 = { "x" = "whole" }', 2, "/dev/nvidiaN"),
            ("[nodes]\nn1 = 7", 2, "no such layout"),
            ('[nodes]\n"n[1-" = "whole"', 2, "no host list"),
            ('[nodes]\n"n[1-999999999]" = "whole"', 2, "shorter range"),
            ('[nodes]\n"n[0-9999]x[0-9999]" = "whole"', 2, "shorter range"),
            # Of a layout that is wrong nobody says that there is none.
            ('[layouts.x]\nprofiles = [3]\n[nodes]\nn1 = "x"', 2, "write a list"),
            ('[layouts.x]\nprofiles = [3]\n[plan]\nallowed = { n1 = ["x"] }', 2, "write a list"),
            ('[plan]\nallowed = { n1 = ["x"] }', 2, "no such layout"),
            ('[plan]\nallowed = { n1 = [["x"]] }', 2, "no such layout"),
            ('[plan]\nallowed = { n1 = "whole" }', 2, "no list"),
            ('[plan]\nallowed = { "n[1-2]" = [], n1 = [] }', 2, "name it once"),
            ("[plan]\nkeep = { a100 = -1 }", 2, "0 or more"),
            ("[plan]\nidle_s = true", 2, "write seconds"),
            ("[plan]\ndrain = 1", 2, "true or false"),
            ("[plan]\nhold_s = 1", 2, "did you mean min_hold_s?"),
            ('[types]\na100 = "a100"', 2, "did you mean a100-"),
            ('[types]\na100-40 = "a b"', 2, "no GRES type"),
            ("[layouts.x\n", 1, "not valid TOML"),
            pytest.param("x = " + "[" * 5000, 1, "not valid TOML", id="nested"),
            ('[nodes]\nn1 = "whole"\nn1 = "whole"', 3, "not valid TOML"),
        ],
    )
    def test_a_fault_is_named_with_its_line_and_remedy(self, text, line, said) -> None:
        _, problems = inspect_layouts(text, "mig.toml", CATALOGUE)
        assert len(problems) == 1, [str(each) for each in problems]
        assert str(problems[0]).startswith(f"mig.toml:{line}: ")
        assert said in str(problems[0])
        assert problems[0].remedy

    def test_many_ranges_are_not_too_many_nodes(self) -> None:
        text = '[nodes]\n"n[1-300,401-700,801-1100],r[1-9]c[01-20]" = "whole"\n'
        assert len(parse_layouts(text, "mig.toml", CATALOGUE).nodes) == 900 + 180

    def test_all_faults_at_once_and_the_rest_is_read(self) -> None:
        text = GOOD.replace('"3g.20gb", "3g.20gb"]', '"3g.20gb", "9g.9gb"]') + "x = 1\n"
        found, problems = inspect_layouts(text, "mig.toml", CATALOGUE)
        # The layout itself, not the nodes and the plan that name it; plan.x.
        assert [str(each).split(": ")[0] for each in problems] == ["mig.toml:3", "mig.toml:22"]
        assert "small" in found.layouts
        with pytest.raises(ConfigError) as caught:
            parse_layouts(text, "mig.toml", CATALOGUE)
        assert str(caught.value).count("\n") == 1

    def test_a_file_that_cannot_be_read(self, tmp_path) -> None:
        path = tmp_path / "mig.toml"
        with pytest.raises(ConfigError, match="cannot be read"):
            load_layouts(path, CATALOGUE)
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigError, match="not UTF-8"):
            load_layouts(path, CATALOGUE)


def test_a_layout_on_a_board_that_cannot_be_cut_so() -> None:
    layout = Layout("big", tuple(pieces("3g.20gb")), place="mig.toml:3")
    with pytest.raises(ConfigError, match=r"mig\.toml:3: layout big: no such MIG profile on") as e:
        resolve(layout, CATALOGUE.model("a30"))
    assert "1g.6gb" in str(e.value)
    assert resolve(layout, A100) == (("3g.20gb", 0),) or resolve(layout, A100) == (("3g.20gb", 4),)
