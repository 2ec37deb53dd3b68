# SPDX-License-Identifier: Apache-2.0
"""The linter: planted faults with their line and the line to write; what is generated is clean."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairwatt.core.catalogue import layout_is_legal
from fairwatt.core.errors import ConfigError
from fairwatt.prolog.mig.finding import CODES
from fairwatt.prolog.mig.generate import boards_declared, boards_live, generate
from fairwatt.prolog.mig.layout import ALL, GpuSet, Layout, NodeLayout, Piece, pack
from fairwatt.prolog.mig.lint import lint
from fairwatt.prolog.mig.names import Spelling, detected_name, normalised
from tests.unit.prolog.mig.mig_boards import CATALOGUE, NAMES, board, conf, cut, node

LARGE = cut("3g.20gb@0", "3g.20gb@4")
SMALL = cut(*(f"1g.5gb@{start}" for start in range(7)))


def codes(findings, *, notes: bool = False) -> list[str]:
    return [each.code for each in findings if notes or each.severity != "note"]


def layout_of(placed, name: str = "l") -> Layout:
    return Layout(name, tuple(Piece(each.profile, each.start) for each in placed))


class TestNames:
    @pytest.mark.parametrize(
        ("nvml", "profile", "name"),
        [
            # Slurm 22.05 to 25.11, gpu_nvml.c: cut at the first "-" for MIG only.
            ("NVIDIA A100-SXM4-40GB", None, "nvidia_a100-sxm4-40gb"),
            ("NVIDIA A100-SXM4-40GB", "1g.5gb", "nvidia_a100_1g.5gb"),
            ("NVIDIA A100-SXM4-40GB", "1g.5gb+me", "nvidia_a100_1g.5gb"),
            ("NVIDIA H100 80GB HBM3", "1g.10gb", "nvidia_h100_80gb_hbm3_1g.10gb"),
            ("NVIDIA H200 NVL", "4g.71gb", "nvidia_h200_nvl_4g.71gb"),
        ],
    )
    def test_detected_names(self, nvml, profile, name) -> None:
        assert detected_name(nvml, profile) == name

    @pytest.mark.parametrize(
        ("types", "detected", "given_"),
        [
            (["a100"], ["nvidia_a100-sxm4-40gb"], ["a100"]),
            # Longest types first: the slices take theirs, the board what is left.
            (
                ["a100", "a100_1g.5gb"],
                ["nvidia_a100_1g.5gb", "nvidia_a100-sxm4-40gb"],
                ["a100_1g.5gb", "a100"],
            ),
            # A longer word for the board is tried first, and fits the slice too.
            (
                ["nvidia_a100", "1g.5gb"],
                ["nvidia_a100_1g.5gb"],
                ["nvidia_a100"],
            ),
            (["a100_1g.10gb"], ["nvidia_a100_1g.5gb"], [None]),
            (["A100"], ["nvidia_a100-sxm4-40gb"] * 2, ["A100", None]),
            ([None, None], ["nvidia_a100_1g.5gb"], [""]),
            ([], ["x"], [None]),
        ],
    )
    def test_which_type_slurmd_gives_a_device(self, types, detected, given_) -> None:
        assert normalised(types, detected) == given_


class TestAutodetected:
    def test_all_in_order(self, tmp_path) -> None:
        slurm = conf(tmp_path, "NodeName=n1 Gres=gpu:a100_3g.20gb:2\n", "AutoDetect=nvml\n")
        assert lint(None, slurm, node(board(0, placed=LARGE)), CATALOGUE) == []

    def test_j11_a_type_that_is_no_part_of_the_detected_name(self, tmp_path) -> None:
        """deepops#1214: 28 slices are seen and all ignored; the node drains."""
        slurm = conf(
            tmp_path,
            "ClusterName=c\nNodeName=n1 Gres=gpu:a100-sxm_1g.5gb:7,shard:8 CPUs=4 # old\n",
            "AutoDetect=nvml\n",
        )
        live = node(*(board(minor, placed=SMALL) for minor in range(4)))
        found = lint(None, slurm, live, CATALOGUE)
        assert codes(found) == ["FWM111", "FWM114"]
        assert str(slurm.gres_line.place) == found[0].place
        assert found[0].place.endswith("slurm.conf:2")
        assert "28 x nvidia_a100_1g.5gb" in found[0].text
        assert found[0].write == "NodeName=n1 Gres=gpu:a100_1g.5gb:28,shard:8 CPUs=4"

    def test_the_short_word_of_a_board_whose_name_has_no_dash(self, tmp_path) -> None:
        slurm = conf(tmp_path, "NodeName=n1 Gres=gpu:h100_1g.10gb:1\n", "AutoDetect=nvml\n")
        live = node(board(0, "h100-80", cut("1g.10gb@6")))
        found = lint(None, slurm, live, CATALOGUE)
        assert codes(found) == ["FWM111", "FWM114"]
        assert found[0].write == "NodeName=n1 Gres=gpu:h100_80gb_hbm3_1g.10gb:1"

    @pytest.mark.parametrize(("count", "code"), [(3, "FWM113"), (1, "FWM114")])
    def test_counts(self, tmp_path, count, code) -> None:
        text = f"NodeName=n1 Gres=gpu:a100_3g.20gb:{count}\n"
        slurm = conf(tmp_path, text, "NodeName=n1 AutoDetect=nvml\n")
        found = lint(None, slurm, node(board(0, placed=LARGE)), CATALOGUE)
        assert codes(found) == [code]
        assert found[0].write == "NodeName=n1 Gres=gpu:a100_3g.20gb:2"

    def test_a_type_of_two_kinds_is_noted_while_it_works(self, tmp_path) -> None:
        text = "NodeName=n1 Gres=gpu:a100:1,gpu:a100_3g.20gb:2\n"
        slurm = conf(tmp_path, text, "AutoDetect=nvml\n")
        live = node(board(0), board(1, placed=LARGE))
        found = lint(None, slurm, live, CATALOGUE)
        assert codes(found) == []
        assert [each.code for each in found] == ["FWM112"]
        assert "nvidia_a100-sxm4-40gb, nvidia_a100_3g.20gb" in found[0].text

    def test_a_type_of_two_kinds_that_takes_the_wrong_one(self, tmp_path) -> None:
        """One board configured too many: a slice that no type is left for is counted as it."""
        text = "NodeName=n1 Gres=gpu:a100:2,gpu:a100_3g.20gb:1\n"
        slurm = conf(tmp_path, text, "AutoDetect=nvml\n")
        found = lint(None, slurm, node(board(0), board(1, placed=LARGE)), CATALOGUE)
        assert codes(found) == ["FWM112"]
        assert found[0].severity == "error"
        assert found[0].write == "NodeName=n1 Gres=gpu:a100:1,gpu:a100_3g.20gb:2"

    def test_a_line_for_several_nodes_says_so(self, tmp_path) -> None:
        slurm = conf(tmp_path, "NodeName=n[1-3] Gres=gpu:a100:3\n", "AutoDetect=nvml\n")
        (found,) = lint(None, slurm, node(board(0)), CATALOGUE)
        assert "for 2 more nodes" in found.text
        # The other two may have their three GPUs: less than configured would drain them.
        assert str(found).splitlines()[1:] == [
            "    write: NodeName=n[2-3] Gres=gpu:a100:3",
            "    write: NodeName=n1 Gres=gpu:a100:1",
        ]

    def test_default_gres_is_this_nodes_too(self, tmp_path) -> None:
        text = "NodeName=DEFAULT Gres=gpu:a100:3\nNodeName=n1 CPUs=2\n"
        slurm = conf(tmp_path, text, "AutoDetect=nvml\n")
        (found,) = lint(None, slurm, node(board(0)), CATALOGUE)
        assert found.place.endswith("slurm.conf:2")
        assert found.write == "NodeName=n1 CPUs=2 Gres=gpu:a100:1"

    def test_an_unknown_node_and_one_without_gpus(self, tmp_path) -> None:
        live = node(board(0))
        unknown = conf(tmp_path, "NodeName=n2 Gres=gpu:1\n", "AutoDetect=nvml\n")
        assert codes(lint(None, unknown, live, CATALOGUE)) == ["FWM115"]
        bare = conf(tmp_path, "NodeName=n1 Gres=shard:4\n", "AutoDetect=nvml\n")
        (found,) = lint(None, bare, live, CATALOGUE)
        assert (found.code, found.write) == ("FWM115", "NodeName=n1 Gres=gpu:a100:1,shard:4")

    def test_autodetect_that_does_not_see_mig(self, tmp_path) -> None:
        text = "NodeName=n1 Gres=gpu:a100_3g.20gb:2\n"
        slurm = conf(tmp_path, text, "# all\nAutoDetect=nvidia\n")
        (found,) = lint(None, slurm, node(board(0, placed=LARGE)), CATALOGUE)
        assert (found.code, found.write) == ("FWM131", "AutoDetect=nvml")
        assert found.place.endswith("gres.conf:2")
        assert lint(None, slurm, node(board(0)), CATALOGUE) == []

    def test_mig_mode_without_instances(self, tmp_path) -> None:
        slurm = conf(tmp_path, "NodeName=n1 Gres=gpu:a100:1\n", "AutoDetect=nvml\n")
        found = lint(None, slurm, node(board(0), board(1, placed=())), CATALOGUE)
        assert codes(found) == ["FWM101"]
        assert "24.05" in found[0].text
        assert found[0].place == "/dev/nvidia1"


FILES = """NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia0
NodeName=n1 Name=gpu Type=a100_3g.20gb MultipleFiles=/dev/nvidia1,{caps}110,{caps}111
NodeName=n1 Name=gpu Type=a100_3g.20gb MultipleFiles=/dev/nvidia1,{caps}120,{caps}121
""".format(caps="/dev/nvidia-caps/nvidia-cap")
NODE = "NodeName=n1 Gres=gpu:a100:1,gpu:a100_3g.20gb:2\n"


class TestByHand:
    @pytest.fixture
    def live(self):
        return node(board(0), board(1, placed=LARGE))

    def test_all_in_order(self, tmp_path, live) -> None:
        found = lint(None, conf(tmp_path, NODE, FILES), live, CATALOGUE)
        assert codes(found) == []
        assert codes(found, notes=True) == ["FWM133"]

    @pytest.mark.parametrize(
        ("before", "after", "line", "code", "write"),
        [
            # puppet-magic_castle lists only the GPU instance's file.
            (",/dev/nvidia-caps/nvidia-cap111", "", 2, "FWM121", 1),
            ("/dev/nvidia-caps/nvidia-cap110,", "", 2, "FWM121", 1),
            ("nvidia-cap111", "nvidia-cap121", 2, "FWM122", 1),
            ("nvidia-cap110", "nvidia-cap999", 2, "FWM122", 1),
            ("/dev/nvidia1,", "/dev/nvidia7,", 2, "FWM122", None),
            ("a100_3g.20gb MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap110", None, 2,
             "FWM125", 1),
            ("File=/dev/nvidia0", "File=/dev/nvidia1", 1, "FWM124", None),
        ],
    )  # fmt: skip
    def test_a_planted_fault(self, tmp_path, live, before, after, line, code, write) -> None:
        if after is None:
            after = before.replace("3g.20gb", "1g.5gb")
        text = FILES.replace(before, after, 1)
        assert text != FILES
        found = lint(None, conf(tmp_path, NODE, text), live, CATALOGUE)
        mine = [each for each in found if each.place.endswith(f"gres.conf:{line}")]
        assert code in codes(mine)
        if write is not None:
            written = next(each.write for each in mine if each.code == code)
            assert written == FILES.splitlines()[write]

    def test_one_instance_twice(self, tmp_path, live) -> None:
        lines = FILES.splitlines()
        text = "\n".join([*lines[:2], lines[1], ""])
        found = lint(None, conf(tmp_path, NODE, text), live, CATALOGUE)
        assert codes(found) == ["FWM123"]
        assert found[0].place.endswith("gres.conf:3")
        assert "gres.conf:2" in found[0].text

    def test_gres_conf_with_fewer_than_slurm_conf(self, tmp_path, live) -> None:
        text = "\n".join([*FILES.splitlines()[:2], ""])
        found = lint(None, conf(tmp_path, NODE, text), live, CATALOGUE)
        assert codes(found) == ["FWM116"]
        assert "2 in Gres=, 1 in gres.conf" in found[0].text

    def test_more_configured_than_there_is(self, tmp_path) -> None:
        """J12: four slices became three, both files still say what was."""
        found = lint(
            None,
            conf(tmp_path, NODE, FILES),
            node(board(0), board(1, placed=LARGE[:1])),
            CATALOGUE,
        )
        assert set(codes(found)) == {"FWM113", "FWM122"}
        more = next(each for each in found if each.code == "FWM113")
        assert more.write == "NodeName=n1 Gres=gpu:a100:1,gpu:a100_3g.20gb:1"

    def test_autodetect_besides(self, tmp_path, live) -> None:
        found = lint(None, conf(tmp_path, NODE, "AutoDetect=nvml\n" + FILES), live, CATALOGUE)
        assert codes(found) == ["FWM132"]


class TestDeclared:
    def test_a_board_that_is_not_cut_as_declared(self, tmp_path) -> None:
        slurm = conf(tmp_path, "NodeName=n1 Gres=gpu:a100_3g.20gb:2\n", "AutoDetect=nvml\n")
        declared = NodeLayout("n1", ((ALL, layout_of(SMALL, "small")),), "mig.toml:9")
        found = lint(declared, slurm, node(board(0, placed=LARGE)), CATALOGUE)
        assert codes(found) == ["FWM103"]
        assert found[0].place == "mig.toml:9"
        assert "holds 3g.20gb@0, 3g.20gb@4, small wants 1g.5gb@0" in found[0].text
        assert found[0].write == "fairwatt mig apply n1"

    def test_same_profiles_at_other_places_differ(self, tmp_path) -> None:
        slurm = conf(tmp_path, "NodeName=n1 Gres=gpu:a100_1g.5gb:1\n", "AutoDetect=nvml\n")
        declared = NodeLayout("n1", ((ALL, layout_of(cut("1g.5gb@6"))),))
        live = node(board(0, placed=cut("1g.5gb@0")))
        assert codes(lint(declared, slurm, live, CATALOGUE)) == ["FWM103"]

    def test_mig_mode_other_than_declared(self, tmp_path) -> None:
        slurm = conf(tmp_path, "NodeName=n1 Gres=gpu:a100:1\n", "AutoDetect=nvml\n")
        declared = NodeLayout("n1", ((ALL, layout_of(LARGE, "large")),))
        (found,) = lint(declared, slurm, node(board(0)), CATALOGUE)
        assert "MIG is off, large wants it on" in found.text

    def test_gpus_that_are_not_there_and_layouts_that_do_not_fit(self, tmp_path) -> None:
        slurm = conf(tmp_path, "NodeName=n1 Gres=gpu:a30:1\n", "AutoDetect=nvml\n")
        parts = ((GpuSet(numbers=frozenset([0, 5])), layout_of(LARGE, "large")),)
        found = lint(NodeLayout("n1", parts), slurm, node(board(0, "a30")), CATALOGUE)
        assert codes(found) == ["FWM105", "FWM104"]
        assert "/dev/nvidia5 (layout large) is not on n1; there: /dev/nvidia0" in found[1].text
        assert "no such MIG profile on NVIDIA A30" in found[0].text


def test_every_code_is_documented_and_used() -> None:
    import re
    from pathlib import Path

    root = Path(__file__).parents[4]
    page = (root / "docs" / "mig.md").read_text()
    rows = dict(re.findall(r"^\| (FWM\d+) \| (.*) \|$", page, re.MULTILINE))
    assert rows == CODES
    code = "".join(path.read_text() for path in (root / "prolog" / "mig").glob("lint*.py"))
    assert set(re.findall(r'"(FWM\d+)"', code)) == set(CODES)


@st.composite
def live_nodes(draw):
    """A node whose boards are cut at random but legally, of one model or two."""
    gpus = []
    for minor in range(draw(st.integers(1, 4))):
        key = draw(st.sampled_from(sorted(NAMES)))
        model = CATALOGUE.model(key)
        names = [profile.name for profile in model.profiles]
        pieces = draw(st.lists(st.sampled_from(names).map(Piece), max_size=7))
        gpus.append(board(minor, key, pack(model, pieces) or None))
    return node(*gpus)


@given(live_nodes(), st.sampled_from(["nvml", "files"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
def test_what_is_generated_is_legal_and_lint_finds_nothing(tmp_path, live, style) -> None:
    parts = []
    for gpu in live.gpus:
        layout = layout_of(gpu.placed, f"l{gpu.minor}") if gpu.mig else Layout("whole")
        parts.append((GpuSet(numbers=frozenset([gpu.minor])), layout))
    declared = NodeLayout("n1", tuple(parts))
    boards, faults = boards_declared(declared, live, CATALOGUE)
    assert faults == []
    assert all(layout_is_legal(each.model, each.placed) for each in boards)
    spelling = Spelling(CATALOGUE, must_match=style == "nvml")
    made = generate("n1", boards, spelling, style, live=live)
    assert made == generate("n1", boards_live(live, CATALOGUE), spelling, style, live=live)
    assert sum(made.counts.values()) == sum(len(gpu.instances) or 1 for gpu in live.gpus)
    text = f"NodeName=n1 Gres={made.gres} CPUs=8\n"
    written = conf(tmp_path, text, "\n".join([*made.lines, ""]))
    assert codes(lint(declared, written, live, CATALOGUE)) == []


def test_generated_lines_by_hand() -> None:
    live = node(board(0), board(1, placed=LARGE))
    made = generate("n1", boards_live(live, CATALOGUE), Spelling(CATALOGUE), "files", live=live)
    assert made.gres == "gpu:a100:1,gpu:a100_3g.20gb:2"
    assert "\n".join([*made.lines, ""]) == FILES


def test_lines_of_a_layout_that_is_not_on_the_board_yet() -> None:
    live = node(board(0))
    declared = NodeLayout("n1", ((ALL, layout_of(LARGE)),))
    boards, _ = boards_declared(declared, live, CATALOGUE)
    made = generate("n1", boards, Spelling(CATALOGUE, must_match=True), "nvml", live=live)
    assert made.gres == "gpu:a100_3g.20gb:2"
    assert made.lines == ("NodeName=n1 AutoDetect=nvml",)
    with pytest.raises(ConfigError, match="apply the layout first"):
        generate("n1", boards, Spelling(CATALOGUE), "files", live=live)


class TestSpelling:
    @pytest.mark.parametrize(
        ("known", "words", "profile", "type_"),
        [
            ((), {}, None, "a100"),
            ((), {}, "3g.20gb", "a100_3g.20gb"),
            (("nvidia_a100_1g.5gb",), {}, "3g.20gb", "nvidia_a100_3g.20gb"),
            (("1g.5gb",), {}, "3g.20gb", "3g.20gb"),
            (("A100",), {}, "3g.20gb", "A100_3g.20gb"),
            (("h100_3g.40gb",), {}, "3g.20gb", "a100_3g.20gb"),
            (("1g.5gb",), {"a100-40": "a100l"}, "3g.20gb", "a100l_3g.20gb"),
        ],
    )
    def test_the_sites_own_words(self, known, words, profile, type_) -> None:
        spelling = Spelling(CATALOGUE, words, known)
        assert spelling.type_of(CATALOGUE.model("a100-40"), profile) == type_
