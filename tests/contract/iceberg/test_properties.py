"""Properties of Iceberg tables: stored as every client reads them, or refused with their name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.iceberg_by_hand import File, Table, column, of_ids
from tests.support.places import Place
from tests.support.tables import contents

ROWS = [{"k": 1, "v": "a"}]


def test_property_values_are_stored_as_other_clients_read_them(place: Place) -> None:
    given = {
        "write.metadata.delete-after-commit.enabled": False,
        "write.target-file-size-bytes": 1 << 20,
        "write.metadata.metrics.column.v": "truncate(8)",
        "owner": "me",
        "my.own.setting": 1.5,
    }
    with place.connect() as lake:
        lake.create_table("t", ROWS, properties=given)
        lake.run(lambda txn: txn.alter("t", set_properties={"gc.enabled": True}))
    found = place.catalog().load_table("t").properties
    assert {name: found[name] for name in (*given, "gc.enabled")} == {
        "write.metadata.delete-after-commit.enabled": "false",
        "write.target-file-size-bytes": "1048576",
        "write.metadata.metrics.column.v": "truncate(8)",
        "owner": "me",
        "my.own.setting": "1.5",
        "gc.enabled": "true",
    }


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("gc.enabled", "yes", "can't be 'yes': set it to true or false"),
        ("commit.manifest.min-count-to-merge", "many", "set it to a whole number"),
        ("write.target-file-size-bytes", -1, "set it to a whole number"),
        ("write.metadata.metrics.default", "truncate", "set it to none, counts, trunc"),
        ("write.metadata.metrics.column.v", "some", "set it to none, counts, trunc"),
        ("write.parquet.compression-codec", "zip", "set it to zstd, snappy"),
        ("write.delete.mode", "copy", "set it to copy-on-write or merge-on-read"),
        ("write.target-file-size-byte", "1", "did you mean write.target-file-size-bytes"),
        ("write.metadata.previous-version-max", "1", "did you mean write.metadata.previous-versi"),
        ("Write.Parquet.Compression_Codec", "zstd", "did you mean write.parquet.compression-cod"),
        ("format_version", "3", "did you mean format-version"),
        ("current-snapshot-id", 7, "LakeVilla keeps it, or the format does"),
        ("uuid", "x", "LakeVilla keeps it, or the format does"),
        ("delta.appendOnly", True, "it is a property of Delta tables"),
        ("encryption.key-id", "k", "does not encrypt"),
        ("write.metadata.compression-codec", "gzip", "set it to none"),
        ("write.format.default", "orc", "keeps its data as orc"),
        ("write.object-storage.enabled", True, "keeps its data files outside"),
        ("gc.enabled", None, "is None, which no table can store"),
    ],
)
def test_properties_that_no_client_would_understand_are_refused(
    place: Place, name: str, value: str | int | None, match: str
) -> None:
    refused = (lv.InvalidOperation, lv.UnsupportedTableFeature)
    with place.connect() as lake:
        with pytest.raises(refused, match=match):
            lake.create_table("t", ROWS, properties={name: value})  # type: ignore[dict-item]
        lake.create_table("u", ROWS)
        before = contents(place.root)
        with pytest.raises(refused, match=match):
            lake.run(lambda txn: txn.alter("u", set_properties={name: value}))  # type: ignore[dict-item]
    assert {n: b for n, b in contents(place.root).items() if n.startswith("u/")} == {
        n: b for n, b in before.items() if n.startswith("u/")
    }


def test_comments_of_columns_are_kept(place: Place) -> None:
    inner = pa.struct([pa.field("x", pa.int64(), metadata={"doc": "within"})])
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), metadata={"comment": "the key"}),
            pa.field("s", inner, metadata={"doc": "a struct", "PARQUET:field_id": "77"}),
        ]
    )
    with place.connect() as lake:
        lake.create_table("t", schema)
        added = pa.schema([pa.field("n", pa.int64(), metadata={"doc": "new"})])
        lake.run(lambda txn: txn.alter("t", add_columns=added, rename_columns={"k": "key"}))
        lake.run(lambda txn: txn.append("t", [{"key": 1, "s": {"x": 1}, "n": 2}]))
    found = place.catalog().load_table("t").schema()
    docs = {found.find_column_name(n): f.doc for n, f in found._lazy_id_to_field.items()}
    assert docs == {"key": "the key", "s": "a struct", "s.x": "within", "n": "new"}


@pytest.mark.parametrize("codec", ["snappy", "uncompressed", "UNCOMPRESSED", "zstd", "what"])
def test_a_table_with_an_unknown_manifest_codec_can_be_written(place: Place, codec: str) -> None:
    """The codec only compresses manifests: LakeVilla writes them with its own."""
    rows = of_ids(pa.table({"k": pa.array([1, 2], pa.int32())}), {"k": 1})
    own = Table(
        Path(place.uri("t")),
        [column(1, "k", "int")],
        properties={"write.avro.compression-codec": codec},
    )
    own.add(File("a.parquet", rows)).write()
    with place.connect() as lake:
        lake.run(lambda txn: txn.append("t", [{"k": 3}]))
        lake.run(lambda txn: txn.delete("t", where="k = 1"))
    assert place.seen("t") == [{"k": 2}, {"k": 3}]


@pytest.mark.parametrize(
    "how",
    [
        {"properties": {"encryption.key-id": "k"}},
        {"extra": {"encryption-keys": [{"key-id": "1", "encrypted-key-metadata": "AA=="}]}},
        {"says": {"key_metadata": b"k"}},
    ],
)
def test_encrypted_tables_are_refused(place: Place, how: dict[str, dict[str, str]]) -> None:
    rows = of_ids(pa.table({"k": pa.array([1], pa.int32())}), {"k": 1})
    says = how.pop("says", {})
    own = Table(Path(place.uri("t")), [column(1, "k", "int")], version=3, **how)  # type: ignore[arg-type]
    own.add(File("a.parquet", rows, says=says)).write()
    with (
        place.connect() as lake,
        pytest.raises(lv.UnsupportedTableFeature, match=r"table t .*is encrypted"),
    ):
        lake.snapshot().read("t")
