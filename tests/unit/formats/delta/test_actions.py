from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakevilla.formats.base import Change, CommitInfo
from lakevilla.formats.delta.actions import (
    RESPELT,
    add_line,
    begins_as,
    decode_path,
    encode_path,
    parse_entry,
    remove_line,
)
from lakevilla.formats.delta.checkpoint.file_list import decode_paths
from lakevilla.formats.delta.commit import render
from lakevilla.formats.delta.snapshot import blank_snapshot
from lakevilla.formats.files import (
    ChangeFile,
    DataFile,
    DeletionVector,
    RemovedFile,
    file_key,
    removal,
)
from tests.support.delta_by_hand import add, remove

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
paths = texts.filter(lambda text: not text.startswith(tuple(RESPELT)))


def parse(*actions: dict[str, object]) -> Change:
    body = "".join(json.dumps(action) + "\n" for action in actions).encode()
    return parse_entry("t", 3, body).change


@given(paths)
def test_a_path_is_unchanged_after_encoding_and_decoding(path: str) -> None:
    assert decode_path(encode_path(path)) == path
    (file,) = parse(add(encode_path(path))).adds
    assert file.path == path
    assert file.raw_path is None


@pytest.mark.parametrize("raw", ["p=ü/a.parquet", "a%2Db", "x%3Dy", "s3://b/a%20b+c", "%41"])
def test_a_path_in_an_unusual_spelling_is_written_back_in_that_spelling(raw: str) -> None:
    (file,) = parse(add(raw)).adds
    assert json.loads(add_line(file))["add"]["path"] == raw
    assert json.loads(remove_line(removal(file), 1))["remove"]["path"] == raw


def test_a_file_uri_in_javas_spelling_is_found_in_the_store_and_written_back_unchanged() -> None:
    raw = "file:/lake/a%20t/f.parquet"
    (file,) = parse(add(raw)).adds
    assert file.path == file_key("clone", file.path) == "file:///lake/a t/f.parquet"
    assert json.loads(remove_line(removal(file), 1))["remove"]["path"] == raw
    plain = pa.array(["f.parquet", "file:/lake/t/f.parquet", "file:///lake/t/g.parquet"])
    paths, kept = decode_paths(plain)
    assert paths.to_pylist() == [
        "f.parquet",
        "file:///lake/t/f.parquet",
        "file:///lake/t/g.parquet",
    ]
    assert kept.to_pylist() == [None, "file:/lake/t/f.parquet", None]


def test_a_path_is_relative_to_the_table_or_a_uri() -> None:
    assert file_key("a/t", "p=1/f.parquet") == "a/t/p=1/f.parquet"
    assert file_key("a/t", "s3://bucket/f.parquet") == "s3://bucket/f.parquet"
    assert file_key("a/t", "x:1/f") == "a/t/x:1/f" or file_key("a/t", "x:1/f") == "a/t/x:1/f"


def test_an_empty_partition_value_is_null() -> None:
    change = parse(add("a", partitionValues={"p": "", "q": "x"}))
    assert change.adds[0].partition_values == {"p": None, "q": "x"}


vectors = st.builds(
    DeletionVector,
    st.sampled_from(["u", "i", "p"]),
    st.text("abc^%", min_size=1),
    st.integers(0, 99),
    st.integers(0, 99),
    st.none() | st.integers(0, 99),
)
pairs = st.dictionaries(texts, st.none() | texts, max_size=2)
numbers = st.integers(0, 2**53)
#: Relative paths only: an absolute path is written as a URI.
adds = st.builds(
    DataFile,
    paths,
    numbers,
    numbers,
    pairs,
    st.none() | texts,
    st.none() | vectors,
    st.none() | numbers,
    st.none() | numbers,
    st.none() | pairs,
    st.booleans(),
    clustering_provider=st.none() | texts,
)
removes = st.builds(
    RemovedFile,
    paths,
    st.none() | numbers,
    st.none() | pairs,
    st.none() | vectors,
    st.none() | numbers,
    st.none() | numbers,
    st.none() | texts,
    st.booleans(),
    tags=st.none() | pairs,
    deletion_timestamp=numbers,
)
changes = st.builds(
    Change,
    st.lists(adds, max_size=3, unique_by=lambda file: file.path).map(tuple),
    st.lists(removes, max_size=3, unique_by=lambda file: file.ref).map(tuple),
    st.lists(st.builds(ChangeFile, paths, numbers, pairs), max_size=2).map(tuple),
).filter(lambda change: not {f.ref for f in change.adds} & {f.ref for f in change.removes})


@given(changes)
def test_a_rendered_entry_is_read_back_unchanged(change: Change) -> None:
    info = CommitInfo("WRITE", {"mode": "Append"}, applications={"a": 4}, nonce="n", txn_ids=("x",))
    body = render(blank_snapshot("t", "t"), change, info, 17)
    entry = parse_entry("t", 0, body)
    assert entry.change == change
    assert (entry.applications, entry.nonce, entry.txn_ids) == ({"a": 4}, "n", ("x",))
    first = json.loads(body.split(b"\n")[0])["commitInfo"]
    assert (first["timestamp"], first["operation"]) == (17, "WRITE")


def test_a_removal_repeats_the_metadata_of_the_removed_file() -> None:
    file = parse(add("a", partitionValues={"p": "1"}, baseRowId=7, defaultRowCommitVersion=2)).adds[
        0
    ]
    action = json.loads(remove_line(removal(file), 33))["remove"]
    assert action == {
        "path": "a",
        "deletionTimestamp": 33,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {"p": "1"},
        "size": 100,
        "stats": '{"numRecords":1}',
        "baseRowId": 7,
        "defaultRowCommitVersion": 2,
    }


def test_a_removal_without_a_size_has_no_extended_metadata() -> None:
    (file,) = parse(remove("a")).removes
    assert "extendedFileMetadata" not in json.loads(remove_line(file, 1))["remove"]
    assert json.loads(remove_line(file, 1))["remove"]["deletionTimestamp"] == 9


# ------------------------------------------------------------- the beginning of an entry


def test_a_log_entry_is_recognised_by_its_commit_info_if_that_comes_first() -> None:
    body = b'{"commitInfo":{"operation":"WRITE","timestamp":7}}\n{"txn":{"appId":"a","version":1}}'
    other = body.replace(b"7", b"8")
    entry = parse_entry("t", 4, body)
    assert begins_as(body, entry, 4)
    assert begins_as(body[:60], entry, 4)
    assert not begins_as(other, entry, 4)
    # The version is unknown, or the line is longer than the bytes that were read of it.
    assert begins_as(other, None, 4)
    assert begins_as(other, entry, 5)
    assert begins_as(other[:20], entry, 4)
    assert begins_as(b'{"txn":{"appId":"a","version":1}}\n' + other, entry, 4)
    # It is no JSON, or JSON that nobody reads.
    assert begins_as(b"{\n" + other, entry, 4)
    assert begins_as(b"[" * 50_000 + b"\n" + other, entry, 4)
