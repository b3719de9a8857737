"""Slips in the gateway's commits: compared, decided, published and answered."""

from lakevilla.transaction.commit import given, given_on_branch
from lakevilla_testing.planted.edits import slip

slip(
    "done_before_it_is_published",
    "A client is told that its commit is done while it is in no log.",
    given._settled,
    (
        "isinstance(outcome, LakeVillaError) or not outcome.complete",
        "isinstance(outcome, LakeVillaError)",
    ),
    found_by=(
        "tests/contract/iceberg/test_given.py::test_a_request_that_is_in_no_log_in_time_is_not_done"
    ),
)
slip(
    "void_on_one_is_void",
    "A request that is void on one of its tables is refused, though the other has it.",
    given._settled,
    ('"conflict" if void == written else "unknown"', '"conflict" if void else "unknown"'),
    found_by=(
        "tests/contract/iceberg/test_given.py::"
        "test_a_request_that_is_void_on_a_table_without_a_snapshot_is_never_done"
    ),
)
slip(
    "refused_beside_what_waits",
    "A request that fits no more is refused while an earlier write of it waits for its log.",
    given._has_pending,
    ("state is not None and state.pending", "state is None"),
    found_by=(
        "tests/contract/iceberg/test_given.py::"
        "test_a_request_that_is_decided_is_not_refused_by_a_log_that_takes_no_version"
    ),
)
slip(
    "key_of_a_part_of_the_tables",
    "A key that has committed one of two tables counts as the request's.",
    given.key_of_others,
    ("known.keys() >= {", "known.keys() & {"),
    found_by=(
        "tests/contract/iceberg/test_given.py::"
        "test_a_key_that_has_committed_a_part_of_the_tables_is_refused"
    ),
)
slip(
    "noted_beside_what_waits",
    "A request is compared with a version above which commits are pending.",
    given._noted_unlooked,
    ("is_pending or held", "held"),
    found_by=(
        "tests/contract/iceberg/test_given.py::"
        "test_a_request_that_is_decided_is_not_refused_by_a_log_that_takes_no_version"
    ),
)
slip(
    "rows_come_back_on_a_branch",
    "A client's new deletes of a branch's file replace those that others have added.",
    given_on_branch._with_own_marks,
    ("if len(united(was, rows)) > len(rows):", "if len(was) > len(rows):"),
    found_by=(
        "tests/contract/iceberg/test_given_on_branches.py::"
        "test_deletes_that_would_bring_rows_back_are_refused_on_a_branch"
    ),
)
slip(
    "files_of_another_epoch_taken",
    "A branch takes files that were written before its rebase, which may have them.",
    given_on_branch._check_files,
    ("if epoch is not None:", "if not epoch:"),
    found_by=(
        "tests/contract/iceberg/test_given_on_branches.py::"
        "test_files_that_a_clean_up_of_the_lake_would_delete_are_refused"
    ),
)
slip(
    "squashed_past_told_apart",
    "A request is refused for good though several commits in one object may have it.",
    given_on_branch._never_took_effect,
    ('all(part.operation != "SQUASH" for part in later)', "True"),
    found_by=(
        "tests/contract/iceberg/test_given_on_branches.py::"
        "test_a_request_that_many_commits_hide_is_not_refused"
    ),
)
