# SPDX-License-Identifier: Apache-2.0
"""The fuzz targets with hypothesis; `make fuzz` runs the same ones with atheris for longer."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.requests import asks_for_gpus
from tests.fuzz.source import FromHypothesis
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_breaks(name):
    @settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def run(data):
        TARGETS[name](FromHypothesis(data))

    run()


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("gpu", True),
        ("gres:gpu:2", True),
        ("cpu=3,gres/gpu:a100=1", True),
        ("gres/gpu:0", False),
        ("gres/shard:1", False),
        ("cpu=3", False),
        ("", False),
    ],
)
def test_the_oracle(text, asks):
    assert asks_for_gpus(text) is asks
