"""Test each table feature of Delta's protocol: LakeVilla writes, only reads, or refuses the table.

The tables are made by hand: they list the feature, and nothing uses it. Other tests use the
features; docs/tables-of-others.md names these tests.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.interop.delta.handmade import Handmade
from tests.interop.delta.readers import duckdb_rows
from tests.support.delta_by_hand import field, metadata, protocol

ID = field("id")
ROWS = pa.table({"id": [1, 2]})

Done = Literal["written", "read", "refused"]

#: Features that bind writers alone, and what LakeVilla does with a table that lists them.
WRITER: dict[str, Done] = {
    "allowColumnDefaults": "written",
    "appendOnly": "written",
    "changeDataFeed": "written",
    "checkConstraints": "written",
    "checkpointProtection": "written",
    "clustering": "written",
    "domainMetadata": "written",
    "generatedColumns": "written",
    "identityColumns": "written",
    "inCommitTimestamp": "written",
    "invariants": "written",
    "rowTracking": "written",
    "collations": "read",
    "collations-preview": "read",
    "icebergCompatV1": "read",
    "icebergCompatV2": "read",
    "icebergCompatV3": "read",
    "icebergWriterCompatV1": "read",
    "materializePartitionColumns": "read",
    "coordinatedCommits-preview": "read",
    "redirectWriterOnly-preview": "read",
    "unheardOf": "read",
}
#: Features that bind readers, too.
READER: dict[str, Done] = {
    "columnMapping": "written",
    "deletionVectors": "written",
    "timestampNtz": "written",
    "typeWidening": "written",
    "typeWidening-preview": "written",
    "v2Checkpoint": "written",
    "vacuumProtocolCheck": "written",
    "variantType": "written",
    "variantType-preview": "written",
    "catalogManaged": "refused",
    "catalogOwned-preview": "refused",
    "redirectReaderWriter-preview": "refused",
    "timestampNanos": "refused",
    "variantShredding": "refused",
    "variantShredding-preview": "refused",
    "unheardOf": "refused",
}


def check(root: Path, done: Done, *named: str) -> None:
    """Check that LakeVilla writes, reads or refuses the table, by errors that name table and
    feature.
    """
    log = root / "t" / "_delta_log"
    before = sorted(path.name for path in log.iterdir())
    rows = [{"id": 1}, {"id": 2}]
    with lv.connect(str(root)) as lake:
        if done == "refused":
            with pytest.raises(lv.UnsupportedTableFeature) as raised:
                lake.snapshot().read("t")
        else:
            assert lake.snapshot().read("t").sort_by("id").to_pylist() == rows
        if done == "written":
            with lake.transaction() as txn:
                txn.append("t", [{"id": 3}])
                txn.update("t", {"id": "id + 10"}, "id = 1")
            found = lake.snapshot().read("t")["id"].to_pylist()
            assert sorted(found) == [2, 3, 11]
            return
        for verb in (
            lambda txn: txn.append("t", [{"id": 3}]),
            lambda txn: txn.delete("t", "id = 1"),
            lambda txn: txn.overwrite("t", [{"id": 3}]),
            lambda txn: txn.alter("t", set_properties={"a": "b"}),
        ):
            with pytest.raises(lv.UnsupportedTableFeature) as raised, lake.transaction() as txn:
                verb(txn)
            assert raised.value.table == "t"
    assert all(name in str(raised.value) for name in named)
    assert sorted(path.name for path in log.iterdir()) == before


def _name(feature: str) -> str:
    return "catalogManaged" if feature.startswith("catalog") else feature


@pytest.mark.parametrize("feature", WRITER)
def test_a_table_with_a_writer_feature_is_written_only_read_or_refused(
    tmp_path: Path, feature: str
) -> None:
    table = Handmade(tmp_path)
    writer = [feature]
    if feature in ("rowTracking", "clustering"):
        writer.append("domainMetadata")
    stats = '{"numRecords":2}'
    action = table.add("f.parquet", ROWS, stats=stats)
    if feature == "rowTracking":
        action["add"] |= {"baseRowId": 0, "defaultRowCommitVersion": 0}
        mark = {"domain": "delta.rowTracking", "removed": False}
        mark |= {"configuration": '{"rowIdHighWaterMark":1}'}
        table.begin([ID], {"domainMetadata": mark}, action, writer=writer)
    else:
        table.begin([ID], action, writer=writer)
    check(tmp_path, WRITER[feature], _name(feature))


@pytest.mark.parametrize("feature", READER)
def test_a_table_with_a_reader_feature_is_written_only_read_or_refused(
    tmp_path: Path, feature: str
) -> None:
    table = Handmade(tmp_path)
    action = table.add("f.parquet", ROWS)
    table.begin([ID], action, reader=[feature], writer=[feature])
    check(tmp_path, READER[feature], _name(feature))


VERSIONS: list[tuple[int, int, Done]] = [
    (1, 1, "written"),
    (1, 2, "written"),
    (1, 3, "written"),
    (1, 4, "written"),
    (2, 5, "written"),
    (2, 6, "written"),
    (1, 7, "written"),
    (3, 7, "written"),
    (3, 8, "read"),
    (4, 7, "refused"),
]


@pytest.mark.parametrize(("reader", "writer", "done"), VERSIONS)
def test_a_table_with_a_legacy_protocol_version_is_written_only_read_or_refused(
    tmp_path: Path, reader: int, writer: int, done: Done
) -> None:
    table = Handmade(tmp_path)
    entry: dict[str, Any] = protocol()
    entry["protocol"] |= {"minReaderVersion": reader, "minWriterVersion": writer}
    if writer >= 7:
        entry["protocol"] |= {"writerFeatures": []}
    if reader >= 3:
        entry["protocol"] |= {"readerFeatures": []}
    table.entry(entry, metadata([ID]), table.add("f.parquet", ROWS))
    check(tmp_path, done, "version")


# -- deletion vectors, inline or in files ---------------------------------------------------

#: Rows 1, 3 and 5 of a file, in the encoding of Delta on Spark.
BITMAP = struct.pack("<IQIIIHHI", 1681511377, 1, 0, 12346, 1, 0, 2, 16) + struct.pack(
    "<3H", 1, 3, 5
)
Z85_UUID = "^-aqEH.-t@S}K{vb[*k^"
FILE = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


@pytest.mark.parametrize(
    "where", ["inline", "beside", "below a prefix", "absolute", "as Java says"]
)
def test_a_deletion_vector_hides_its_rows_wherever_it_is_stored(tmp_path: Path, where: str) -> None:
    root = tmp_path / "a lake"
    root.mkdir()
    table = Handmade(root)
    vector: dict[str, Any] = {"sizeInBytes": len(BITMAP), "cardinality": 3}
    encoded = str(tmp_path / "a%20lake" / "t" / FILE)
    said = {
        "inline": ("i", "^Bg9^0rr910000000000iXQKl0rr91000625c8Xg0rri41POJ5"),
        "beside": ("u", Z85_UUID),
        "below a prefix": ("u", f"ab{Z85_UUID}"),
        "absolute": ("p", f"file://{encoded}"),
        "as Java says": ("p", f"file:{encoded}"),
    }
    vector["storageType"], vector["pathOrInlineDv"] = said[where]
    if where != "inline":
        place = table.path / ("ab" if where == "below a prefix" else "") / FILE
        place.parent.mkdir(exist_ok=True)
        checksum = zlib.crc32(BITMAP).to_bytes(4, "big")
        place.write_bytes(b"\1" + len(BITMAP).to_bytes(4, "big") + BITMAP + checksum)
        vector["offset"] = 1
    else:
        vector["sizeInBytes"] = 38
    rows = pa.table({"id": list(range(8))})
    action = table.add("f.parquet", rows, deletionVector=vector, stats='{"numRecords":8}')
    features = ["deletionVectors"]
    table.begin([ID], action, reader=features, writer=features)
    if where in ("inline", "beside", "below a prefix"):
        assert [row["id"] for row in duckdb_rows(table.path)] == [0, 2, 4, 6, 7]
    with lv.connect(str(root)) as lake:
        assert sorted(lake.snapshot().read("t")["id"].to_pylist()) == [0, 2, 4, 6, 7]
        with lake.transaction() as txn:
            txn.update("t", {"id": "id + 10"}, "id = 7")
    assert [row["id"] for row in duckdb_rows(table.path)] == [0, 2, 4, 6, 17]
