# SPDX-License-Identifier: Apache-2.0
"""Doctor's questions about the submit side: policyd, the hook file, slurm.conf, and around."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairwatt.core.config import Config
from fairwatt.core.doctor import Check, Finding
from fairwatt.core.errors import CommandError, PolicyError
from fairwatt.core.host import is_expected
from fairwatt.core.slurm import SlurmClient
from fairwatt.core.unix_socket import ask_line
from fairwatt.slurm_plugins import checks_around

__all__ = ["HOOK", "checks"]

HOOK = Path(__file__).with_name("lua") / "job_submit.lua"
SETTINGS_NAME = "fairwatt_hook.lua"
DEFAULT_SLURM_CONFS = (Path("/etc/slurm/slurm.conf"), Path("/etc/slurm-llnl/slurm.conf"))
PING_S = 2.0
SLOW_US = 2000
WAITED_S = 3600.0


def _policyd(config: Config) -> list[Finding]:
    path = config["policyd.socket"]
    try:
        pong = _ping(path)
    except (OSError, ValueError) as error:
        text = f"{path}: policyd does not answer ({getattr(error, 'strerror', None) or error})"
        return [Finding(text, "start `fairwatt policyd`; until then jobs pass unjudged")]
    age_s = pong.get("age_s")
    if age_s is None:
        text = f"policyd at {path} has no facts of the cluster yet"
        return [Finding(text, "see its log: scontrol must work for its user", "warn")]
    text = f"policyd answers at {path}: {pong.get('nodes')} nodes, facts {age_s:.0f} s old"
    return [Finding(text + _pace(pong), "", "info"), *_slow(path, pong)]


def _pace(pong: dict[str, Any]) -> str:
    """How many jobs it has judged since its start, and how fast."""
    if not pong.get("judged"):
        return ""
    return (
        f"; {pong['judged']} jobs judged, {pong['memo_hits']} of them from memory,"
        f" half within {pong['p50_us']} µs, 99 % within {pong['p99_us']} µs"
    )


def _slow(path: str, pong: dict[str, Any]) -> list[Finding]:
    if (pong.get("p99_us") or 0) <= SLOW_US:
        return []
    text = f"policyd at {path} needs {pong['p99_us']} µs or more for one job of a hundred"
    remedy = "give it a core, or switch off a rule of the site's own: slurmctld waits for it"
    return [Finding(text, remedy, "warn")]


def _hook(config: Config) -> list[Finding]:
    folder = _slurm_conf_dir(config)
    if folder is None:
        return [Finding("no slurm.conf on this host: hook not checked", "", "info")]
    installed = folder / HOOK.name
    remedy = f"copy {HOOK} there, or let its site_script wrap yours"
    try:
        same = installed.read_bytes() == HOOK.read_bytes()
    except OSError as error:
        return [Finding(f"{installed} cannot be read: {error.strerror}", remedy)]
    if not same:
        return [Finding(f"{installed} is not the hook of this fairwatt", remedy)]
    if not (folder / SETTINGS_NAME).exists():
        text = f"{folder / SETTINGS_NAME} is missing: the hook uses its defaults"
        return [Finding(text, "write it, see the head of job_submit.lua", "warn")]
    return []


def _plugin(config: Config) -> list[Finding]:
    try:
        settings = SlurmClient(config["site.slurm_conf"] or None).config()
    except CommandError as error:
        return [Finding(f"JobSubmitPlugins not checked: {error}", "", "info")]
    plugins = settings.get("JobSubmitPlugins", "")
    if "lua" in [name.strip() for name in plugins.split(",")]:
        return []
    remedy = "set JobSubmitPlugins=lua in slurm.conf and restart slurmctld"
    return [Finding(f"JobSubmitPlugins is {plugins!r}: the hook is not called", remedy)]


def _policy(config: Config) -> list[Finding]:
    folder = _slurm_conf_dir(config)
    return checks_around.policy(config, folder / SETTINGS_NAME if folder else None)


def _updater(_: Config) -> list[Finding]:
    return checks_around.updater()


def _client_filter(config: Config) -> list[Finding]:
    return checks_around.client_filter(_slurm_conf(config))


def _decisions(config: Config) -> list[Finding]:
    """Decisions go to the collector within seconds; what waits for hours will not go by itself."""
    folder = Path(config["policyd.journal_dir"] or os.devnull)
    try:
        found = [path.stat() for path in folder.glob("*.journal")]
    except OSError as error:
        return [Finding(f"{folder} not checked: {error.strerror}", "", "info")]
    waited_s = time.time() - min((each.st_mtime for each in found), default=time.time())
    if waited_s < WAITED_S:
        return []
    size_mib = sum(each.st_size for each in found) / 2**20
    return [
        Finding(
            f"{size_mib:.1f} MiB of decisions have waited {waited_s / 3600:.0f} h to be delivered",
            "see policyd's log for the collector's answer; on the collector's host "
            "collector.policyd_uids must have the uid of policyd's user",
            "warn",
        )
    ]


def _ping(path: str) -> dict[str, Any]:
    answer = json.loads(ask_line(path, b'{"verb":"ping"}\n', PING_S) or b"null")
    if not isinstance(answer, dict):
        raise PolicyError("not policyd's answer", place=path, remedy="correct policyd.socket")
    return answer


def _slurm_conf(config: Config) -> Path | None:
    named = config["site.slurm_conf"] or os.environ.get("SLURM_CONF")
    candidates = [Path(named)] if named else list(DEFAULT_SLURM_CONFS)
    return next((path for path in candidates if path.exists()), None)


def _slurm_conf_dir(config: Config) -> Path | None:
    path = _slurm_conf(config)
    return path.parent if path else None


def _on_controllers(run: Callable[[Config], list[Finding]]) -> Callable[[Config], list[Finding]]:
    """Skip a check where policyd is not expected."""

    def checked(config: Config) -> list[Finding]:
        if is_expected(config, "policyd", lambda: _is_controller(config)):
            return run(config)
        return []

    return checked


def _is_controller(config: Config) -> bool:
    """Whether Slurm names this host as a controller, or cannot be asked."""
    try:
        settings = SlurmClient(config["site.slurm_conf"] or None).config()
    except CommandError:
        return True
    named = {
        value.partition("(")[0].partition(".")[0]
        for key, value in settings.items()
        if key.startswith("SlurmctldHost")
    }
    return not named or socket.gethostname().partition(".")[0] in named


checks: list[Check] = [
    Check("submit.policyd", _on_controllers(_policyd)),
    Check("submit.decisions", _on_controllers(_decisions)),
    Check("submit.hook", _on_controllers(_hook)),
    Check("submit.plugin", _on_controllers(_plugin)),
    Check("submit.policy", _on_controllers(_policy)),
    Check("submit.updater", _on_controllers(_updater)),
    Check("submit.client_filter", _client_filter),
]
