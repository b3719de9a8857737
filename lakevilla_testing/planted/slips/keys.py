"""Slips around idempotency keys, and around the rebuilding of a lost HEAD."""

from lakevilla.maintenance import rebuild_head
from lakevilla.transaction.verbs import idempotency
from lakevilla_testing.planted.edits import slip

slip(
    "noted_over_without_its_commit",
    "The note of an empty batch drops what the record said of the batch before.",
    idempotency.note_over,
    ("committed=use.committed", "committed=None"),
    found_by=(
        "tests/contract/recovery/test_gaps_between_batches.py::"
        "test_a_gap_is_not_reported_after_an_older_client_has_dropped_the_count_of_batches"
    ),
)
slip(
    "young_key_counts_as_old",
    "A key that is younger than its retention is free after a HEAD was lost.",
    idempotency._refuse_forgotten,
    ("kept = age <", "kept = age >"),
    found_by=(
        "tests/contract/recovery/test_head_lost.py::"
        "test_an_idempotency_key_from_before_a_rebuild_never_commits_twice[local]"
    ),
)
slip(
    "rebuilt_knows_all",
    "A rebuilt HEAD says of transactions of the lost one that they were aborted.",
    rebuild_head._composed,
    ("forgotten=floor", 'forgotten=""'),
    found_by=(
        "tests/contract/recovery/test_head_lost.py::"
        "test_open_transactions_fail_after_a_rebuild_and_new_ones_of_the_same_client_commit[local]"
    ),
)
slip(
    "rebuilt_leaves_the_inbox",
    "A rebuilt HEAD meets proposals that name numbers which it uses again.",
    rebuild_head._rebuilt,
    ("yield from clear_inbox()", "yield from ()"),
    found_by=(
        "tests/unit/transaction/commit/together/test_crowd.py::"
        "test_a_rebuilt_head_begins_with_an_empty_inbox"
    ),
)
slip(
    "rebuilt_forgets_the_floor",
    "A rebuilt HEAD may fence less than the HEAD from which it is made.",
    rebuild_head._include,
    ("left.meet_id(head.floor)", 'left.meet_id("")'),
    found_by=(
        "tests/contract/recovery/test_gone_back.py::"
        "test_a_reset_head_fences_all_that_the_head_before_it_has_fenced"
    ),
)
slip(
    "rebuilt_settles_no_keys",
    "After HEAD was rebuilt, the key of a published commit runs again.",
    rebuild_head._settle_keys,
    ("if not done or", "if done or"),
    found_by=(
        "tests/contract/recovery/test_batches_of_another_checkpoint.py::"
        "test_a_batch_that_its_checkpoint_has_planned_again_with_other_rows_is_refused"
        "[iceberg-head_is_lost]"
    ),
)
slip(
    "rebuilt_takes_another_for_dropped",
    "A table that was made in the place of a dropped one is dropped in a rebuilt HEAD.",
    rebuild_head._keep_tombstones,
    (" or found.table_id != state.table_id", ""),
    found_by=(
        "tests/contract/recovery/test_rebuilt_twice.py::"
        "test_a_table_recreated_after_the_chosen_head_is_in_the_lake_after_a_reset"
    ),
)
slip(
    "dead_come_back_when_confirmed",
    "A confirmed HEAD does not fence the transactions that were in doubt.",
    rebuild_head.confirm_head,
    ("(*head.aborted, *dict.fromkeys(dead))", "head.aborted"),
    found_by=(
        "tests/unit/transaction/commit/together/test_crowd.py::"
        "test_an_owner_that_has_slept_past_a_gc_learns_that_its_commit_is_aborted"
    ),
)
