"""Slips in redos and savepoints, in the versions of Iceberg tables, and in upkeep."""

from lakevilla.formats.iceberg import expiry
from lakevilla.maintenance.upkeep import lease, maintain
from lakevilla.transaction.verbs import savepoints
from lakevilla_testing.planted.edits import slip

slip(
    "undone_is_resumed",
    "A process that resumes a transaction does what was rolled back to a savepoint.",
    savepoints.undo_to,
    ("txn.claims.saved is not None and undone", "txn.claims.saved is None and undone"),
    found_by=(
        "tests/contract/sql/test_savepoints.py::"
        "test_a_transaction_that_is_resumed_lacks_what_was_undone[local]"
    ),
)
slip(
    "names_of_what_was_undone",
    "A name keeps the meaning that a rolled back rename gave it.",
    savepoints.undo_to,
    ("if one[0] not in changed\n", "if one[0]\n"),
    found_by=(
        "tests/contract/sql/test_savepoints.py::"
        "test_drops_renames_and_definitions_are_undone[memory]"
    ),
)
slip(
    "main_set_back_expires",
    "A snapshot from which main was set back is expired at once.",
    expiry._kept,
    (
        "if follower.timestamp_ms >= replaced_before_ms",
        "if entry.timestamp_ms >= replaced_before_ms",
    ),
    found_by=(
        "tests/contract/iceberg/test_expiry.py::"
        "test_vacuum_keeps_a_snapshot_from_which_main_was_set_back_for_the_retention"
    ),
)
slip(
    "replaced_state_expires",
    "The snapshot that was current at the beginning of the retention is expired.",
    expiry._kept,
    (
        "known[number].timestamp_ms < before_ms",
        "known[number].timestamp_ms < before_ms + 1_000_000_000",
    ),
    found_by=(
        "tests/contract/iceberg/test_expiry.py::"
        "test_a_branchs_snapshot_age_does_not_protect_an_older_state_after_a_vacuum"
    ),
)
slip(
    "upkeep_since_its_end",
    "The next round of upkeep checks what was written since the last one ended.",
    maintain._begin,
    (
        '_Begun(head.sequence, last.all_ms, ""), written',
        '_Begun(head.sequence + 1, last.all_ms, ""), written',
    ),
    found_by=(
        "tests/contract/maintenance/test_metrics.py::"
        "test_a_commit_that_a_dead_client_has_left_is_pending_until_upkeep_publishes_it"
    ),
)
slip(
    "late_clock_delays_upkeep",
    "A task that a client with a fast clock has done is not due until that time.",
    maintain._rests,
    ("if 0 <= age < task", "if age < task"),
    found_by=(
        "tests/unit/maintenance/upkeep/test_maintain.py::"
        "test_a_task_that_a_client_with_a_fast_clock_has_done_is_not_put_off_until_that_time"
    ),
)
slip(
    "lease_of_another_given_back",
    "A client that was suspended gives back the lease that another one has taken over.",
    lease.Lease.end,
    ("if seen.record.lease != self._record.lease or seen.token is None:", "if seen.token is None:"),
    found_by=(
        "tests/unit/maintenance/upkeep/test_maintain.py::"
        "test_a_maintainer_that_has_lost_its_lease_overwrites_no_record"
    ),
)
