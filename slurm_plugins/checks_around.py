# SPDX-License-Identifier: Apache-2.0
"""Doctor's questions about what stands around the hook: policy, updater, client filter."""

from __future__ import annotations

import re
from pathlib import Path

from fairwatt.core.call import call
from fairwatt.core.conf_lines import read_conf
from fairwatt.core.config import Config
from fairwatt.core.doctor import Finding
from fairwatt.core.errors import CommandError
from fairwatt.slurm_plugins.policy_check import judges_cpu_jobs
from fairwatt.slurm_plugins.policy_file import load_policy
from fairwatt.slurm_plugins.updater import FAILING

__all__ = ["CLIENT_FILTER", "client_filter", "policy", "updater"]

CLIENT_FILTER = Path(__file__).with_name("lua") / "cli_filter.lua"
FILTER_MARK = "fairwatt's client filter"
UNIT = "fairwatt-updater.service"
SYSTEMD_S = 5.0
_JOBS = re.compile(r"""\bjobs\s*=\s*["'](\w+)["']""")
_COMMENT = re.compile(r"--[^\n]*")


def policy(config: Config, hook_settings: Path | None) -> list[Finding]:
    """Whether policyd can read its policy, and the hook sends the jobs that the policy is about.

    Raises:
        ConfigError: the policy file is wrong.
        PolicyError: a site's own rule cannot be used.
    """
    rules = judges_cpu_jobs(load_policy(Path(config["policyd.policy_file"])))
    if not rules or hook_settings is None or _jobs_sent(hook_settings) == "all":
        return []
    named = ", ".join(rules)
    text = f"the policy judges jobs without GPUs ({named}), but the hook does not send them"
    remedy = f'write jobs = "all" in {hook_settings} and touch job_submit.lua beside it'
    return [Finding(text, f"{remedy} (the role's fairwatt_controller_jobs)", "warn")]


def updater() -> list[Finding]:
    """Whether the updater does its work where systemd is to run it."""
    names = "--property=LoadState,UnitFileState,ActiveState,StatusText"
    try:
        shown = call(["systemctl", "show", UNIT, names], timeout_s=SYSTEMD_S).stdout
    except CommandError:
        return []  # no systemd here
    state = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    if state.get("LoadState") != "loaded":
        return []
    if state.get("ActiveState") != "active":
        enabled = state.get("UnitFileState") == "enabled"
        text = (
            f"the updater is {state.get('ActiveState')}: jobs keep waiting for their first choice"
        )
        return [Finding(text, f"see `journalctl -u {UNIT}`")] if enabled else []
    status = state.get("StatusText", "")
    if status.startswith(FAILING):
        return [Finding(f"the updater fails: {status}", f"see `journalctl -u {UNIT}`", "warn")]
    return []


def client_filter(slurm_conf: Path | None) -> list[Finding]:
    """Whether Slurm's clients here find the filter that slurm.conf names, and ours is of today.

    Raises:
        ConfigError: slurm.conf cannot be read.
    """
    if slurm_conf is None:
        return []
    lines = [line.values.get("clifilterplugins") for line in read_conf(slurm_conf)]
    named = "lua" in ",".join(filter(None, lines)).split(",")
    file = slurm_conf.with_name(CLIENT_FILTER.name)
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        problem = f"{slurm_conf} names the client filter lua, but {file}: {error.strerror}"
        remedy = "put it there, or take lua from CliFilterPlugins: here no job can be submitted"
        return [Finding(problem, remedy)] if named else []
    if FILTER_MARK not in text:
        return []  # the site's own
    if not named:
        return [Finding(f"{file} is not in use: CliFilterPlugins does not name lua", "", "info")]
    if text != CLIENT_FILTER.read_text(encoding="utf-8"):
        return [Finding(f"{file} is not that of this fairwatt", f"copy {CLIENT_FILTER}", "warn")]
    return []


def _jobs_sent(hook_settings: Path) -> str:
    """The hook's setting `jobs`, by default "gpu"; a missing file means the defaults."""
    try:
        text = hook_settings.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "gpu"
    found = _JOBS.search(_COMMENT.sub("", text))
    return found[1] if found else "gpu"
