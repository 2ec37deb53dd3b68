# SPDX-License-Identifier: Apache-2.0
"""Specs, defaults, uses and docs of the roles' variables agree. No node is needed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fairwatt.core.metrics import METRICS
from fairwatt.core.settings import SETTINGS
from tests.ansible.roles import COLLECTION, ROLES, defaults, entry_points, galaxy, page, variables

ROOT = COLLECTION.parent
DOCS = ROOT / "docs"


def options(role: str) -> dict[str, dict[str, object]]:
    return {
        name: option
        for point in entry_points(role).values()
        for name, option in point.get("options", {}).items()
    }


@pytest.mark.parametrize("role", ROLES)
def test_every_default_is_in_the_spec_with_the_same_value(role: str) -> None:
    spec = {
        name: "" if option.get("required") else option["default"]
        for name, option in options(role).items()
    }
    assert defaults(role) == spec


@pytest.mark.parametrize("role", ROLES)
def test_entry_points_say_the_same_of_a_variable(role: str) -> None:
    for point in entry_points(role).values():
        for name, option in point.get("options", {}).items():
            assert option["default" if "default" in option else "required"] is not None
            assert options(role)[name]["type"] == option["type"], name


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_explains_itself(role: str) -> None:
    for name, option in options(role).items():
        assert name.startswith(f"fairwatt_{role}_"), name
        text = option["description"]
        lines = [text] if isinstance(text, str) else text
        assert all(line.endswith(".") for line in lines), name
        choices = option.get("choices")
        default = option.get("default")
        values = default if isinstance(default, list) else [default]
        assert not choices or set(values) <= set(choices), name


@pytest.mark.parametrize("role", ROLES)
def test_every_entry_point_has_tasks_and_every_tasks_file_is_reached(role: str) -> None:
    tasks = COLLECTION / "roles" / f"fairwatt_{role}" / "tasks"
    text = "".join(path.read_text() for path in tasks.glob("*.yml"))
    plays = "".join(path.read_text() for path in (COLLECTION / "playbooks").glob("*.yml"))
    for point in entry_points(role):
        assert (tasks / f"{point}.yml").exists()
    for path in tasks.glob("*.yml"):
        reached = path.name in text or f"tasks_from: {path.stem}\n" in plays
        assert reached or path.stem == "main", path


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_that_is_used_is_known(role: str) -> None:
    known = {name for other in ROLES for name in (*options(other), *variables(other))}
    for path in (COLLECTION / "roles" / f"fairwatt_{role}").rglob("*"):
        if path.suffix not in (".yml", ".j2") or "meta" in path.parts:
            continue
        text = path.read_text(encoding="utf-8")
        for name in set(re.findall(rf"\bfairwatt_{role}_[a-z_]+\b", text)):
            assert name in known or is_made_by_a_task(role, name), f"{path}: {name}"


def is_made_by_a_task(role: str, name: str) -> bool:
    """A registered result, a fact, or a variable of one task."""
    tasks = COLLECTION / "roles" / f"fairwatt_{role}" / "tasks"
    text = "".join(path.read_text() for path in tasks.glob("*.yml"))
    made = rf"register: {name}\n|^ +{name}:|/{name}_|tags: {name}\n"
    return re.search(made, text, re.MULTILINE) is not None


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_of_a_spec_is_used(role: str) -> None:
    folder = COLLECTION / "roles" / f"fairwatt_{role}"
    parts = ("tasks", "templates", "vars", "handlers")
    text = "".join(
        path.read_text(encoding="utf-8") for part in parts for path in (folder / part).glob("*")
    )
    for name in options(role):
        assert name in text, name


def test_the_settings_that_roles_write_exist() -> None:
    keys = {setting.key for setting in SETTINGS}
    written = [
        (path, key)
        for path in COLLECTION.rglob("20-*.toml.j2")
        for key in re.findall(r"^([a-z]+\.[a-z_]+) = ", path.read_text(), re.MULTILINE)
    ]
    assert len(written) >= 10
    assert [(path, key) for path, key in written if key not in keys] == []


def test_the_collection_has_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert galaxy()["version"] == project["version"]
    assert defaults("install")["fairwatt_install_version"] == project["version"]


def test_the_page_of_the_roles_is_what_the_specs_say() -> None:
    mend = "run: python -m tests.ansible.roles docs/roles.md"
    assert (DOCS / "roles.md").read_text(encoding="utf-8") == page(), mend


@pytest.mark.parametrize(
    "path",
    [*sorted(DOCS.glob("*.md")), COLLECTION / "README.md"],
    ids=lambda path: path.name,
)
def test_variables_in_prose_exist(path: Path) -> None:
    known = {name for role in ROLES for name in options(role)}
    # Metrics begin like variables of the role.
    known |= {f"fairwatt_{one.name}{end}" for one in METRICS for end in ("", "_total")}
    names = "|".join(ROLES)
    for name in re.findall(rf"\b(fairwatt_(?:{names})_[a-z_]+)\b", path.read_text("utf-8")):
        assert name in known, name
