# SPDX-License-Identifier: Apache-2.0
"""GPUs that are slow again and again, by hand and among random healthy ones."""

from __future__ import annotations

import random

from fairwatt.accounting.failslow_peers import Deed, histories


def deed(device, at_ts=0, **changes):
    values = {
        "node": "n1", "kind": "m", "owner": "ada", "util_permille": 900, "power_mw": 300_000,
        "clock_mhz": 1400, "judged": True, "metric": None, "lag": None, **changes,
    }  # fmt: skip
    return Deed(device=device, at_ts=at_ts, **values)


def fleet(runs=5, devices=6, **changes):
    """Healthy GPUs g0…, each in runs of two users in turn."""
    return [
        deed(f"g{n}", at_ts=run, owner=("ada", "bob")[run % 2], **changes)
        for n in range(devices)
        for run in range(runs)
    ]


def of(device, found):
    return next(history for history in found if history.device == device)


def slow(clock=1120, power=300_000, runs=5, **changes):
    return [
        deed("bad", at_ts=run, owner=("ada", "bob")[run % 2], clock_mhz=clock, power_mw=power,
             **changes)
        for run in range(runs)
    ]  # fmt: skip


def test_a_straggler_of_three_runs_of_fifteen():
    deeds = [deed("g", at_ts=n) for n in range(12)]
    deeds += [deed("g", at_ts=n, metric="clock", lag=0.1 * n - 1) for n in (12, 13, 14)]
    (found,) = histories(deeds)
    assert (found.slow_runs, found.judged_runs, found.slow_ts) == (3, 15, 14)
    assert (found.metric, round(found.lag, 6), found.repeat) == ("clock", 0.3, True)


def test_three_of_sixteen_are_too_few_and_so_are_two():
    many = [deed("g", at_ts=n) for n in range(13)]
    many += [deed("g", at_ts=n, metric="power", lag=0.3) for n in (13, 14, 15)]
    assert not histories(many)[0].repeat
    assert not histories([deed("g", metric="clock", lag=0.3)] * 2)[0].repeat


def test_less_to_do_is_not_held_against_a_gpu():
    deeds = [deed("g", at_ts=n, metric="utilisation", lag=0.5) for n in range(9)]
    (found,) = histories(deeds)
    assert (found.slow_runs, found.metric, found.repeat) == (0, None, False)


def test_single_gpu_runs_below_like_gpus():
    """1,120 of 1,400 MHz in all of five runs, none of which had peers of its own."""
    found = histories(fleet(judged=False) + slow(judged=False))
    bad = found[0]
    assert (bad.device, bad.repeat, bad.metric, round(bad.lag, 6)) == ("bad", True, "clock", 0.2)
    assert (bad.below_runs, bad.like_runs, bad.judged_runs, bad.slow_ts) == (5, 5, 0, 4)
    assert not any(history.repeat for history in found[1:])


def test_low_power_at_equal_utilisation():
    bad = of("bad", histories(fleet() + slow(clock=1400, power=200_000)))
    assert (bad.repeat, bad.metric, round(bad.lag, 3)) == (True, "power", 0.333)


def test_at_other_load_nothing_is_compared():
    bad = of("bad", histories(fleet() + slow(util_permille=500)))
    assert (bad.like_runs, bad.repeat) == (0, False)
    bad = of("bad", histories(fleet(util_permille=200) + slow(util_permille=200)))
    assert (bad.like_runs, bad.repeat) == (0, False)


def test_another_model_is_no_peer():
    assert of("bad", histories(fleet() + slow(kind="k"))).like_runs == 0


def test_one_user_s_program_is_not_the_gpu_s_fault():
    mine = [one._replace(owner="ada") for one in slow()]
    assert not of("bad", histories(fleet() + mine)).repeat


def test_four_runs_are_too_few():
    assert not of("bad", histories(fleet() + slow(runs=4))).repeat


def test_three_in_four_is_not_persistent():
    deeds = slow(runs=6) + [deed("bad", at_ts=9 + n) for n in range(2)]
    assert not of("bad", histories(fleet() + deeds)).repeat


def test_only_the_newest_fifty_runs_count():
    """Forty slow runs long ago, fifty good ones since: repaired."""
    deeds = [deed("g", at_ts=n, metric="clock", lag=0.3) for n in range(40)]
    deeds += [deed("g", at_ts=100 + n) for n in range(50)]
    (found,) = histories(deeds)
    assert (found.judged_runs, found.slow_runs, found.repeat) == (50, 0, False)


def test_gpus_that_differ_among_each_other_hide_nobody_wrongly():
    """Power from 200 to 400 W is this site's mix of programs: 180 W does not stand out."""
    deeds = [
        deed(f"g{n}", at_ts=run, owner=f"u{run}", power_mw=200_000 + 40_000 * n)
        for n in range(6)
        for run in range(5)
    ]
    bad = of("bad", histories(deeds + slow(clock=1400, power=180_000)))
    assert not bad.repeat


def test_random_sites_accuse_only_the_slow_one():
    """64 GPUs, programs of 16 users that differ in power by half and in clock by a tenth."""
    rng = random.Random(3)
    for _ in range(20):
        programs = {
            f"u{n}": (rng.uniform(200, 400), rng.uniform(1300, 1410), rng.uniform(300, 999))
            for n in range(16)
        }
        deeds = []
        for n in range(64):
            for run in range(rng.randint(5, 40)):
                user = rng.choice(list(programs))
                watts, mhz, util = programs[user]
                deeds.append(deed(
                    f"g{n}", at_ts=run, owner=user, util_permille=round(util),
                    power_mw=round(1000 * watts * rng.gauss(1, 0.05)),
                    clock_mhz=round(mhz * rng.gauss(1, 0.01) * (0.6 if n == 5 else 1)),
                ))  # fmt: skip
        assert [history.device for history in histories(deeds) if history.repeat] == ["g5"]


def test_no_deeds():
    assert histories([]) == []
