"""Places of values in a column."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def places_of_true(column: pa.ChunkedArray) -> pa.Array:
    """The places of the values that are true.

    In one piece: before version 26 pyarrow ends the process at a column without any chunk, as a
    table has from which a filter has taken all rows.
    """
    return pc.indices_nonzero(column.combine_chunks())
