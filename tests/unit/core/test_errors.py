# SPDX-License-Identifier: Apache-2.0
"""The error tree, its messages, and what every module of core exports."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

from fairwatt.core import errors
from fairwatt.core.errors import (
    AuthError,
    CommandError,
    CommandTimeout,
    ConfigError,
    FairwattError,
    GrammarError,
    IngestError,
)

CORE = Path(__file__).parents[3] / "core"
MODULES = sorted(path.stem for path in CORE.glob("*.py"))


def test_the_docstring_draws_the_tree() -> None:
    drawn: dict[str, str] = {}
    path: list[str] = []
    for indent, name in re.findall(r"^( *)\* (\w+)", errors.__doc__ or "", re.MULTILINE):
        depth = len(indent) // 4
        path[depth:] = [name]
        drawn[name] = path[depth - 1] if depth else "Exception"
    real = {
        name: kind.__base__.__name__
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, FairwattError) and kind.__base__
    }
    assert drawn == real


@pytest.mark.parametrize("name", MODULES)
def test_all_names_what_a_module_defines(name: str) -> None:
    module = importlib.import_module(f"fairwatt.core.{name}")
    assert module.__doc__
    assert isinstance(module.__all__, list)
    exported = set(module.__all__)
    assert len(exported) == len(module.__all__)
    for item in exported:
        assert hasattr(module, item), f"{name}.{item}"
    defined = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
        and (inspect.isclass(value) or inspect.isfunction(value))
    }
    assert defined <= exported, f"{name} defines but does not export {defined - exported}"
    for item in exported & defined:
        assert inspect.getdoc(getattr(module, item)), f"{name}.{item} has no docstring"


def test_a_message_has_place_value_and_remedy() -> None:
    error = ConfigError("wrong type", place="f.toml: a.b", value=3, remedy="give a string")
    assert str(error) == "f.toml: a.b: wrong type (got 3); give a string"
    assert (error.problem, error.place, error.value, error.remedy) == (
        "wrong type",
        "f.toml: a.b",
        3,
        "give a string",
    )
    assert str(FairwattError("plain")) == "plain"


def test_a_long_value_is_cut() -> None:
    text = str(FairwattError("bad", value="x" * 5000))
    assert len(text) < 230
    assert text.endswith("…)")


def test_control_characters_of_a_value_are_escaped() -> None:
    text = str(GrammarError("bad", text="a\n\x1b[31mb", part="\n\x1b"))
    assert "\n" not in text
    assert "\x1b" not in text


def test_a_grammar_error_shows_text_and_part() -> None:
    error = GrammarError("not a count", text="gpu:a:x", part="x", remedy="write gpu:1")
    assert str(error) == "in 'gpu:a:x': not a count (got 'x'); write gpu:1"
    assert error.part == "x"


def test_a_command_error_tells_what_ran() -> None:
    error = CommandTimeout(["sacct", "-X", "--json"], 124, "slow\n")
    assert isinstance(error, CommandError)
    assert str(error) == "sacct -X: exit status 124: slow"
    assert (error.argv, error.returncode) == (["sacct", "-X", "--json"], 124)


def test_http_status_of_refused_bodies() -> None:
    assert IngestError("x").status == 400
    assert AuthError("x").status == 403
