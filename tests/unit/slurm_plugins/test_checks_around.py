# SPDX-License-Identifier: Apache-2.0
"""Doctor on the policy, the updater and the client filter."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fairwatt.core import config as config_module
from fairwatt.core.errors import ConfigError
from fairwatt.slurm_plugins import checks_around
from fairwatt.slurm_plugins.checks import checks

CHECK = {check.name: check.run for check in checks}
LIMITS = '[rules.time_limits]\nmode = "warn"\n'


@pytest.fixture
def config(tmp_path):
    (tmp_path / "slurm.conf").write_text("ClusterName=x\nInclude fairwatt.conf\n")
    (tmp_path / "fairwatt.conf").write_text("")
    (tmp_path / "policy.toml").write_text("")
    values = {
        "host.policyd": "yes",
        "policyd.policy_file": str(tmp_path / "policy.toml"),
        "site.slurm_conf": str(tmp_path / "slurm.conf"),
    }
    base = config_module.load(None)
    return replace(base, values={**base.values, **values})


def found(config, name):
    return [(finding.level, finding.problem) for finding in CHECK[f"submit.{name}"](config)]


class TestPolicy:
    def test_by_default_no_job_without_gpus_has_to_be_sent(self, config):
        assert found(config, "policy") == []

    @pytest.mark.parametrize(
        ("settings", "told"),
        [
            (None, True),
            ("return { socket = '/x' }", True),
            ('return { jobs = "gpu" }', True),
            ('return {\n  -- jobs = "all",\n  jobs="gpu" }', True),
            ('return { jobs = "all" }', False),
            ("return { socket='/jobs', jobs ='all'}", False),
        ],
    )
    def test_rules_that_the_hook_keeps_from_their_jobs_are_named(
        self, config, tmp_path, settings, told
    ):
        (tmp_path / "policy.toml").write_text(LIMITS)
        if settings is not None:
            (tmp_path / "fairwatt_hook.lua").write_text(settings)
        text = "the policy judges jobs without GPUs (time_limits), but the hook does not send them"
        assert found(config, "policy") == ([("warn", text)] if told else [])

    def test_a_wrong_policy_is_a_finding(self, config, tmp_path):
        (tmp_path / "policy.toml").write_text("oder = []\n")
        with pytest.raises(ConfigError, match=r"policy.toml:1: oder"):
            found(config, "policy")


class TestUpdater:
    @pytest.mark.parametrize(
        ("state", "told"),
        [
            ("LoadState=not-found\nActiveState=inactive", []),
            ("LoadState=loaded\nUnitFileState=disabled\nActiveState=inactive", []),
            (
                "LoadState=loaded\nUnitFileState=enabled\nActiveState=failed",
                [("error", "the updater is failed: jobs keep waiting for their first choice")],
            ),
            ("LoadState=loaded\nUnitFileState=enabled\nActiveState=active\nStatusText=looks", []),
            (
                "LoadState=loaded\nUnitFileState=enabled\nActiveState=active\n"
                "StatusText=no job is changed for now: squeue failed",
                [("warn", "the updater fails: no job is changed for now: squeue failed")],
            ),
        ],
    )
    def test_what_systemd_says(self, config, tmp_path, monkeypatch, state, told):
        (tmp_path / "systemctl").write_text(f"#!/bin/sh\ncat <<'END'\n{state}\nEND\n")
        (tmp_path / "systemctl").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        assert found(config, "updater") == told

    def test_without_systemd_nothing_is_known(self, config, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", str(tmp_path))
        assert found(config, "updater") == []


class TestClientFilter:
    def install(self, tmp_path, named, text=None):
        (tmp_path / "fairwatt.conf").write_text(f"CliFilterPlugins={named}\n" if named else "")
        if text is None:
            shutil.copy(checks_around.CLIENT_FILTER, tmp_path)
        elif text:
            (tmp_path / "cli_filter.lua").write_text(text)

    def test_where_it_is_not_wanted(self, config, tmp_path):
        assert found(config, "client_filter") == []
        self.install(tmp_path, "user_defaults", "-- our own\n")
        assert found(config, "client_filter") == []

    @pytest.mark.parametrize("named", ["lua", "user_defaults,lua"])
    def test_a_host_without_the_file_cannot_submit(self, config, tmp_path, named):
        """Measured on 22.05, 24.11 and 26.05: sbatch, salloc and srun fail."""
        self.install(tmp_path, named, "")
        [(level, text)] = found(config, "client_filter")
        assert level == "error"
        assert text.endswith(f"{tmp_path}/cli_filter.lua: No such file or directory")

    def test_ours_in_use_out_of_use_and_of_another_day(self, config, tmp_path):
        self.install(tmp_path, "lua")
        assert found(config, "client_filter") == []
        self.install(tmp_path, "lua", checks_around.CLIENT_FILTER.read_text() + "\n")
        assert found(config, "client_filter")[0][0] == "warn"
        self.install(tmp_path, None)
        assert found(config, "client_filter")[0][0] == "info"

    def test_every_host_is_asked(self, config, tmp_path):
        self.install(tmp_path, "lua", "")
        values = {**config.values, "host.policyd": "no"}
        assert found(replace(config, values=values), "client_filter")

    def test_no_slurm_conf_no_question(self):
        assert checks_around.client_filter(None) == []
        assert Path(checks_around.CLIENT_FILTER).read_text().count(checks_around.FILTER_MARK) == 1
