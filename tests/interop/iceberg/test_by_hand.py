"""Read tables made by hand: LakeVilla, DuckDB and pyiceberg read the same rows."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import lakevilla as lv
from tests.interop.iceberg.beside import Bag, bag
from tests.support.iceberg_by_hand import File, Table, column, of_ids

INT, LONG = pa.int32(), pa.int64()
Change = Callable[[dict[str, Any]], object]


def struct(*fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def listed(element: Any) -> dict[str, Any]:
    return {"type": "list", "element-id": 90, "element": element, "element-required": False}


def read(
    own: Table, duck: duckdb.DuckDBPyConnection, change: Change | None = None, *, deletes: str = ""
) -> Bag:
    """Return the rows that all readers read; pyiceberg knows no equality deletes and is left out
    there.
    """
    path = own.write(change=change)
    with lv.connect(str(own.directory.parent)) as lake:
        ours = bag(lake.snapshot().read("t"))
    assert bag(duck.execute(f"FROM iceberg_scan('{path}')").to_arrow_table()) == ours
    if deletes != "equality":
        assert bag(StaticTable.from_metadata(str(path)).scan().to_arrow()) == ours
    return ours


def table(tmp_path: Path, *fields: Any, **options: Any) -> Table:
    return Table(tmp_path / "lake" / "t", fields, **options)


def of(rows: pa.Table, **ids: int) -> File:
    return File("a.parquet", of_ids(rows, {name.replace("__", "."): n for name, n in ids.items()}))


STRUCTS = pa.table({"s": pa.array([(1, 2), None], pa.struct([("x", INT), ("y", INT)]))})
S_IDS = {"s": 1, "s__x": 2, "s__y": 3}

#: The table's columns, the file, and the rows.
SHAPES: dict[str, tuple[list[Any], File, Bag]] = {
    "an int that is a long": (
        [column(1, "k", "long")],
        of(pa.table({"k": pa.array([1, None], INT)}), k=1),
        Bag([(1,), (None,)]),
    ),
    "a float that is a double": (
        [column(1, "k", "double")],
        of(pa.table({"k": pa.array([0.5, -0.0], pa.float32())}), k=1),
        Bag([(0.5,), (-0.0,)]),
    ),
    "a wider decimal": (
        [column(1, "k", "decimal(20, 2)")],
        of(pa.table({"k": pa.array([Decimal("1.25")], pa.decimal128(9, 2))}), k=1),
        Bag([(Decimal("1.25"),)]),
    ),
    "an int in a list that is a long": (
        [column(1, "l", listed("long"))],
        of(pa.table({"l": pa.array([[1, 2], []], pa.list_(INT))}), l=1, l__element=90),
        Bag([((1, 2),), ((),)]),
    ),
    "a float in a struct that is a double, beside a new field": (
        [column(1, "s", struct(column(2, "x", "double"), column(4, "z", "string")))],
        of(
            pa.table({"s": pa.array([(1.5,), None], pa.struct([("x", pa.float32())]))}), s=1, s__x=2
        ),
        Bag([((("x", 1.5), ("z", None)),), (None,)]),
    ),
    "a struct with none of its old fields": (
        [column(1, "s", struct(column(4, "z", "int")))],
        of(STRUCTS, **S_IDS),
        Bag([((("z", None),),), (None,)]),
    ),
    "a struct in another order": (
        [column(1, "s", struct(column(3, "y", "int"), column(2, "x", "int")))],
        of(STRUCTS, **S_IDS),
        Bag([((("y", 2), ("x", 1)),), (None,)]),
    ),
    "fields that changed names with each other": (
        [column(1, "s", struct(column(3, "x", "int"), column(2, "y", "int")))],
        of(STRUCTS, **S_IDS),
        Bag([((("x", 2), ("y", 1)),), (None,)]),
    ),
    "columns that changed names with each other": (
        [column(2, "a", "int"), column(1, "b", "int")],
        of(pa.table({"a": pa.array([1], INT), "b": pa.array([2], INT)}), a=1, b=2),
        Bag([(2, 1)]),
    ),
    "a column dropped and made again": (
        [column(3, "a", "string")],
        of(pa.table({"a": pa.array([1], INT)}), a=1),
        Bag([(None,)]),
    ),
    "default values": (
        [
            column(1, "k", "int"),
            column(2, "d", "int", **{"initial-default": 7}),
            column(3, "t", "string", **{"initial-default": "x'y"}),
            column(4, "b", "binary", **{"initial-default": "000aff"}),
            column(5, "e", "decimal(9, 2)", **{"initial-default": "1.25"}),
        ],
        of(pa.table({"k": pa.array([1], INT)}), k=1),
        Bag([(1, 7, "x'y", b"\x00\n\xff", Decimal("1.25"))]),
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_data_file_that_is_older_than_the_schema_is_read_by_the_present_schema(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection, shape: str
) -> None:
    fields, file, expected = SHAPES[shape]
    assert read(table(tmp_path, *fields, version=3).add(file), duck) == expected


def _without(*names: str) -> Change:
    return lambda document: [document.pop(name) for name in names]


def _spec(transform: str) -> Change:
    field = {"source-id": 99, "field-id": 1005, "transform": transform, "name": "z"}
    return lambda d: d["partition-specs"].append({"spec-id": 5, "fields": [field]})


#: Changes of the metadata file.
METADATA: dict[str, Change] = {
    "parts that nobody knows": lambda d: d.update({"vendor-part": {"a": 1}}),
    "a location with a slash at its end": lambda d: d.update(location=d["location"] + "/"),
    "a location as Java spells it": lambda d: d.update(location=f"file:{d['location']}"),
    "an old spec of a dropped column": _spec("identity"),
    "a void field of a dropped column": _spec("void"),
    "no sort orders": _without("sort-orders", "default-sort-order-id"),
    "no logs": _without("snapshot-log", "metadata-log"),
    "no properties": _without("properties"),
}


@pytest.mark.parametrize("shape", METADATA)
def test_metadata_of_other_clients_is_read(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection, shape: str
) -> None:
    own = table(tmp_path, column(1, "k", "int"))
    own.add(of(pa.table({"k": pa.array([1], INT)}), k=1))
    assert read(own, duck, METADATA[shape]) == Bag([(1,)])
    with lv.connect(str(own.directory.parent)) as lake:
        lake.run(lambda txn: txn.append("t", [{"k": 2}]))
        assert bag(lake.snapshot().read("t")) == Bag([(1,), (2,)])


@pytest.mark.parametrize("snapshot", [-1, None, "absent"])
def test_a_table_without_a_snapshot_is_empty(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection, snapshot: int | str | None
) -> None:
    def empty(document: dict[str, Any]) -> None:
        document.update({"current-snapshot-id": snapshot, "snapshots": []})
        if snapshot == "absent":
            _without("current-snapshot-id", "snapshots")(document)

    assert read(table(tmp_path, column(1, "k", "int")), duck, empty) == Bag()


@pytest.mark.parametrize("sequence", [1, 2])
@pytest.mark.parametrize("kind", ["position", "equality"])
def test_equality_deletes_apply_to_older_rows_and_position_deletes_also_to_rows_of_their_commit(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection, kind: str, sequence: int
) -> None:
    """A delete by position also hides rows of the same commit, a delete by values only
    older rows.
    """
    own = table(tmp_path, column(1, "k", "int"))
    own.add(of(pa.table({"k": pa.array([1, 2, 3], INT)}), k=1))
    if kind == "position":
        gone = {"file_path": [f"{own.directory}/data/a.parquet"], "pos": pa.array([1], LONG)}
        rows = of_ids(pa.table(gone), {"file_path": 2147483546, "pos": 2147483545})
        delete = File("d.parquet", rows, content=1)
    else:
        rows = of_ids(pa.table({"k": pa.array([2], INT)}), {"k": 1})
        delete = File("d.parquet", rows, content=2, says={"equality_ids": [1]})
    own.add(delete, sequence=sequence)
    stays = kind == "equality" and sequence == 1
    expected = Bag([(1,), (3,), (2,)] if stays else [(1,), (3,)])
    assert read(own, duck, deletes=kind) == expected


@pytest.mark.parametrize(
    ("rows", "ids", "error", "match"),
    [
        ({"k": [2]}, [], lv.CorruptObject, "does not say by which columns"),
        ({"x": [2]}, [1], lv.CorruptObject, "it lacks column id 1"),
        ({"k": [2]}, [3], lv.UnsupportedTableFeature, "is nested or was dropped since"),
    ],
)
def test_equality_deletes_that_can_not_be_applied_are_refused(
    tmp_path: Path, rows: Any, ids: list[int], error: type[Exception], match: str
) -> None:
    own = table(tmp_path, column(1, "k", "int"), column(2, "s", struct(column(3, "x", "int"))))
    own.add(of(pa.table({"k": pa.array([1], INT)}), k=1))
    held = of_ids(pa.table(rows), {"k": 1, "x": 7})
    own.add(File("d.parquet", held, content=2, says={"equality_ids": ids}), sequence=2)
    own.write()
    with lv.connect(str(own.directory.parent)) as lake, pytest.raises(error, match=match):
        lake.snapshot().read("t")
