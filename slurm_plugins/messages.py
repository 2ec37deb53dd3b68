# SPDX-License-Identifier: Apache-2.0
"""Every numbered message of the submit side; docs/messages.md is this table, a test compares."""

from __future__ import annotations

from fairwatt.slurm_plugins.engine_messages import ENGINE_MESSAGES
from fairwatt.slurm_plugins.message import Message
from fairwatt.slurm_plugins.rulebook import BUILT_IN

__all__ = ["MESSAGES", "as_markdown"]


def _all() -> dict[str, Message]:
    found = [*ENGINE_MESSAGES, *(message for spec in BUILT_IN for message in spec.messages)]
    return {message.code: message for message in sorted(found, key=lambda message: message.code)}


MESSAGES = _all()


def as_markdown() -> str:
    """Return docs/messages.md."""
    rows = [
        f"| {m.code} | {m.title} | `{_cell(m.text)}` | {m.remedy} |" for m in MESSAGES.values()
    ]
    return "\n".join([_HEAD, *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_HEAD = """# Messages of the submit hook

Each line that sbatch, srun, salloc or scontrol shows starts with `fairwatt` and one of these
codes. FW0xx: the policy itself; FW1xx: ask by need; FW2xx: MIG slices; FW3xx: types and counts;
FW4xx: CPUs and memory; FW5xx: where a job runs; FW6xx: time; FW7xx: accounts; FW8xx: what no
node can give; FW9xx: the environment. Words in braces are filled in. A code keeps
its meaning for ever.

This page is written by `python -m fairwatt.slurm_plugins.messages`; do not edit it by hand.

| Code | When | Text | What to do |
|---|---|---|---|"""


if __name__ == "__main__":
    import sys

    sys.stdout.write(as_markdown())
