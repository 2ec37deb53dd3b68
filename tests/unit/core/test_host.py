# SPDX-License-Identifier: Apache-2.0
"""The doctor asks only for the parts that a host should run."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from fairwatt.accounting.agent.checks import checks as agent_checks
from fairwatt.accounting.checks import checks as accounting_checks
from fairwatt.core import checks as core_checks
from fairwatt.core import config as config_module
from fairwatt.core.config import Config
from fairwatt.core.doctor import Finding, run_checks
from fairwatt.core.healthz import local_url, what_is_wrong
from fairwatt.core.host import is_expected
from fairwatt.dashboard.checks import checks as dashboard_checks
from fairwatt.prolog import checks as prolog_checks
from fairwatt.slurm_plugins import checks as submit_checks

ALL_NO = {f"host.{part}": "no" for part in ("policyd", "agent", "collector", "dashboard")}


@pytest.fixture(autouse=True)
def no_gpu_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a host without one: other tests may have loaded the fake into this process."""

    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)


def settings(**changes: Any) -> Config:
    defaults = config_module.load(None)
    named = {key.replace("__", "."): value for key, value in changes.items()}
    return replace(defaults, values={**defaults.values, **named})


def found(checks: list[Any], config: Config) -> list[tuple[str, str]]:
    return [(name, finding.level) for name, finding in run_checks(checks, config)]


@pytest.mark.parametrize(
    ("value", "detected", "expected"),
    [("yes", False, True), ("no", True, False), ("detect", True, True), ("detect", False, False)],
)
def test_a_setting_wins_over_detection(value: str, detected: bool, expected: bool) -> None:
    config = settings(host__agent=value)
    assert is_expected(config, "agent", lambda: detected) is expected


def test_a_host_without_parts_has_no_fault_of_ours(tmp_path: Path) -> None:
    config = settings(**ALL_NO, collector__database=str(tmp_path / "none.db"))
    for checks in (submit_checks.checks, dashboard_checks, prolog_checks.checks):
        assert found(checks, config) == []
    levels = {level for _, level in found(agent_checks + accounting_checks, config)}
    assert levels <= {"info", "warn"}


def test_an_expected_collector_without_store_or_port_is_a_fault(tmp_path: Path) -> None:
    config = settings(
        host__collector="yes",
        collector__database=str(tmp_path / "none.db"),
        collector__listen="127.0.0.1:1",
    )
    errors = [item for item in found(accounting_checks, config) if item[1] == "error"]
    assert errors == [("accounting.database", "error"), ("accounting.collector", "error")]


def test_an_expected_dashboard_that_is_down_is_a_fault() -> None:
    config = settings(host__dashboard="yes", dashboard__listen="127.0.0.1:1")
    ((name, finding),) = run_checks(dashboard_checks, config)
    assert (name, finding.level) == ("dashboard.http", "error")
    assert "http://127.0.0.1:1 does not answer" in finding.problem


def test_an_expected_agent_that_is_away_is_a_fault(tmp_path: Path) -> None:
    config = settings(host__agent="yes", agent__socket=str(tmp_path / "agent.sock"))
    assert ("agent.socket", "error") in found(agent_checks, config)


def test_an_expected_policyd_that_is_away_is_a_fault(tmp_path: Path) -> None:
    config = settings(host__policyd="yes", policyd__socket=str(tmp_path / "policyd.sock"))
    assert ("submit.policyd", "error") in found(submit_checks.checks, config)


@pytest.mark.parametrize(
    ("host", "expected"), [("ctl", True), ("ctl.example.org", True), ("gpu01", False)]
)
def test_policyd_belongs_to_the_hosts_that_slurm_names(
    monkeypatch: pytest.MonkeyPatch, host: str, expected: bool
) -> None:
    lines = {"SlurmctldHost[0]": "ctl(10.0.0.1)", "SlurmctldHost[1]": "ctl2"}
    monkeypatch.setattr(submit_checks.SlurmClient, "config", lambda self: lines)
    monkeypatch.setattr(submit_checks.socket, "gethostname", lambda: host)
    assert bool(found(submit_checks.checks, settings())) is expected


@pytest.mark.parametrize(("policyd", "level"), [("no", "warn"), ("yes", "error")])
def test_a_gpu_node_may_lack_slurms_commands(
    monkeypatch: pytest.MonkeyPatch, policyd: str, level: str
) -> None:
    monkeypatch.setattr(core_checks.shutil, "which", lambda name: None)
    config = settings(host__policyd=policyd, host__collector="no")
    (check,) = [item for item in core_checks.checks if item.name == "core.slurm"]
    assert [item.level for item in check.run(config)] == [level]


@pytest.fixture
def hooks(tmp_path: Path) -> Path:
    for name in prolog_checks.HOOKS.values():
        (tmp_path / name).touch(mode=0o755)
    return tmp_path


def test_a_removed_hook_is_named(hooks: Path) -> None:
    config = settings(host__agent="yes", agent__hook_dir=str(hooks))
    files = prolog_checks.checks[0]
    assert files.run(config) == []
    (hooks / "epilog").unlink()
    (hooks / "prolog").chmod(0o644)
    problems = [item.problem for item in files.run(config)]
    assert [text.split()[0] for text in problems] == [f"{hooks}/prolog", f"{hooks}/epilog"]


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (None, "cannot run"),
        ("echo 3 08", "older than 3.9"),
        ("echo 2 07", "older than 3.9"),
        ("exit 1", "cannot run"),
        ("echo 3 09", None),
        ("echo 3 14", None),
    ],
)
def test_the_python_of_the_hooks(hooks: Path, monkeypatch, program, said) -> None:
    python = hooks / "python"
    if program:
        python.write_text(f"#!/bin/sh\n{program}\n")
        python.chmod(0o755)
    monkeypatch.setattr(prolog_checks, "HOOK_PYTHON", str(python))
    config = settings(host__agent="yes", agent__hook_dir=str(hooks))
    (check,) = [check for check in prolog_checks.checks if check.name == "prolog.python"]
    problems = [item.problem for item in check.run(config)]
    assert len(problems) == (1 if said else 0)
    assert (said or "") in "".join(problems)


def test_a_slurm_conf_without_our_hook_is_named(
    hooks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = {
        "Prolog": f"/etc/slurm/prolog.d/*,{hooks}/prolog",
        "Epilog[0]": "/etc/slurm/epilog",
        "Epilog[1]": f"{hooks}/epilog",
        "TaskProlog": "(null)",
    }
    monkeypatch.setattr(prolog_checks.SlurmClient, "config", lambda self: lines)
    config = settings(host__agent="yes", agent__hook_dir=str(hooks))
    (check,) = [check for check in prolog_checks.checks if check.name == "prolog.slurm_conf"]
    (finding,) = check.run(config)
    assert finding == Finding(
        f"slurm.conf's TaskProlog does not name {hooks}/task-prolog",
        "add `Include fairwatt.conf` to slurm.conf and run `scontrol reconfigure`",
    )


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1:8181", "http://127.0.0.1:8181"),
        ("0.0.0.0:8181", "http://127.0.0.1:8181"),
        ("[::]:80", "http://[::1]:80"),
        ("[::1]:80", "http://[::1]:80"),
        ("acct:80", "http://acct:80"),
    ],
)
def test_the_address_on_this_host(listen: str, url: str) -> None:
    assert local_url(listen, "collector.listen") == url


class Sick(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(503)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def sick() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), Sick) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_service_that_answers_with_a_fault(sick: str) -> None:
    assert what_is_wrong(sick) == f"{sick}/healthz answers 503"
