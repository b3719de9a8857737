"""Plant bugs in the queues: the named tests of the queues find them."""

import pytest

from lakevilla_testing.planted.every import PLANTED
from tests.simulation.queues import test_put_off as put_off
from tests.simulation.queues import test_queues as queues
from tests.support.simulated.commits import RCT, RCTI

#: For each planted bug the tests that must fail with it, as functions without arguments.
CATCHERS = {
    "appends_pass_everybody": lambda: (
        queues.test_an_append_waits_for_transactions_that_have_a_place(RCTI)
    ),
    "both_give_way": lambda: [
        queues.test_the_youngest_of_a_ring_of_waits_gives_way_and_all_commit(3, seed, RCTI)
        for seed in range(4)
    ],
    "edges_without_tickets": lambda: [
        queues.test_scenario_9_a_shifted_transaction_that_an_older_edge_still_names_does_not_shift_again(
            RCTI, seed
        )
        for seed in range(4)
    ],
    "edges_written_after_reading": (
        queues.test_edges_are_written_before_the_records_of_other_transactions_are_read
    ),
    "failed_is_not_renewed": lambda: (
        queues.test_a_transaction_that_lost_keeps_its_place_until_its_rerun(RCTI)
    ),
    "heartbeat_leaves_marker": lambda: (
        queues.test_a_place_taken_while_its_owner_paused_is_removed_with_the_transaction(
            RCTI, "by reading alone"
        )
    ),
    "nobody_places_those_who_think": lambda: (
        queues.test_a_transaction_that_pauses_between_reading_and_writing_commits_before_later_ones(
            RCTI
        )
    ),
    "nobody_steps_back": (
        queues.test_a_transaction_that_gets_ticket_one_before_waiting_ones_moves_behind_them
    ),
    "one_look_for_a_record": lambda: (
        queues.test_a_client_waits_for_a_marker_that_is_stored_before_its_record(RCTI)
    ),
    "places_given_back_too_early": lambda: (
        queues.test_a_transaction_that_lost_keeps_its_place_until_its_rerun(RCT)
    ),
    "put_off_takes_no_place": lambda: (
        put_off.test_deferred_operations_wait_for_transactions_ahead_and_are_performed_once(RCTI)
    ),
    "readers_take_places_at_once": lambda: (
        queues.test_a_short_read_only_transaction_sends_no_requests_to_the_queues(RCTI)
    ),
    "reads_take_no_place": lambda: (
        queues.test_the_first_write_of_a_transaction_takes_places_in_the_tables_that_it_has_read(
            RCTI, "append"
        )
    ),
    "rerun_counts_as_ended": lambda: (
        queues.test_a_key_of_a_rerun_transaction_counts_as_committed_for_its_own_process_too(RCTI)
    ),
    "rerun_with_a_new_ticket": lambda: (
        queues.test_scenario_10_a_rerun_transaction_keeps_its_id_and_its_place(RCTI)
    ),
    "reservation_ignored": lambda: (
        queues.test_scenario_10_an_escalated_transaction_commits_in_spite_of_endless_optimistic_ones(
            True
        )
    ),
    "reservation_outlives_its_commit": lambda: (
        queues.test_scenario_10_an_escalated_transaction_commits_in_spite_of_endless_optimistic_ones(
            True
        )
    ),
    "stale_not_swept": lambda: queues.test_places_of_dead_owners_are_all_given_up_together(RCT, 8),
    "state_before_marker": (
        queues.test_a_transaction_reads_a_table_s_state_again_after_it_has_taken_its_place
    ),
    "time_out_shifts": lambda: (
        queues.test_scenario_10_no_transaction_shifts_and_no_update_is_lost_if_all_waits_time_out_at_once(
            RCTI
        )
    ),
}


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", sorted(CATCHERS))
def test_each_planted_bug_is_found_by_its_test(name):
    with PLANTED[name].plant(), pytest.raises(AssertionError):
        CATCHERS[name]()


def test_every_planted_bug_of_the_queues_has_its_test():
    here = {
        name
        for name, mutation in PLANTED.items()
        if mutation.plant.__wrapped__.__module__ == "lakevilla_testing.planted.queues"
    }
    assert here == set(CATCHERS) | {n for n in here if PLANTED[n].for_histories}
