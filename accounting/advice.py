# SPDX-License-Identifier: Apache-2.0
"""Why a run has its class, and what to write next time, in a sentence each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fairwatt.accounting.waste import (
    Evidence,
    Limits,
    Offer,
    Rule,
    Verdict,
    host_parts,
    slowdown_permille,
    smaller,
    unused,
)

__all__ = ["Advice", "Names", "advise", "gpu_flag"]

GIB = 1024
UNTYPED = "untyped"
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


@dataclass(frozen=True)
class Names:
    """What things are called in the sentences.

    Attributes:
        gpu: the device for people (`H100`), "" if unknown.
        gres_type: as Slurm names it, None without a type.
        larger: GRES type of the next device with more memory, None if there is none.
        by_size: whether the site's policy reads sizes (`gpu:10gb:1`).
        slow_node: where the slow GPU is.
    """

    gpu: str = ""
    gres_type: str | None = None
    larger: str | None = None
    by_size: bool = False
    slow_node: str | None = None


@dataclass(frozen=True)
class Advice:
    """What was seen, and what to do; `advice` is None where nothing is to be done or said."""

    evidence: str
    advice: str | None


def advise(run: Evidence, verdict: Verdict, names: Names, limits: Limits | None = None) -> Advice:
    """Return the evidence for a verdict and the advice that follows, each in one sentence."""
    limits = limits or Limits()
    return _WORDS[verdict.rule](run, names, limits)


def gpu_flag(gres_type: str | None, count: int, nnodes: int | None) -> str:
    """Return the flag that asks for so many GPUs in all: `--gres` counts them by node."""
    nodes = nnodes or 1
    name = "gpu" if gres_type in (None, UNTYPED) else f"gpu:{gres_type}"
    if count % nodes == 0:
        return f"`--gres={name}:{count // nodes}`"
    return f"`--gpus={name.removeprefix('gpu:').replace('gpu', '')}:{count}`".replace("=:", "=")


def _out_of_memory(run: Evidence, _names: Names, _limits: Limits) -> Advice:
    if run.mem_mib is None:
        return Advice("Slurm ended it: its memory was full.", "Ask for more memory (`--mem`).")
    return Advice(
        f"Slurm ended it when its {_gib(run.mem_mib)} of memory were full.",
        f"Ask for more memory: {_mem_flag(run, run.mem_mib * 3 // 2)}.",
    )


def _gpu_memory_full(run: Evidence, names: Names, _limits: Limits) -> Advice:
    most = max((gpu.mem_max_mib for gpu in run.gpus if gpu.mem_max_mib is not None), default=0)
    seen = f"It failed with {_of_gb(most, run.gpu_mem_mib)} of GPU memory in use."
    if names.larger is None:
        return Advice(seen, "Use a smaller batch, or spread the model over more GPUs.")
    flag = gpu_flag(names.larger, run.gpu_count or 1, run.nnodes)
    return Advice(seen, f"Ask for a GPU with more memory: {flag}.")


def _gpus_idle(run: Evidence, _names: Names, limits: Limits) -> Advice:
    used_mib = run.gpu_mem_max_mib
    seen = f"{_gpus(run)} busy {_percent(run.util_permille)} of the time."
    if used_mib is not None and used_mib >= limits.unused_mib:
        return Advice(
            seen,
            f"It held {used_mib / GIB:.0f} GB of GPU memory and hardly computed: ask for the GPU "
            "only while the program computes.",
        )
    return Advice(
        seen, "Check that the program is made for GPUs and finds them; else leave out `--gres`."
    )


def _gpus_unused(run: Evidence, names: Names, limits: Limits) -> Advice:
    count = len(run.gpus)
    left = count - len(unused(run, limits))
    return Advice(
        f"{count - left} of its {count} GPUs were never used.",
        f"Ask for as many as the program uses: {gpu_flag(names.gres_type, left, 1)}."
        if (run.nnodes or 1) == 1
        else f"Ask for as many as the program uses: {left} in all.",
    )


def _smaller_gpu(run: Evidence, names: Names, limits: Limits) -> Advice:
    offer, util = smaller(run, limits), run.util_permille
    if offer is None or util is None:
        return Advice("A smaller GPU would have done.", None)
    longer = slowdown_permille(util, offer) / 1000
    of = f"of {_an(names.gpu)}" if names.gpu else "of its GPU's time"
    return Advice(
        f"It used {_of_gb(run.gpu_mem_max_mib, run.gpu_mem_mib)} and {_percent(util)} {of}.",
        f"{gpu_flag(_offer_word(offer, names), 1, 1)} would have done, at worst in "
        f"{longer:.1f} times the time.",
    )


def _offer_word(offer: Offer, names: Names) -> str:
    return f"{offer.memory_mib // GIB}gb" if names.by_size else offer.gres_type


def _slow_gpu(run: Evidence, names: Names, _limits: Limits) -> Advice:
    where = f" on {names.slow_node}" if names.slow_node else ""
    leave = f"leave the node out (`--exclude={names.slow_node}`) and " if names.slow_node else ""
    return Advice(
        f"One of its GPUs{where} was {_percent(run.slow_permille)} slower than the others, which "
        "waited for it.",
        f"The program is not at fault: {leave}tell the admins.",
    )


def _state_on_host(run: Evidence, names: Names, _limits: Limits) -> Advice:
    flag = gpu_flag(names.gres_type, 2 * (run.gpu_count or 1), run.nnodes)
    return Advice(
        f"The GPU memory was nearly full, {_gib(run.mem_peak_mib)} lay in the node's memory, and "
        f"the GPUs were busy {_percent(run.util_permille)} of the time.",
        f"Spread the model over more GPUs, so that its state stays on them: {flag}.",
    )


def _cpus_full(run: Evidence, _names: Names, _limits: Limits) -> Advice:
    each = -(-2 * (run.ncpus or 1) // (run.gpu_count or 1))
    return Advice(
        f"Its {run.ncpus} CPU cores were busy {_percent(run.cpu_permille)} of the time and its "
        f"GPUs {_percent(run.util_permille)}: the GPUs waited for data.",
        f"Give the GPUs more cores to be fed by: `--cpus-per-gpu={each}`.",
    )


def _gpus_wait(run: Evidence, _names: Names, _limits: Limits) -> Advice:
    power = max((gpu.power_permille or 0 for gpu in run.gpus), default=0)
    return Advice(
        f"{_gpus(run)[:-5]} on {run.nnodes} nodes were busy "
        f"{_percent(run.util_permille)} of the time, but drew at most {_percent(power)} of what "
        "work draws: they mostly waited for each other.",
        "Use fewer nodes, or nodes on one switch: `--switches=1`.",
    )


def _host_full(run: Evidence, _names: Names, _limits: Limits) -> Advice:
    return Advice(
        f"It used {_gib(run.mem_peak_mib)} of {_gib(run.mem_mib)} of memory.",
        "A little more and Slurm would have ended it: "
        f"{_mem_flag(run, (run.mem_mib or 0) * 5 // 4)}.",
    )


def _host_large(run: Evidence, _names: Names, limits: Limits) -> Advice:
    cpu, memory, time = host_parts(run, limits)
    seen, flags = [], []
    if cpu and run.ncpus is not None and run.cpu_permille is not None:
        used = run.ncpus * run.cpu_permille / 1000
        cores = max(1, -(-run.ncpus * run.cpu_permille // 500))
        seen.append(f"{used:.1f} of {run.ncpus} cores")
        flags.append(
            f"--cpus-per-gpu={-(-cores // run.gpu_count)}"
            if run.gpu_count
            else f"--ntasks=1 --cpus-per-task={cores}"
        )
    if memory and run.mem_peak_mib is not None:
        seen.append(f"{_gib(run.mem_peak_mib)} of {_gib(run.mem_mib)} of memory")
        flags.append(_mem_flag(run, run.mem_peak_mib * 3 // 2).strip("`"))
    if time and run.elapsed_s is not None:
        seen.append(f"{_span(run.elapsed_s)} of {_span(run.timelimit_s or 0)}")
        flags.append(f"--time={_clock(2 * run.elapsed_s)}")
    return Advice(f"It used {_listed(seen)}.", f"`{' '.join(flags)}` would have done.")


def _worked(run: Evidence, names: Names, limits: Limits) -> Advice:
    """Healthy; what was asked far above use besides is said all the same."""
    spare = _host_large(run, names, limits) if any(host_parts(run, limits)) else None
    also = f" {spare.evidence}" if spare else ""
    advice = spare.advice if spare else None
    if run.gpu_count:
        seen = f"{_gpus(run)} busy {_percent(run.util_permille)} of the time."
    else:
        seen = f"Its cores were busy {_percent(run.cpu_permille)} of the time."
    return Advice(f"{seen}{also}", advice)


def _short(_run: Evidence, _names: Names, limits: Limits) -> Advice:
    return Advice(f"It ran for less than {_span(limits.shortest_s)}, too short to tell.", None)


def _unseen(run: Evidence, _names: Names, _limits: Limits) -> Advice:
    what = "How busy its GPUs were" if run.gpu_count else "How busy its cores were"
    return Advice(f"{what} is not known.", None)


def _unclear(run: Evidence, _names: Names, limits: Limits) -> Advice:
    if not run.gpu_count:
        return Advice(f"Its cores were busy {_percent(run.cpu_permille)} of the time.", None)
    known = run.util_known_permille
    if known is None or known < limits.known_permille:
        return Advice("How busy its GPUs were is known for a part of the time only.", None)
    return Advice(
        f"{_gpus(run)} busy {_percent(run.util_permille)} of the time; what held them back was "
        "not seen.",
        None,
    )


_WORDS: Mapping[Rule, Callable[[Evidence, Names, Limits], Advice]] = {
    Rule.OUT_OF_MEMORY: _out_of_memory,
    Rule.GPU_MEMORY_FULL: _gpu_memory_full,
    Rule.GPUS_IDLE: _gpus_idle,
    Rule.GPUS_UNUSED: _gpus_unused,
    Rule.SMALLER_GPU: _smaller_gpu,
    Rule.SLOW_GPU: _slow_gpu,
    Rule.STATE_ON_HOST: _state_on_host,
    Rule.CPUS_FULL: _cpus_full,
    Rule.GPUS_WAIT: _gpus_wait,
    Rule.HOST_FULL: _host_full,
    Rule.HOST_LARGE: _host_large,
    Rule.WORKED: _worked,
    Rule.SHORT: _short,
    Rule.UNSEEN: _unseen,
    Rule.UNCLEAR: _unclear,
}


def _gpus(run: Evidence) -> str:
    count = run.gpu_count or len(run.gpus)
    return "Its GPU was" if count == 1 else f"Its {count} GPUs were"


def _an(name: str) -> str:
    return f"{'an' if name[0] in 'AEFHILMNORSXaeio' else 'a'} {name}"


def _percent(permille: int | None) -> str:
    part = (permille or 0) / 10
    return f"{part:.1f} %" if 0 < part < 1 else f"{part:.0f} %"


def _of_gb(used_mib: int | None, whole_mib: int | None) -> str:
    used = f"{(used_mib or 0) / GIB:.0f}"
    return f"{used} of {whole_mib / GIB:.0f} GB" if whole_mib else f"{used} GB"


def _gib(mib: int | None) -> str:
    gib = (mib or 0) / GIB
    return f"{gib:.0f} GiB" if gib >= 10 else f"{gib:.1f} GiB"


def _mem_flag(run: Evidence, mib: int) -> str:
    """`--mem` is by node; in whole GiB."""
    return f"`--mem={-(-mib // (GIB * (run.nnodes or 1)))}G`"


def _clock(seconds: int) -> str:
    minutes = -(-seconds // (10 * _MINUTE_S)) * 10
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:00" if days else f"{hours:02}:{minutes:02}:00"


def _span(seconds: int) -> str:
    for unit_s, name in ((_DAY_S, "days"), (_HOUR_S, "h")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {name}"
    return f"{max(1, round(seconds / _MINUTE_S))} min"


def _listed(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]
