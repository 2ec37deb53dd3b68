# SPDX-License-Identifier: Apache-2.0
"""GPUs under clocks that are set by hours or years, and counters that jump."""

from __future__ import annotations

import msgspec
import pytest

from fairwatt.core.events import Flag
from tests.unit.agent.keeper_bench import Bench, board

DAY_MS = 86_400_000


@pytest.fixture
def strange(tmp_path):
    """A board of a model that the catalogue does not know."""
    device = msgspec.structs.replace(board("GPU-1"), model=None, name="Strange 9000")
    made = Bench(tmp_path, device)
    made.start()
    yield made
    made.crash()


@pytest.mark.parametrize("jump_mj", [2**32, 2**63])
def test_a_counter_that_jumps_is_unknown_on_an_unknown_board_too(strange, jump_mj):
    """2^32 mJ in 10 s were 429 kW, and 2^63 no store can keep; 10 s at 300 W after it are 3 kJ."""
    strange.hook("prolog", 7)
    strange.pass_time(10_000, 300_000)
    strange.energy_mj += jump_mj
    strange.keeper.border(strange.look(), strange.now_ms)
    strange.pass_time(10_000, 300_000)
    strange.hook("epilog", 7)
    wrong, right = strange.windows()
    assert (wrong.measured_mj, wrong.shares) == (None, ())
    assert wrong.flags & Flag.IMPLAUSIBLE
    assert (right.measured_mj, strange.job_mj(7)) == (3_000_000, 3_000_000)


def test_an_hour_on_a_clock_set_back_is_no_later_jobs(strange):
    """1.08 MJ in the first 10 s after the step was passed: unknown; job 7 has its 3 kJ alone."""
    strange.pass_time(60_000, 300_000)
    strange.cut_now()
    strange.now_ms -= 3_600_000
    for _ in range(360):
        strange.pass_time(10_000, 300_000)
        strange.keeper.sample(strange.look({"": 900}))
    strange.pass_time(10_000, 300_000)
    strange.hook("prolog", 7)
    strange.pass_time(10_000, 300_000)
    strange.hook("epilog", 7)
    hidden, last = strange.windows()[-2:]
    assert (hidden.measured_mj, hidden.shares) == (None, ())
    assert hidden.flags & Flag.IMPLAUSIBLE
    assert (last.measured_mj, strange.job_mj(7)) == (3_000_000, 3_000_000)


def test_a_clock_that_was_years_ahead_does_not_stop_the_windows_for_years(bench, caplog):
    """It is said once, and measured again from the step on."""
    bench.pass_time(10_000, 300_000)
    bench.now_ms += 4_000 * DAY_MS
    bench.cut_now()
    bench.now_ms -= 4_000 * DAY_MS
    bench.cut_now()
    bench.cut_now()
    bench.hook("prolog", 7)
    bench.pass_time(10_000, 300_000)
    bench.hook("epilog", 7)
    assert bench.windows()[-1].measured_mj == 3_000_000
    assert bench.job_mj(7) == 3_000_000
    assert sum("clock" in record.message for record in caplog.records) == 1
