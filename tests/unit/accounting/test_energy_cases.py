# SPDX-License-Identifier: Apache-2.0
"""The energy side's real-world cases, by their number in our references, with their tests.

Each row: what went in, and what must come of it; the tests that hold its right value. A test that
is renamed or removed fails here, and so does a case without a test.
"""

from __future__ import annotations

import re

import pytest

from tests.named_tests import is_there

ACC, AGENT, CARBON = "unit/accounting", "unit/agent", "unit/carbon"
LEDGER = "unit/ledger/test_ledger.py"
CORE, LAB, NUMBERS = "unit/core", "lab/test_run_cases_live.py", f"{ACC}/test_energy_numbers.py"
RUNS, SACCT, USAGE = (f"{ACC}/test_{name}.py" for name in ("run_cases", "sacct", "usage"))

CASES: dict[str, tuple[str, ...]] = {
    "E1: typed entries beside the generic one are 4 GPUs, 2 of each type": (
        f"{CORE}/test_tres.py::test_typed_entries_split_the_generic_one",
        f"{ACC}/test_runs.py::test_gpus_by_type",
        f"{RUNS}::test_several_types_in_one_job",
        f"{LAB}::test_several_types_in_one_job_are_counted_each",
    ),
    "E2: memory and utilisation of GPUs are no GPUs": (
        f"{CORE}/test_tres.py::test_usage_text_does_not_count_as_gpus",
        f"{ACC}/test_runs.py::test_gpus_by_type",
    ),
    "E3: 250.5G and 1.95T to the byte": (
        f"{CORE}/test_tres.py::test_memory_is_exact_in_bytes",
        f"{CORE}/test_tres.py::test_a_terabyte_fraction_is_what_slurm_meant",
        f"{ACC}/test_runs.py::test_memory",
    ),
    "E4: Slurm's no-value is NULL with its reason": (
        f"{SACCT}::test_no_value_is_unknown_with_its_reason",
        f"{CORE}/test_tres.py::test_no_val_is_unknown_and_the_rest_is_read",
    ),
    "E5: 101,630 J, not 794": (f"{SACCT}::test_slurms_energy_is_the_jobs_joules",),
    "E6: 3 s at 300 W are 900 J ± 30 J": (
        f"{NUMBERS}::test_e6_three_seconds_on_a_counter_of_100_ms_steps",
        f"{AGENT}/test_keeper_runs.py::test_a_three_second_job_gets_its_energy",
    ),
    "E7: a job's energy is not its steps' sum": (f"{NUMBERS}::test_e7_steps_do_not_count_again",),
    "E8: 318,857, 61,714 and 699,429 J on three slices": (
        f"{LEDGER}::test_case_e8_three_instances_side_by_side",
        f"{ACC}/test_waste_store.py::test_e8_the_three_idle_policies",
        f"{NUMBERS}::test_e8_three_slices_from_the_counter_to_the_report",
        f"{AGENT}/test_keeper_extras.py::test_dcgm_tells_slices_where_nvml_has_no_utilisation",
    ),
    "E9: four tries, 16,637 GPU seconds": (
        f"{RUNS}::test_a_requeued_job_is_the_sum_of_its_tries",
        f"{ACC}/test_energy_spread.py::test_e9_each_try_of_a_requeued_job_has_its_own_energy",
    ),
    "E10: an id used again is another job": (
        f"{RUNS}::test_the_same_job_id_years_later_is_another_job",
        f"{ACC}/test_runs.py::test_a_job_id_used_again_is_another_job",
        "unit/reports/test_job_report.py::test_an_id_that_slurm_used_again_is_another_job",
    ),
    "E11: --exclusive holds the 8 GPUs that it never asked for": (
        f"{RUNS}::test_an_exclusive_job_has_gpus_that_it_never_asked_for",
        f"{CORE}/test_tres.py::test_counts_gpus",
        f"{LAB}::test_an_exclusive_job_has_what_it_was_given_not_what_it_asked",
    ),
    "E12: suspended: 24 CPU-h, 4 GPU-h, the idle energy of its GPUs": (
        f"{USAGE}::test_suspension_takes_cpu_time_but_no_gpu_time",
        f"{RUNS}::test_a_suspended_job_gives_back_its_cpus_and_keeps_its_gpus",
        f"{NUMBERS}::test_e12_while_it_is_suspended_a_job_holds_its_gpus",
        f"{LAB}::test_suspended_time_is_no_elapsed_time",
    ),
    "E13: 02:30 to 02:30 is an hour": (
        f"{ACC}/test_days.py::test_the_hour_that_comes_twice_is_two_hours",
        f"{RUNS}::test_the_hour_that_comes_twice_is_an_hour",
        f"{ACC}/test_import_file.py::test_times_with_their_zone",
    ),
    "E14: times without an offset are not guessed": (
        f"{ACC}/test_import_file.py::test_local_times_are_refused_with_the_remedy",
    ),
    "E15: RAPL passes its end: + 1,328,850 µJ": (
        f"{AGENT}/test_host_rapl.py::test_a_counter_that_passed_its_end_goes_on",
    ),
    "E16: a reboot in a job: 50 J and a flagged hole, no wrap": (
        f"{AGENT}/test_host_keeper.py"
        "::test_a_reboot_counts_what_was_used_since_and_flags_the_hole",
        f"{AGENT}/test_host_rapl.py::test_more_than_the_part_can_draw_is_unknown",
        f"{AGENT}/test_keeper_gaps.py::test_e16_a_reboot_ends_runs_and_counts_only_what_is_known",
        f"{LEDGER}::test_e16_reboot_counts_only_the_part_since",
    ),
    "E17: importing twice changes nothing": (
        f"{ACC}/test_import_file.py::test_importing_twice_changes_nothing",
        f"{ACC}/test_rollup.py::test_importing_twice_changes_nothing",
        f"{ACC}/test_sync.py::test_importing_twice_changes_nothing",
    ),
    "E18: cancelled while it waited": (
        f"{SACCT}::test_cancelled_while_pending",
        f"{USAGE}::test_cancelled_while_pending_waits_and_uses_nothing",
        f"{RUNS}::test_a_job_cancelled_while_it_waited_has_its_wait_and_no_gpu_hours",
        f"{LAB}::test_a_job_cancelled_while_it_waited_never_ran",
    ),
    "E19: every way to end is an end, what was lost is counted": (
        f"{SACCT}::test_states_are_kept",
        f"{USAGE}::test_lost_gpu_time",
        f"{RUNS}::test_what_was_lost_is_counted_as_lost",
        f"{LAB}::test_a_preempted_job_is_one_and_the_other_ran",
    ),
    "E20: an array that waits is one record and no run": (
        f"{SACCT}::test_an_array_that_waits_is_one_record",
        f"{RUNS}::test_an_array_that_waits_is_in_no_sum",
    ),
    "E21: parts of a hetjob are a run each, once": (
        f"{SACCT}::test_array_task_and_het_component",
        f"{RUNS}::test_parts_of_a_het_job_are_counted_once",
        f"{LAB}::test_each_part_of_a_het_job_is_a_run_once",
    ),
    "E22: a module's 60 kJ have its CPU in them": (
        f"{AGENT}/test_host_keeper.py::test_a_module_has_its_cpu_and_memory_counted_already",
        f"{AGENT}/test_nvml_source.py::test_e22_the_counter_of_a_module_says_so",
        f"{NUMBERS}::test_e22_a_run_on_a_module_used_60_kj",
    ),
    "E23: without a counter power is integrated: 0.18 kWh": (
        f"{AGENT}/test_keeper_extras.py::test_e23_a_p100_at_180_w_for_an_hour_is_0_18_kwh",
        f"{AGENT}/test_nvml_source.py::test_e23_a_board_without_a_counter_tells_its_power",
        f"{AGENT}/test_agent_process.py"
        "::test_e23_without_a_counter_power_is_integrated_and_said_so",
    ),
    "E24: one GPU of eight, four ranks: that GPU's energy, once": (
        "unit/ledger/test_ledger_host.py"
        "::test_one_gpu_of_eight_and_four_ranks_are_one_gpus_energy_once",
        f"{ACC}/test_energy_spread.py"
        "::test_e24_of_eight_gpus_and_four_ranks_one_gpus_energy_is_the_jobs_once",
    ),
    "E25: a job on three shared nodes is the sum of its parts": (
        "unit/ledger/test_ledger_host.py"
        "::test_a_job_on_three_shared_nodes_is_the_sum_of_its_parts",
        f"{ACC}/test_energy_spread.py"
        "::test_e25_a_job_on_three_shared_nodes_has_the_sum_of_its_parts",
    ),
    "E26: where Slurm measures nothing, the agent's value; 0 J is no fact": (
        f"{SACCT}::test_zero_energy_means_that_nothing_measures",
        f"{NUMBERS}::test_e26_where_slurm_measures_nothing_the_agent_does",
        f"{NUMBERS}::test_e26_where_nobody_measured_it_is_unknown",
    ),
    "E27: a GPU that only the allocated TRES tell": (
        f"{NUMBERS}::test_e27_gpus_that_no_gres_field_tells_are_the_accounts",
    ),
    "E28: activity 0 at 650 W is unknown, the reserved weight decides": (
        f"{LEDGER}::test_without_activity_the_reserved_fraction_decides",
        f"{AGENT}/test_keeper_extras.py"
        "::test_e28_activity_0_at_650_w_is_unknown_and_split_by_reserved_weight",
    ),
    "E29: the counter covers ten minutes without the agent": (
        f"{AGENT}/test_keeper_gaps.py::test_e29_a_dead_agent_leaves_no_hole",
        f"{AGENT}/test_keeper_extras.py"
        "::test_e29_the_counter_covers_ten_minutes_without_the_agent",
    ),
    "E30: a name with the delimiter and newlines keeps its row": (
        f"{SACCT}::test_a_nasty_name_keeps_its_row",
        f"{ACC}/test_import_file.py::test_a_nasty_name_anywhere_keeps_its_row",
    ),
    "E31: CPU times of every form; 41 h in 26 min is flagged": (
        f"{SACCT}::test_durations",
        f"{SACCT}::test_more_cpu_time_than_there_was_is_flagged_not_shown",
    ),
    "E32: a runaway is billed to its last evidence": (
        f"{USAGE}::test_a_runaway_counts_until_the_last_evidence",
        f"{RUNS}::test_a_runaway_is_billed_to_its_last_evidence",
        f"{ACC}/test_sync.py::test_runaways",
        f"{LAB}::test_a_runaway_is_flagged_and_not_billed",
    ),
    "E33: a missing value is unknown and nobody is told anything": (
        f"{ACC}/test_waste.py::test_e33_without_the_gpu_memory_nothing_is_told_of_it",
        f"{ACC}/test_waste_store.py::test_e33_an_agent_that_tells_no_memory_leaves_it_unknown",
        f"{AGENT}/test_keeper_extras.py::test_e33_what_is_not_measured_is_unknown_not_0",
    ),
    "E34: a changed factor gives the new number, the old report stays": (
        f"{CARBON}/test_restate.py"
        "::test_a_new_edition_gives_the_new_number_and_the_old_report_stays",
        f"{CARBON}/test_restate.py"
        "::test_the_old_report_is_the_same_to_the_byte_however_often_factors_change",
        f"{ACC}/test_carbon.py::test_a_changed_file_is_a_new_version_and_the_old_one_stays",
    ),
    "E35: groups named by the SLUID and by the job are the same run": (
        f"{AGENT}/test_host_keeper.py"
        "::test_both_kinds_of_group_names_in_both_versions_are_the_run",
        f"{AGENT}/test_host_places.py::test_a_run_is_known_by_its_sluid_or_its_job_id",
    ),
    "E36: 1,000 idle GPUs for a day are 1,440 kWh, unallocated": (
        f"{NUMBERS}::test_e36_a_thousand_idle_gpus_are_1440_kwh_of_nobody",
        f"{CARBON}/test_idle_campus.py::test_a_thousand_idle_gpus_for_a_day",
        f"{LEDGER}::test_no_job_leaves_all_unallocated",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_case_has_its_tests(case):
    assert CASES[case]
    for test in CASES[case]:
        assert is_there(test), test


def test_every_case_is_here():
    assert sorted(CASES, key=_number) == list(CASES)
    assert [_number(case) for case in CASES] == list(range(1, 37))


def _number(case: str) -> int:
    found = re.match(r"E(\d+): ", case)
    assert found, case
    return int(found[1])
