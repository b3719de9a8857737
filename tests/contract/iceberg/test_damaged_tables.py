"""Iceberg tables that are damaged, moved, or of a kind that LakeVilla does not know."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.store.base import Failure, ObjectInfo, WrappedStore
from lakevilla_testing.fuzzing import avro
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.tables import contents


@pytest.fixture
def lake(place: Place) -> Iterator[lv.Lake]:
    with place.connect() as lake:
        lake.create_table("t", [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
        lake.run(lambda txn: txn.append("t", [{"id": 3, "v": "c"}]))
        yield lake


def metadata(place: Place) -> Path:
    return Path(place.uri("t")) / "metadata"


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_bytes())
    change(document)
    path.write_bytes(json.dumps(document).encode())


def ids(lake: lv.Lake) -> list[int]:
    return sorted(lake.snapshot().read("t")["id"].to_pylist())


def refuses(place: Place, error: type[Exception], match: str) -> None:
    """Assert that a new client can't read or write the table, is told why, and writes nothing."""
    with place.connect() as other:
        with pytest.raises(error, match=match):
            other.snapshot().read("t")
        before = contents(place.root)
        with pytest.raises(lv.LakeVillaError), other.transaction() as txn:
            txn.update("t", {"v": "'z'"}, where="id = 1")
        assert contents(place.root) == before


def test_a_table_with_a_torn_metadata_file_is_refused(lake: lv.Lake, place: Place) -> None:
    newest = metadata(place) / "v2.metadata.json"
    newest.write_bytes(newest.read_bytes()[:300])
    refuses(place, lv.CorruptObject, "v2.metadata.json of table t can't be read")


def test_a_table_whose_hint_names_a_version_but_has_no_metadata_file_is_refused(
    lake: lv.Lake, place: Place
) -> None:
    for file in metadata(place).glob("*.metadata.json"):
        file.unlink()
    refuses(place, lv.LakeVillaError, "no metadata file|removed, or created again")


@pytest.mark.parametrize("part", ["lv-", "snap-"])
def test_a_manifest_or_list_that_was_cut_at_a_block_is_refused(
    lake: lv.Lake, place: Place, part: str
) -> None:
    """Such a file is sound by itself: the table would be without its files."""
    files = sorted(metadata(place).glob(f"{part}*.avro"), key=lambda one: one.stat().st_mtime_ns)
    for cut in avro.cut_at_blocks(files[-1].read_bytes()):
        files[-1].write_bytes(cut)
        refuses(place, lv.CorruptObject, f"{files[-1].name} of table t .* restore it from a copy")


@pytest.mark.parametrize("hint", ["\u00b2", "9" * 5000, "-1", "1_0"])
def test_a_hint_that_is_no_number_is_ignored(lake: lv.Lake, place: Place, hint: str) -> None:
    (metadata(place) / "version-hint.text").write_bytes(hint.encode())
    with place.connect() as other:
        assert ids(other) == [1, 2, 3]


def test_a_table_whose_newest_metadata_file_is_lost_is_refused(lake: lv.Lake, place: Place) -> None:
    """The previous version isn't taken for the newest one, nor is the lost number used again."""
    newest = metadata(place) / "v2.metadata.json"
    newest.rename(newest.with_name("lost"))
    refuses(place, lv.CorruptObject, r"names version 2, .* is t/metadata/v1\.metadata\.json: resto")
    newest.with_name("lost").rename(newest)
    with place.connect() as other:
        assert ids(other) == [1, 2, 3]


def test_a_table_whose_hint_names_a_version_that_does_not_exist_is_refused(
    lake: lv.Lake, place: Place
) -> None:
    hint = metadata(place) / "version-hint.text"
    hint.write_text("99")
    refuses(place, lv.CorruptObject, "names version 99, .* correct the hint to 2")
    hint.write_text("2")
    with place.connect() as other:
        assert ids(other) == [1, 2, 3]


def test_a_version_named_by_the_hint_is_read_though_a_list_lacks_it(
    lake: lv.Lake, place: Place
) -> None:
    class OldList(WrappedStore):
        def list(
            self, prefix: str, start_after: str | None = None, until: str | None = None
        ) -> list[ObjectInfo] | Failure:
            found = super().list(prefix, start_after, until)
            assert not isinstance(found, Failure)
            return [info for info in found if not info.key.endswith("v2.metadata.json")]

    with place.connect() as other:
        inside(other).store = OldList(inside(other).store)
        assert ids(other) == [1, 2, 3]


def test_an_outdated_or_invalid_or_missing_hint_is_ignored(lake: lv.Lake, place: Place) -> None:
    for text in ("1", "nonsense", ""):
        (metadata(place) / "version-hint.text").write_text(text)
        with place.connect() as other:
            assert ids(other) == [1, 2, 3]
    (metadata(place) / "version-hint.text").unlink()
    with place.connect() as other:
        other.run(lambda txn: txn.append("t", [{"id": 4}]))
        assert ids(other) == [1, 2, 3, 4]
    assert (metadata(place) / "version-hint.text").read_text() == "3"


def test_a_missing_metadata_file_below_the_newest_version_is_reported(
    lake: lv.Lake, place: Place
) -> None:
    shutil.copy(metadata(place) / "v2.metadata.json", metadata(place) / "v4.metadata.json")
    with place.connect() as other:
        with pytest.raises(lv.CorruptObject, match=r"v3\.metadata\.json is missing"):
            other.unregister("t")


@pytest.mark.parametrize("pattern", ["*-m0.avro", "snap-*.avro"])
@pytest.mark.parametrize("damage", ["gone", "torn"])
def test_a_missing_or_torn_manifest_is_reported(
    lake: lv.Lake, place: Place, pattern: str, damage: str
) -> None:
    for file in metadata(place).glob(pattern):
        if damage == "gone":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:200])
    refuses(place, lv.CorruptObject, "manifest.* of table t (is missing|can't be read)")


@pytest.mark.parametrize("damage", ["gone", "torn"])
def test_a_damaged_manifest_does_not_prevent_appends(place: Place, damage: str) -> None:
    """An append that would merge the damaged manifest commits, too: a later commit may merge it."""
    with place.connect() as warm:
        properties = {"commit.manifest.min-count-to-merge": "3"}
        warm.create_table("t", [{"id": 0}], properties=properties)
        (first,) = metadata(place).glob("*-m0.avro")
        whole = first.read_bytes()
        first.unlink()
        if damage == "torn":
            first.write_bytes(whole[:200])
        for number in (1, 2, 3, 4):
            with warm.transaction() as txn:
                txn.append("t", [{"id": number}])
            assert (metadata(place) / f"v{number + 1}.metadata.json").exists()
    refuses(place, lv.CorruptObject, "manifest.* of table t (is missing|can't be read)")
    first.write_bytes(whole)
    with place.connect() as other:
        assert ids(other) == [0, 1, 2, 3, 4]
        other.run(lambda txn: txn.append("t", [{"id": 5}]))
        assert ids(other) == [0, 1, 2, 3, 4, 5]


def test_a_table_whose_data_file_is_missing_is_refused(lake: lv.Lake, place: Place) -> None:
    for file in Path(place.uri("t")).glob("data/*.parquet"):
        file.unlink()
    refuses(place, lv.LakeVillaError, "t")


def test_a_copied_table_that_names_the_files_of_its_original_is_refused(
    lake: lv.Lake, place: Place
) -> None:
    shutil.copytree(place.uri("t"), place.uri("copy"))
    shutil.rmtree(Path(place.uri("copy")) / "_lakevilla")
    before = contents(place.root)
    with pytest.raises(lv.InvalidOperation, match="was moved or copied"):
        lake.register("copy")
    with pytest.raises(lv.InvalidOperation, match="was moved or copied"):
        lake.snapshot().read("copy")
    assert contents(place.root) == before


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda d: d.update({"format-version": 4}), "format version 4"),
        (
            lambda d: d["schemas"][0]["fields"].append(_field("geography")),
            "type geography",
        ),
        (lambda d: d["schemas"][0]["fields"].append(_field("variant")), "type variant"),
        (lambda d: d["schemas"][0]["fields"].append(_field({"type": "set"})), "type set"),
        (lambda d: d["schemas"][0]["fields"].append(_field("decimal(50, 2)")), "type decimal"),
        (
            lambda d: d["schemas"][0]["fields"].append(_with_list_default()),
            "initial-default",
        ),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_unknown_iceberg_features_are_refused_by_name(
    lake: lv.Lake, place: Place, change: Callable[[dict[str, Any]], object], match: str
) -> None:
    edit(metadata(place) / "v2.metadata.json", change)
    refuses(place, lv.UnsupportedTableFeature, match)


def test_a_default_value_that_does_not_fit_its_type_is_reported(
    lake: lv.Lake, place: Place
) -> None:
    broken = {**_field("uuid"), "initial-default": "no uuid"}
    newest = metadata(place) / "v2.metadata.json"
    edit(newest, lambda d: d["schemas"][0]["fields"].append(broken))
    refuses(place, lv.CorruptObject, "'no uuid' of column odd is no uuid")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda d: d.update({"format-version": True}), "format-version is True"),
        (lambda d: d.update({"default-spec-id": 7}), r"default-spec-id 7, and holds \[0\]"),
        (lambda d: d.update({"current-schema-id": 7}), r"current-schema-id 7, and holds \[0\]"),
        (lambda d: d.update({"schemas": None}), r"current-schema-id 0, and holds \[\]"),
        (lambda d: d["schemas"][0]["fields"].append("x"), "fields of schema 0 is no list"),
        (lambda d: d["schemas"][0]["fields"][0].pop("id"), "id of column 'id' of schema 0 is None"),
        (lambda d: d["schemas"][0]["fields"][0].pop("name"), "name of a field of schema 0"),
        (lambda d: d["schemas"][0]["fields"][0].pop("type"), "column 'id' of schema 0 has no type"),
        (
            lambda d: d["schemas"][0]["fields"].append(_field({"type": "list"})),
            "element-id of column 'odd'",
        ),
        (
            lambda d: d["partition-specs"].append(_spec("day", "1")),
            "source-ids of a field of partition spec 1",
        ),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_metadata_whose_parts_contradict_each_other_is_reported_with_the_files_name(
    lake: lv.Lake, place: Place, change: Callable[[dict[str, Any]], object], match: str
) -> None:
    edit(metadata(place) / "v2.metadata.json", change)
    refuses(
        place, lv.CorruptObject, f"v2.metadata.json of table t can't be read .*{match}.*restore"
    )


def _spec(transform: str, sources: object = None) -> dict[str, Any]:
    field = {"source-id": 1, "field-id": 1000, "name": "p", "transform": transform}
    if sources is not None:
        del field["source-id"]
        field["source-ids"] = sources
    return {"spec-id": 1, "fields": [field]}


def _field(kind: object) -> dict[str, Any]:
    return {"id": 9, "name": "odd", "required": False, "type": kind}


def _with_list_default() -> dict[str, Any]:
    kind = {"type": "list", "element-id": 10, "element": "int", "element-required": False}
    return {**_field(kind), "initial-default": [5]}


@pytest.mark.parametrize(
    ("properties", "match"),
    [
        ({"write.metadata.compression-codec": "gzip"}, "compresses its metadata"),
        ({"write.format.default": "orc"}, "as orc, not parquet"),
        ({"write.data.path": "/elsewhere"}, "outside of its directory"),
        ({"write.object-storage.enabled": "true"}, "outside of its directory"),
    ],
)
def test_writes_to_tables_that_can_only_be_read_are_refused_with_the_reason(
    lake: lv.Lake, place: Place, properties: dict[str, str], match: str
) -> None:
    with place.catalog().load_table("t").transaction() as txn:
        txn.set_properties(properties)
    assert ids(lake) == [1, 2, 3]
    before = contents(Path(place.uri("t")) / "metadata")
    with pytest.raises(lv.UnsupportedTableFeature, match=match):
        lake.run(lambda txn: txn.append("t", [{"id": 4}]))
    assert contents(Path(place.uri("t")) / "metadata") == before


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        (("zorder[4]",), r"transform zorder\[4\] of p, which LakeVilla does not know"),
        (("bucket[0]",), r"transform bucket\[0\]"),
        (("bucket[x]",), r"transform bucket\[x\]"),
        (("truncate[-1]",), "transform truncate"),
        ((f"bucket[{2**31}]",), "transform bucket"),
        (("bucket[4]", [1, 2]), r"a transform \(bucket\[4\]\) of several columns"),
    ],
)
@pytest.mark.parametrize("default", [False, True])
def test_a_table_partitioned_by_an_unknown_transform_is_read_but_not_written(
    lake: lv.Lake, place: Place, spec: Any, match: str, default: bool
) -> None:
    def change(document: dict[str, Any]) -> None:
        document["partition-specs"].append(_spec(*spec))
        if default:
            document["default-spec-id"] = 1

    edit(metadata(place) / "v2.metadata.json", change)
    before = contents(Path(place.uri("t")) / "metadata")
    with place.connect() as fresh:
        assert ids(fresh) == [1, 2, 3]
        assert fresh.read("t", where="id > 2")["id"].to_pylist() == [3]
        with pytest.raises(lv.UnsupportedTableFeature, match=match):
            fresh.run(lambda txn: txn.append("t", [{"id": 4}]))
    assert contents(Path(place.uri("t")) / "metadata") == before


def test_a_commit_is_published_after_a_version_that_a_foreign_catalog_has_taken(
    lake: lv.Lake, place: Place
) -> None:
    """Another writer creates the metadata version that the commit was about to create."""
    txn = lake.transaction(lv.Feature.R)
    txn.update("t", {"v": "'mine'"}, where="id = 1")
    place.catalog().load_table("t").append(pa.table({"id": [9], "v": ["theirs"]}))
    txn.commit()
    assert ids(lake) == [1, 2, 3, 9]
    rows = {row["id"]: row["v"] for row in place.seen("t")}
    assert rows == {1: "mine", 2: "b", 3: "c", 9: "theirs"}


def test_an_update_of_a_column_that_another_client_drops_conflicts(
    lake: lv.Lake, place: Place
) -> None:
    txn = lake.transaction()
    txn.update("t", {"v": "'z'"}, where="id = 1")
    with place.catalog().load_table("t").update_schema() as update:
        update.delete_column("v")
    with pytest.raises(lv.ConflictError):
        txn.commit()
    assert lake.snapshot().read("t").schema.names == ["id"]


def test_an_append_to_a_column_that_was_dropped_and_recreated_conflicts(
    lake: lv.Lake, place: Place
) -> None:
    txn = lake.transaction()
    txn.append("t", [{"id": 7, "v": "old"}])
    with lake.transaction() as other:
        other.alter("t", drop_columns=["v"])
        other.alter("t", add_columns=pa.schema([("v", pa.string())]))
    with pytest.raises(lv.ConflictError):
        txn.commit()
    assert {row["v"] for row in place.seen("t")} == {None}


def test_creating_a_table_in_a_directory_of_the_other_format_is_refused(
    lake: lv.Lake, place: Place
) -> None:
    with pytest.raises(lv.TableExists):
        lake.create_table("t", [{"id": 1}], format="delta")
    Place(place.root).write("d", [{"id": 1}])
    with pytest.raises(lv.TableExists):
        lake.create_table("d", [{"id": 1}], format="iceberg")


@pytest.mark.parametrize(
    ("schema", "partition_by", "properties", "match"),
    [
        (pa.schema([]), (), None, "no columns"),
        (pa.schema([("a", pa.int32()), ("A", pa.int32())]), (), None, "without regard to case"),
        (pa.schema([("a", pa.int32())]), ("b",), None, "no column 'b'"),
        (pa.schema([("a", pa.int32())]), ("day(a)",), None, "can't be partitioned by"),
        (pa.schema([("a", pa.int32())]), ("bucket(a)",), None, "can't be partitioned by"),
        (pa.schema([("a", pa.int32())]), ("bucket(0, a)",), None, "can't be partitioned by"),
        (pa.schema([("a", pa.int32())]), ("bucket(2147483648, a)",), None, "n from 1 to"),
        (pa.schema([("a", pa.int32())]), ("a", "a"), None, "twice"),
        (pa.schema([("a", pa.list_(pa.int32()))]), ("a",), None, "nested"),
        (pa.schema([("a", pa.int32())]), (), {"format-version": "1"}, "format-version 1"),
        (pa.schema([("a", pa.int32())]), (), {"delta.appendOnly": "true"}, "of Delta tables"),
        (pa.schema([("a", pa.int32())]), (), {"lakevilla.x.sequence": "1"}, "LakeVilla keeps it"),
    ],
)
def test_a_table_with_an_invalid_definition_is_refused_and_nothing_is_written(
    lake: lv.Lake,
    place: Place,
    schema: pa.Schema,
    partition_by: tuple[str, ...],
    properties: dict[str, str] | None,
    match: str,
) -> None:
    before = contents(place.root)
    with pytest.raises(lv.InvalidOperation, match=match):
        lake.create_table("n", schema, partition_by=partition_by, properties=properties)
    assert contents(place.root) == before
