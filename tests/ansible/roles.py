# SPDX-License-Identifier: Apache-2.0
"""The roles as data: their specs, defaults and variables, and docs/roles.md made from them.

`python -m tests.ansible.roles docs/roles.md` writes that page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

__all__ = ["COLLECTION", "ROLES", "defaults", "entry_points", "galaxy", "page", "variables"]

COLLECTION = Path(__file__).resolve().parents[2] / "ansible"
ROLES = ("install", "collector", "dashboard", "node", "controller")
"""In the order in which site.yml runs them; each is `fairwatt_<name>`."""

_HEAD = """# The roles and their variables

From the roles' argument specs by `python -m tests.ansible.roles docs/roles.md`; do not edit it by
hand. A wrong value stops the play with the variable's name and its choices.
"""
_MARKUP = re.compile(r"\b[CVO]\(([^)]*)\)")


@cache
def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def galaxy() -> dict[str, Any]:
    """The collection's own description."""
    return dict(_yaml(COLLECTION / "galaxy.yml"))


def entry_points(role: str) -> dict[str, dict[str, Any]]:
    """The spec of a role by entry point."""
    specs = _yaml(_folder(role) / "meta" / "argument_specs.yml")["argument_specs"]
    return dict(specs)


def defaults(role: str) -> dict[str, Any]:
    """The role's default values by variable."""
    return dict(_yaml(_folder(role) / "defaults" / "main.yml"))


def variables(role: str) -> dict[str, Any]:
    """The role's own variables, which nobody sets."""
    path = _folder(role) / "vars" / "main.yml"
    return dict(_yaml(path)) if path.exists() else {}


def page() -> str:
    """The text of docs/roles.md."""
    return "\n".join([_HEAD, *(line for role in ROLES for line in _role(role))])


def _folder(role: str) -> Path:
    return COLLECTION / "roles" / f"fairwatt_{role}"


def _role(role: str) -> Iterator[str]:
    points = entry_points(role)
    main = points["main"]
    yield f"## fairwatt_{role}\n"
    yield f"{main['short_description']}.\n"
    yield from (f"{_text(line)}\n" for line in _lines(main["description"]))
    yield "| Variable | Type | Default | Meaning |"
    yield "|---|---|---|---|"
    merged = {name: option for point in points.values() for name, option in _options(point)}
    yield from (_row(name, option) for name, option in merged.items())
    yield ""


def _options(point: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from point.get("options", {}).items()


def _row(name: str, option: dict[str, Any]) -> str:
    kind = option["type"] + (f" of {option['elements']}" if "elements" in option else "")
    if "choices" in option:
        kind = "one of " + ", ".join(f"`{choice}`" for choice in option["choices"])
    meaning = " ".join(_text(line) for line in _lines(option["description"]))
    cells = (f"`{name}`", kind, _default(option), meaning)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(option: dict[str, Any]) -> str:
    if option.get("required"):
        return "required"
    value = option.get("default")
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value not in ("", [], {}) else "empty"


def _lines(text: str | list[str]) -> list[str]:
    return [text] if isinstance(text, str) else text


def _text(line: str) -> str:
    """Ansible's markup as Markdown."""
    return _MARKUP.sub(r"`\1`", line)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
