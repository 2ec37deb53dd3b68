# SPDX-License-Identifier: Apache-2.0
"""Tells the node agent that a job begins or ends here; run by the prolog and epilog hooks.

`python3 -I -S client.py prolog|epilog`: asks the agent's socket, within DEADLINE_S; where the
agent is away or slow, leaves the same message as a file in its inbox. Always ends with status 0:
a job never fails, and a node never drains, because of us. Standard library only, few modules:
this runs before every job.
"""

# Importing pathlib alone would take a third of this program's start.
# ruff: noqa: PTH103, PTH104, PTH108, PTH118

from __future__ import annotations

import json
import os
import socket
import sys
import time

DEADLINE_S = 0.2
DEFAULT_SOCKET = "/run/fairwatt/agent.sock"
DEFAULT_INBOX = "/var/spool/fairwatt/inbox"
MAX_ANSWER = 65_536

PASSED_ON = (
    "CUDA_VISIBLE_DEVICES",
    "SLURMD_NODENAME",
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_GPUS",
    "SLURM_JOB_ID",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_RESTART_COUNT",
    "SLURM_JOB_SLUID",
    "SLURM_JOB_UID",
    "SLURM_RESTART_COUNT",
    "SLURM_SLUID",
)
"""The only variables that leave the hook: none of them is free text of the user."""


def message(verb: str, t_ms: int) -> bytes:
    """Return the one JSON line for `verb` at `t_ms` (UTC epoch milliseconds), newline included."""
    env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    text = json.dumps({"v": 1, "verb": verb, "t_ms": t_ms, "env": env})
    return text.encode("ascii") + b"\n"


def ask_agent(path: str, line: bytes, deadline_s: float) -> bool:
    """Send `line` to the agent and return whether it took it within `deadline_s`.

    Raises:
        OSError: the agent is away or too slow (TimeoutError is one).
    """
    until = time.monotonic() + deadline_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
        agent.settimeout(deadline_s)
        agent.connect(path)
        agent.sendall(line)
        answer = b""
        while not answer.endswith(b"\n") and len(answer) < MAX_ANSWER:
            agent.settimeout(max(0.001, until - time.monotonic()))
            part = agent.recv(MAX_ANSWER)
            if not part:
                break
            answer += part
    return b'"ok":true' in answer.replace(b" ", b"")


def leave_in_inbox(folder: str, name: str, line: bytes) -> None:
    """Write `line` to `folder` under `name`, complete or not at all.

    Raises:
        OSError: the folder cannot be written.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    temporary = os.path.join(folder, "." + name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(line)
            file.flush()
            os.fsync(descriptor)
    except OSError:
        os.unlink(temporary)
        raise
    os.rename(temporary, os.path.join(folder, name + ".json"))


def deliver(verb: str) -> str | None:
    """Hand the message to the agent or its inbox; return what went wrong if neither took it."""
    t_ms = time.time_ns() // 1_000_000
    line = message(verb, t_ms)
    try:
        if ask_agent(os.environ.get("FAIRWATT_AGENT_SOCKET", DEFAULT_SOCKET), line, DEADLINE_S):
            return None
    except OSError:
        pass
    inbox = os.environ.get("FAIRWATT_INBOX_DIR", DEFAULT_INBOX)
    try:
        leave_in_inbox(inbox, f"{t_ms:014d}-{os.getpid()}-{verb}", line)
    except OSError as error:
        return f"neither the agent nor its inbox {inbox} took the message: {error}"
    return None


def main(argv: list[str]) -> int:
    """Run the hook's part; whatever happens, the status is 0."""
    if argv not in (["prolog"], ["epilog"]):
        sys.stderr.write(f"fairwatt: {argv!r} is not prolog or epilog\n")
        return 0
    try:
        fault = deliver(argv[0])
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
    if fault:
        sys.stderr.write(f"fairwatt: {fault}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
