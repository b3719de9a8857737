"""The delete files that apply to each data file (Iceberg spec, "Scan planning")."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

from lakevilla.errors import CorruptObject
from lakevilla.formats.iceberg.manifests.manifests import (
    ENTRIES,
    _target,
    apply_to_none,
    with_deletes,
)


def entry(path: str, sequence: int, **more: Any) -> dict[str, Any]:
    known = {"path": path, "sequence": sequence, "spec_id": 0, "partition_values": [], "size": 1}
    return {**dict.fromkeys(ENTRIES.names), **known, **more}


def applied(sequence: int, *deletes: dict[str, Any], **data: Any) -> list[str]:
    """Return the deletes that apply to one data file with a sequence number."""
    files = pa.Table.from_pylist([entry("f", sequence, **data)], schema=ENTRIES)
    _, lists = with_deletes(files, pa.Table.from_pylist(list(deletes), schema=ENTRIES), "t")
    return [one["path"] for one in lists[0].as_py() or ()]


KINDS = [
    {"kind": "equality", "equality_ids": [1]},
    {"kind": "position"},
    {"kind": "position", "target": "f"},
    {"kind": "vector", "target": "f", "offset": 4, "length": 40},
]
NAMES = ["equality", "position", "position of one file", "vector"]


@pytest.mark.parametrize("how", KINDS, ids=NAMES)
def test_a_delete_file_applies_only_to_data_files_that_are_not_newer(how: dict[str, Any]) -> None:
    """An equality delete applies only to older data files, the other kinds also to those of its
    number.

    A writer that deletes and inserts a row in one commit gives both files one number: an equality
    delete must not delete the row that the commit has inserted.
    """
    delete = entry("d", 5, **how)
    assert applied(4, delete) == ["d"]
    assert applied(5, delete) == ([] if how["kind"] == "equality" else ["d"])
    assert applied(6, delete) == []


@pytest.mark.parametrize("how", KINDS, ids=NAMES)
def test_a_delete_of_another_partition_applies_only_if_it_names_its_data_file(
    how: dict[str, Any],
) -> None:
    delete = entry("d", 5, partition_values=[("1000", "x")], **how)
    assert applied(4, delete, partition_values=[("1000", "x")]) == ["d"]
    elsewhere = applied(4, delete, partition_values=[("1000", "y")])
    assert elsewhere == (["d"] if "target" in how else [])
    other_spec = applied(4, delete, partition_values=[("1000", "x")], spec_id=1)
    assert other_spec == (["d"] if "target" in how else [])


def test_an_equality_delete_without_a_partition_applies_to_all_partitions() -> None:
    delete = entry("d", 5, spec_id=3, kind="equality", equality_ids=[1])
    assert applied(4, delete, partition_values=[("1000", "x")]) == ["d"]
    assert applied(5, delete, partition_values=[("1000", "x")]) == []


def test_a_deletion_vector_replaces_the_position_deletes_of_its_data_file() -> None:
    vector = entry("v", 5, **KINDS[3])
    old = [entry("p", 4, kind="position"), entry("q", 4, kind="position", target="f")]
    equality = entry("e", 5, **KINDS[0])
    assert applied(3, vector, *old, equality) == ["e", "v"]
    # A vector older than the data file is of another file of that name, and replaces nothing.
    assert applied(6, vector, entry("p", 6, kind="position")) == ["p"]


def test_a_vector_without_its_data_file_is_refused() -> None:
    match = r"deletion vector at 4 of v of table t .* \(referenced_data_file\); roll the table back"
    with pytest.raises(CorruptObject, match=match):
        applied(4, entry("v", 5, kind="vector", offset=4, length=40))


def test_two_vectors_of_one_data_file_are_refused() -> None:
    one = entry("v", 5, **KINDS[3])
    other = entry("w", 6, **KINDS[3])
    with pytest.raises(CorruptObject, match="f of table t has two deletion vectors, v at 4 and w"):
        applied(4, one, other)
    # A vector older than the data file is of another file of that name.
    assert applied(6, one, other) == ["w"]


def position_delete(bounds: tuple[bytes, bytes] | None, referenced: str | None) -> DataFile:
    low, high = bounds or (None, None)
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path="d.parquet",
        file_format=FileFormat.PARQUET,
        record_count=1,
        file_size_in_bytes=1,
        lower_bounds=None if low is None else {2147483546: low},
        upper_bounds=None if high is None else {2147483546: high},
    )
    # As read by a schema that has the fields of the newest spec: 143 is the 18th.
    file._data[len(file._data) :] = [*[None] * (17 - len(file._data)), referenced]
    return file


@pytest.mark.parametrize(
    ("bounds", "referenced", "target"),
    [
        (None, "f", "f"),
        ((b"e", b"g"), "f", "f"),
        ((b"f", b"f"), None, "f"),
        ((b"e", b"g"), None, None),
        ((b"\xff", b"\xff"), None, None),
        (None, None, None),
    ],
)
def test_a_position_delete_names_its_data_file_by_a_field_or_by_equal_bounds(
    bounds: tuple[bytes, bytes] | None, referenced: str | None, target: str | None
) -> None:
    assert _target(position_delete(bounds, referenced)) == target


def drawn(rng: random.Random) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return data files and delete files of few paths, partitions and sequence numbers."""

    def placed(path: str, **more: Any) -> dict[str, Any]:
        values = rng.choice([[("1000", "x")], [("1000", "y")], []])
        spec = rng.randrange(2)
        return entry(path, rng.randrange(4), partition_values=values, spec_id=spec, **more)

    data = [placed(f"f{n}") for n in range(rng.randrange(5))]
    deletes = []
    for n in range(rng.randrange(1, 6)):
        kind = rng.choice(["position", "position", "equality"])
        target = rng.choice([None, "f0", "f1"]) if kind == "position" else None
        deletes.append(placed(f"d{n}", kind=kind, target=target, equality_ids=[1]))
    return data, deletes


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.cases(None)
def test_a_delete_file_applies_to_none_exactly_if_no_data_file_lists_it(seed: int) -> None:
    data, deletes = drawn(random.Random(seed))
    files = pa.Table.from_pylist(data, schema=ENTRIES)
    listed = pa.Table.from_pylist(deletes, schema=ENTRIES)
    _, lists = with_deletes(files, listed, "t")
    used = {one["path"] for found in lists.to_pylist() for one in found or ()}
    found = apply_to_none(listed, [files.slice(0, 2), files.slice(2)])
    assert found.to_pylist() == [one["path"] not in used for one in deletes]
