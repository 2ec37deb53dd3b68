# SPDX-License-Identifier: Apache-2.0
"""The catalogue: facts of NVIDIA's tables, names of real boards, site files, legal layouts."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

from fairwatt.core.catalogue import (
    Catalogue,
    GpuModel,
    MigProfile,
    layout_is_legal,
    load_catalogue,
)
from fairwatt.core.errors import CatalogueError

CATALOGUE = load_catalogue()


@pytest.mark.parametrize(
    ("gres_type", "key", "profile", "memory_gib", "milli"),
    [
        ("a100_1g.5gb", "a100-40", "1g.5gb", 5, 143),
        ("nvidia_a100_1g.5gb", "a100-40", "1g.5gb", 5, 143),
        ("1g.5gb", "a100-40", "1g.5gb", 5, 143),
        ("mig-1g.5gb", "a100-40", "1g.5gb", 5, 143),
        ("a100_3g.20gb", "a100-40", "3g.20gb", 20, 429),
        ("A100_3G.20GB", "a100-40", "3g.20gb", 20, 429),
        ("nvidia_a100-sxm4-80gb_2g.20gb", "a100-80", "2g.20gb", 20, 286),
        ("a100_1g.10gb", "a100-80", "1g.10gb", 10, 143),
        ("a100-40_1g.10gb", "a100-40", "1g.10gb", 10, 143),
        ("nvidia_h200_nvl_4g.71gb", "h200-nvl", "4g.71gb", 71, 571),
        ("h100_7g.80gb", "h100-80", "7g.80gb", 80, 1000),
        ("a30_2g.12gb", "a30", "2g.12gb", 12, 500),
        ("a100_1g.5gb+me", "a100-40", "1g.5gb+me", 5, 143),
        ("a100-40_1c.3g.20gb", "a100-40", "1c.3g.20gb", 20, 143),
    ],
)
def test_reads_slices(gres_type: str, key: str, profile: str, memory_gib: int, milli: int) -> None:
    found = CATALOGUE.slice_type(gres_type)
    assert found is not None
    assert (found[0].key, found[1].name) == (key, profile)
    assert CATALOGUE.memory_mib_of_type(gres_type) == memory_gib * 1024
    assert CATALOGUE.milli_of_type(gres_type) == milli


@pytest.mark.parametrize(
    ("gres_type", "key", "memory_gib"),
    [
        ("a100", "a100-40", 40),
        ("A100", "a100-40", 40),
        ("a100l", "a100-80", 80),
        ("nvidia_a100-sxm4-80gb", "a100-80", 80),
        ("nvidia_a100_80gb_pcie", "a100-80", 80),
        ("h100", "h100-80", 80),
        ("nvidia_h100_80gb_hbm3", "h100-80", 80),
        ("nvidia_h200", "h200", 141),
        ("tesla_v100-sxm2-32gb", "v100-32", 32),
        ("t4", "t4", 16),
        ("l40s", "l40s", 48),
    ],
)
def test_reads_whole_boards(gres_type: str, key: str, memory_gib: int) -> None:
    assert CATALOGUE.slice_type(gres_type) is None
    assert CATALOGUE.model(gres_type).key == key
    assert CATALOGUE.memory_mib_of_type(gres_type) == memory_gib * 1024
    assert CATALOGUE.milli_of_type(gres_type) == 1000


@pytest.mark.parametrize(
    "gres_type", ["", "a100_1g.7gb", "foo_1g.5gb", "a100l.1", "20gb", "a1000", "any", "a100_", "g"]
)
def test_what_it_does_not_know_is_unknown(gres_type: str) -> None:
    assert CATALOGUE.slice_type(gres_type) is None
    assert CATALOGUE.memory_mib_of_type(gres_type) is None
    assert CATALOGUE.milli_of_type(gres_type) is None


def test_an_unknown_model_offers_the_nearest() -> None:
    with pytest.raises(CatalogueError, match="did you mean h200"):
        CATALOGUE.model("h200x")


@pytest.mark.parametrize(
    ("name", "memory_mib", "key"),
    [
        ("NVIDIA A100-SXM4-40GB", 40960, "a100-40"),
        ("NVIDIA A100-SXM4-40GB", 40536, "a100-40"),
        ("NVIDIA A100 80GB PCIe", 81920, "a100-80"),
        ("NVIDIA A30", 24576, "a30"),
        ("NVIDIA H100 80GB HBM3", 81559, "h100-80"),
        ("NVIDIA H100 PCIe", 81559, "h100-pcie-80"),
        ("NVIDIA H100 NVL", 95830, "h100-nvl-94"),
        ("NVIDIA H200", 143771, "h200"),
        ("NVIDIA H200 NVL", 143771, "h200-nvl"),
        ("NVIDIA B200", 183359, "b200"),
        ("NVIDIA L40S", 46068, "l40s"),
        ("Tesla V100-SXM2-16GB", 16384, "v100-16"),
        ("Tesla V100-SXM2-32GB", None, "v100-32"),
        ("Tesla T4", 15360, "t4"),
        ("Tesla P100-PCIE-16GB", 16280, "p100"),
        ("NVIDIA GH200 480GB", 97871, "gh200-96"),
        ("NVIDIA A1000", 8192, None),
        ("NVIDIA A30", 81920, None),
        ("NVIDIA GeForce RTX 4090", 24564, None),
    ],
)
def test_knows_boards_by_name_and_memory(
    name: str, memory_mib: int | None, key: str | None
) -> None:
    model = CATALOGUE.model_of_name(name, memory_mib)
    assert (None if model is None else model.key) == key


def test_families_hold_their_boards() -> None:
    assert [model.key for model in CATALOGUE.family("Ampere")] == [
        "a100-40",
        "a100-80",
        "a30",
        "a40",
    ]
    assert CATALOGUE.family("nothing") == ()


def test_placements_are_those_of_the_user_guide() -> None:
    model = CATALOGUE.model("a100-40")
    placements = {profile.name: profile.placements for profile in model.profiles}
    assert placements == {
        "1g.5gb": (0, 1, 2, 3, 4, 5, 6),
        "1g.5gb+me": (0, 1, 2, 3, 4, 5, 6),
        "1g.10gb": (0, 2, 4, 6),
        "2g.10gb": (0, 2, 4),
        "3g.20gb": (0, 4),
        "4g.20gb": (0,),
        "7g.40gb": (0,),
    }
    assert (model.compute_slices, model.memory_slices) == (7, 8)
    a30 = CATALOGUE.model("a30")
    assert (a30.compute_slices, a30.memory_slices) == (4, 4)


@pytest.mark.parametrize(
    ("key", "layout", "legal"),
    [
        ("a100-40", [], True),
        ("a100-40", [("1g.5gb", start) for start in range(7)], True),
        ("a100-40", [("3g.20gb", 0), ("3g.20gb", 4)], True),
        ("a100-40", [("4g.20gb", 0), ("3g.20gb", 4)], True),
        ("a100-40", [("4g.20gb", 0), ("2g.10gb", 4), ("1g.5gb", 6)], True),
        ("a100-40", [("3g.20gb", 0), ("1g.5gb", 4), ("1g.5gb", 5), ("1g.5gb", 6)], True),
        ("a100-40", [("1g.10gb", 0), ("1g.10gb", 2), ("1g.10gb", 4), ("1g.10gb", 6)], True),
        ("a100-40", [("7g.40gb", 0)], True),
        ("a100-40", [("3g.20gb", 0), ("3g.20gb", 0)], False),
        ("a100-40", [("3g.20gb", 2)], False),
        ("a100-40", [("4g.20gb", 4)], False),
        ("a100-40", [("1g.5gb", 7)], False),
        ("a100-40", [("7g.40gb", 0), ("1g.5gb", 6)], False),
        ("a100-40", [("3g.20gb", 4), ("1g.5gb", 5)], False),
        ("a100-40", [("1g.5gb+me", 0), ("1g.5gb+me", 1)], False),
        ("a100-40", [("1g.5gb+me", 0), ("1g.5gb", 1)], True),
        ("a30", [("1g.6gb", 0), ("1g.6gb", 1), ("2g.12gb", 2)], True),
        ("a30", [("2g.12gb", 1)], False),
        ("a30", [("4g.24gb", 0), ("1g.6gb", 3)], False),
    ],
)
def test_tells_legal_layouts(key: str, layout: list[tuple[str, int]], legal: bool) -> None:
    assert layout_is_legal(CATALOGUE.model(key), layout) is legal


def test_a_layout_with_a_foreign_profile_names_the_known_ones() -> None:
    with pytest.raises(CatalogueError, match=r"a100-40.*9g\.90gb.*known: 1g\.5gb"):
        layout_is_legal(CATALOGUE.model("a100-40"), [("9g.90gb", 0)])


# "Number of instances available" of the MIG User Guide, by memory slices of the board.
INSTANCES = {
    8: {("1g", 1): 7, ("1g", 2): 4, ("2g", 2): 3, ("3g", 4): 2, ("4g", 4): 1, ("7g", 8): 1},
    4: {("1g", 1): 4, ("2g", 2): 2, ("4g", 4): 1},
}


@pytest.mark.parametrize("model", CATALOGUE.models, ids=lambda model: model.key)
def test_every_board_is_consistent(model: GpuModel) -> None:
    assert 0 < model.idle_mw <= model.idle_mig_mw < model.max_mw
    for profile in model.profiles:
        whole = model.memory_mib * profile.memory_slices / model.memory_slices
        assert profile.memory_mib == pytest.approx(whole, rel=0.06), profile.name
        wanted = INSTANCES[model.memory_slices][profile.name[:2], profile.size]
        assert most_instances(model, profile) == (1 if profile.media else wanted)


def most_instances(model: GpuModel, profile: MigProfile) -> int:
    return max(
        count
        for count in range(1, len(profile.placements) + 1)
        for starts in combinations(profile.placements, count)
        if layout_is_legal(model, [(profile.name, start) for start in starts])
    )


def site(folder: Path, **files: str) -> Catalogue:
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)
    return load_catalogue(str(folder))


NEW_MODEL = """
[model.x900]
title = "X900"
family = "Ymir"
nvml_names = ["ACME X900"]
slurm_types = ["x900"]
memory_gb = 32
idle_w = 20
idle_mig_w = 21
max_w = 200
"""


def test_a_site_adds_a_model_and_changes_another(tmp_path: Path) -> None:
    catalogue = site(tmp_path, a=NEW_MODEL, b="[model.a100-40]\nidle_w = 46\n")
    assert catalogue.memory_mib_of_type("x900") == 32768
    assert [model.key for model in catalogue.family("ymir")] == ["x900"]
    assert catalogue.model("a100-40").idle_mw == 46_000
    assert catalogue.model("a100-40").max_mw == 400_000
    assert load_catalogue().model("a100-40").idle_mw == 50_000


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[model]\nx = = 3", r"site\.toml: not valid TOML: .*line 2"),
        ("[gpu.x]\n", r"site\.toml: gpu: unknown key .*write \[model\.NAME\]"),
        ("[model]\nx = 3\n", r"site\.toml: model\.x: not a table \(got 3\)"),
        (
            "[model.a30]\nidel_w = 3\n",
            r"site\.toml: model\.a30\.idel_w: unknown key \(got 3\); did you mean idle_w\?",
        ),
        (
            "[model.a30]\nidle_w = 'x'\n",
            r"site\.toml: model\.a30\.idle_w: wrong value \(got 'x'\); Expected `int`",
        ),
        ("[model.a30]\nidle_w = -3\n", r"model\.a30\.idle_w: wrong value \(got -3\)"),
        ("[model.x900]\nfamily = 'y'\n", r"model\.x900\.title: missing key; a new model needs"),
        (
            "[model.a30]\nprofiles = [{name = '1g.6gb', size = 2, starts = [3]}]\n",
            r"model\.a30\.profiles\[0\]: a placement ends beyond the board \(got \(3,\)\)",
        ),
        (
            "[model.a30]\nprofiles = [{name = 'big', size = 2, starts = [0]}]\n",
            r"model\.a30\.profiles\[0\]\.name: wrong value",
        ),
    ],
)
def test_a_broken_file_names_file_key_value_and_remedy(
    tmp_path: Path, text: str, wanted: str
) -> None:
    with pytest.raises(CatalogueError) as caught:
        site(tmp_path, site=text)
    assert re.search(wanted, str(caught.value)), str(caught.value)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"site\.catalogue_dir: no such folder"):
        load_catalogue(str(tmp_path / "none"))


def test_no_model_is_named_in_code() -> None:
    rooms = Path(__file__).parents[3]
    names = re.compile(
        r"\b(a100|h100|h200|b200|a30|l40s|v100|t4|p100|gh200)(?![0-9a-z])", re.IGNORECASE
    )
    for room in ("core", "slurm_plugins", "prolog", "accounting"):
        for path in (rooms / room).rglob("*.py"):
            if path.name == "seed.py":  # invented data
                continue
            code = re.sub(r'"""(.|\n)*?"""|#.*', "", path.read_text())
            assert not names.search(code), path
