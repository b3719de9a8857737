"""Manifests that are encoded column by column say what pyiceberg's writer says."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.avro.encoder import BinaryEncoder

from lakevilla.formats.files import DataFile
from lakevilla.formats.iceberg.manifests.columns import (
    FileColumns,
    encode_columns,
    listed_columns,
    varints,
)
from lakevilla.formats.iceberg.manifests.manifests import (
    decode_manifest,
    encode_manifest,
    entries_of,
    new_entry,
)
from lakevilla.formats.iceberg.metadata.definition import IcebergDefinition

KINDS = ("string", "int", "long", "date", "timestamptz", "decimal(20, 2)", "boolean", "double")


def definition(version: int, *partition_by: str) -> IcebergDefinition:
    fields = [
        {"id": number, "name": kind, "required": False, "type": kind}
        for number, kind in enumerate(KINDS, 1)
    ]
    parts = [
        {
            "source-id": KINDS.index(kind) + 1,
            "field-id": 1000 + place,
            "name": kind,
            "transform": "identity",
        }
        for place, kind in enumerate(partition_by)
    ]
    document = {
        "format-version": version,
        "table-uuid": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "location": "s3://b/t",
        "last-column-id": len(fields),
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": parts}],
        "last-partition-id": 999 + len(parts),
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {},
    }
    return IcebergDefinition("t", "t", document)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("by", [(), ("string",), ("date", "decimal(20, 2)", "boolean")])
def test_columns_become_the_entries_that_pyiceberg_writes(
    version: int, by: tuple[str, ...]
) -> None:
    of = definition(version, *by)
    texts = [
        {"string": "é", "date": "2024-02-29", "decimal(20, 2)": "-1.50", "boolean": "true"},
        dict.fromkeys(("string", "date", "decimal(20, 2)", "boolean")),
    ]
    files = [
        DataFile(
            f"part {place}.parquet",
            10 + place,
            0,
            partition_values={str(1000 + n): texts[place % 2][kind] for n, kind in enumerate(by)},
            stats=stats,
        )
        for place, stats in enumerate(
            (
                '{"numRecords":3,"minValues":{"1":"a","3":-5},"maxValues":{"1":"ü","3":9},'
                '"nullCount":{"1":0,"3":1}}',
                '{"numRecords":300}',
                '{"numRecords":70000,"nullCount":{"3":70000}}',
            )
        )
    ]
    entries = [new_entry(file, 7, of) for file in files]
    theirs = encode_manifest("m.avro", entries, 0, 7, of)
    types = of.partition_types(0)
    number = {low: value.to_bytes(8, "little", signed=True) for low, value in enumerate((-5, 9))}
    columns = FileColumns(
        pa.array([of.place.spelled(file.path) for file in files]),
        np.array([3, 300, 70000]),
        np.array([file.size for file in files]),
        [tuple(types.values(file.partition_values)) for file in files[:2]],
        np.array([0, 1, 0]),
        {1: pa.array([0, None, None], pa.int64()), 3: pa.array([1, None, 70000], pa.int64())},
        {1: pa.array([b"a", None, None]), 3: pa.array([number[0], None, None])},
        {1: pa.array(["ü".encode(), None, None]), 3: pa.array([number[1], None, None])},
    )
    body = encode_columns("s3://b/t/m.avro", columns, of)
    listed = listed_columns("s3://b/t/m.avro", len(body), columns, 7, of)
    assert listed._data == [*theirs.file._data[:1], len(body), *theirs.file._data[2:]]
    for one in (listed, theirs.file):
        one._data[4] = one._data[5] = 1
    mine = decode_manifest("k", body, listed, of)
    assert mine == decode_manifest("k", theirs.body, theirs.file, of)
    own_entries = entries_of("k", of, body, listed)
    their_entries = entries_of("k", of, theirs.body, theirs.file)
    for own, other in zip(own_entries, their_entries, strict=True):
        for place in (0, 1, 2, 3, 4, 5, 7, 8, 10, 11):
            assert _known(own, place) == _known(other, place), place


def _known(entry: Any, place: int) -> Any:
    """Return a part of a data file; an absent map and an empty one say the same."""
    found = entry.data_file._data[place]
    return found or None if isinstance(found, dict) else found


def test_integers_are_encoded_as_avro_encodes_them() -> None:
    numbers = [0, -1, 1, 63, 64, -64, -65, 1 << 20, 2**62, -(2**63), 2**63 - 1]
    for number, found in zip(numbers, varints(np.array(numbers)).to_pylist(), strict=True):
        body = io.BytesIO()
        BinaryEncoder(body).write_int(number)
        assert found == body.getvalue(), number
