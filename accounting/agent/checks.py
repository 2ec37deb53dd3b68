# SPDX-License-Identifier: Apache-2.0
"""The agent's checks for `fairwatt doctor`; on a host without GPU library they say so."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from fairwatt.accounting.agent.settings import AgentSettings, agent_settings
from fairwatt.core.config import Config
from fairwatt.core.doctor import Check, Finding, Level
from fairwatt.core.healthz import what_is_wrong
from fairwatt.core.host import is_expected
from fairwatt.core.unix_socket import ask_line

__all__ = ["checks"]

PATIENCE_S = 2.0


def _nvml(config: Config) -> list[Finding]:
    try:
        import pynvml
    except ModuleNotFoundError:
        return [Finding("nvidia-ml-py is not installed", "install fairwatt[gpu]", "info")]
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return [_no_library(config)]
        return [Finding(f"NVML: {error}", "load the NVIDIA driver; nvidia-smi must work")]
    return [Finding(f"NVML shows {count} GPUs", "", "info")]


def _no_library(config: Config) -> Finding:
    """The agent may find the library where this command does not; then it is the judge."""
    if not is_expected(config, "agent"):
        return Finding("no GPU library on this host: no agent needed", "", "info")
    remedy = "see what the agent says, then load the NVIDIA driver"
    return Finding("this command finds no GPU library", remedy, "warn")


def _socket(config: Config) -> list[Finding]:
    path = agent_settings(config).socket
    try:
        answer = json.loads(ask_line(path, b'{"v":1,"verb":"status"}\n', PATIENCE_S))
    except (OSError, ValueError) as error:
        remedy = "start `fairwatt agent`; its log says why it does not run"
        return [Finding(f"{path}: the agent does not answer ({error})", remedy)]
    return _of_status(answer, needs_gpus=is_expected(config, "agent"))


def _of_status(answer: dict[str, object], *, needs_gpus: bool) -> list[Finding]:
    level: Level = "error" if needs_gpus and not answer.get("devices") else "info"
    remedy = "load the NVIDIA driver, or set host.agent to no" if level == "error" else ""
    findings = [Finding(f"agent answers, {answer.get('devices')} GPUs", remedy, level)]
    if not answer.get("on_disk"):
        findings.append(Finding("the agent cannot write its journal", "free space in its spool"))
    faults = answer.get("faults")
    for place, fault in (faults if isinstance(faults, dict) else {}).items():
        findings.append(Finding(f"{place}: {fault}", "see the agent's log"))
    doubtful = answer.get("doubtful")
    for device, why in (doubtful if isinstance(doubtful, dict) else {}).items():
        remedy = "its energy is flagged in reports; compare with nvidia-smi, update the driver"
        findings.append(Finding(f"{device}: {why}", remedy, "warn"))
    return findings + _idle_powers(answer)


def _idle_powers(answer: dict[str, object]) -> list[Finding]:
    """Tell what boards draw without work: where it was learnt, and where it is not known."""
    told = answer.get("idle_power")
    boards = told if isinstance(told, dict) else {}
    findings = [
        Finding(
            f"{uuid}: {one['mw'] / 1000:.1f} W without work, learnt from {one['looks']} windows "
            f"since {_day(one['since_ms'])} (catalogue: {one['catalogue_mw'] / 1000:.0f} W)",
            "",
            "info",
        )
        for uuid, one in boards.items()
        if one["by"] == "learnt"
    ]
    listed = [uuid for uuid, one in boards.items() if one["by"] == "catalogue"]
    if listed:
        findings.append(Finding(f"idle power of {len(listed)} GPUs by the catalogue", "", "info"))
    return findings


def _day(t_ms: int) -> str:
    return datetime.fromtimestamp(t_ms / 1000, UTC).date().isoformat()


def _spool(config: Config) -> list[Finding]:
    settings = agent_settings(config)
    folders = {"agent.spool_dir": settings.spool_dir, "agent.inbox_dir": settings.inbox_dir}
    findings = []
    for key, folder in folders.items():
        if not folder.is_dir():
            findings.append(Finding(f"{folder} does not exist", f"create it or correct {key}"))
        elif not os.access(folder, os.W_OK | os.X_OK):
            findings.append(Finding(f"{folder} cannot be written", "run as root"))
    return findings + _left_aside(settings)


def _left_aside(settings: AgentSettings) -> list[Finding]:
    """Point at what the agent set aside: it is in no report."""
    aside = [
        *settings.spool_dir.glob("journal/*.bad"),
        *settings.spool_dir.glob("refused/*.ndjson"),
        *settings.inbox_dir.glob("*.bad"),
    ]
    remedy = "look at them, then move them away"
    text = ", ".join(str(path) for path in aside[:3])
    return [Finding(f"{len(aside)} file(s) set aside: {text}", remedy, "warn")] if aside else []


def _collector(config: Config) -> list[Finding]:
    fault = what_is_wrong(agent_settings(config).collector_url)
    remedy = "start `fairwatt collector` (its log says more), or correct agent.collector_url"
    return [Finding(fault, remedy)] if fault else []


def _where_gpus_are(run: Callable[[Config], list[Finding]]) -> Callable[[Config], list[Finding]]:
    """Skip a check on hosts where no agent runs or ever ran."""

    def checked(config: Config) -> list[Finding]:
        settings = agent_settings(config)
        journal = Path(settings.spool_dir, "journal")
        if is_expected(config, "agent", lambda: _is_gpu_node() or journal.exists()):
            return run(config)
        return [Finding("skipped: no agent is expected on this host", "", "info")]

    return checked


def _is_gpu_node() -> bool:
    try:
        import pynvml

        pynvml.nvmlInit()
        pynvml.nvmlShutdown()
    except ModuleNotFoundError:
        return False
    except pynvml.NVMLError as error:
        return bool(error.value != pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    return True


checks: list[Check] = [
    Check("agent.nvml", _nvml),
    Check("agent.socket", _where_gpus_are(_socket)),
    Check("agent.spool", _where_gpus_are(_spool)),
    Check("agent.collector", _where_gpus_are(_collector)),
]
