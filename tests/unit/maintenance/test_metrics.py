"""The least number of small files that a table's files and bytes allow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakevilla.maintenance.metrics import least_small_files


@given(st.lists(st.integers(0, 1000), max_size=20), st.integers(1, 500))
def test_a_least_number_of_small_files_is_never_more_than_there_are(
    sizes: list[int], below: int
) -> None:
    least = least_small_files(len(sizes), sum(sizes), below)
    assert 0 <= least <= sum(size < below for size in sizes)


def test_a_least_number_counts_all_files_that_others_leave_no_bytes_for() -> None:
    assert least_small_files(50, 0, 64) == 50
    assert least_small_files(50, 10 * 64 + 63, 64) == 40
    assert least_small_files(3, 10_000, 64) == 0
