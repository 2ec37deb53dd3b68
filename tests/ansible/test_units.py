# SPDX-License-Identifier: Apache-2.0
"""The rendered units are understood by systemd and closed enough; the hooks do what they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import jinja2
import pytest
import yaml

from fairwatt.core.config import load
from fairwatt.core.settings import SETTINGS
from fairwatt.prolog.health.spec import load_checks
from fairwatt.slurm_plugins.checks_around import CLIENT_FILTER
from tests.ansible.roles import COLLECTION, ROLES, defaults, variables

UNITS = {
    "policyd": "controller",
    "updater": "controller",
    "agent": "node",
    "collector": "collector",
    "dashboard": "dashboard",
}
PROXIES = {"fairwatt_dashboard_trusted_proxies": ["10.0.0.5"]}
ADDRESSES = {
    "fairwatt_node_collector_url": "http://acct:8181",
    "fairwatt_controller_socket": "/run/fairwatt/policyd/policyd.sock",
    "fairwatt_controller_journal_dir": "/var/lib/fairwatt-policyd",
    "fairwatt_controller_collector_url": "http://acct:8181",
    "fairwatt_collector_slurm_uids": [64030],
}

MAX_EXPOSURE = 25  # tenths, as systemd-analyze's threshold counts
ANALYZE = shutil.which("systemd-analyze")

needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="no systemd-analyze")


def rendered(role: str, template: str, **more: object) -> str:
    """A role's template with its defaults, as Ansible would write it on an installed host."""
    folder = COLLECTION / "roles" / f"fairwatt_{role}" / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["to_json"] = json.dumps
    environment.filters["basename"] = os.path.basename
    environment.filters["dirname"] = os.path.dirname
    known = {name: value for other in ROLES for name, value in defaults(other).items()}
    installed = {"bin": "/bin", "package": "/opt/fairwatt/current/package", "stamp": "0"}
    facts = {"fairwatt_install_now": installed, "fairwatt_controller_user": "root"}
    return environment.get_template(template).render({**known, **facts, **more})


@pytest.fixture
def unit(tmp_path: Path):
    def write(name: str) -> Path:
        path = tmp_path / f"fairwatt-{name}.service"
        text = rendered(UNITS[name], f"{path.name}.j2", **ADDRESSES)
        # systemd looks for the program and the user on this host.
        text = text.replace("ExecStart=/bin/fairwatt", "ExecStart=/bin/true")
        path.write_text(text)
        return path

    return write


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(ANALYZE), *arguments], capture_output=True, text=True, check=False)


@needs_systemd
@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_every_line_of_a_unit(unit, name):
    path = unit(name)
    done = analyze("verify", "--man=no", "--recursive-errors=no", str(path))
    # Status 0 comes also with unknown keys, which it only prints.
    assert (done.returncode, done.stderr) == (0, "")
    path.write_text(path.read_text().replace("ProtectHome=", "ProtectHoem="))
    assert "ProtectHoem" in analyze("verify", "--man=no", str(path)).stderr


@needs_systemd
@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_closed_enough(unit, name):
    done = analyze(
        "security", "--offline=yes", f"--threshold={MAX_EXPOSURE}", "--no-pager", str(unit(name))
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_says_when_it_is_ready_and_comes_back(unit, name):
    lines = unit(name).read_text().splitlines()
    assert "Type=notify" in lines
    assert "Restart=always" in lines
    assert "NoNewPrivileges=yes" in lines
    assert "ProtectSystem=strict" in lines
    assert "WantedBy=multi-user.target" in lines


@pytest.mark.parametrize(
    ("folder", "paths"),
    [("", "/var/lib/fairwatt"), ("/mnt/b", "/var/lib/fairwatt /mnt/b")],
)
def test_the_collector_may_write_its_data_and_its_backups_alone(folder, paths):
    text = rendered("collector", "fairwatt-collector.service.j2", **ADDRESSES,
                    fairwatt_collector_backup_dir=folder)  # fmt: skip
    assert f"ReadWritePaths={paths}\n\n" in text
    settings = rendered("collector", "20-collector.toml.j2", **ADDRESSES,
                        fairwatt_collector_backup_dir=folder)  # fmt: skip
    assert f'store.backup_dir = "{folder}"\n' in settings


def test_a_secret_is_handed_over_and_named_in_no_setting(unit):
    text = unit("dashboard").read_text()
    assert "LoadCredential=session-key:/etc/fairwatt/secrets/session-key" in text
    assert not [setting.key for setting in SETTINGS if "secret" in setting.key]


def test_the_settings_files_are_what_fairwatt_understands(tmp_path):
    """All of one host that is everything: base, parts, and the site's settings on top."""
    base = tmp_path / "fairwatt.toml"
    base.write_text(rendered("install", "fairwatt.toml.j2", fairwatt_install_cluster="c-1"))
    (tmp_path / "conf.d").mkdir()
    for name, role in UNITS.items():
        text = rendered(role, f"20-{name}.toml.j2", **PROXIES, **ADDRESSES)
        (tmp_path / "conf.d" / f"20-{name}.toml").write_text(text)
    checked = UNITS.keys() - {"updater"}
    assert {load(base)[f"host.{name}"] for name in checked} == {"yes"}
    assert load(base)["updater.wait_s"] == 1800
    site = {"site.timezone": "Europe/Berlin", "agent.sample_s": 5, "collector.node_uids": [0]}
    text = rendered("install", "50-ansible.toml.j2", fairwatt_install_settings=site)
    (tmp_path / "conf.d" / "50-ansible.toml").write_text(text)
    config = load(base)
    assert config["site.cluster"] == "c-1"
    assert config["agent.sample_s"] == 5.0
    assert config["dashboard.trusted_proxies"] == ["10.0.0.5"]
    assert config["collector.listen"] == "0.0.0.0:8181"
    assert config["collector.policyd_uids"] == [0, 64030]
    assert config["agent.collector_url"] == "http://acct:8181"
    assert config["policyd.journal_dir"] == "/var/lib/fairwatt-policyd"


def test_the_sites_health_checks_are_what_fairwatt_understands(tmp_path):
    path = tmp_path / "health.toml"
    path.write_text(rendered("node", "health.toml.j2"))
    assert load_checks(path) == load_checks()
    path.write_text(
        rendered(
            "node",
            "health.toml.j2",
            fairwatt_node_health_defaults={"period_s": 120},
            fairwatt_node_health_checks={
                "hot": {"enabled": False},
                "ecc_uncorrected": {"action": "alert", "parameters": {"over": 3}},
            },
        )
    )
    checks = load_checks(path)
    assert (checks["hot"].enabled, checks["hot"].period_s) == (False, 120)
    assert (checks["ecc_uncorrected"].action, checks["ecc_uncorrected"].parameters) == (
        *("alert", {"over": 3}),
    )


@pytest.mark.parametrize("name", ["prolog", "epilog", "task-prolog"])
class TestHook:
    """The wrapper that Slurm calls on a node."""

    @pytest.fixture
    def run(self, tmp_path: Path, name: str):
        package = tmp_path / "package"

        def run(site: str = "", ours: str | None = None) -> subprocess.CompletedProcess[str]:
            if ours is not None:
                script(package / "prolog" / "hooks" / name, ours)
            text = rendered(
                "node",
                "hook.sh.j2",
                item={"name": name, "site": site},
                fairwatt_install_now={"package": str(package)},
            )
            path = script(tmp_path / "hook", text.removeprefix("#!/bin/sh\n"))
            # Slurm gives a prolog no PATH.
            return subprocess.run([str(path)], env={}, capture_output=True, text=True, check=False)

        return run

    def test_without_fairwatt_it_succeeds(self, run):
        done = run()
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    @pytest.mark.parametrize("status", [0, 1, 127])
    def test_our_part_is_heard_and_fails_a_job_for_a_broken_device_alone(self, run, name, status):
        done = run(ours=f"echo export OURS=1; exit {status}")
        fails = name == "prolog" and status == 1
        assert (done.returncode, done.stdout) == (int(fails), "export OURS=1\n")

    def test_the_sites_parts_come_after_ours_with_their_own_status(self, run, tmp_path):
        script(tmp_path / "site.d" / "10-a", "echo export A=1")
        script(tmp_path / "site.d" / "20-b", "echo export B=1; exit 3")
        done = run(site=f"{tmp_path}/site.d/*", ours="echo export OURS=1; exit 2")
        assert done.stdout == "export OURS=1\nexport A=1\nexport B=1\n"
        assert done.returncode == 3

    def test_an_empty_folder_of_parts_is_no_fault(self, run, tmp_path):
        (tmp_path / "none.d").mkdir()
        done = run(site=f"{tmp_path}/none.d/*")
        assert (done.returncode, done.stderr) == (0, "")


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


SLURM_CONF = """\
ClusterName=campus
{line}
Include fairwatt.conf
"""


def task(file: str, name: str) -> dict[str, str]:
    """The arguments of a task of the controller's role."""
    path = COLLECTION / "roles" / "fairwatt_controller" / "tasks" / file
    (found,) = (each for each in yaml.safe_load(path.read_text()) if each["name"] == name)
    return next(value for key, value in found.items() if key.startswith("ansible.builtin."))


def replaced(file: str, name: str, line: str) -> str:
    """What becomes of a line of slurm.conf."""
    words = task(file, name)
    text = re.sub(words["regexp"], words["replace"], SLURM_CONF.format(line=line))
    return text.splitlines()[1]


class TestClientFilter:
    """How `fairwatt_controller_client_filter` comes into slurm.conf and leaves it."""

    @pytest.mark.parametrize(
        ("line", "after"),
        [
            ("CliFilterPlugins=user_defaults", "CliFilterPlugins=user_defaults,lua"),
            (" clifilterplugins = a,b  # ours", " clifilterplugins = a,b,lua  # ours"),
            ("CliFilterPlugins=a,lua,b", "CliFilterPlugins=a,lua,b"),
            ("CliFilterPlugins=lua", "CliFilterPlugins=lua"),
            ("#CliFilterPlugins=a", "#CliFilterPlugins=a"),
            ("CliFilterPlugins=luaother", "CliFilterPlugins=luaother,lua"),
        ],
    )
    def test_a_list_of_the_site_gets_it_once(self, line, after):
        name = "Add lua to the client filters that the site has"
        assert replaced("client_filter.yml", name, line) == after

    @pytest.mark.parametrize(
        ("line", "after"),
        [
            ("CliFilterPlugins=user_defaults,lua", "CliFilterPlugins=user_defaults"),
            ("CliFilterPlugins=lua,user_defaults", "CliFilterPlugins=user_defaults"),
            ("CliFilterPlugins=a,lua,b  # x", "CliFilterPlugins=a,b  # x"),
            ("CliFilterPlugins=a,luaother", "CliFilterPlugins=a,luaother"),
        ],
    )
    def test_and_loses_it_at_the_end(self, line, after):
        name = "Take lua out of the client filters"
        assert replaced("uninstall_client_filter.yml", name, line) == after

    @pytest.mark.parametrize(
        ("line", "gone"),
        [
            ("CliFilterPlugins=lua", True),
            ("CliFilterPlugins = lua # x", True),
            ("CliFilterPlugins=lua,a", False),
            ("JobSubmitPlugins=lua", False),
        ],
    )
    def test_a_line_of_nothing_else_goes(self, line, gone):
        words = task(
            "uninstall_client_filter.yml", "Remove the client filter that was the only one"
        )
        assert bool(re.search(words["regexp"], line)) == gone

    @pytest.mark.parametrize("named", [True, False])
    def test_our_part_names_it_where_the_site_has_no_list(self, named):
        flags = {
            "fairwatt_controller_prolog_flags": "",
            "fairwatt_controller_filter_in_part": named,
        }
        text = rendered("controller", "fairwatt.conf.j2", **flags)
        assert ("CliFilterPlugins=lua" in text.splitlines()) is named

    def test_it_is_told_by_the_mark_in_the_file(self):
        marker = variables("controller")["fairwatt_controller_filter_marker"]
        assert marker in CLIENT_FILTER.read_text()
        assert defaults("controller")["fairwatt_controller_client_filter"] is False


MIG_EXPOSURE = 30  # making instances takes CAP_SYS_ADMIN, and gres.conf lies anywhere in /etc


@needs_systemd
def test_the_unit_that_makes_mig_instances_comes_before_slurmd(tmp_path):
    path = tmp_path / "fairwatt-mig.service"
    text = rendered("node", "fairwatt-mig.service.j2", **ADDRESSES)
    assert "Before=slurmd.service" in text
    assert "ExecStart=/bin/fairwatt mig restore\n" in text
    path.write_text(text.replace("ExecStart=/bin/fairwatt", "ExecStart=/bin/true"))
    done = analyze("verify", "--man=no", "--recursive-errors=no", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    done = analyze(
        "security", "--offline=yes", f"--threshold={MIG_EXPOSURE}", "--no-pager", str(path)
    )
    assert done.returncode == 0, done.stdout


def test_the_settings_of_mig_are_what_fairwatt_understands(tmp_path):
    path = tmp_path / "fairwatt.toml"
    restart = ["ssh", "ctl", "systemctl", "restart", "slurmctld"]
    given = {"reconfigure_command": restart, "idle_wait_s": 7200}
    path.write_text(rendered("node", "20-mig.toml.j2", fairwatt_node_mig_settings=given))
    config = load(path)
    assert config["mig.reconfigure_command"] == restart
    assert config["mig.idle_wait_s"] == 7200.0
    path.write_text(rendered("node", "20-mig.toml.j2"))
    assert load(path)["mig.reconfigure_command"] == ["scontrol", "reconfigure"]
