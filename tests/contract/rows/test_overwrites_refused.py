"""Rows and arguments that an overwrite refuses: it writes nothing, and the rows stay the same.

With ``reuse_by`` and without, in both formats; deltalake, pyiceberg and DuckDB are the readers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.contract.foreign_readers import FORMATS, Format, read_by_others
from tests.support.tables import bag, contents

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("price", pa.float64()),
        pa.field("day", pa.date32()),
    ]
)
ROWS = pa.Table.from_pylist([{"id": n, "name": f"n{n}", "price": n / 4} for n in range(8)], SCHEMA)
GOOD = {"id": 1, "name": "tea", "price": 1.5}


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> Format:
    found: Format = request.param
    return found


@pytest.fixture(params=[{}, {"reuse_by": ["id"]}], ids=["plain", "reusing"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


@pytest.fixture
def lake(tmp_path: Path, form: Format) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("goods", SCHEMA, format=form)
        lake.run(lambda txn: txn.overwrite("goods", ROWS, reuse_by=["id"]))
        yield lake


def shown_to_all(lake: lv.Lake, form: Format, rows: pa.Table) -> None:
    assert bag(lake.snapshot().read("goods")) == bag(rows)
    for name, found in read_by_others(lake.table("goods").uri, form).items():
        assert bag(found.select(rows.column_names)) == bag(rows), name


def breaking_off() -> Iterator[dict[str, Any]]:
    yield GOOD
    yield {**GOOD, "id": "two"}


WRONG_ROWS: dict[str, tuple[Any, str]] = {
    "a column that the table lacks": ([{**GOOD, "size": 1}], "has no column 'size'"),
    "a column that must be there": ([{"name": "tea"}], "column 'id' .* is NOT NULL"),
    "NULL where there must be a value": ([GOOD, {**GOOD, "id": None}], "id"),
    "a number that is too large": ([{**GOOD, "id": 1 << 40}], "id"),
    "a text for a number": ([{**GOOD, "id": "two"}], "id"),
    "a part of a number": ([{**GOOD, "id": 1.5}], "id"),
    "a number for a text": (pa.table({"id": [1], "name": [7]}), "name"),
    "a text for a day": ([{**GOOD, "day": "yesterday"}], "day"),
    "one column twice, but for case": (pa.table({"id": [1], "ID": [2]}), "ID"),
    "a later row that does not fit": (breaking_off, "id"),
    "no rows at all, but a number": (7, "7|int"),
    "nothing": (None, "None"),
}


def test_an_overwrite_refuses_rows_that_do_not_fit(
    lake: lv.Lake, form: Format, options: dict[str, Any]
) -> None:
    before = contents(lake.root)
    for what, (rows, said) in WRONG_ROWS.items():
        with pytest.raises(lv.InvalidOperation, match=said), lake.transaction() as txn:
            txn.overwrite("goods", rows() if callable(rows) else rows, **options)
        assert contents(lake.root) == before, what
    shown_to_all(lake, form, ROWS)


WRONG_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "where has no such column": ({"where": "size > 1"}, "size"),
    "where is no predicate": ({"where": "price +"}, "price"),
    "where is not true for a row": ({"where": "price > 100"}, "price > 100"),
    "a parameter without a value": ({"where": "id = :n"}, "n"),
    "a mode that there is not": ({"schema_mode": "append"}, "schema_mode"),
    "partitions of a table without": ({"partitions": "dynamic"}, "partitions"),
    "a key that there is not": ({"reuse_by": ["sku"]}, "no column sku"),
    "a key of floats": ({"reuse_by": ["price"]}, "price"),
    "a key that is NULL": ({"reuse_by": ["day"]}, "day of reuse_by has NULL"),
    "a key of two rows": ({"reuse_by": ["name"]}, "two rows have the key name='tea'"),
    "a key and a part of the rows": ({"reuse_by": ["id"], "where": "id > 0"}, "reuse_by"),
    "no key": ({"reuse_by": ()}, "reuse_by names no column"),
}


def test_an_overwrite_refuses_arguments_that_do_not_fit(lake: lv.Lake, form: Format) -> None:
    rows = pa.Table.from_pylist([GOOD, {**GOOD, "id": 2}], SCHEMA)
    before = contents(lake.root)
    for what, (options, said) in WRONG_OPTIONS.items():
        with pytest.raises(lv.InvalidOperation, match=said), lake.transaction() as txn:
            txn.overwrite("goods", rows, **options)
        assert contents(lake.root) == before, what
    shown_to_all(lake, form, ROWS)


def test_a_transaction_can_go_on_after_a_refused_overwrite(
    lake: lv.Lake, form: Format, options: dict[str, Any]
) -> None:
    fewer = ROWS.slice(2)
    with lake.transaction() as txn:
        for rows, _ in WRONG_ROWS.values():
            with pytest.raises(lv.InvalidOperation):
                txn.overwrite("goods", rows() if callable(rows) else rows, **options)
        txn.overwrite("goods", fewer, **options)
    shown_to_all(lake, form, fewer)
