# SPDX-License-Identifier: Apache-2.0
"""`fairwatt doctor`: every fault is a finding with a remedy, never a crash."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner

from fairwatt.core import checks as core_checks
from fairwatt.core import config, doctor
from fairwatt.core.doctor import Check, Finding, Report
from fairwatt.core.errors import StoreError
from fairwatt.core.gres import parse_node_gres
from fairwatt.core.slurm import NodeFacts

DEFAULTS = config.load(None)


def raises(error: Exception) -> Check:
    def run(_: config.Config) -> NoReturn:
        raise error

    return Check("room.check", run)


def test_no_finding_is_ok() -> None:
    assert doctor.run_checks([Check("a", lambda _: [])], DEFAULTS) == []
    assert Report(()).ok


@pytest.mark.parametrize(("level", "ok"), [("info", True), ("warn", True), ("error", False)])
def test_only_errors_are_faults(level: str, ok: bool) -> None:
    finding = Finding("p", "r", level)  # type: ignore[arg-type]
    assert Report((("a", finding),)).ok is ok


def test_our_own_errors_become_findings_with_their_remedy() -> None:
    error = StoreError("is locked", place="/x.db", remedy="stop the other writer")
    assert doctor.run_checks([raises(error)], DEFAULTS) == [
        ("room.check", Finding("/x.db: is locked", "stop the other writer"))
    ]


def test_a_broken_check_does_not_hide_the_others() -> None:
    found = doctor.run_checks(
        [raises(ZeroDivisionError("by zero")), Check("b", lambda _: [Finding("p", "r")])], DEFAULTS
    )
    assert [name for name, _ in found] == ["room.check", "b"]
    assert found[0][1].problem == "check failed: ZeroDivisionError: by zero"


def test_a_room_that_cannot_be_imported_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [EntryPoint("ghost", "fairwatt.ghost.checks:checks", doctor.CHECK_GROUP)]
    monkeypatch.setattr(doctor, "entry_points", lambda group: entries)
    monkeypatch.delenv("FAIRWATT_CONFIG", raising=False)
    report = doctor.examine()
    ((name, finding),) = report.findings
    assert name == "ghost"
    assert "No module named 'fairwatt.ghost'" in finding.problem
    assert not report.ok


def test_a_broken_configuration_is_the_only_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fairwatt.toml"
    path.write_text("[site]\nclustr = 'x'\n")
    monkeypatch.setenv("FAIRWATT_CONFIG", str(path))
    done = CliRunner().invoke(doctor.doctor, ["--json"])
    assert done.exit_code == 1
    answer = json.loads(done.stdout)
    assert answer == {
        "ok": False,
        "findings": [
            {
                "check": "core.config",
                "level": "error",
                "problem": f"{path}: site.clustr: unknown key (got 'x')",
                "remedy": "did you mean site.cluster?",
            }
        ],
    }


def test_lines_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = (("a.b", Finding("is on\n fire", "put it out")), ("c", Finding("fine", "", "info")))
    monkeypatch.setattr(doctor, "examine", lambda: Report(findings))
    done = CliRunner().invoke(doctor.doctor, [])
    assert done.stdout.splitlines() == [
        "error a.b: is on fire; put it out",
        "info  c: fine",
        "not ok: see the errors",
    ]
    assert done.exit_code == 1
    monkeypatch.setattr(doctor, "examine", lambda: Report(findings[1:]))
    done = CliRunner().invoke(doctor.doctor, [])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == "ok: no faults found"


# -- the checks of core ---------------------------------------------------------------------------


def settings(**changes: str) -> config.Config:
    values = {**DEFAULTS.values, **{key.replace("__", "."): v for key, v in changes.items()}}
    return config.Config(values, {})


def findings(name: str, conf: config.Config) -> list[Finding]:
    (check,) = [check for check in core_checks.checks if check.name == name]
    return [finding for _, finding in doctor.run_checks([check], conf)]


def fake_slurm(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, state: str, tres: str, gres: str
) -> None:
    nodes = json.dumps(
        {
            "nodes": [
                {
                    "name": "n1",
                    "state": ["IDLE"],
                    "gres": gres,
                    "cpus": 1,
                    "real_memory": 1,
                    "partitions": [],
                    "features": [],
                }
            ]
        }
    )
    body = (
        f"#!/bin/sh\ncase \"$*\" in ping) echo 'Slurmctld(primary) at h is {state}';;\n"
        f"*config) echo 'AccountingStorageTRES = {tres}';;\n*) echo '{nodes}';; esac\n"
    )
    for name in core_checks.SLURM_COMMANDS:
        (folder / name).write_text(body)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_says_which_files_the_settings_came_from() -> None:
    (finding,) = findings("core.config", settings())
    assert (finding.level, finding.problem) == ("info", "no settings file: all defaults")
    some = config.Config(DEFAULTS.values, {"site.cluster": "/b.toml", "agent.node": "/a.toml"})
    (finding,) = findings("core.config", some)
    assert finding.problem == "settings from /a.toml, /b.toml"


def test_a_broken_catalogue_file_is_found(tmp_path: Path) -> None:
    assert findings("core.catalogue", settings()) == []
    (tmp_path / "x.toml").write_text("[model.a]\nidel_w = 1\n")
    (finding,) = findings("core.catalogue", settings(site__catalogue_dir=str(tmp_path)))
    assert "x.toml: model.a.idel_w: unknown key" in finding.problem


def test_a_missing_munged_is_found(tmp_path: Path) -> None:
    (finding,) = findings("core.munge", settings(site__munge_socket=str(tmp_path / "m")))
    assert (
        finding.problem == f"{tmp_path / 'm'}: munged does not answer (No such file or directory)"
    )


def test_a_healthy_slurm_has_no_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_slurm(tmp_path, monkeypatch, state="UP", tres="cpu,gres/gpu", gres="gpu:a100:4(S:0)")
    for name in ("core.slurm", "core.gpu_accounting", "core.gres_types"):
        assert findings(name, settings()) == []


def test_says_which_backend_asks_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_slurm(tmp_path, monkeypatch, state="UP", tres="cpu", gres="")
    (finding,) = findings("core.slurm_backend", settings(site__slurm_backend="cli"))
    assert finding.level == "info"
    assert finding.problem == "Slurm is asked through cli: site.slurm_backend says so"


def test_missing_commands_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (finding,) = findings("core.slurm", settings())
    assert finding.problem == "not found: scontrol, sbatch, squeue, sacct"


def test_a_silent_controller_is_found_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_slurm(tmp_path, monkeypatch, state="DOWN", tres="cpu", gres="gpu:x:1")
    (finding,) = findings("core.slurm", settings())
    assert finding.problem == "slurmctld does not answer"
    assert findings("core.gpu_accounting", settings()) == []
    assert findings("core.gres_types", settings()) == []


def test_a_missing_slurm_conf_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_slurm(tmp_path, monkeypatch, state="UP", tres="cpu", gres="")
    (finding,) = findings("core.slurm", settings(site__slurm_conf=str(tmp_path / "none")))
    assert finding.problem.endswith("none does not exist")


def test_missing_gpu_accounting_is_found(  # W5
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_slurm(tmp_path, monkeypatch, state="UP", tres="cpu,gres/gpu:a100", gres="")
    (finding,) = findings("core.gpu_accounting", settings())
    assert "does not count GPUs" in finding.problem
    assert "AccountingStorageTRES" in finding.remedy


def node(name: str, gres: str) -> NodeFacts:
    return NodeFacts(name, "IDLE", (), parse_node_gres(gres), 1, 1, (), ())


def test_unknown_types_are_found_once_each() -> None:
    nodes = [
        node("n1", "gpu:a100:2,gpu:weird:1,shard:weird:4"),
        node("n2", "gpu:weird:1"),
        node("n3", "gpu:4"),
    ]
    weird, untyped = core_checks.unknown_types(nodes, "")
    assert weird.problem == "GPU type 'weird' of n1, n2 is not in the catalogue"
    assert untyped.level == "warn"
    assert untyped.problem.startswith("untyped GPUs on n3")
