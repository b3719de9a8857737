"""Functions in assignments and predicates, on every engine and every way of reading files."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa

from tests.support.engine_lake import Lake

ROWS = pa.Table.from_pylist(
    [
        {"id": 1, "code": "ab-12", "day": date(2024, 1, 31), "tags": ["x", None],
         "point": {"x": 1, "Name": 'a"b'}, "by": [("k", 1)], "note": '{"a":{"b":[5]}}', "v": -4.0},
        {"id": 2, "code": "zz", "day": None, "tags": [], "point": None, "by": [], "note": "no",
         "v": 9.0},
        {"id": 3, "code": None, "day": date(9999, 12, 1), "tags": None,
         "point": {"x": None, "Name": None}, "by": None, "note": None, "v": None},
    ],
    schema=pa.schema([
        ("id", pa.int64()), ("code", pa.string()), ("day", pa.date32()),
        ("tags", pa.list_(pa.string())),
        ("point", pa.struct([("x", pa.int64()), ("Name", pa.string())])),
        ("by", pa.map_(pa.string(), pa.int64())), ("note", pa.string()), ("v", pa.float64()),
    ]),
)  # fmt: skip


def column(lake: Lake, name: str) -> list[Any]:
    return [row[name] for row in sorted(lake.rows("ours"), key=lambda row: row["id"])]


def test_assignments_can_use_functions(lake: Lake) -> None:
    lake.make("ours", ROWS)
    lake.update(
        "ours",
        {
            "code": "if(code rlike '^[a-z]+-[0-9]+$', split_part(code, '-', 2), nvl(code, '?'))",
            "day": "last_day(add_months(day, if(id = 1, 1, 0)))",
            "tags": "split(concat_ws(',', tags[0], tags[1], code), ',')",
            "note": "nvl(get_json_object(note, '$.a.b[0]'), to_json(point))",
            "v": "sqrt(v)",
            "by": "by",
        },
        "id > 0",
    )
    assert column(lake, "code") == ["12", "zz", "?"]
    assert column(lake, "day") == [date(2024, 2, 29), None, date(9999, 12, 31)]
    assert column(lake, "tags") == [["x", "ab-12"], ["zz"], [""]]
    assert column(lake, "note") == ["5", None, "{}"]
    root, three, none = column(lake, "v")
    assert (root != root, three, none) == (True, 3.0, None)


def test_predicates_can_use_functions(lake: Lake) -> None:
    lake.make("ours", ROWS)
    for where, ids in {
        "regexp_like(code, '[0-9]{2}') and by['k'] = 1 and left(code, 1) = 'a' and isnan(sqrt(v)) "
        "and tags[0] = 'x' and (point).name = 'a\"b' and datediff(day, '2024-01-30') = 1 "
        'and to_json(point) = \'{"x":1,"Name":"a\\"b"}\'': [1],
        "size(tags) = 0 and md5(code) = '25ed1bcb423b0b7200f485fc5ff71c8e'": [2],
        "date_format(day, 'yyyy-MM') >= '2024-01' and ln(v) is null": [1, 3],
    }.items():
        rows = lake.scan("ours", where=where).to_pylist()
        assert sorted(row["id"] for row in rows) == ids, where
