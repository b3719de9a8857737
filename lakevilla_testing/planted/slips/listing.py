"""Slips in pages of tables: pages of different states, and tables under changed names."""

from lakevilla.lake.tables import listing
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
