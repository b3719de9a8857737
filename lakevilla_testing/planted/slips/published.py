"""Slips in publishing, in reconciling, and in the outcomes of transactions."""

from lakevilla.lake.publishing import outcome
from lakevilla.lake.tables import drop_data
from lakevilla.transaction.commit import by_log_entry
from lakevilla_testing.planted.edits import slip

slip(
    "last_forgotten_is_aborted",
    "A committed transaction counts as aborted if it is the last that is forgotten.",
    outcome.is_forgotten,
    ("txn_id <= head.forgotten", "txn_id < head.forgotten"),
    found_by=(
        "tests/unit/lake/publishing/test_outcome.py::"
        "test_the_last_forgotten_transaction_is_not_called_aborted"
    ),
)
slip(
    "log_deleted_from_its_beginning",
    "The oldest log entries of a dropped table are deleted first.",
    drop_data.delete_data,
    ("sorted(log, reverse=True)", "sorted(log)"),
    found_by=(
        "tests/unit/lake/tables/test_drop_data.py::"
        "test_deleting_the_data_of_a_table_deletes_the_newest_log_entries_first"
    ),
)
slip(
    "emptied_twice",
    "A client that finishes another's deletion deletes the table that was made since.",
    drop_data.delete_data,
    ("if before.emptying and not", "if not before.emptying and not"),
    found_by=(
        "tests/contract/maintenance/test_names_used_again.py::"
        "test_gc_keeps_a_foreign_table_in_place_of_a_half_deleted_one"
    ),
)
slip(
    "entry_below_a_checkpoint",
    "A commit by a log entry trusts a number that clean-up may have freed meanwhile.",
    by_log_entry._acknowledged,
    (
        "if context.clock.elapsed() - tail.seen_at > context",
        "if tail.seen_at - context.clock.elapsed() > context",
    ),
    found_by=(
        "tests/simulation/races/test_scenarios.py::"
        "test_a_log_entry_created_where_clean_up_has_been_is_not_acknowledged"
    ),
)
slip(
    "own_entry_not_looked_for",
    "A refused entry's own earlier copy in the log counts as another client's.",
    by_log_entry._own_version,
    ("txn.id in entry.txn_ids", "not entry.txn_ids"),
    ("return Landed(version)", "pass"),
    found_by=(
        "tests/unit/transaction/commit/test_by_log_entry.py::"
        "test_a_log_entry_without_a_response_is_sent_again_with_the_same_bytes[True]"
    ),
)
