# SPDX-License-Identifier: Apache-2.0
"""A folder that looks like /sys of a host: powercap counters, CPU topology, control groups.

Nothing moves by itself: the test says what was used, so that it knows the truth.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["RANGE_UJ", "HostTree"]

RANGE_UJ = 262_143_328_850
"""max_energy_range_uj of a package with 61 µJ units."""


class HostTree:
    """`sys` and `proc` below `root`, of a host with packages of `cores` CPUs each.

    `version` is that of the control groups; with 1, a job's folder needs its user id.
    """

    def __init__(
        self,
        root: Path,
        *,
        packages: int = 2,
        cores: int = 8,
        dies: int = 1,
        dram: bool = True,
        memory_bytes: int = 64 << 30,
        version: int = 2,
    ) -> None:
        self.sys = root / "sys"
        self.proc = root / "proc"
        self.version = version
        self._counters: dict[str, Path] = {}
        self.proc.mkdir(parents=True, exist_ok=True)
        (self.proc / "meminfo").write_text(f"MemTotal:       {memory_bytes // 1024} kB\n")
        for package in range(packages):
            self._package(package, dies, dram=dram)
            for cpu in range(package * cores, (package + 1) * cores):
                self._cpu(cpu, package, (cpu % cores) * dies // cores)
        self._groups()

    def _package(self, package: int, dies: int, *, dram: bool) -> None:
        for die in range(dies):
            number = package * dies + die
            suffix = f"-die-{die}" if dies > 1 else ""
            name = f"{package}d{die}" if dies > 1 else f"{package}"
            folder = self.sys / "class" / "powercap" / f"intel-rapl:{number}"
            self._zone(f"cpu{name}", folder, f"package-{package}{suffix}")
            self._zone(f"core{name}", folder / f"intel-rapl:{number}:0", "core")
            if dram:
                self._zone(f"dram{name}", folder / f"intel-rapl:{number}:1", "dram")

    def _zone(self, part: str, folder: Path, name: str) -> None:
        _write(folder / "name", name)
        _write(folder / "max_energy_range_uj", RANGE_UJ)
        _write(folder / "constraint_0_max_power_uw", 225_000_000)
        _write(folder / "energy_uj", 1_000_000)
        self._counters[part] = folder / "energy_uj"

    def zone(self, name: str, number: int) -> Path:
        """Add a zone beside the packages, as psys is."""
        folder = self.sys / "class" / "powercap" / f"intel-rapl:{number}"
        self._zone(name, folder, name)
        return folder

    def _cpu(self, cpu: int, package: int, die: int) -> None:
        folder = self.sys / "devices" / "system" / "cpu" / f"cpu{cpu}" / "topology"
        _write(folder / "physical_package_id", package)
        _write(folder / "die_id", die)
        _write(folder / "core_id", cpu)

    # -- energy --------------------------------------------------------------------------------

    def counter(self, part: str) -> Path:
        """The file of a part's counter, as cpu0 or dram1."""
        return self._counters[part]

    def energy_uj(self, part: str) -> int:
        """What a part's counter shows."""
        return int(self._counters[part].read_text())

    def use(self, part: str, energy_uj: int) -> None:
        """Let a part use energy; the counter begins again at its end."""
        self.set_energy(part, (self.energy_uj(part) + energy_uj) % RANGE_UJ)

    def set_energy(self, part: str, energy_uj: int) -> None:
        """Set a part's counter."""
        _write(self._counters[part], energy_uj)

    # -- control groups ------------------------------------------------------------------------

    @property
    def cgroup(self) -> Path:
        """The root of the control groups."""
        return self.sys / "fs" / "cgroup"

    def _groups(self) -> None:
        if self.version == 2:
            for path in (self._system(), self._jobs()):
                _write(path / "cpu.stat", "usage_usec 0\nuser_usec 0")
                _write(path / "memory.current", 0)
            return
        for name in ("slurm", "system.slice"):
            _write(self.cgroup / "cpuacct" / name / "cpuacct.usage", 0)
            _write(self.cgroup / "memory" / name / "memory.usage_in_bytes", 0)

    def _system(self) -> Path:
        return self.cgroup / "system.slice"

    def _jobs(self) -> Path:
        return self._system() / "slurmstepd.scope"

    def _place(self, name: str, controller: str) -> Path:
        if self.version == 2:
            return self._jobs() / name
        return self.cgroup / controller / "slurm" / "uid_1000" / name

    def job(self, name: str, *, cpus: str = "", memory: int = 0, limit: int | None = None) -> None:
        """Make or change a job's group: CPUs as `0-3`, bytes in use and at most."""
        if self.version == 2:
            folder = self._place(name, "")
            _write(folder / "memory.current", memory)
            _write(folder / "memory.max", "max" if limit is None else limit)
            _write(folder / "cpuset.cpus.effective", cpus)
            if not (folder / "cpu.stat").exists():
                _write(folder / "cpu.stat", "usage_usec 0")
            return
        group = self._place(name, "memory")
        _write(group / "memory.usage_in_bytes", memory)
        _write(group / "memory.stat", "total_cache 9\ntotal_inactive_file 0")
        _write(group / "memory.limit_in_bytes", 2**63 - 4096 if limit is None else limit)
        _write(self._place(name, "cpuset") / "cpuset.cpus", cpus)
        usage = self._place(name, "cpuacct") / "cpuacct.usage"
        if not usage.exists():
            _write(usage, 0)

    def compute(self, name: str, cpu_us: int) -> None:
        """Let a job use CPU time, which all groups around it count too."""
        if self.version == 2:
            for path in (self._place(name, ""), self._jobs(), self._system()):
                _add_usec(path / "cpu.stat", cpu_us)
            return
        for path in (self._place(name, "cpuacct"), self.cgroup / "cpuacct" / "slurm"):
            usage = path / "cpuacct.usage"
            _write(usage, int(usage.read_text()) + 1000 * cpu_us)

    def serve(self, cpu_us: int, memory: int = 0) -> None:
        """Let the system's services use CPU time, and hold memory."""
        if self.version == 2:
            _add_usec(self._system() / "cpu.stat", cpu_us)
            _write(self._system() / "memory.current", memory)
            return
        usage = self.cgroup / "cpuacct" / "system.slice" / "cpuacct.usage"
        _write(usage, int(usage.read_text()) + 1000 * cpu_us)

    def end(self, name: str) -> None:
        """Remove a job's group, as its last slurmstepd does."""
        for controller in ("",) if self.version == 2 else ("cpuacct", "memory", "cpuset"):
            folder = self._place(name, controller)
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()


def _add_usec(path: Path, cpu_us: int) -> None:
    usage = int(path.read_text().split()[1])
    _write(path, f"usage_usec {usage + cpu_us}")


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{value}\n")
