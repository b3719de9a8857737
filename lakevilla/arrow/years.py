"""Dates and times in the years that Python, SQL and JSON can tell: 1 to 9999."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.made import scalar

_EPOCH = date(1970, 1, 1).toordinal()
_DAYS = (1 - _EPOCH, date.max.toordinal() - _EPOCH)
_PER_DAY = {unit: 86_400 * 10**digits for unit, digits in (("s", 0), ("ms", 3), ("us", 6))}


def in_years(moments: pa.Array) -> pa.Array:
    """Dates or timestamps with null for those outside of the years."""
    kind = moments.type
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            return moments  # they reach from 1677 to 2262
        one = _PER_DAY[kind.unit]
    else:
        one = 1 if pa.types.is_date32(kind) else _PER_DAY["ms"]
    number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    at = moments.cast(number)  # as a number, for the type may have a zone or none
    first, last = (scalar(at, number) for at in (_DAYS[0] * one, (_DAYS[1] + 1) * one))
    within = pc.and_(pc.greater_equal(at, first), pc.less(at, last))
    return pc.if_else(within, moments, scalar(None, kind))
