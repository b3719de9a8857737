"""Places of values, also in the column of a table from which all rows were taken."""

import pyarrow as pa

from lakevilla.arrow.input import places_of_true


def test_places_count_over_all_chunks() -> None:
    column = pa.chunked_array([[False, True], [], [None, True]], pa.bool_())
    assert places_of_true(column).to_pylist() == [1, 3]


def test_a_column_without_chunks_has_none() -> None:
    assert places_of_true(pa.chunked_array([], pa.bool_())).to_pylist() == []
