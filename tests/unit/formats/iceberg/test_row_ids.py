"""Ids of rows in version 3: in manifests (142), in manifest lists (520), and in metadata files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.manifest import DataFile as ListedFile

from lakevilla.errors import CorruptObject
from lakevilla.formats.base import Change, CommitInfo
from lakevilla.formats.files import DataFile, RemovedFile
from lakevilla.formats.iceberg.commit import prepare
from lakevilla.formats.iceberg.log import opened
from lakevilla.formats.iceberg.manifests.avro import MemoryInput
from lakevilla.formats.iceberg.manifests.manifests import (
    cache_key,
    columns_of,
    decode_list,
    encode_list,
    encode_manifest,
    entries_of,
    first_row_id,
    new_entry,
)
from lakevilla.formats.iceberg.metadata.definition import IcebergDefinition
from lakevilla.formats.iceberg.metadata.file import Cache, Metadata, decode_metadata
from lakevilla.formats.iceberg.snapshot import IcebergSnapshot
from lakevilla.store.base import ANY
from lakevilla.store.effects import Put
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.store import SimulatedStore
from tests.unit.formats.iceberg.test_metadata import DEFINITION

V2 = IcebergDefinition("t", "t", DEFINITION)
V3 = V2.replaced({**DEFINITION, "format-version": 3})
ADDED, EXISTING, DELETED = 1, 0, 2


def file(name: str, rows: int, base: int | None = None) -> DataFile:
    return DataFile(f"data/{name}", 10, 0, stats=f'{{"numRecords":{rows}}}', base_row_id=base)


def listed(
    *manifests: tuple[str, list[ManifestEntry]],
    mark: int = 100,
    kept: list[ManifestFile] | None = None,
    number: int = 7,
) -> tuple[bytes, list[ManifestFile], dict[str, bytes]]:
    """Return a manifest list, its manifests as it numbers them, and the manifests' bytes."""
    made = {
        name: encode_manifest(f"metadata/{name}.avro", entries, 0, number, V3)
        for name, entries in manifests
    }
    body, named = encode_list(
        f"/lake/t/metadata/snap-{number}.avro",
        [*(one.file for one in made.values()), *(kept or [])],
        snapshot_id=number,
        parent_id=None,
        sequence=1,
        definition=V3,
        next_row_id=mark,
    )
    return body, named, {name: one.body for name, one in made.items()}


def by_pyiceberg(body: bytes, schema: Any, row: Any) -> list[Any]:
    kinds = {-1: row, 2: ListedFile, 508: PartitionFieldSummary}
    enums = {517: ManifestContent, 0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent}
    with AvroFile(MemoryInput("k", body), schema, read_types=kinds, read_enums=enums) as reader:
        return list(reader)


def test_new_manifests_get_ids_in_the_order_of_the_list() -> None:
    first = [new_entry(file("a", 3), 7, V3), new_entry(file("b", 4), 7, V3)]
    second = [new_entry(file("c", 5), 7, V3)]
    body, named, bodies = listed(("one", first), ("two", second))
    assert [first_row_id(one) for one in named] == [100, 107]
    found = by_pyiceberg(body, MANIFEST_LIST_FILE_SCHEMAS[3], ManifestFile)
    assert [one._data[15] for one in found] == [100, 107]
    assert [first_row_id(one) for one in decode_list("k", "t", body)] == [100, 107]
    (entry, _) = by_pyiceberg(bodies["one"], MANIFEST_ENTRY_SCHEMAS[3], ManifestEntry)
    assert entry.data_file._data[16] is None, "142 of a new file is null"


def test_a_manifest_that_has_ids_keeps_them_and_its_object_is_not_changed() -> None:
    _, (old,), _ = listed(("one", [new_entry(file("a", 3), 7, V3)]))
    without = ManifestFile(*old._data[:15])
    body, named, _ = listed(
        ("two", [new_entry(file("b", 2), 8, V3)]), kept=[old, without], mark=103, number=8
    )
    assert [first_row_id(one) for one in named] == [103, 100, 105]
    assert len(without._data) == 15
    assert [first_row_id(one) for one in decode_list("k", "t", body)] == [103, 100, 105]


def test_a_manifest_of_deletes_gets_no_ids() -> None:
    _, (one,), _ = listed(("one", [new_entry(file("a", 3), 7, V3)]))
    of_deletes = ManifestFile(*[*one._data[:15], None])
    of_deletes._data[3] = ManifestContent.DELETES
    body, named, _ = listed(("two", [new_entry(file("b", 2), 8, V3)]), kept=[of_deletes], number=8)
    assert [first_row_id(one) for one in named] == [100, None]
    assert [first_row_id(one) for one in decode_list("k", "t", body)] == [100, None]


def test_entries_inherit_ids_in_order_and_keep_those_that_they_say() -> None:
    entries = [
        new_entry(file("a", 3), 7, V3),
        new_entry(file("again", 4, base=20), 7, V3),
        new_entry(file("b", 5), 7, V3),
    ]
    _, (one,), bodies = listed(("one", entries))
    found = entries_of("k", V3, bodies["one"], one)
    assert [entry.data_file._data[16] for entry in found] == [100, 20, 103]
    assert columns_of(found, 0, V3)["first_row_id"].to_pylist() == [100, 20, 103]
    assert columns_of(found, 0, V3)["sequence"].to_pylist() == [1, 1, 1]


def test_entries_that_are_written_again_say_their_ids() -> None:
    """Those of merged manifests, and of removed files: their ids do not follow from their place."""
    _, (one,), bodies = listed(("one", [new_entry(file(n, 3), 7, V3) for n in "abc"]))
    moved = entries_of("k", V3, bodies["one"], one)
    moved[0].status, moved[1].status = ManifestEntryStatus.DELETED, ManifestEntryStatus.EXISTING
    moved[2].status = ManifestEntryStatus.EXISTING
    _, (again,), bodies = listed(("two", moved), mark=200, number=7)
    assert first_row_id(again) == 200
    found = by_pyiceberg(bodies["two"], MANIFEST_ENTRY_SCHEMAS[3], ManifestEntry)
    assert [entry.data_file._data[16] for entry in found] == [100, 103, 106]
    read = entries_of("k", V3, bodies["two"], again)
    assert [entry.data_file._data[16] for entry in read] == [100, 103, 106]


def test_a_removed_file_without_an_id_takes_none() -> None:
    _, (one,), bodies = listed(("one", [new_entry(file(n, 3), 7, V3) for n in "ab"]))
    entries = entries_of("k", V3, bodies["one"], one)
    for entry in entries:
        entry.data_file._data[16] = None
    entries[0].status = ManifestEntryStatus.DELETED
    _, (again,), bodies = listed(("two", entries), mark=200)
    read = entries_of("k", V3, bodies["two"], again)
    assert [entry.data_file._data[16] for entry in read] == [None, 200]


def test_a_manifest_without_ids_gives_its_files_none() -> None:
    entries = [new_entry(file("a", 3, base=20), 7, V3)]
    _, (one,), bodies = listed(("one", entries))
    before = ManifestFile(*[*one._data[:15], None])
    assert cache_key(before) != cache_key(one)
    read = entries_of("k", V3, bodies["one"], before)
    assert columns_of(read, 0, V3)["first_row_id"].to_pylist() == [None]


def test_version_2_has_no_ids() -> None:
    made = encode_manifest("metadata/m.avro", [new_entry(file("a", 3, base=20), 7, V2)], 0, 7, V2)
    body, named = encode_list(
        "/lake/t/metadata/snap.avro",
        [made.file],
        snapshot_id=7,
        parent_id=None,
        sequence=1,
        definition=V2,
    )
    assert b"first_row_id" not in made.body + body
    assert [first_row_id(one) for one in decode_list("k", "t", body)] == [None]
    assert named[0].manifest_path == made.file.manifest_path


# -- commits -------------------------------------------------------------------------------


class Versions:
    """A table in a simulated store, whose versions this test makes one after the other."""

    def __init__(self, format_version: int) -> None:
        self.store = SimulatedStore()
        self.definition = {**DEFINITION, "format-version": format_version}
        self.cache: Cache[pa.Table] = Cache(1 << 20)
        blank = IcebergDefinition("t", "t", {})
        self.snapshot = IcebergSnapshot(-1, blank, None, self.cache, listed=())
        self.commit(Change(metadata=self.definition))

    @property
    def document(self) -> Metadata:
        assert self.snapshot.document is not None
        return self.snapshot.document

    def commit(self, change: Change) -> None:
        info = CommitInfo("APPEND", txn_ids=("txn",), nonce=f"n{self.snapshot.version}")
        attempt = run_now(self.store, prepare(self.snapshot, change, info, 1000))
        run_now(self.store, _put(attempt.key, attempt.body))
        self.reopen()

    def reopen(self, **parts: Any) -> None:
        """Read the newest version, with parts of its file replaced."""
        version = self.snapshot.version + (0 if parts else 1)
        key = f"t/metadata/v{version + 1}.metadata.json"
        if parts:
            run_now(self.store, _put(key, self.document.replaced(parts).encode()))
        found = decode_metadata(key, "t", self.store.objects[key].body)
        self.snapshot = opened("t", "t", version, found, str(found.get("location")), self.cache)

    def append(self, *rows: int, base: int | None = None) -> None:
        names = [f"{self.snapshot.version}-{number}" for number in range(len(rows))]
        files = zip(names, rows, strict=True)
        self.commit(Change(adds=tuple(file(name, count, base) for name, count in files)))

    def bases(self) -> list[int | None]:
        files = run_now(self.store, self.snapshot.files())
        found: list[int | None] = files["base_row_id"].to_pylist()
        return found

    def given(self) -> tuple[int, int, int]:
        current = self.document.current or {}
        return current["first-row-id"], current["added-rows"], self.document.next_row_id


def _put(key: str, body: bytes) -> Any:
    yield Put(key, body, ANY)


def test_the_mark_rises_by_the_rows_that_get_ids() -> None:
    table = Versions(3)
    assert table.document.get("next-row-id") == 0
    table.append(3, 4)
    assert table.given() == (0, 7, 7)
    table.append(5)
    assert table.given() == (7, 5, 12)
    assert sorted(table.bases()) == [0, 3, 7]


def test_ids_begin_at_the_mark_of_the_file_and_not_of_the_current_snapshot() -> None:
    """A commit to another branch raises the mark, and leaves ``main`` where it was."""
    table = Versions(3)
    table.append(3)
    table.reopen(**{"next-row-id": 50})
    table.append(2)
    assert table.given() == (50, 2, 52)


def test_the_first_snapshot_after_an_upgrade_gives_ids_to_all_rows() -> None:
    table = Versions(2)
    table.append(3)
    table.append(4)
    assert set(table.bases()) == {None}
    assert "first-row-id" not in (table.document.current or {})
    table.commit(Change(metadata={**table.definition, "format-version": 3}))
    assert set(table.bases()) == {None}
    table.append(2)
    assert table.given() == (0, 9, 9)
    assert sorted(base for base in table.bases() if base is not None) == [0, 2, 6]


def test_a_snapshot_without_new_rows_gives_none_out() -> None:
    table = Versions(3)
    table.append(3)
    (removed,) = run_now(table.store, table.snapshot.files()).to_pylist()
    table.commit(Change(removes=(RemovedFile(removed["path"]),)))
    assert table.given() == (3, 0, 3)


def test_ids_of_copied_files_are_kept_and_the_mark_passes_them() -> None:
    table = Versions(3)
    table.append(3, base=40)
    assert table.bases() == [40]
    first, count, mark = table.given()
    assert (first, first + count) == (0, mark)
    assert mark >= 43
    table.append(2)
    assert sorted(table.bases()) == [40, mark]  # type: ignore[type-var]


def test_a_mark_below_a_manifest_s_ids_is_refused() -> None:
    table = Versions(3)
    table.append(3)
    table.reopen(**{"next-row-id": 2})
    with pytest.raises(CorruptObject, match="next-row-id is 2"):
        table.append(1)
