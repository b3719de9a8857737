"""Order along a Z curve: rows that are near in several columns are placed near each other.

Each column's values become their places among the values of a sample, and the bits of those places
are interleaved (Morton, 1966). Places and not values are interleaved, so that a column of any type
and distribution divides the rows as finely as the other columns do.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

#: Rows of the sample that shows the distribution of a column's values.
SAMPLE_ROWS = 100_000
#: A column is cut into at most two to the power of this many parts.
_MOST_BITS = 12
_WORD_BITS = 63


def boundaries(sample: pa.Table) -> list[pa.Array]:
    """Return for each column the values that cut its sample into parts of equal numbers of rows.

    A frequent value occurs several times: its share of the places equals its share of the rows.
    """
    parts = 1 << _bits(sample.num_columns)
    cuts = []
    for column in sample.columns:
        values = column.combine_chunks().drop_null()
        ordered = values.take(pc.array_sort_indices(values))
        count = len(ordered)
        if count >= parts:
            places = pa.array([i * count // parts for i in range(1, parts)], pa.int64())
            ordered = ordered.take(places)
        cuts.append(ordered)
    return cuts


def z_values(rows: pa.RecordBatch | pa.Table, cuts: Sequence[pa.Array]) -> pa.Array:
    """Return the place on the curve of each row of ``rows``, whose columns are the sample's."""
    bits = _bits(len(cuts))
    z = pa.repeat(pa.scalar(0, pa.uint64()), rows.num_rows)
    for number, (column, cut) in enumerate(zip(rows.columns, cuts, strict=True)):
        values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        place = _places(values, cut, bits)
        for bit in range(bits):
            one = pc.bit_wise_and(pc.shift_right(place, _word(bit)), _word(1))
            at = bit * len(cuts) + len(cuts) - 1 - number
            z = pc.bit_wise_or(z, pc.shift_left(one, _word(at)))
    return z


def _bits(columns: int) -> int:
    return min(_MOST_BITS, _WORD_BITS // columns)


def _places(values: pa.Array, cut: pa.Array, bits: int) -> pa.Array:
    """Return how many cuts are at or below each value, scaled to two to the power of ``bits`` cuts.

    NULL precedes all values. A stable sort with the cuts first puts a value after the cuts that it
    equals.
    """
    both = pa.concat_arrays([cut, values])
    order = pc.array_sort_indices(both, null_placement="at_start")
    is_cut = pc.less(order, _word(len(cut))).cast(pa.uint64())
    below = pc.cumulative_sum(is_cut)
    places = below.take(pc.array_sort_indices(order)).slice(len(cut))
    # Scale up the places if there are few cuts: the first bits distinguish the most rows.
    return pc.divide(pc.multiply(places, _word((1 << bits) - 1)), _word(max(len(cut), 1)))


def _word(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint64())
