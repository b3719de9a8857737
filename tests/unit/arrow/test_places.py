"""Positions of true values, also in a column without chunks."""

import pyarrow as pa

from lakevilla.arrow.input import places_of_true


def test_positions_of_true_values_count_over_all_chunks() -> None:
    column = pa.chunked_array([[False, True], [], [None, True]], pa.bool_())
    assert places_of_true(column).to_pylist() == [1, 3]


def test_a_column_without_chunks_has_no_positions() -> None:
    assert places_of_true(pa.chunked_array([], pa.bool_())).to_pylist() == []
