# SPDX-License-Identifier: Apache-2.0
"""Tells the node agent that a job begins or ends here; run by the prolog and epilog hooks.

`python3 -I -S client.py prolog|epilog`: asks the agent's socket, within DEADLINE_S; where the
agent is away or slow, leaves the same message as a file in its inbox and does the urgent part
itself (away.py). Epilog then cleans up after the job (cleanup.py).

Status 0 whatever happens to us: a job never fails, and a node never drains, because of us. Only
where the agent answers that a device of this very job is proven to be broken, it is BROKEN. Faults
go to the journal (/dev/log) as fairwatt-prolog or fairwatt-epilog, and to stderr: what a hook with
status 0 prints, slurmd throws away. Standard library only, and few modules: this runs before every
job.
"""

# json, socket and pathlib would each take as long as all the rest of this program's start.
# ruff: noqa: PTH100, PTH103, PTH104, PTH108, PTH118, PTH120

from __future__ import annotations

import os
import sys
import time
from _socket import AF_UNIX, SOCK_DGRAM, SOCK_STREAM, socket
from types import ModuleType

DEADLINE_S = 0.2
BROKEN = 86
"""A status that no fault of Python's gives."""
DEFAULT_SOCKET = "/run/fairwatt/agent.sock"
DEFAULT_INBOX = "/var/spool/fairwatt/inbox"
DEFAULT_JOB_DIR = "/run/fairwatt/jobs"
DEFAULT_LOG = "/dev/log"
MAX_ANSWER = 65_536
DRAIN = b'"drain":{'

LONGEST = 8192

PASSED_ON = (
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_VISIBLE_DEVICES",
    "SLURMD_NODENAME",
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_JOB_GPUS",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_RESTART_COUNT",
    "SLURM_JOB_SLUID",
    "SLURM_JOB_UID",
    "SLURM_NODELIST",
    "SLURM_RESTART_COUNT",
    "SLURM_SLUID",
)
"""The only variables that leave the hook: none of them is free text of the user."""


def message(verb: str, t_ms: int) -> bytes:
    """Return the one JSON line for `verb` at `t_ms` (UTC epoch milliseconds), newline included."""
    env = ((name, os.environ[name]) for name in PASSED_ON if _is_passed_on(name))
    pairs = ", ".join(f'"{name}": "{_escaped(value)}"' for name, value in env)
    text = f'{{"v": 1, "verb": "{verb}", "t_ms": {t_ms}, "env": {{{pairs}}}}}\n'
    return text.encode("ascii")


def _is_passed_on(name: str) -> bool:
    """The agent takes no line above 64 kB, and a list of nodes may be longer."""
    return name in os.environ and len(os.environ[name]) <= LONGEST


def _escaped(text: str) -> str:
    r"""Return `text` as it stands between the quotes of a JSON string, in ASCII.

    >>> _escaped('a"b\n')
    'a\\u0022b\\u000a'
    """
    plain = text.isascii() and text.isprintable() and '"' not in text and "\\" not in text
    if plain:
        return text
    # A byte that is no UTF-8 (an account may hold any) would be half a character, hence no JSON.
    units = os.fsencode(text).decode("utf-8", "replace").encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def ask_agent(path: str, line: bytes, deadline_s: float) -> dict[str, object]:
    """Send `line` to the agent and return its answer.

    Raises:
        OSError: the agent is away or too slow (TimeoutError is one).
        ValueError: the answer is none.
    """
    until = time.monotonic() + deadline_s
    agent = socket(AF_UNIX, SOCK_STREAM)
    try:
        agent.settimeout(deadline_s)
        agent.connect(path)
        agent.sendall(line)
        answer = b""
        while not answer.endswith(b"\n") and len(answer) < MAX_ANSWER:
            left_s = until - time.monotonic()
            if left_s <= 0:  # it may come byte by byte
                raise TimeoutError("timed out")
            agent.settimeout(left_s)
            part = agent.recv(MAX_ANSWER)
            if not part:
                break
            answer += part
    finally:
        agent.close()
    return parsed(answer)


def parsed(answer: bytes) -> dict[str, object]:
    """Return the agent's answer, of the usual one without a verdict to drain only `ok`.

    Raises:
        ValueError: it is none.
    """
    if answer.startswith(b'{"ok":true') and answer.endswith(b"}\n") and DRAIN not in answer:
        return {"ok": True}
    import json

    try:
        known = json.loads(answer)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return known if isinstance(known, dict) else {}


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


def deliver(verb: str) -> dict[str, object]:
    """Hand the message to the agent, else to its inbox and do without it; return its answer."""
    t_ms = time.time_ns() // 1_000_000
    line = message(verb, t_ms)
    answer: dict[str, object] = {}
    try:
        path = os.environ.get("FAIRWATT_AGENT_SOCKET", DEFAULT_SOCKET)
        answer = ask_agent(path, line, DEADLINE_S)
    except (OSError, ValueError):
        do_without(verb)
    if answer.get("ok") is True:
        return answer
    inbox = os.environ.get("FAIRWATT_INBOX_DIR", DEFAULT_INBOX)
    try:
        leave_in_inbox(inbox, f"{t_ms:014d}-{os.getpid()}-{verb}", line)
    except OSError as error:
        say(verb, f"neither the agent nor its inbox {inbox} took the message: {error}")
    return answer


def do_without(verb: str) -> None:
    """Do what cannot wait for the agent: the device table of the job and dcgm-exporter's map."""
    away = sibling("away")
    folder = os.environ.get("FAIRWATT_JOB_DIR", DEFAULT_JOB_DIR)
    try:
        (away.begin if verb == "prolog" else away.end)(folder, os.environ)
    except OSError as error:
        say(verb, f"the job's devices are not noted while the agent is away: {error}")


def clean(verb: str) -> None:
    """After the job: end what it left behind, as far as the settings of the hooks allow."""
    folder = os.environ.get("FAIRWATT_JOB_DIR", DEFAULT_JOB_DIR)
    for line in sibling("cleanup").after_job(os.environ, os.path.join(folder, ".hook")):
        say(verb, line)


def sibling(name: str) -> ModuleType:
    """Import a module that lies beside this one; -I leaves the folder out of the path."""
    folder = os.path.dirname(os.path.abspath(__file__))
    if folder not in sys.path:
        sys.path.append(folder)  # last: no file here may stand for one of Python's
    return __import__(name)


def status(verb: str, answer: dict[str, object]) -> int:
    """Return BROKEN if the agent's verdict on the job's own devices says so; else 0."""
    verdict = answer.get("verdict")
    fault = verdict.get("drain") if isinstance(verdict, dict) else None
    if verb != "prolog" or not isinstance(fault, dict):
        return 0
    say(verb, " ".join(str(fault.get(key)) for key in ("code", "device", "text")))
    return BROKEN


def say(verb: str, text: str) -> None:
    """Write one line to stderr and to the journal's socket; never wait for either."""
    told = f"job {os.environ.get('SLURM_JOB_ID', '?')[:20]}: {text[:900]}"
    line = "".join(letter if letter.isprintable() else "?" for letter in told)
    sys.stderr.write(f"fairwatt: {verb} of {line}\n")
    try:
        log = socket(AF_UNIX, SOCK_DGRAM)
        log.setblocking(False)
        path = os.environ.get("FAIRWATT_LOG_SOCKET", DEFAULT_LOG)
        log.sendto(f"<27>fairwatt-{verb}[{os.getpid()}]: {line}".encode(), path)
        log.close()
    except OSError:
        pass  # no journal here


def main(argv: list[str]) -> int:
    """Run the hook's part and return its status."""
    if argv not in (["prolog"], ["epilog"]):
        sys.stderr.write(f"fairwatt: {argv!r} is not prolog or epilog\n")
        return 0
    verb, result = argv[0], 0
    try:
        result = status(verb, deliver(verb))
        if verb == "epilog":
            clean(verb)
    except Exception as error:
        say(verb, f"{type(error).__name__}: {error}")
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
