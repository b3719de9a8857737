"""Slips in deletion vectors and position deletes."""

from lakevilla.engines import deletes
from lakevilla_testing.planted.edits import slip

slip(
    "rows_beyond_the_file",
    "A vector that deletes a row behind the file's end is believed.",
    deletes._vectors,
    ("rows[-1] >= most", "rows[-1] > most"),
    found_by=(
        "tests/unit/engines/test_deletes.py::"
        "test_a_vector_of_a_row_that_its_file_does_not_have_is_refused"
    ),
)
