# SPDX-License-Identifier: Apache-2.0
"""docs/submit-matrix.md is what its generator makes of the recorded results."""

from __future__ import annotations

from tests.lab.matrix import page, results
from tests.lab.matrix.cases import all_cases
from tests.lab.matrix.expect import fault
from tests.lab.matrix.updates import UPDATES

MEND = "run: make test-matrix RECORD=1 (or python -m tests.lab.matrix.page, if only words changed)"


def test_the_page_is_what_the_record_says() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.as_markdown(), MEND


def test_the_record_has_every_case_and_no_other() -> None:
    known = {case.key for case in all_cases()} | {update.key for update in UPDATES}
    _, recorded = results.load()
    assert recorded.keys() == known, MEND


def test_what_is_recorded_is_what_was_meant() -> None:
    """A record of wrong outcomes must not make them right."""
    releases, _ = results.load()
    assert len(releases) >= 3
    for release in releases:
        recorded = results.of_release(release)
        cases = [case for case in all_cases() if case.key in recorded]
        told = [fault(case, recorded[case.key], release) for case in cases]
        assert [each for each in told if each] == []
        for update in UPDATES:
            assert recorded[update.key] == update.expected(release)
