"""Text columns stored as bytes, and columns of bytes stored as text, keep their values.

DuckDB's cast between the types escapes bytes (``\\xC3``), or reads such escapes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.types import BinaryType, StringType

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from tests.support.delta_by_hand import Tables, add, field, metadata, protocol

TEXTS = ["é\\x41", "q", None, ""]
BYTES = [None if text is None else text.encode() for text in TEXTS]
RAW = [b"\xff\\x41", b"a", b"", None]


def nested(values: list[Any], kind: pa.DataType) -> dict[str, pa.Array]:
    return {
        "st": pa.array([{"a": one} for one in values], pa.struct([("a", kind)])),
        "li": pa.array([[one] for one in values], pa.list_(kind)),
        "ma": pa.array([[(1, one)] for one in values], pa.map_(pa.int32(), kind)),
    }


def delta_kinds(name: str) -> list[dict[str, Any]]:
    item = {"elementType": name, "containsNull": True}
    entry = {"keyType": "integer", "valueType": name, "valueContainsNull": True}
    return [
        field("v", name),
        field("st", {"type": "struct", "fields": [field("a", name)]}),
        field("li", {"type": "array", **item}),
        field("ma", {"type": "map", **entry}),
    ]


def checked(lake: lv.Lake, name: str, values: list[Any], others: Any) -> None:
    """Assert that all reads return ``values`` for ids 0 to 3, also after an update of one row."""
    everything = [
        (values[i], {"a": values[i]}, [values[i]], [(1, values[i])], RAW[i]) for i in range(4)
    ]

    def rows(table: pa.Table) -> list[Any]:
        found = table.sort_by("id").select(["v", "st", "li", "ma", "raw"]).to_pylist()
        return [tuple(row.values()) for row in found]

    assert rows(lake.snapshot().read(name)) == everything
    assert rows(lake.snapshot().sql(f"select * from {name}")) == everything
    one = lake.snapshot().read(name, where="v = :v and st.a = :v", params={"v": values[0]})
    assert one["id"].to_pylist() == [0]
    lake.run(lambda txn: txn.update(name, {"id": "id + 9"}, "v = :v", params={"v": values[1]}))
    everything = [*everything[:1], *everything[2:], everything[1]]
    assert rows(lake.snapshot().read(name)) == everything
    assert rows(others()) == everything


def columns(values: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table(
        {
            "id": range(4),
            "v": pa.array(values, kind),
            **nested(values, kind),
            "raw": pa.array(RAW, pa.binary()),
        }
    )


@pytest.mark.parametrize("wanted", ["string", "binary"])
def test_a_delta_file_with_text_for_bytes_or_bytes_for_text_is_read(
    tmp_path: Path, wanted: str
) -> None:
    held, values = (BYTES, TEXTS) if wanted == "string" else (TEXTS, BYTES)
    file = columns(held, pa.binary() if wanted == "string" else pa.string())
    kinds = [field("id"), *delta_kinds(wanted), field("raw", "binary")]
    tables = Tables(tmp_path)
    log = tables.log()
    log.mkdir(parents=True)
    path = log.parent / "f.parquet"
    pq.write_table(file, path)
    tables.write_entry(0, protocol(), metadata(kinds), add("f.parquet", size=path.stat().st_size))
    with lv.connect(str(tmp_path)) as lake:
        checked(lake, "t", values, lambda: DeltaTable(str(log.parent)).to_pyarrow_table())


def of_the_other_kind(kind: pa.DataType) -> pa.DataType:
    """Return the type with text and bytes swapped, also in nested types."""
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(of_the_other_kind(one.type)) for one in kind])
    if pa.types.is_map(kind):
        item = kind.item_field
        return pa.map_(kind.key_field, item.with_type(of_the_other_kind(item.type)))
    if pa.types.is_list(kind):
        item = kind.value_field
        return pa.list_(item.with_type(of_the_other_kind(item.type)))
    return {pa.string(): pa.binary(), pa.binary(): pa.string()}.get(kind, kind)


@pytest.mark.parametrize("mode", ["id", "name"])
@pytest.mark.parametrize("wanted", ["string", "binary"])
def test_a_delta_file_with_text_and_bytes_swapped_is_read_with_mapped_columns(
    tmp_path: Path, wanted: str, mode: str
) -> None:
    values, kind = (TEXTS, pa.string()) if wanted == "string" else (BYTES, pa.binary())
    rows = columns(values, kind)
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("t", rows, properties={"delta.columnMapping.mode": mode})
    (file,) = (tmp_path / "t").rglob("*.parquet")
    made = pq.read_table(file)
    fields = [one.with_type(of_the_other_kind(one.type)) for one in made.schema]
    fields[-1] = made.schema.field(len(fields) - 1)  # column raw keeps its type
    other = made.cast(pa.schema(fields))
    if mode == "id":  # columns are found by ids, so the file's names don't matter
        fields = [one.with_name(f"own{place}") for place, one in enumerate(fields)]
        other = pa.Table.from_arrays(other.columns, schema=pa.schema(fields))
    old = file.stat().st_size
    pq.write_table(other, file)
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    text = log.read_text()
    assert f'"size":{old}' in text
    log.write_text(text.replace(f'"size":{old}', f'"size":{file.stat().st_size}'))
    with lv.connect(str(tmp_path)) as lake:
        checked(lake, "t", values, lambda: lake.snapshot().read("t"))


def test_delta_files_with_text_and_with_bytes_are_read_in_many_partitions(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    kinds = [field("part", "integer"), field("v", "string"), field("raw", "binary")]
    adds = []
    log = tables.log()
    log.mkdir(parents=True)
    for part in range(70):
        value = "é" if part % 2 else "é".encode()
        path = log.parent / f"f{part}.parquet"
        pq.write_table(pa.table({"v": [value], "raw": [b"\xff"]}), path)
        size = path.stat().st_size
        adds.append(add(path.name, partitionValues={"part": str(part)}, size=size))
    tables.write_entry(0, protocol(), metadata(kinds, partition_by=["part"]), *adds)
    with lv.connect(str(tmp_path)) as lake:
        found = lake.snapshot().read("t").sort_by("part").to_pylist()
    assert found == [{"part": part, "v": "é", "raw": b"\xff"} for part in range(70)]


@pytest.mark.parametrize("wanted", ["string", "binary"])
def test_an_iceberg_column_changed_between_text_and_bytes_is_read(
    tmp_path: Path, wanted: str
) -> None:
    held, values = (BYTES, TEXTS) if wanted == "string" else (TEXTS, BYTES)
    rows = columns(held, pa.binary() if wanted == "string" else pa.string())
    catalog = ObjectStoreCatalog("c", warehouse=str(tmp_path))
    table = catalog.create_table("t", rows.schema)
    table.append(rows)
    with table.update_schema() as update:
        for path in ("v", "st.a", "li.element", "ma.value"):
            update.update_column(path, StringType() if wanted == "string" else BinaryType())
    with lv.connect(str(tmp_path)) as lake:
        checked(lake, "t", values, lambda: catalog.load_table("t").scan().to_arrow())
