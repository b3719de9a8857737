"""Which numbers of a file DuckDB would change without a word, for the type of the table."""

from __future__ import annotations

import re

import pyarrow as pa

from lakevilla.engines.duckdb.sqltext import any_of

_DECIMAL = re.compile(r"DECIMAL\((?P<precision>\d+), *(?P<scale>\d+)\)")
#: As many digits as a decimal of DuckDB's has; with more it takes a file's for doubles.
_MOST_DIGITS = 38


def rounds(held: str, wanted: pa.DataType) -> bool:
    """Whether numbers of the type ``held``, in DuckDB's words, may change as ``wanted``.

    Not so where they fit or the cast fails. A float may be one of less precision in the table:
    it is no exact number.
    """
    decimal = _DECIMAL.fullmatch(held)
    if decimal is not None and int(decimal["precision"]) > _MOST_DIGITS:
        return True
    if not (pa.types.is_integer(wanted) or pa.types.is_decimal(wanted)):
        return False
    if held in ("FLOAT", "DOUBLE"):
        return True
    scale = wanted.scale if pa.types.is_decimal(wanted) else 0
    return decimal is not None and int(decimal["scale"]) > scale


def has_decimals(kind: pa.DataType) -> bool:
    """Whether the type, or one within it, is of decimals."""
    return any_of(kind, pa.types.is_decimal)
