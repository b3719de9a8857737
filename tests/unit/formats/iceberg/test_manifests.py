"""Manifests and manifest lists as bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import write_manifest, write_manifest_list

from bench.size.child import memory_bytes
from lakevilla.errors import CorruptObject
from lakevilla.formats.files import DataFile
from lakevilla.formats.iceberg.manifests import avro as files
from lakevilla.formats.iceberg.manifests.avro import MemoryOutput
from lakevilla.formats.iceberg.manifests.manifests import (
    columns_of,
    decode_list,
    encode_list,
    encode_manifest,
    entries_of,
    held_bytes,
    new_entry,
)
from lakevilla.formats.iceberg.metadata.definition import IcebergDefinition
from lakevilla_testing.fuzzing import avro
from lakevilla_testing.tables.iceberg_snapshots import steady
from tests.unit.formats.iceberg.test_metadata import DEFINITION

PLAIN = IcebergDefinition("t", "t", DEFINITION)


def made(names: list[str], codec: str) -> tuple[bytes, bytes, list[Any]]:
    """Return a manifest of some files, the manifest list that names it, and the list's entries."""
    properties = {"write.avro.compression-codec": codec}
    definition = PLAIN.replaced({**DEFINITION, "properties": properties})
    entries = [
        new_entry(DataFile(name, 10, 0, stats='{"numRecords":1}'), 7, definition) for name in names
    ]
    manifest = encode_manifest("metadata/one-m0.avro", entries, 0, 7, definition)
    body, named = encode_list(
        "/lake/t/metadata/snap-7-one.avro",
        [manifest.file],
        snapshot_id=7,
        parent_id=None,
        sequence=1,
        definition=definition,
    )
    return manifest.body, body, named


@pytest.mark.parametrize("codec", ["gzip", "null", "zstd"])
def test_equal_commits_have_equal_bytes_and_are_read_by_pyiceberg(codec: str) -> None:
    names = [f"data/{number}.parquet" for number in range(5)]
    manifest, listing, named = made(names, codec)
    assert (manifest, listing) == made(names, codec)[:2]
    (found,) = decode_list("k", "t", listing)
    assert found.manifest_path == named[0].manifest_path
    assert found.manifest_length == len(manifest)
    paths = [entry.data_file.file_path for entry in entries_of("k", PLAIN, manifest, found)]
    assert paths == [f"/lake/t/{name}" for name in names]


@pytest.mark.parametrize("codec", ["gzip", "null"])
def test_a_truncated_manifest_list_is_reported_wherever_it_ends(codec: str) -> None:
    """No length field is followed beyond the end into other memory; no manifest is left out
    silently.
    """
    _, listing, _ = made(["data/1.parquet"], codec)
    marker = listing[-16:]
    # Bytes that end right behind the header are a complete file without blocks.
    header = listing.index(marker) + len(marker)
    assert list(decode_list("k", "t", listing[:header])) == []
    for end in set(range(len(listing))) - {header}:
        with pytest.raises(CorruptObject, match="can't be read"):
            decode_list("k", "t", listing[:end])


@pytest.mark.parametrize("codec", ["gzip", "null"])
@pytest.mark.parametrize("count", [0, 2, 6, -1, -5, 1 << 40, -(1 << 63)])
def test_a_manifest_with_another_count_of_entries_is_refused(codec: str, count: int) -> None:
    """No count leaves files out: a block without records would end the file."""
    manifest, listing, _ = made([f"data/{number}.parquet" for number in range(5)], codec)
    (found,) = decode_list("k", "t", listing)
    damaged = avro.with_count(manifest, count)
    assert damaged is not None
    with pytest.raises(CorruptObject, match="manifest m of table t can't be read"):
        entries_of("m", PLAIN, damaged, found)


@pytest.mark.parametrize("codec", ["gzip", "null"])
def test_a_list_of_pyiceberg_without_manifests_is_read(
    tmp_path: Path, codec: AvroCompressionCodec
) -> None:
    """Its one block has no records, and in compressed form some bytes."""
    listing = tmp_path / "list.avro"
    output = PyArrowFileIO().new_output(str(listing))
    with write_manifest_list(2, output, 1, None, 1, codec) as writer:
        writer.add_manifests([])
    assert list(decode_list("k", "t", listing.read_bytes())) == []


@pytest.mark.parametrize("codec", ["gzip", "null"])
def test_a_manifest_list_with_damage_in_a_block_is_read_within_its_bytes(codec: str) -> None:
    """Before, a wrong length gave other memory of the process as a path, or ended it."""
    _, listing, _ = made(["data/1.parquet"], codec)
    begins = avro.within_block(listing, lambda plain: b"\xfe\xff\xff\xff\x0f" + plain[1:])
    assert begins is not None
    with pytest.raises(CorruptObject, match="are expected at byte"):
        decode_list("k", "t", begins)


def test_a_block_that_unpacks_to_a_thousand_times_its_size_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "_ALWAYS_BYTES", 1 << 20)
    _, listing, _ = made(["data/1.parquet"], "gzip")
    bomb = avro.within_block(listing, lambda plain: plain + bytes(2 << 20))
    assert bomb is not None
    assert len(bomb) < 5000
    with pytest.raises(CorruptObject, match="is of more than"):
        decode_list("k", "t", bomb)


def test_partitions_by_double_keep_their_precision() -> None:
    """As 32-bit floats, 1e10 and 1e10 + 1 would be one partition, and 1e308 infinite."""
    values = [0.1, 1e10, 1e10 + 1, 1.7e308, 5e-324, -0.0, None]
    field = {"source-id": 1, "field-id": 1000, "transform": "identity", "name": "v"}
    column = {"id": 1, "name": "v", "required": False, "type": "double"}
    schema = {"type": "struct", "schema-id": 0, "fields": [column]}
    specs = [{"spec-id": 0, "fields": [field]}]
    definition = IcebergDefinition(
        "t", "t", {**DEFINITION, "schemas": [schema], "partition-specs": specs}
    )
    texts = [None if value is None else repr(value) for value in values]
    entries = [
        new_entry(
            DataFile(f"data/{number}.parquet", 1, 0, {"1000": text}, '{"numRecords":1}'),
            7,
            definition,
        )
        for number, text in enumerate(texts)
    ]
    manifest = encode_manifest("metadata/one-m0.avro", entries, 0, 7, definition)
    found = entries_of("k", definition, manifest.body, manifest.file)
    assert [repr(entry.data_file.partition[0]) for entry in found] == [repr(v) for v in values]


def test_a_manifest_list_of_several_manifests_equals_that_of_pyiceberg() -> None:
    """Whatever was encoded before, and whatever fields the manifests differ in."""
    field = {"source-id": 1, "field-id": 1000, "transform": "identity", "name": "id"}
    specs = [{"spec-id": 0, "fields": [field]}]
    definition = IcebergDefinition("t", "t", {**DEFINITION, "partition-specs": specs})
    uri, named = "/lake/t/metadata/snap.avro", []
    for number in range(6):
        file = DataFile("data/f.parquet", 1, 0, {"1000": str(number % 3)}, '{"numRecords":1}')
        entries = [new_entry(file, number, definition)]
        made = encode_manifest("metadata/same-m0.avro", entries, 0, number, definition).file
        given = {"snapshot_id": number, "parent_id": None, "sequence": number + 1}
        body, named = encode_list(uri, [made, *named], definition=definition, **given)  # type: ignore[arg-type]
        sink = MemoryOutput(uri)
        with write_manifest_list(2, sink, number, None, number + 1, "gzip") as writer:
            writer.add_manifests(named)
        assert body == steady(writer, sink)
        assert [one.sequence_number for one in decode_list("k", "t", body)] == list(
            range(number + 1, 0, -1)
        )


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_manifests_equal_those_of_pyiceberg(version: Any, codec: Any) -> None:
    """Whatever partition spec the previously encoded manifest had."""
    identity = {"source-id": 1, "field-id": 1000, "transform": "identity", "name": "id"}
    bucket = {"source-id": 1, "field-id": 1001, "transform": "bucket[4]", "name": "part"}
    fields: list[list[dict[str, Any]]] = [[], [identity], [bucket], [identity, bucket]]
    specs = [{"spec-id": number, "fields": some} for number, some in enumerate(fields)]
    document = {
        **DEFINITION,
        "format-version": version,
        "partition-specs": specs,
        "properties": {"write.avro.compression-codec": codec},
    }
    for number in (0, 1, 2, 3, 1, 0):
        definition = IcebergDefinition("t", "t", {**document, "default-spec-id": number})
        values = {str(one["field-id"]): "3" for one in fields[number]}
        files = [DataFile(f"data/{n}", 1, 0, values, '{"numRecords":1}') for n in range(3)]
        entries = [new_entry(file, 7, definition) for file in files]
        made = encode_manifest("metadata/one-m0.avro", entries, number, 7, definition)
        sink = MemoryOutput("/lake/t/metadata/one-m0.avro")
        schema, spec = definition.schema_of(number), definition.specs[number]
        with write_manifest(version, spec, schema, sink, 7, codec) as writer:
            for entry in entries:
                writer.add_entry(entry)
        assert made.body == steady(writer, sink)


def test_a_small_manifest_takes_no_more_memory_than_it_counts_in_the_cache() -> None:
    """Most of it is not in buffers: a million would fit into the cache, in 28 GB."""
    manifest, listing, _ = made(["data/1.parquet"], "null")
    (found,) = decode_list("k", "t", listing)
    entries = entries_of("k", PLAIN, manifest, found)
    before = memory_bytes()
    kept = [columns_of(entries, 0, PLAIN) for _ in range(3000)]
    taken = (memory_bytes() - before) / len(kept)
    assert kept[0].nbytes < 1000
    assert taken < 1.3 * held_bytes(kept[0]) < 50_000
