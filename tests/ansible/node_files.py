# SPDX-License-Identifier: Apache-2.0
"""What a node gets before it boots: files and links, written into its root from outside."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["File", "Files", "Link", "NodeSpec", "mask", "merged", "write_files"]


@dataclass(frozen=True)
class File:
    """A file's content, mode and owner (a user name that the root's /etc/passwd knows).

    With `append` the content is added to what the base root has.
    """

    content: str | bytes
    mode: int = 0o644
    owner: str = "root"
    append: bool = False


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


Files = Mapping[str, File | Link]


@dataclass(frozen=True)
class NodeSpec:
    """A node to boot: name, suite of its base root, address on the bridge, files of its own.

    `prepare`, if given, is called with the root folder before the node boots.
    """

    name: str
    suite: str
    address: str
    files: Files = field(default_factory=dict)
    prepare: Callable[[Path], None] | None = None


def mask(*units: str) -> dict[str, Link]:
    """Links that keep units of packages from starting: this node would not have the package."""
    return {f"/etc/systemd/system/{unit}": Link("/dev/null") for unit in units}


def merged(*parts: Files) -> dict[str, File | Link]:
    """All files of all parts; what is appended in several parts is joined, else the last wins."""
    result: dict[str, File | Link] = {}
    for path, new in (item for part in parts for item in part.items()):
        old = result.get(path)
        if isinstance(old, File) and isinstance(new, File) and old.append and new.append:
            new = File(_bytes(old) + _bytes(new), new.mode, new.owner, append=True)
        result[path] = new
    return result


def write_files(root: Path, files: Files) -> None:
    """Write the files below a root that is not booted."""
    owners = _owners(root)
    for path, entry in files.items():
        place = root / path.lstrip("/")
        _refuse_ways_out(root, place)
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(entry, Link):
            place.unlink(missing_ok=True)
            place.symlink_to(entry.target)
        else:
            _write(place, entry, owners)


def _refuse_ways_out(root: Path, place: Path) -> None:
    """From outside, a link such as /var/run -> /run would lead to this very host's folder."""
    inner = place.relative_to(root).parents
    links = [root / part for part in inner if (root / part).is_symlink()]
    absolute = [link for link in links if link.readlink().is_absolute()]
    if absolute:
        raise ValueError(f"{place}: {absolute[0]} is an absolute link; write to where it leads")


def _write(place: Path, entry: File, owners: Mapping[str, tuple[int, int]]) -> None:
    with place.open("ab" if entry.append else "wb") as stream:
        stream.write(_bytes(entry))
    if not entry.append:
        os.chown(place, *owners[entry.owner])
        place.chmod(entry.mode)


def _bytes(entry: File) -> bytes:
    return entry.content.encode() if isinstance(entry.content, str) else entry.content


def _owners(root: Path) -> dict[str, tuple[int, int]]:
    lines = (root / "etc/passwd").read_text(encoding="utf-8").splitlines()
    rows = [line.split(":") for line in lines]
    return {row[0]: (int(row[2]), int(row[3])) for row in rows}
