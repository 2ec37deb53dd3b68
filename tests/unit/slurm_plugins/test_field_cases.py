# SPDX-License-Identifier: Apache-2.0
"""The submit side's real-world cases, by their number in our references, with their tests.

Each row: what went in, and what must come of it; the tests that prove it. A test that is renamed
or removed fails here. J10 to J22 are the node's (prolog, MIG), J25 and J26 the accounting's.
"""

from __future__ import annotations

import pytest

from fairwatt.slurm_plugins import jobdesc
from tests.named_tests import is_there

UNIT, LAB = "unit/slurm_plugins", "lab"

CASES: dict[str, tuple[str, ...]] = {
    "J1: --gpus=1 is a GPU job as --gres=gpu:1 is": (
        f"{UNIT}/test_engine.py::test_one_intent_one_decision_whatever_the_spelling",
        f"{UNIT}/test_hook_submit.py::test_no_way_of_asking_passes_by_the_policy",
        f"{LAB}/test_matrix.py::test_one_intent_one_decision",
    ),
    "J2: no GPU on a GPU partition is refused, moved or given one; a zero is a wish": (
        f"{UNIT}/test_rule_cpu_only.py::test_the_default_partition_counts_too",
        f"{UNIT}/test_rule_cpu_only.py::test_to_the_configured_partition",
        f"{UNIT}/test_rule_cpu_only.py::test_the_only_whole_type_in_reach",
        f"{UNIT}/test_rule_cpu_only.py::test_is_neither_refused_nor_given_a_gpu",
        f"{LAB}/test_rules_live.py"
        "::test_a_job_without_gpus_is_given_one_and_an_explicit_zero_is_a_wish",
    ),
    "J3: no form is refused for its syntax": (
        f"{UNIT}/test_matrix_emulated.py::test_one_intent_one_decision",
        f"{LAB}/test_matrix.py::test_one_intent_one_decision",
    ),
    "J4: an API client without prefix gets the server's": (
        f"{UNIT}/test_engine.py"
        "::test_a_bare_request_of_an_api_client_gets_the_prefix_of_the_server",
        f"{UNIT}/test_matrix_emulated.py::test_what_is_written_is_what_the_server_reads",
        f"{LAB}/test_matrix.py::test_a_client_of_the_api",
    ),
    "J5: four spellings, two separators, one decision, the server's spelling": (
        f"{UNIT}/test_engine.py::test_one_intent_one_decision_whatever_the_spelling",
        f"{UNIT}/test_hook_submit.py"
        "::test_a_request_by_memory_is_rewritten_in_the_spelling_of_the_server",
        f"{UNIT}/test_matrix_emulated.py::test_what_is_written_is_what_the_server_reads",
    ),
    "J6: what sbatch inside a job inherits is named": (
        f"{UNIT}/test_rule_inherited_environment.py::test_only_what_can_conflict_is_told",
        f"{UNIT}/test_hook_wire.py::test_only_names_travel_and_only_known_ones",
        f"{LAB}/test_rules_live.py::test_a_job_within_a_job_hears_what_it_inherits",
    ),
    "J7: CPU jobs on a GPU partition are moved or capped, and told": (
        f"{UNIT}/test_rule_cpu_only.py::test_to_the_configured_partition",
        f"{UNIT}/test_rule_cpu_only.py::test_all_but_one_cpu_per_gpu",
        f"{UNIT}/test_rule_cpu_only.py::test_a_number_of_the_site",
    ),
    "J8: any of two types, joined with the user's own constraint": (
        f"{UNIT}/test_rule_need.py::test_features_that_mark_the_types_make_it_a_constraint",
        f"{UNIT}/test_rule_need.py::test_the_users_constraint_is_kept",
        f"{UNIT}/test_constraint.py::test_the_users_own_constraint_is_kept",
        f"{LAB}/test_matrix.py::test_a_choice_of_types_is_a_constraint_of_salloc_too",
    ),
    "J9: several slices for one process: warned or refused, with what to write": (
        f"{UNIT}/test_rule_mig_per_process.py::test_three_slices_for_one_process",
        f"{UNIT}/test_rule_mig_per_process.py::test_or_refused",
        f"{LAB}/test_policy_live.py::test_warn_tells_what_would_be_and_changes_nothing",
    ),
    "J23: the hook is proved before it is put in place; slurmctld starts whatever the files say": (
        f"{UNIT}/test_hook_selftest.py::test_a_hook_that_cannot_be_loaded_is_named",
        f"{UNIT}/test_hook_settings.py"
        "::test_missing_or_broken_settings_give_defaults_and_a_line_in_the_log",
        f"{LAB}/test_policy_live.py::test_slurmctld_starts_whatever_policy_and_settings_say",
    ),
    "J24: facts have an age; too old ones are not used, and that is said once": (
        f"{UNIT}/test_engine.py::test_without_fresh_facts_the_policy_stands_aside_and_says_so",
        f"{UNIT}/test_policyd.py::test_old_facts_are_not_used",
        f"{UNIT}/test_policyd.py::test_a_failure_keeps_the_last_good_facts_and_says_so_once",
    ),
    "J27: a begin time of 0 is none": (
        f"{UNIT}/test_field_cases.py::test_a_begin_time_of_zero_is_none",
        f"{UNIT}/test_hook_wire.py::test_what_is_not_set_does_not_travel_on_any_release",
        f"{UNIT}/test_rule_time_limits.py::test_when_it_may_begin_plays_no_part",
    ),
    "J28: a % in a message": (
        f"{UNIT}/test_hook_answers.py::test_a_percent_sign_in_a_message_is_only_a_percent_sign",
        f"{LAB}/test_submit_live.py::test_hostile_text_stays_text",
    ),
    "J28: no nil is ever written": (
        f"{UNIT}/test_hook_answers.py::test_one_bad_item_and_nothing_is_written",
        f"{UNIT}/test_hook_edits.py::test_whichever_write_fails_every_kind_is_as_it_was",
        f"{LAB}/test_hook_faults.py::test_a_write_that_fails_takes_the_others_back",
    ),
    "J28: a refusal is a number where ESLURM constants are missing": (
        f"{UNIT}/test_hook_releases.py::test_a_refusal_is_a_number_that_slurm_takes_for_one",
        f"{UNIT}/test_hook_submit.py::test_no_way_of_asking_passes_by_the_policy",
    ),
    "J28: a script with an older time is not loaded": (
        f"{LAB}/test_hook_faults.py::test_an_older_one_is_not_loaded_until_it_is_touched",
    ),
    "J28: a hetjob's second part has no script, and is a batch job": (
        f"{UNIT}/test_matrix_emulated.py::test_one_intent_one_decision",
        f"{UNIT}/test_rule_interactive_limits.py::test_what_is_sbatchs_or_scrontabs_is_not",
        f"{LAB}/test_hook_faults.py::test_components_of_a_hetjob_tell_their_place",
        f"{LAB}/test_rules_live.py::test_a_second_part_of_a_hetjob_is_not_interactive",
        f"{LAB}/test_steps_live.py::test_the_steps_of_each_part_of_a_hetjob_start",
    ),
    "J28: a modify is judged before Slurm has authorised it": (
        f"{LAB}/test_hook_faults.py::test_a_stranger_changes_nothing_and_learns_nothing",
    ),
}
SUBMIT_SIDE = {"J1", "J2", "J3", "J4", "J5", "J6", "J7", "J8", "J9", "J23", "J24", "J27", "J28"}


@pytest.mark.parametrize("case", CASES)
def test_each_case_has_its_tests(case):
    for test in CASES[case]:
        assert is_there(test), test


def test_every_case_of_the_submit_side_is_here():
    assert {case.partition(":")[0] for case in CASES} == SUBMIT_SIDE


def test_a_begin_time_of_zero_is_none():
    assert jobdesc.parse({"begin_time": 0}).request.begin_ts is None
    assert jobdesc.parse({"begin_time": 1_900_000_000}).request.begin_ts == 1_900_000_000
