# SPDX-License-Identifier: Apache-2.0
"""The settings files: order, types, and one clear message for each way to get them wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairwatt.core import config
from fairwatt.core.errors import ConfigError
from fairwatt.core.settings import SETTINGS


def written(folder: Path, text: str, **drop_ins: str) -> Path:
    main = folder / "fairwatt.toml"
    main.write_text(text, encoding="utf-8")
    (folder / "conf.d").mkdir()
    for name, body in drop_ins.items():
        (folder / "conf.d" / f"{name}.toml").write_text(body, encoding="utf-8")
    return main


def fault(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    return str(caught.value)


def test_without_a_file_all_defaults_hold() -> None:
    loaded = config.load(None)
    assert loaded.origins == {}
    assert loaded.values == {setting.key: setting.default for setting in SETTINGS}


def test_later_drop_ins_win_key_by_key(tmp_path: Path) -> None:
    main = written(
        tmp_path,
        '[site]\ncluster = "one"\ntimezone = "Europe/Berlin"\n[agent]\nwindow_s = 60\n',
        b_late='[site]\ncluster = "three"\n',
        a_early='[site]\ncluster = "two"\n[agent]\nship_s = 5\n',
    )
    loaded = config.load(main)
    assert loaded["site.cluster"] == "three"
    assert loaded["site.timezone"] == "Europe/Berlin"
    assert loaded["agent.window_s"] == 60
    assert loaded["agent.ship_s"] == 5.0  # an integer is good for a number
    assert isinstance(loaded["agent.ship_s"], float)
    assert Path(loaded.origins["site.cluster"]).name == "b_late.toml"
    assert Path(loaded.origins["site.timezone"]).name == "fairwatt.toml"
    assert "carbon.pue" not in loaded.origins


def test_only_toml_files_of_the_folder_are_read(tmp_path: Path) -> None:
    main = written(tmp_path, "")
    (tmp_path / "conf.d" / "x.toml~").write_text("broken =")
    assert config.load(main).origins == {}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[site\n", ["fairwatt.toml: not valid TOML", "line 1"]),
        (
            '[site]\nclustr = "x"\n',
            ["site.clustr", "unknown key", "'x'", "did you mean site.cluster?"],
        ),
        ("[sites]\nx = 1\n", ["sites", "unknown key", "did you mean site?"]),
        ("cluster = 3\n", ["cluster", "unknown key", "3"]),
        ("[site]\ncluster = 3\n", ["site.cluster", "wrong type", "got 3", "give a string"]),
        (
            "[agent]\nwindow_s = 1.5\n",
            ["agent.window_s", "wrong type", "1.5", "an integer, for example 300"],
        ),
        ("[agent]\nwindow_s = true\n", ["agent.window_s", "wrong type", "True"]),
        ('[agent]\nsample_s = "10"\n', ["agent.sample_s", "'10'", "give a number"]),
        (
            '[host]\nagent = "on"\n',
            ["host.agent", "not a choice", "'on'", "detect, yes, no"],
        ),
        (
            '[collector]\nnode_uids = ["root"]\n',
            ["collector.node_uids", "wrong type", "['root']", "a list, each an integer"],
        ),
        ("[carbon]\npue = nan\n", ["carbon.pue", "out of range", "nan", "0 or more"]),
        ("[agent]\nsample_s = -1\n", ["agent.sample_s", "out of range", "-1.0"]),
        ("[collector]\nnode_uids = [0, -2]\n", ["collector.node_uids", "out of range"]),
        ("[site]\nslurm_conf = ['a']\n", ["site.slurm_conf", "wrong type"]),
    ],
)
def test_a_fault_names_file_key_value_and_remedy(
    tmp_path: Path, text: str, parts: list[str]
) -> None:
    message = fault(written(tmp_path, text))
    assert str(tmp_path / "fairwatt.toml") in message
    for part in parts:
        assert part in message


def test_a_fault_in_a_drop_in_names_the_drop_in(tmp_path: Path) -> None:
    main = written(tmp_path, "", late="[agent]\nnod = 'x'\n")
    assert f"{tmp_path / 'conf.d' / 'late.toml'}: agent.nod: unknown key" in fault(main)


def test_a_missing_or_binary_file_is_named(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in fault(tmp_path / "none.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    assert "binary.toml: not valid TOML" in fault(binary)


def test_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRWATT_CONFIG", str(tmp_path / "x.toml"))
    assert config.find() == tmp_path / "x.toml"
    monkeypatch.delenv("FAIRWATT_CONFIG")
    monkeypatch.setattr(config, "DEFAULT_PATH", tmp_path / "none.toml")
    assert config.find() is None
    (tmp_path / "none.toml").touch()
    assert config.find() == tmp_path / "none.toml"


def test_a_file_can_be_checked_before_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    path.write_text('site.timezone = "Europe/Berlin"\n')
    config._main([str(path)])
    path.write_text('site.timezon = "Europe/Berlin"\n')
    with pytest.raises(SystemExit, match=r"did you mean site\.timezone"):
        config._main([str(path)])
