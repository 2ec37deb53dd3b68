# SPDX-License-Identifier: Apache-2.0
"""A secret is read only from where nobody else can read it, and never shown."""

from __future__ import annotations

import pytest

from fairwatt.core.errors import ConfigError
from fairwatt.core.secret_file import read_secret


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "secret"
    path.write_text("reader\n hunter2 \n\n")
    path.chmod(0o600)
    return path


def test_its_lines(file) -> None:
    assert read_secret(file) == ["reader", "hunter2"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610])
def test_one_that_others_may_use_is_refused(file, mode) -> None:
    file.chmod(mode)
    with pytest.raises(ConfigError, match=r"chmod 600") as told:
        read_secret(file)
    assert "hunter2" not in str(told.value)


def test_links_folders_and_nothing_are_refused(file, tmp_path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    for path in (link, tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_secret(path)


@pytest.mark.parametrize("content", [b"", b" \n\n", b"\xff\xfe"])
def test_no_text_is_no_secret(file, content) -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigError):
        read_secret(file)
