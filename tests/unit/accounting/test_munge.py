# SPDX-License-Identifier: Apache-2.0
"""Munge without a munged: every fault is an AuthError with munge's own words and a remedy."""

from __future__ import annotations

import pytest

from fairwatt.core import munge
from fairwatt.core.errors import AuthError


def test_a_missing_munged_is_named_with_its_socket(tmp_path):
    with pytest.raises(AuthError, match=r"gone\.sock: munge: .*start munged") as caught:
        munge.encode(b"x", str(tmp_path / "gone.sock"))
    assert caught.value.status == 503


def test_decode_needs_munged_too(tmp_path):
    with pytest.raises(AuthError, match="start munged"):
        munge.decode("MUNGE:AwQD:", str(tmp_path / "gone.sock"))


def test_text_that_is_no_credential_is_refused():
    with pytest.raises(AuthError, match="not a munge credential") as caught:
        munge.decode("MUNGE:é:", None)
    assert caught.value.status == 403


def test_a_missing_library_says_what_to_install(monkeypatch):
    monkeypatch.setattr(munge, "LIBRARY", "libmunge-absent.so.2")
    munge._library.cache_clear()
    try:
        with pytest.raises(AuthError, match="install munge"):
            munge.encode(b"x", None)
    finally:
        munge._library.cache_clear()
