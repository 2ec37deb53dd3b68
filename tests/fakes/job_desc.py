# SPDX-License-Identifier: Apache-2.0
"""Runs job_submit.lua as slurmctld does, on any Lua and with the semantics of any release.

What differs between releases is in submit_releases.py. Field names and error rules are those of
Slurm's job_submit_lua.c: numbers are pushed as floats, unknown fields read as nil and log on
writing, strings cannot be set to nil and "" clears them. Live, the same script is run by
tests/lab/test_hook_faults.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.submit_releases import RELEASES

HOOK = Path(__file__).parents[2] / "slurm_plugins" / "lua" / "job_submit.lua"
LUAS = ("lua51", "lua52", "lua53", "lua54")
NO_VAL = 4294967294
NO_VAL_16 = 65534
NO_VAL_64 = 2**64 - 2
MEM_PER_CPU = 2**63

STRINGS = [
    "account",
    "admin_comment",
    "array_inx",
    "comment",
    "cpus_per_tres",
    "dependency",
    "exc_nodes",
    "extra",
    "features",
    "gres",
    "licenses",
    "mem_per_tres",
    "name",
    "partition",
    "prefer",
    "qos",
    "req_nodes",
    "reservation",
    "script",
    "std_err",
    "std_in",
    "std_out",
    "tres_bind",
    "tres_freq",
    "tres_per_job",
    "tres_per_node",
    "tres_per_socket",
    "tres_per_task",
    "wckey",
    "work_dir",
]
SHORT = {"cpus_per_task", "ntasks_per_node", "ntasks_per_gpu", "pn_min_cpus", "shared", "requeue"}
NUMBERS = {
    **dict.fromkeys(
        ["num_tasks", "min_nodes", "max_nodes", "time_limit", "time_min", "priority"], NO_VAL
    ),
    **dict.fromkeys(sorted(SHORT), NO_VAL_16),
    "min_cpus": 1,
    "begin_time": 0,
    "pn_min_memory": NO_VAL_64,
}
MEMORY = {"min_mem_per_node": 0, "min_mem_per_cpu": MEM_PER_CPU}
"""Two views of pn_min_memory, told apart by its highest bit; nil where they do not hold."""
NOT_IN_RECORDS = {
    "req_nodes",
    "exc_nodes",
    "reservation",
    "num_tasks",
    "cpus_per_task",
    "ntasks_per_node",
    "ntasks_per_gpu",
    "argc",
    "argv",
    "default_account",
    "shared",
    "begin_time",
    "array_inx",
    "cron_job",
}
"""What a script cannot read of a job that is there already (measured on 22.05, 24.11, 26.05)."""
READ_ONLY = {"user_id": 1000, "group_id": 1000, "argc": 0, "cron_job": False}
COSTLY = {"user_name"}
"""Reading it asks the name service while slurmctld holds its locks (up to 23.02)."""


@dataclass
class Wire:
    """The far end of socket.unix, with a clock of its own and faults to inject.

    `fault`: None, "absent", "hung", "dead" (closed after send), "backlog" (fails at send),
    "half", "full" (takes no line that wants no answer), "cut" (takes a part of it); or `raw`, text
    to answer instead of what `answer` says. `connects` counts connections for questions;
    `most_streams` may be open at a time.
    """

    answer: Callable[[str], str | None] = lambda _line: None
    fault: str | None = None
    raw: str | None = None
    now: float = 1000.0
    step: float = 0.00001
    connects: int = 0
    lines: list[str] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    epoch: int = 0
    most_streams: int = 64
    streams: dict[int, _Stream] = field(default_factory=dict)
    opened: int = 0

    def gettime(self) -> float:
        self.now += self.step
        return self.now

    def open(self) -> int:
        """A new stream's number."""
        self.opened += 1
        self.streams[self.opened] = _Stream()
        return self.opened

    def connect(self, number: int, _path: str, timeout: float) -> tuple[Any, ...]:
        self.connects += timeout != 0
        if self.fault == "absent" or len(self.streams) > self.most_streams:
            return None, "connection refused"
        self.streams[number].epoch = self.epoch
        return 1, None

    def close(self, number: int) -> None:
        del self.streams[number]

    def restart(self) -> None:
        """policyd comes back: connections of before are dead."""
        self.epoch += 1

    def send(self, number: int, line: str, timeout: float) -> tuple[Any, ...]:
        stream = self.streams[number]
        if stream.epoch != self.epoch or self.fault in ("dead", "backlog"):
            return None, "closed", 0
        if '"verb":"reused"' in line:
            return self._take_report(stream, line, timeout)
        assert not stream.reports, "a question where nobody listens"
        stream.line = line
        self.lines.append(line)
        return len(line), None

    def _take_report(self, stream: _Stream, line: str, timeout: float) -> tuple[Any, ...]:
        assert timeout == 0, "the hook waits though it asks nothing"
        stream.reports = True
        if self.fault == "full":
            return None, "timeout", 0
        if self.fault == "cut":
            return None, "timeout", 5
        self.lines.append(line)
        return len(line), None

    def receive(self, number: int, timeout: float) -> tuple[Any, ...]:
        stream = self.streams[number]
        line, stream.line = stream.line, ""
        if not line:
            assert timeout == 0, "the hook waits for what it did not ask"
            return None, "timeout" if stream.epoch == self.epoch else "closed", ""
        if self.fault == "hung":
            self.now += timeout
            self.waited.append(timeout)
            return None, "timeout"
        if self.fault == "half":
            return None, "closed"
        text = self.raw if self.raw is not None else self.answer(line)
        return (None, "closed") if text is None else (text.rstrip("\n"), None)


@dataclass
class _Stream:
    """One connection: of which policyd, the question on its way, whether it only reports."""

    epoch: int | None = None
    line: str = ""
    reports: bool = False


@dataclass
class Outcome:
    """What Slurm makes of a call: the job's fields afterwards, lines for user and log."""

    accepted: bool
    code: object
    fields: dict[str, Any]
    environment: dict[str, str]
    said: list[str]
    logged: list[str]


_PRELUDE = """
local py = ...
package.preload["socket"] = function() return { gettime = py.gettime } end
package.preload["socket.unix"] = function()
  return { stream = function()
    local limit, n = 0, py.open()
    local s = {}
    function s:settimeout(t, mode) limit = t or -1 end
    function s:connect(path) return py.connect(n, path, limit) end
    function s:send(line) return py.send(n, line, limit) end
    function s:receive(pattern) assert(pattern == "*l") return py.receive(n, limit) end
    function s:close() py.close(n) end
    return s
  end }
end
slurm = { SUCCESS = 0, ERROR = -1, FAILURE = -1, NO_VAL = 4294967294.0 }
function slurm.log_info(...) py.log(string.format(...)) end
function slurm.log_user(...) py.say(string.format(...)) end
slurm.user_msg = function(text) py.say(text) end
function new_job(read, write, environment)
  return setmetatable({}, {
    __index = function(_, name)
      if name == "environment" then return environment end
      return read(name)
    end,
    __newindex = function(_, name, value)
      if value == nil then error("bad argument #3 to '?' (string expected, got nil)") end
      write(name, value)
    end })
end
function new_environment(read, write)
  return setmetatable({}, { __index = function(_, n) return read(n) end,
    __newindex = function(_, n, v) write(n, v) end })
end
function call(name, ...)
  local results = { pcall(_G[name], ...) }
  return results[1], results[2], type(results[2])
end
"""


class Hook:
    """The script in one Lua state; `folder` holds it and fairwatt_hook.lua.

    Args:
        folder: an empty folder for the files.
        wire: the far end.
        lua: a module of lupa, such as lua51.
        release: the server's.
        settings: the text of fairwatt_hook.lua; None: no such file.
        patch: changes the script's text (to inject an error).
    """

    def __init__(
        self,
        folder: Path,
        wire: Wire,
        *,
        lua: str = "lua51",
        release: str = "22.05",
        settings: str | None = 'return { socket = "/x.sock" }',
        patch: Callable[[str], str] = lambda text: text,
    ) -> None:
        self.release = RELEASES[release]
        self.said: list[str] = []
        self.logged: list[str] = []
        self.modifying = False
        runtime = importlib.import_module(f"lupa.{lua}").LuaRuntime(
            encoding="latin-1", unpack_returned_tuples=True
        )
        self._lua = runtime
        runtime.compile(_PRELUDE)(self._python(wire))
        slurm = runtime.globals().slurm
        if self.release.slash:
            slurm.GRES_ALLOW_TASK_SHARING = 32.0
        if self.release.all_codes:
            slurm.ESLURM_INVALID_GRES = 2072.0
        if settings is not None:
            (folder / "fairwatt_hook.lua").write_text(settings)
        script = folder / "job_submit.lua"
        script.write_text(patch(HOOK.read_text(encoding="utf-8")))
        runtime.globals().dofile(str(script))

    def submit(self, fields: dict[str, Any], environment: dict[str, str] | None = None) -> Outcome:
        """Call slurm_job_submit; without an environment the job is interactive."""
        self.modifying = False
        job = _Job(self, {"het_job_offset": NO_VAL, **fields}, environment)
        return self._outcome("slurm_job_submit", job, job.proxy(self._lua), None, 1000.0)

    def modify(self, fields: dict[str, Any], record: dict[str, Any], uid: int = 1000) -> Outcome:
        """Call slurm_job_modify; `record` is the job as it is."""
        self.modifying = True
        job = _Job(self, {"het_job_offset": 0, "min_cpus": NO_VAL, **fields}, None)
        old = _Job(self, {"het_job_offset": 0, "het_job_id": 0, **record}, None)
        old.hidden = NOT_IN_RECORDS
        old.costly = COSTLY | {"script"}  # slurmctld reads it from disk
        proxies = (job.proxy(self._lua), old.proxy(self._lua))
        return self._outcome("slurm_job_modify", job, *proxies, None, float(uid))

    def _outcome(self, name: str, job: _Job, *args: Any) -> Outcome:
        self.said, self.logged = [], []
        done, value, kind = self._lua.globals().call(name, *args)
        if not done:
            accepted, code = not self.release.error_rejects, value
        else:
            accepted, code = kind != "number" or value == 0, value
        return Outcome(accepted, code, job.changed(), job.environment, self.said, self.logged)

    def table(self, values: dict[Any, Any]) -> Any:
        """A table of the script's Lua."""
        return self._lua.table_from(values)

    def _say(self, text: str) -> None:
        if self.modifying and not self.release.log_user_in_modify:
            self.logged.append("error: message discarded")
        else:
            self.said.append(text)

    def _python(self, wire: Wire) -> Any:
        table = {
            "gettime": wire.gettime,
            "open": wire.open,
            "connect": wire.connect,
            "close": wire.close,
            "send": wire.send,
            "receive": wire.receive,
            "log": lambda text: self.logged.append(text),
            "say": self._say,
        }
        return self._lua.table_from(table)


class _Job:
    """A job_desc; `failing` are fields whose writing raises, `costly` those not to be read."""

    def __init__(
        self, hook: Hook, fields: dict[str, Any], environment: dict[str, str] | None
    ) -> None:
        self.hook = hook
        self.hidden: set[str] = set()
        self.costly = set(COSTLY)
        self.failing: set[str] = set(fields.pop("__failing__", ()))
        self.before: dict[str, Any] = {**NUMBERS, **READ_ONLY, **_stored(fields)}
        self.now = dict(self.before)
        self.batch = environment is not None
        self.environment = dict(environment or {})

    def proxy(self, lua: Any) -> Any:
        names = lua.globals()
        environment = names.new_environment(self._read_environment, self._write_environment)
        return names.new_job(self._read, self._write, environment)

    def changed(self) -> dict[str, Any]:
        """The fields that differ from what was sent, memory by the name that holds."""
        keys = self.now.keys() | self.before.keys()
        changes = {k: self.now.get(k) for k in keys if self.now.get(k) != self.before.get(k)}
        memory = changes.pop("pn_min_memory", None)
        if memory is not None:
            name = "min_mem_per_cpu" if memory & MEM_PER_CPU else "min_mem_per_node"
            changes[name] = memory & ~MEM_PER_CPU
        return changes

    def _read(self, name: str) -> Any:
        assert name not in self.costly, f"the script reads {name}"
        if name == "gres":
            name = "tres_per_node"
        if name in self.hidden or not self.hook.release.knows(name):
            return None
        if name in MEMORY:
            return self._memory(MEMORY[name])
        value = self.now.get(name)
        if name == "argv" and value is not None:
            return self.hook.table(dict(enumerate(value)))  # from 0, as Slurm makes it
        whole = isinstance(value, int) and not isinstance(value, bool)
        return float(value) if whole else value

    def _memory(self, flag: int) -> float | None:
        stored = self.now["pn_min_memory"]
        if stored == NO_VAL_64 or stored & MEM_PER_CPU != flag:
            return None
        return float(stored & ~MEM_PER_CPU)

    def _write(self, name: str, value: Any) -> None:
        if name in self.failing:
            raise RuntimeError(f"injected at {name}")
        if name in STRINGS and self.hook.release.knows(name):
            self._write_string(name, value)
        elif name in MEMORY:
            self.now["pn_min_memory"] = _unsigned(value, 64) | MEMORY[name]
        elif name in NUMBERS:
            bits = 16 if name in SHORT else 64 if name == "pn_min_memory" else 32
            self.now[name] = _unsigned(value, bits)
        else:
            self.hook.logged.append(f"unrecognized field: {name}")

    def _write_string(self, name: str, value: Any) -> None:
        if not isinstance(value, str):
            value = f"{value}"
        kept = value or (self.hook.modifying and self.hook.release.keeps_empty)
        self.now[name] = value if kept else None

    def _read_environment(self, name: str) -> str | None:
        if not self.batch:
            self.hook.logged.append("error: environment only accessible for batch jobs")
            return None
        return self.environment.get(name)

    def _write_environment(self, name: str, value: str) -> None:
        if name in self.failing:
            raise RuntimeError(f"injected at {name}")
        self.environment[name] = value


def _stored(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields as Slurm keeps them: one for the memory."""
    kept = {name: value for name, value in fields.items() if name not in MEMORY}
    for name, flag in MEMORY.items():
        if name in fields:
            kept["pn_min_memory"] = fields[name] | flag
    return kept


def _unsigned(value: float, bits: int) -> int:
    """A double as the compiler's code makes an unsigned integer of it; too large ones wrap."""
    return int(value) % 2**bits
