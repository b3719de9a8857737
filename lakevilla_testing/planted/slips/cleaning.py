"""Slips in what deletes: gc, vacuum, the copies of HEAD, and the places of dead clients."""

from lakevilla.global_log import head_log
from lakevilla.maintenance import stale_places, vacuum
from lakevilla.maintenance.gc import garbage
from lakevilla_testing.planted.edits import slip

slip(
    "staged_sources_deleted",
    "gc deletes the stored rows of a merge that is decided and not published yet.",
    garbage.garbage,
    ("if has_ended and key not in (sources or ()):", "if has_ended:"),
    found_by=(
        "tests/contract/maintenance/test_gc.py::"
        "test_gc_keeps_the_source_of_a_merge_that_is_not_published_yet"
    ),
)
slip(
    "markers_deleted_by_number",
    "gc deletes a marker that another transaction has created under a freed number since.",
    stale_places.still_there,
    ("and same_object(tokens[one.number], one.token)", "and one.token"),
    found_by=(
        "tests/contract/queues/test_operating.py::"
        "test_recover_keeps_a_place_whose_ticket_a_live_transaction_reuses_meanwhile"
    ),
)
slip(
    "newest_copies_of_head_deleted",
    "gc deletes all copies of HEAD but the oldest.",
    head_log.too_old,
    ("[:-MOST_RECENT]", "[MOST_RECENT:]"),
    found_by=(
        "tests/unit/global_log/test_numbered.py::test_the_newest_copies_of_head_are_not_too_old"
    ),
)
slip(
    "leaves_of_kept_heads_deleted",
    "gc deletes leaves of an ended branch whose HEAD has to stay.",
    garbage.left_of_branches,
    ("stay |= branch.leaves\n        else", "stay = set(stay)\n        else"),
    found_by=(
        "tests/contract/maintenance/test_gc_of_branches.py::"
        "test_gc_works_while_a_tag_keeps_leaves_of_a_deleted_branch"
    ),
)
slip(
    "entries_files_by_their_id",
    "vacuum takes the clock in an id for the age of a file that a log entry may still name.",
    vacuum._unowned,
    ("max(started_at(owner[1]), info.modified_seconds)", "started_at(owner[1])"),
    found_by=(
        "tests/simulation/upkeep/test_wrong_clocks.py::"
        "test_files_of_a_writer_whose_clock_is_behind_stay_where_retention_is_zero[NONE-delta]"
    ),
)
slip(
    "record_by_its_writers_clock",
    "vacuum keeps what is needed since a transaction's own clock, which may be ahead.",
    vacuum._began,
    ("min(started_at(txn), written)", "started_at(txn)"),
    found_by=(
        "tests/contract/maintenance/test_vacuum.py::"
        "test_vacuum_keeps_files_read_by_a_saved_transaction_whose_clock_is_ahead"
    ),
)
slip(
    "vacuum_is_forgotten",
    "A later vacuum with a longer retention sets back the time up to which files may be gone.",
    vacuum._tell,
    ("max(since_ms, state.vacuumed_ms or since_ms)", "since_ms"),
    found_by=(
        "tests/contract/refs/test_tags.py::"
        "test_a_version_with_one_file_that_a_vacuum_is_deleting_is_not_tagged"
        "[delta-and then with a longer retention]"
    ),
)
slip(
    "manifests_of_publishers_deleted",
    "vacuum deletes manifests that a client has stored for the version that it publishes.",
    vacuum._doomed,
    ("if view.placement.overlay:", "if view.placement.hidden:"),
    found_by=(
        "tests/contract/iceberg/test_expiry.py::"
        "test_vacuum_deletes_what_its_dry_run_lists_and_keeps_what_the_newest_snapshot_names"
    ),
)
