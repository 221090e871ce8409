"""Cases in which an obvious design goes wrong, and the tests that hold each. A case without a test does not pass here.

| | the trap |
|---|---|
| 1 | a clean end of the last attempt hides an ambiguous one before it |
| 2 | preconditions that our own effect changed are taken for a failure |
| 3 | the tool sends later than the executor checked |
| 4 | an unknown outcome is told to the code, and resolved to something else afterwards |
| 5 | cleanup code runs while a run is torn down, and has effects |
| 6 | a transaction is called off by an error that replay does not raise again |
| 7 | an answer of the transport is taken for a refusal |
| 8 | steps are numbered by who finishes first |
| 9 | a step that does not come back goes unnoticed |
| 10 | a late owner's record vanishes inside a batch that succeeds |
| 11 | asyncio cancels between an intent and its outcome |
| 12 | the repeat guard answers with effects that never happened |
| 13 | a business key has no owner, no release and no generation |
| 14 | clocks that disagree shorten a window |
| 15 | a restored backup or a copy sends again |
| 16 | what comes from outside is lost, or counts twice |
| 17 | planned and started are not told apart, and preconditions go stale before the first attempt |
| 18 | a held effect has its result too early, or several effects cannot be taken back |
| 19 | what is redacted is missing for a retry, and for comparison |
| 20 | newer code judges attempts that older code made |
| 21 | a read that kills its process is repeated for ever |
| 22 | a run that a bug stopped can only be begun anew, with its effects |
| 23 | the first pass sees objects, and replay sees what was stored |
| 24 | an outcome is told before it is durable |
| 25 | the proof names no source |
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent

HELD_BY = {
    1: (
        "hard_cases/test_decided.py::test_a_refusal_does_not_hide_an_attempt_that_lands_later",
        "hard_cases/test_engine_doubt.py::test_a_refusal_of_the_second_attempt_does_not_fail_a_refund_that_the_first_one_landed",
        "simulation/test_stories.py::test_a_refusal_of_the_second_attempt_does_not_hide_the_first_one_that_landed",
    ),
    2: (
        "hard_cases/test_decided.py::test_closing_a_ticket_is_not_stale_because_we_closed_it",
        "simulation/test_stories.py::test_preconditions_that_our_own_effect_changed_are_not_a_failure",
        "simulation/test_stories.py::test_somebody_who_set_the_same_thing_meanwhile_is_not_overwritten",
    ),
    3: (
        "hard_cases/test_decided.py::test_a_verifier_does_not_overtake_a_thread_that_outlived_its_time_limit",
        "unit/engine/test_threads.py::test_no_second_attempt_starts_while_the_thread_of_the_first_lives",
        "simulation/test_stories.py::test_a_pause_past_the_lease_and_a_late_awakening",
    ),
    4: (
        "hard_cases/test_engine_doubt.py::test_an_unknown_booking_is_not_booked_elsewhere_behind_everybodys_back",
        "unit/engine/test_suspension.py::test_on_unknown_raise_tells_the_code_once_and_replays_what_it_was_told",
        "simulation/test_cases.py::test_an_unknown_write_is_told_to_nobody_and_sent_once",
    ),
    5: (
        "unit/engine/test_sealing.py::test_cleanup_that_would_send_does_nothing_when_the_run_is_suspended",
        "races/test_cleanup.py::",
    ),
    6: (
        "unit/engine/test_transaction_ends.py::test_an_error_that_replay_does_not_raise_again_changes_nothing",
        "simulation/test_cases.py::test_a_trip_that_failed_stays_failed_wherever_its_process_dies",
    ),
    7: (
        "hard_cases/test_decided.py::test_a_gateway_that_says_try_later_after_the_commit_is_not_tried_again",
        "hard_cases/test_decided.py::test_a_replayed_error_of_a_key_is_no_new_evidence",
        "simulation/test_cases.py::test_an_error_after_the_effect_is_no_refusal",
    ),
    8: (
        "unit/engine/test_scopes.py::test_branches_of_gather_are_numbered_by_creation_not_by_completion",
        "unit/engine/test_scopes.py::test_completions_replay_in_recorded_order_for_asyncio_wait_too",
        "simulation/test_cases.py::test_branches_that_finish_in_another_order_keep_their_names",
    ),
    9: (
        "hard_cases/test_engine_doubt.py::test_the_branch_that_the_clock_chose_yesterday_is_not_forgotten_today",
        "unit/engine/test_divergence.py::test_a_new_write_while_a_recorded_one_has_not_come_back",
    ),
    10: (
        "unit/journal/test_sqlite_commits.py::test_a_read_back_tells_the_late_owner_from_the_others",
        "hard_cases/test_engine_doubt.py::test_the_owner_that_was_fenced_out_still_delivers_what_it_knows",
        "simulation/test_cases.py::test_a_late_owner_changes_nothing_on_real_files",
    ),
    11: (
        "unit/engine/test_timers.py::test_a_bare_asyncio_timeout_detaches_the_call_and_replays_as_it_was",
        "unit/engine/test_timers.py::test_the_next_write_waits_for_a_detached_call",
        "simulation/test_cases.py::test_a_caller_that_leaves_does_not_take_its_call_with_it",
    ),
    12: (
        "unit/agent/test_model_calls.py::test_other_arguments_are_no_repeat_and_a_write_in_between_breaks_the_match",
        "unit/agent/test_model_calls.py::test_calls_in_agent_code_are_deliberate_and_meet_no_guard",
    ),
    13: (
        "unit/engine/test_claims.py::test_after_a_refusal_the_next_run_takes_the_next_generation_with_a_new_key",
        "unit/engine/test_claims.py::test_an_outside_key_that_another_run_used_counts_from_its_first_use",
        "simulation/test_stories.py::test_two_runs_book_one_thing_once",
    ),
    14: (
        "hard_cases/test_decided.py::test_clocks_that_disagree_never_shorten_a_window",
        "simulation/test_stories.py::test_a_jump_of_the_clock_believes_no_absence_early",
    ),
    15: ("unit/journal/test_sqlite_anchor.py::test_a_restored_backup_is_distrusted",),
    16: (
        "unit/engine/test_timers.py::test_an_event_that_came_early_is_kept_and_each_is_taken_once",
        "unit/engine/test_suspension.py::test_the_first_of_two_people_is_heard_and_the_second_is_told_so",
        "simulation/test_stories.py::test_webhooks_that_come_twice_or_to_a_worker_that_dies_are_heard_once",
        "unit/engine/test_gates.py::test_of_two_words_the_first_counts_and_both_are_on_record",
    ),
    17: (
        "unit/engine/test_gates.py::test_an_approval_that_was_not_used_in_time_is_asked_for_again",
        "unit/engine/test_gates.py::test_a_contract_that_changed_after_the_yes_is_asked_about_again",
        "hard_cases/test_decided.py::test_planned_only_is_never_ambiguous_and_started_always_is",
        "hard_cases/test_decided.py::test_an_approval_of_three_days_ago_does_not_send_on_stale_preconditions",
        "hard_cases/test_decided.py::test_one_approval_covers_every_attempt_of_its_operation",
    ),
    18: (
        "unit/engine/test_transactions.py::test_a_promise_has_no_result_before_the_commit",
        "unit/engine/test_transaction_ends.py::test_two_effects_that_cannot_be_repeated_are_refused_at_the_commit",
        "unit/engine/test_transaction_ends.py::test_after_the_pivot_a_refusal_parks_as_partly_committed",
    ),
    19: (
        "hard_cases/test_decided.py::test_redacted_arguments_are_never_sent_from_the_record",
        "unit/engine/test_secrets.py::test_redacted_arguments_are_compared_and_never_stored",
        "simulation/test_cases.py::test_a_secret_is_found_again_by_whoever_goes_on_and_is_written_nowhere",
    ),
    20: (
        "hard_cases/test_decided.py::test_a_deploy_that_drops_a_clause_does_not_reinterpret_old_attempts",
        "unit/engine/test_changed_tools.py::test_a_key_that_only_the_new_code_declares_does_not_cover_the_old_attempt",
        "simulation/test_cases.py::test_newer_code_with_shorter_promises_goes_on_carefully",
    ),
    21: (
        "unit/engine/test_crashes.py::test_a_run_that_is_claimed_again_and_again_without_progress_is_quarantined",
        "unit/agent/test_decide.py::test_tries_that_a_dead_process_made_count",
        "simulation/test_cases.py::test_a_model_that_never_says_the_same_twice_is_asked_once_for_each_answer_on_record",
    ),
    22: (
        "unit/engine/test_replay.py::test_a_run_that_a_bug_stopped_goes_on_after_the_fix_under_the_same_id",
        "cli/test_history.py::test_a_fork_is_asked_about_what_its_parent_did_otherwise_at_the_same_step_or_does_meanwhile",
    ),
    23: (
        "unit/engine/test_replay.py::test_results_have_their_annotated_type_live_and_on_replay",
        "unit/engine/test_replay.py::test_refusals_arrive_as_the_same_error_live_and_on_replay",
    ),
    24: (
        "unit/engine/test_journal_failures.py::test_an_outcome_that_was_acknowledged_is_never_lost",
        "simulation/test_cases.py::test_what_a_plain_write_did_is_durable_before_anybody_hears_it",
    ),
    25: (
        "hard_cases/test_decided.py::test_a_person_s_denial_is_a_word_and_late_evidence_is_kept_beside_it",
        "unit/engine/test_late.py::test_a_late_success_against_a_persons_no_is_a_contradiction",
        "hard_cases/test_decided.py::test_what_is_parked_is_looked_at_again",
    ),
}
"""Which tests hold which case. A file alone stands for all of its tests."""


@pytest.mark.parametrize("case", range(1, 26))
def test_each_case_is_held_by_tests_that_exist(case: int):
    for place in HELD_BY[case]:
        file, _, name = place.partition("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        functions = {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in functions if name else any(one.startswith("test_") for one in functions), place
