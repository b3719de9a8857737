"""The end of a Parquet file: one request, two where the footer is long."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from lakevilla.errors import CorruptObject
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get

#: What is fetched of a file's end: mostly all of its footer.
_FOOTER_BYTES = 16 * 1024
_MAGIC = b"PAR1"


def rows_in_footer(key: str, size: int) -> Program[int | None]:
    """How many rows a file of that size has; None if it went while it was looked at.

    Raises ``CorruptObject``, with what is wrong with its end.
    """
    wanted = min(_FOOTER_BYTES, size)
    while True:
        outcome = yield from get(key, byte_range=(size - wanted, size))
        if not isinstance(outcome, Found):
            return None
        end = outcome.body
        if len(end) < 12 or end[-4:] != _MAGIC:
            raise CorruptObject("has no Parquet footer", key=key)
        length = int.from_bytes(end[-8:-4], "little") + 8
        if length > size:
            raise CorruptObject("has a footer that is longer than the file", key=key)
        if length <= len(end):
            break
        wanted = length
    try:
        # The footer alone, as a file: nobody looks for the pages that it tells of.
        return int(pq.read_metadata(io.BytesIO(_MAGIC + end[-length:])).num_rows)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CorruptObject(f"has a footer that can't be read ({reason})", key=key) from None
