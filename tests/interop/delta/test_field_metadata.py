"""Keep comments and other metadata of Arrow fields, and show them to other clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import lakevilla as lv
from tests.interop.delta.readers import duckdb_rows
from tests.interop.spark.beside import Beside
from tests.support.places import Place

INNER = pa.field("x", pa.int64(), metadata={"comment": "inner"})
NEW = pa.schema(
    [
        pa.field("n", pa.string(), metadata={"comment": "new", "unit": "EUR"}),
        pa.field("s", pa.struct([INNER]), metadata={"comment": "outer"}),
        pa.field("i", pa.int32(), metadata={"PARQUET:field_id": "17"}),
    ]
)
FIRST = pa.schema([pa.field("id", pa.int64(), metadata={"comment": "the key"})])
ALL = pa.schema([*FIRST, *NEW])
ROW = {"id": 1, "n": "a", "s": {"x": 2}, "i": 3}


def _create(lake: lv.Lake) -> None:
    lake.create_table("t", ALL)


def _create_with_rows(lake: lv.Lake) -> None:
    lake.create_table("t", pa.Table.from_pylist([ROW], schema=ALL))


def _merge_schema(lake: lv.Lake) -> None:
    lake.create_table("t", FIRST)
    rows = pa.Table.from_pylist([ROW], schema=ALL.set(0, ALL.field(0).with_metadata({"a": "b"})))
    lake.run(lambda txn: txn.append("t", rows, schema_mode="merge"))


def _add_columns(lake: lv.Lake) -> None:
    lake.create_table("t", FIRST)
    lake.run(lambda txn: txn.alter("t", add_columns=NEW))


WAYS: dict[str, Callable[[lv.Lake], None]] = {
    "created": _create,
    "created with rows": _create_with_rows,
    "merged": _merge_schema,
    "added": _add_columns,
}


def said(schema: Any) -> dict[str, Any]:
    """Return the metadata by path, in Arrow's form."""
    found = {}
    for field in schema:
        told = dict(field.metadata or {})
        found[field.name] = {key.decode(): value.decode() for key, value in told.items()}
        if pa.types.is_struct(field.type):
            found |= {f"{field.name}.{k}": v for k, v in said(field.type).items()}
    return found


@pytest.mark.parametrize("way", WAYS)
def test_field_metadata_is_kept_and_other_clients_read_it(tmp_path: Path, way: str) -> None:
    with lv.connect(str(tmp_path)) as lake:
        WAYS[way](lake)
        assert said(lake.table("t").schema) == said(ALL)
        lake.run(lambda txn: txn.append("t", [ROW]))
        lake.run(lambda txn: txn.alter("t", add_columns=pa.schema([("later", pa.int64())])))
        lake.run(lambda txn: txn.update("t", {"n": "'b'"}, "true"))
        assert said(lake.table("t").schema) == {**said(ALL), "later": {}}
        read = lake.snapshot().read("t")
        assert read.column_names == [*ALL.names, "later"]
    theirs = pa.schema(DeltaTable(str(tmp_path / "t")).schema().to_arrow())
    assert said(theirs) == {**said(ALL), "later": {}}
    assert set(DeltaTable(str(tmp_path / "t")).to_pyarrow_table()["n"].to_pylist()) == {"b"}


def test_a_copied_schema_keeps_its_comment_and_loses_its_column_mapping(
    tmp_path: Path,
) -> None:
    """A schema that was read from a mapped table makes an independent table."""
    theirs = {
        "delta.columnMapping.id": "4",
        "delta.columnMapping.physicalName": "col-4",
        "ARROW:extension:metadata": "x",
        "comment": "c",
    }
    schema = pa.schema([pa.field("id", pa.int64(), metadata=theirs)])
    with lv.connect(str(tmp_path)) as lake:
        for name, mode in (("plain", "none"), ("mapped", "name")):
            properties = {"delta.columnMapping.mode": mode}
            lake.create_table(name, schema, properties=properties)
            lake.run(lambda txn, name=name: txn.append(name, [{"id": 1}]))
            table = DeltaTable(str(tmp_path / name))
            (field,) = table.schema().fields
            assert field.metadata.get("delta.columnMapping.physicalName") != "col-4"
            assert field.metadata["comment"] == "c"
            assert duckdb_rows(tmp_path / name) == [{"id": 1}]


@pytest.mark.parametrize(
    ("key", "feature"),
    [
        ("delta.generationExpression", "generatedColumns"),
        ("delta.identity.start", "identityColumns"),
        ("CURRENT_DEFAULT", "allowColumnDefaults"),
    ],
)
def test_field_metadata_that_requests_computed_values_is_refused_by_name(
    tmp_path: Path, key: str, feature: str
) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), metadata={key: "1"})])
    with lv.connect(str(tmp_path)) as lake:
        with pytest.raises(lv.UnsupportedTableFeature, match=feature):
            lake.create_table("t", schema)
        lake.create_table("t", FIRST)
        with pytest.raises(lv.UnsupportedTableFeature, match=feature):
            lake.run(lambda txn: txn.alter("t", add_columns=schema))
        assert lake.table("t").schema.names == ["id"]


def test_spark_shows_comments_and_keeps_its_own_field_metadata(
    spark: SparkSession, tmp_path: Path
) -> None:
    beside = Beside(spark, Place(str(tmp_path)))
    with beside.connect() as lake:
        lake.create_table("t", ALL)
        lake.run(lambda txn: txn.append("t", [ROW]))
    shown = {row.col_name: row.comment for row in beside.sql("DESCRIBE {t}", "t")}
    assert (shown["id"], shown["n"], shown["s"]) == ("the key", "new", "outer")
    beside.sql("ALTER TABLE {t} ALTER COLUMN n COMMENT 'theirs'", "t")
    beside.sql("INSERT INTO {t} VALUES (2, 'b', named_struct('x', 1L), 4)", "t")
    with beside.connect() as lake:
        lake.run(lambda txn: txn.update("t", {"i": "i + 1"}, "true"))
        assert said(lake.table("t").schema)["n"] == {"comment": "theirs", "unit": "EUR"}
    assert sorted(beside.arrow("t")["i"].to_pylist()) == [4, 5]
