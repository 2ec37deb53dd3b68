# SPDX-License-Identifier: Apache-2.0
"""The text of fairwatt's own configuration files in the cluster; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.lab.nodes import LabNode
from tests.lab.paths import Paths

__all__ = ["controller_settings", "node_settings", "toml"]


def controller_settings(paths: Paths, collector_port: int, dashboard_port: int) -> dict[str, Any]:
    """Settings of policyd, collector and dashboard, by dotted key."""
    return {
        **_site(paths),
        "policyd.socket": str(paths.policyd_socket),
        "policyd.refresh_s": 2,
        "policyd.journal_dir": str(paths.decisions),
        "agent.collector_url": f"http://127.0.0.1:{collector_port}",
        "collector.listen": f"127.0.0.1:{collector_port}",
        "collector.database": str(paths.store),
        "collector.node_uids": [0],
        "collector.sync_s": 5.0,
        "dashboard.listen": f"127.0.0.1:{dashboard_port}",
    }


def node_settings(paths: Paths, node: LabNode, collector_port: int) -> dict[str, Any]:
    """Settings of one node's agent, by dotted key."""
    return {
        **_site(paths),
        "agent.node": node.name,
        "agent.socket": str(node.agent_socket),
        "agent.job_dir": str(node.job_dir),
        "agent.inbox_dir": str(node.inbox_dir),
        "agent.spool_dir": str(node.spool_dir),
        "agent.gres_conf": str(paths.etc / "gres.conf"),
        "agent.proc_root": str(node.proc_root),
        "agent.sys_root": str(node.folder / "sys"),  # not the host's: a test may make one
        "agent.collector_url": f"http://127.0.0.1:{collector_port}",
        "agent.sample_s": 1.0,
        "agent.ship_s": 1.0,
        "health.enabled": False,  # four more processes: for the tests of health alone
        "health.file": str(node.health_file),
        "health.state_file": str(node.health_state),
        "health.dir": str(node.folder / "health"),
        "health.kmsg": str(node.kmsg),
    }


def _site(paths: Paths) -> dict[str, Any]:
    return {
        "site.cluster": "campus",
        "site.timezone": "Europe/Berlin",
        "site.slurm_conf": str(paths.slurm_conf),
        "site.munge_socket": str(paths.munge_socket),
    }


def toml(settings: Mapping[str, Any]) -> str:
    """TOML text of settings by dotted key; strings, numbers, booleans and lists of them."""
    # A JSON scalar or list of such is a TOML value too.
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
