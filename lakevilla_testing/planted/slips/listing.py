"""Slips in pages of tables and in paths: what is there is shown otherwise, or not noted."""

from lakevilla.api.catalog import filters
from lakevilla.lake.tables import listing
from lakevilla.transaction.verbs.catalog import rows
from lakevilla_testing.planted.edits import slip

slip(
    "pages_of_whatever_is_there_now",
    "A page is of the newest state, so a table made and one dropped since are both shown.",
    listing.state_again,
    ("if known.version != head.sequence:", "if known.version > head.sequence:"),
    found_by=(
        "tests/contract/catalog/test_pages.py::"
        "test_all_pages_show_the_state_of_the_first_whatever_is_committed"
    ),
)
slip(
    "pages_in_the_order_of_other_names",
    "A page follows one that was sorted by other names, so a renamed table is shown twice.",
    listing.state_again,
    ("if marks != known.marks:", "if marks is None:"),
    found_by=(
        "tests/contract/catalog/test_pages.py::"
        "test_a_page_after_a_rename_is_refused_and_paging_begins_again"
    ),
)
slip(
    "bounds_compared_as_text",
    "A path compares bounds as the catalog has them, so that 40 is below 6.",
    filters._check,
    ('"max" in own.names and', '"most" in own.names and'),
    found_by=(
        "tests/contract/catalog/test_paths.py::test_bounds_are_compared_as_values_of_their_columns"
    ),
)
slip(
    "partitions_seen_without_a_note",
    "What a transaction has seen of partitions is not noted, so no later commit conflicts with it.",
    rows.catalog_rows,
    (
        "if not txn.bound.is_past and",
        'if not txn.bound.is_past and read.kind != "partitions" and',
    ),
    found_by=(
        "tests/contract/catalog/test_phantoms.py::"
        "test_a_commit_that_changes_the_result_of_a_catalog_query_is_a_conflict[memory-16]"
    ),
)
