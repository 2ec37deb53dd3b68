# SPDX-License-Identifier: Apache-2.0
"""The lines of gres.conf: device files, capability files, AutoDetect; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from fairwatt.prolog.mig.finding import Finding
from fairwatt.prolog.mig.generate import Board
from fairwatt.prolog.mig.live import LiveGpu, LiveInstance, LiveNode
from fairwatt.prolog.mig.names import slice_word
from fairwatt.prolog.mig.node_conf import GpuLine, NodeConf, with_value

__all__ = ["lint_files"]

_BOARD = re.compile(r"(.*)/nvidia(\d+)")
_CAP = re.compile(r"(.*)/nvidia-cap(\d+)")
_SEES_MIG = ("nvml", "off")
_Caps = Mapping[int, tuple[int, int, int | None]]


def lint_files(conf: NodeConf, live: LiveNode, boards: Sequence[Board]) -> Iterator[Finding]:
    """Check a node's lines of gres.conf against its boards."""
    is_cut = any(board.gpu.mig for board in boards)
    yield from _autodetect(conf, is_cut)
    caps: dict[int, tuple[int, int, int | None]] = {cap: key for key, cap in live.caps.items()}
    gpus = {gpu.minor: gpu for gpu in live.gpus}
    for line in conf.lines:
        yield from _line(line, gpus, caps)
    yield from _twice(conf.lines)


def _autodetect(conf: NodeConf, is_cut: bool) -> Iterator[Finding]:
    line = conf.autodetect_line
    if is_cut and conf.autodetect not in _SEES_MIG and line is not None:
        text = f"AutoDetect={conf.autodetect} does not see MIG instances, nvml does"
        better = with_value(line.text, "AutoDetect", "nvml")
        yield Finding("FWM131", "error", line.place, text, better)
    with_files = [each for each in conf.lines if each.multiple]
    if with_files and conf.autodetect == "nvml" and line is not None:
        text = (
            f"AutoDetect=nvml ({line.place}) finds the instances itself; a line whose files are "
            "not exactly the detected ones is one GPU too many"
        )
        yield Finding(
            "FWM132", "warn", with_files[0].place, text, f"NodeName={conf.node} AutoDetect=off"
        )
    if with_files and conf.autodetect != "nvml":
        text = (
            "without AutoDetect=nvml CUDA_VISIBLE_DEVICES is an index, which CUDA does not take "
            "for MIG; fairwatt's TaskProlog puts the UUIDs in"
        )
        yield Finding("FWM133", "note", with_files[0].place, text)


def _line(line: GpuLine, gpus: Mapping[int, LiveGpu], caps: _Caps) -> Iterator[Finding]:
    if line.multiple:
        yield from _mig_line(line, gpus, caps)
        return
    for name in line.files:
        match = _BOARD.fullmatch(name)
        gpu = gpus.get(int(match[2])) if match else None
        if gpu is not None and gpu.mig:
            text = f"{name} is in MIG mode: its instances need lines of their own"
            yield Finding(
                "FWM124", "error", line.place, text, "fairwatt mig generate --style files"
            )


def _mig_line(line: GpuLine, gpus: Mapping[int, LiveGpu], caps: _Caps) -> Iterator[Finding]:
    board = next((match for name in line.files if (match := _BOARD.fullmatch(name))), None)
    if board is None or int(board[2]) not in gpus:
        text = f"no GPU of this node among {', '.join(line.files)}"
        yield Finding("FWM122", "error", line.place, text)
        return
    gpu = gpus[int(board[2])]
    numbers = [int(match[2]) for name in line.files if (match := _CAP.fullmatch(name))]
    keys = [caps[number] for number in numbers if number in caps]
    mine = [key for key in keys if key[0] == gpu.minor]
    instance = _meant(gpu, mine)
    better = None if instance is None else _better(line, gpu, instance, caps, board[1])
    if len(numbers) != 2 or {key[2] is None for key in mine} == {True}:
        yield _lacking(line, len(numbers), mine, better)
    elif len(mine) != 2 or len({key[1] for key in mine}) != 1 or instance is None:
        text = (
            f"nvidia-cap{numbers[0]} and nvidia-cap{numbers[1]} are not one instance of {board[0]}"
        )
        yield Finding("FWM122", "error", line.place, text, better)
    elif not _fits(line.type, instance):
        text = f"type {line.type}, but its files are of a {instance.profile}"
        type_ = f"{(line.type or '').rpartition('_')[0]}_{slice_word(instance.profile or '')}"
        write = with_value(line.line.text, "Type", type_.lstrip("_"))
        yield Finding("FWM125", "error", line.place, text, write)


def _meant(gpu: LiveGpu, keys: Sequence[tuple[int, int, int | None]]) -> LiveInstance | None:
    """The instance that a line is about: that of its GI file, else that of its CI file."""
    for _, gi, _ in sorted(keys, key=lambda key: key[2] is not None):
        for each in gpu.instances:
            if each.gi == gi:
                return each
    return None


def _better(
    line: GpuLine, gpu: LiveGpu, instance: LiveInstance, caps: _Caps, dev: str
) -> str | None:
    numbers = {key: number for number, key in caps.items()}
    keys = [(gpu.minor, instance.gi, None), (gpu.minor, instance.gi, instance.ci)]
    if instance.ci is None or any(key not in numbers for key in keys):
        return None
    known = next((match[1] for name in line.files if (match := _CAP.fullmatch(name))), None)
    folder = known or f"{dev}/nvidia-caps"
    files = [f"{dev}/nvidia{gpu.minor}", *(f"{folder}/nvidia-cap{numbers[key]}" for key in keys)]
    return with_value(line.line.text, "MultipleFiles", ",".join(files))


def _lacking(
    line: GpuLine,
    count: int,
    keys: Sequence[tuple[int, int, int | None]],
    better: str | None,
) -> Finding:
    if count == 1 and keys and keys[0][2] is None:
        text = "only the GPU instance's file: a job cannot open its compute instance"
    elif count == 1:
        text = "one capability file, where the GPU instance and the compute instance have one each"
    else:
        text = f"{count} capability files, where one GPU instance and one compute instance belong"
    return Finding("FWM121", "error", line.place, text, better)


def _fits(type_: str | None, instance: LiveInstance) -> bool:
    if type_ is None or instance.profile is None:
        return True
    words = (slice_word(instance.profile), instance.seen_profile)
    return any(type_.lower().endswith(word) for word in words)


def _twice(lines: Sequence[GpuLine]) -> Iterator[Finding]:
    seen: dict[str, GpuLine] = {}
    for line in lines:
        # A board may stand in the lines of several instances; their own files may not.
        names = [name for name in line.files if not line.multiple or not _BOARD.fullmatch(name)]
        for name in names:
            if name in seen:
                text = f"{name} is in {seen[name].place} too: Slurm would give it to two jobs"
                yield Finding("FWM123", "error", line.place, text)
                break
            seen[name] = line
