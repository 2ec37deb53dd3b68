# SPDX-License-Identifier: Apache-2.0
"""A policy file that enforces every rule there is."""

from __future__ import annotations

from fairwatt.slurm_plugins.rulebook import known_rules

__all__ = ["every_rule"]

OPTIONS = {
    "account_types": 'accounts = { students = ["a40", "l40s", "a100_1g.5gb"] }',
    "homogeneous": "",
    "share_per_gpu": "from_nodes = true",
}
"""What rules need to have anything to do, in TOML."""


def every_rule() -> str:
    """Each rule enforced, with options where it does nothing without."""
    tables = [
        f'[rules.{name}]\nmode = "enforce"\n{OPTIONS.get(name, "")}\n' for name in known_rules()
    ]
    return "\n".join(tables)
