"""Metadata files: what the library keeps of them, and how it writes the next one."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import msgspec
import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from lakevilla.errors import CorruptObject, UnsupportedTableFeature
from lakevilla.formats.iceberg.metadata import file
from lakevilla.formats.iceberg.metadata.file import Cache, Metadata, decode_metadata, next_metadata

KEY = "t/metadata/v1.metadata.json"
DEFINITION = {
    "format-version": 2,
    "table-uuid": "6f2c2c1e-8f25-4a3e-9d3b-0e7a3c2d1b4a",
    "location": "/lake/t",
    "last-column-id": 1,
    "current-schema-id": 0,
    "schemas": [
        {
            "type": "struct",
            "schema-id": 0,
            "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
        }
    ],
    "default-spec-id": 0,
    "partition-specs": [{"spec-id": 0, "fields": []}],
    "last-partition-id": 999,
    "default-sort-order-id": 0,
    "sort-orders": [{"order-id": 0, "fields": []}],
    "properties": {"owner": "me"},
}


def first(**applications: int) -> Metadata:
    return next_metadata(
        None,
        KEY,
        "t",
        None,
        definition=DEFINITION,
        snapshot=None,
        applications=applications,
        commit="{}",
        now_ms=1000,
    )


def following(before: Metadata, number: int, now_ms: int = 2000, **more: Any) -> Metadata:
    """Return the next metadata file, with one more snapshot."""
    snapshot = {
        "snapshot-id": number,
        "sequence-number": number,
        "timestamp-ms": now_ms,
        "manifest-list": f"/lake/t/metadata/snap-{number}.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
    }
    given: dict[str, Any] = {"definition": None, "applications": {}, "commit": None, **more}
    return next_metadata(
        before, KEY, "t", f"/lake/t/{number}", snapshot=snapshot, now_ms=now_ms, **given
    )


def reread(metadata: Metadata) -> Metadata:
    return decode_metadata(KEY, "t", metadata.encode())


def test_pyiceberg_reads_metadata_that_lakevilla_writes() -> None:
    metadata = following(following(first(), 7), 8, now_ms=3000)
    reported = TableMetadataUtil.parse_raw(metadata.encode().decode())
    assert reported.current_snapshot_id == 8
    assert [one.snapshot_id for one in reported.snapshots] == [7, 8]
    assert [one.snapshot_id for one in reported.snapshot_log] == [7, 8]
    assert [one.metadata_file for one in reported.metadata_log] == ["/lake/t/7", "/lake/t/8"]
    assert reported.refs["main"].snapshot_id == 8
    assert reported.properties["owner"] == "me"
    assert reread(metadata).last_sequence_number == 8


def test_unknown_metadata_fields_are_kept() -> None:
    document = json.loads(first().encode())
    document |= {"of-a-later-version": [{"key-id": "k"}], "refs": {"audit": {"snapshot-id": 5}}}
    kept = following(decode_metadata(KEY, "t", json.dumps(document).encode()), 7)
    after = json.loads(kept.encode())
    assert after["of-a-later-version"] == [{"key-id": "k"}]
    assert after["refs"]["audit"] == {"snapshot-id": 5}


def test_the_main_branch_keeps_its_retention_settings() -> None:
    document = json.loads(following(first(), 7).encode())
    document["refs"]["main"]["min-snapshots-to-keep"] = 3
    kept = following(decode_metadata(KEY, "t", json.dumps(document).encode()), 8)
    main = json.loads(kept.encode())["refs"]["main"]
    assert main == {"snapshot-id": 8, "type": "branch", "min-snapshots-to-keep": 3}


def test_the_metadata_log_is_as_long_as_the_table_property_allows() -> None:
    properties = {"write.metadata.previous-versions-max": "3"}
    metadata = following(first(), 1, definition={**DEFINITION, "properties": properties})
    for number in range(2, 9):
        metadata = following(metadata, number)
    log = json.loads(metadata.encode())["metadata-log"]
    assert [one["metadata-file"] for one in log] == [f"/lake/t/{n}" for n in (6, 7, 8)]


def test_the_last_updated_time_never_goes_back() -> None:
    later = following(following(first(), 7, now_ms=9000), 8, now_ms=4000)
    assert reread(later).last_updated_ms == 9000


def test_lakevillas_own_properties_are_not_part_of_the_definition() -> None:
    before = first()
    after = following(before, 7, applications={"lakevilla/abc": 12, "app": 3}, commit="{}")
    reported = reread(after)
    assert reported.definition == before.definition
    assert reported.applications == {"lakevilla/abc": 12, "app": 3}
    assert reported.properties["lakevilla.abc.sequence"] == "12"


def test_lakevillas_own_properties_survive_a_change_of_the_properties() -> None:
    before = following(first(), 7, applications={"lakevilla/abc": 12})
    changed = {**DEFINITION, "properties": {"owner": "you"}}
    after = reread(following(before, 8, definition=changed))
    assert after.applications == {"lakevilla/abc": 12}
    assert after.definition["properties"] == {"owner": "you"}


def test_version_1_tables_are_read_under_the_names_of_version_2() -> None:
    schema = {"type": "struct", "fields": DEFINITION["schemas"][0]["fields"]}  # type: ignore[index]
    document = {
        "format-version": 1,
        "table-uuid": "u",
        "location": "/lake/t",
        "last-updated-ms": 5,
        "last-column-id": 1,
        "schema": schema,
        "partition-spec": [],
    }
    reported = decode_metadata(KEY, "t", json.dumps(document).encode()).definition
    assert reported["schemas"] == [{**schema, "schema-id": 0}]
    assert (reported["current-schema-id"], reported["default-spec-id"]) == (0, 0)
    assert reported["partition-specs"] == [{"spec-id": 0, "fields": []}]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b'{"format-version": 2}',
        b'{"format-version": "two", "location": "/lake/t", "table-uuid": "u"}',
        b'{"format-version": 2, "location": 5, "table-uuid": "u"}',
        b"\xff\xfe",
    ],
)
def test_a_malformed_metadata_file_is_reported_with_its_key(body: bytes) -> None:
    with pytest.raises(CorruptObject, match="table t can't be read") as raised:
        decode_metadata(KEY, "t", body)
    assert raised.value.key == KEY


def test_a_metadata_file_truncated_anywhere_is_reported() -> None:
    body = following(first(), 7).encode()
    for length in range(0, len(body), 37):
        with pytest.raises(CorruptObject):
            decode_metadata(KEY, "t", body[:length])


def test_a_newer_format_version_is_refused_with_its_number() -> None:
    body = first().encode().replace(b'"format-version":2', b'"format-version":4')
    with pytest.raises(UnsupportedTableFeature, match="format version 4"):
        decode_metadata(KEY, "t", body)


def test_a_missing_current_snapshot_is_reported() -> None:
    document = json.loads(following(first(), 7).encode())
    document["snapshots"] = []
    with pytest.raises(CorruptObject, match="names snapshot 7"):
        _ = decode_metadata(KEY, "t", json.dumps(document).encode()).current


@pytest.mark.parametrize("part", ["snapshots", "snapshot-log", "metadata-log", "refs"])
@pytest.mark.parametrize("value", ['"none"', "7", "true"])
def test_a_metadata_field_of_another_json_type_is_reported(part: str, value: str) -> None:
    document = msgspec.json.decode(following(first(), 7).encode())
    document[part] = msgspec.json.decode(value)
    with pytest.raises(CorruptObject, match="table t can't be read"):
        decode_metadata(KEY, "t", msgspec.json.encode(document))


@pytest.mark.parametrize("part", ["schemas", "properties"])
def test_a_metadata_field_with_a_list_of_other_things_is_reported(part: str) -> None:
    document = msgspec.json.decode(following(first(), 7).encode())
    document[part] = ["none"]
    with pytest.raises(CorruptObject, match="table t can't be read"):
        decode_metadata(KEY, "t", msgspec.json.encode(document))


@pytest.mark.parametrize("log", [b"null", b"[]", b"[ ]", b"[\n]"])
def test_an_empty_snapshot_log_is_extended_in_whatever_form_it_is_written(log: bytes) -> None:
    before = first()
    before = Metadata(KEY, "t", {**before.parts, "snapshot-log": msgspec.Raw(log)})
    after = reread(following(following(before, 7), 8))
    assert [one["snapshot-id"] for one in after.get("snapshot-log")] == [7, 8]
    assert list(after.snapshots) == [7, 8]
    assert after.current == following(before, 8).current


def test_each_version_has_the_snapshots_up_to_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "_MOST_ADDED", 3)
    versions = [reread(following(first(), 1))]
    for number in range(2, 12):
        versions.append(following(versions[-1], number))
    other = following(versions[4], 99)
    for number, version in enumerate(versions, 1):
        assert list(reread(version).snapshots) == list(version.snapshots) == [*range(1, number + 1)]
        assert version.encode() == msgspec.json.encode(msgspec.json.decode(version.encode()))
        assert version.size < len(version.encode())
    assert list(reread(other).snapshots) == [1, 2, 3, 4, 5, 99]
    logged = [one["snapshot-id"] for one in reread(other).get("snapshot-log")]
    assert logged == [1, 2, 3, 4, 5, 99]


def test_versions_hold_the_snapshots_before_them_once() -> None:
    before = first()
    for number in range(1, 2001):
        before = following(before, number)
    before = reread(before)
    tracemalloc.start()
    try:
        versions = [before]
        for number in range(2001, 2101):
            versions.append(following(versions[-1], number))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 5 * before.size, "a hundred versions"


def test_a_cache_holds_few_bytes_of_what_the_newest_state_does_not_name() -> None:
    cache: Cache[str] = Cache(100, 20)
    for uri in "abcdefgh":
        cache.keep(uri, uri.upper(), 10)
    cache.leave("abc")
    assert [cache.find(uri) for uri in "abcdefgh"] == [None, *"BCDEFGH"]
    cache.keep("b", "again", 10)
    assert cache.find("b") == "B", "it stays among the past"
    for uri in "ijklm":
        cache.keep(uri, uri.upper(), 10)
    assert [cache.find(uri) for uri in "bcdm"] == ["B", "C", "D", "M"]
