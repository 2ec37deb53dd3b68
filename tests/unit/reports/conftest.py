# SPDX-License-Identifier: Apache-2.0
"""Stores of a few runs that reports are computed from by hand."""

from __future__ import annotations

import pytest

from tests.unit.reports.tiny import new_store


@pytest.fixture
def store(tmp_path):
    """A store of the tiny tree, as a sqlite-utils database."""
    db = new_store(tmp_path / "store.db")
    yield db
    db.close()


@pytest.fixture
def db(store):
    return store.conn
