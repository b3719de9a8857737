"""Type codes are names of SQL types; each type group of PEP 249 equals the codes that it covers."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakevilla import dbapi
from lakevilla.dbapi.types import columns_of, type_code

CODES = [
    (pa.int64(), "BIGINT", dbapi.NUMBER),
    (pa.int8(), "TINYINT", dbapi.NUMBER),
    (pa.uint32(), "UINTEGER", dbapi.NUMBER),
    (pa.float32(), "FLOAT", dbapi.NUMBER),
    (pa.bool_(), "BOOLEAN", dbapi.NUMBER),
    (pa.decimal128(10, 2), "DECIMAL(10,2)", dbapi.NUMBER),
    (pa.string(), "VARCHAR", dbapi.STRING),
    (pa.large_string(), "VARCHAR", dbapi.STRING),
    (pa.dictionary(pa.int8(), pa.string()), "VARCHAR", dbapi.STRING),
    (pa.uuid(), "UUID", dbapi.STRING),
    (pa.binary(), "BLOB", dbapi.BINARY),
    (pa.large_binary(), "BLOB", dbapi.BINARY),
    (pa.date32(), "DATE", dbapi.DATETIME),
    (pa.time64("us"), "TIME", dbapi.DATETIME),
    (pa.timestamp("us"), "TIMESTAMP", dbapi.DATETIME),
    (pa.timestamp("us", "UTC"), "TIMESTAMP WITH TIME ZONE", dbapi.DATETIME),
    (pa.month_day_nano_interval(), "INTERVAL", dbapi.DATETIME),
]
NESTED = [
    (pa.list_(pa.list_(pa.int64())), "BIGINT[][]"),
    (pa.list_(pa.int64(), 3), "BIGINT[3]"),
    (
        pa.struct({"a": pa.int64(), 'b "c"': pa.string()}),
        'STRUCT(a BIGINT, "b ""c""" VARCHAR)',
    ),
    (pa.map_(pa.string(), pa.decimal128(4, 1)), "MAP(VARCHAR, DECIMAL(4,1))"),
]
GROUPS = [dbapi.STRING, dbapi.BINARY, dbapi.NUMBER, dbapi.DATETIME, dbapi.ROWID]


@pytest.mark.parametrize(("kind", "code", "group"), CODES, ids=[code for _, code, _ in CODES])
def test_a_type_has_a_code_and_belongs_to_one_group(
    kind: pa.DataType, code: str, group: dbapi.TypeGroup
) -> None:
    assert type_code(kind) == code
    assert [one for one in GROUPS if one == code] == [group]


@pytest.mark.parametrize(("kind", "code"), NESTED)
def test_a_nested_type_belongs_to_no_group(kind: pa.DataType, code: str) -> None:
    assert type_code(kind) == code
    assert not [one for one in GROUPS if one == code]


def test_a_cursor_description_has_seven_items_for_each_column() -> None:
    schema = pa.schema({"id": pa.int64(), "price": pa.decimal128(10, 2)})
    assert [tuple(one) for one in columns_of(schema)] == [
        ("id", "BIGINT", None, None, None, None, None),
        ("price", "DECIMAL(10,2)", None, None, 10, 2, None),
    ]
