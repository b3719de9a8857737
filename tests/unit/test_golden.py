"""Stored objects stay readable: each released format version has its golden files.

A change that makes one of these tests fail is a new format version, with golden files of its own
next to these, never in place of them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from lakevilla.engines.base import MergeClause
from lakevilla.errors import CorruptObject, UnsupportedFormat
from lakevilla.formats.base import Change
from lakevilla.formats.files import DataFile, DeletionVector, RemovedFile
from lakevilla.global_log.bases import Base
from lakevilla.global_log.commits import CommitObject, TablePart
from lakevilla.global_log.head import (
    CommitSummary,
    Head,
    NameMap,
    Page,
    PageRef,
    PendingRef,
    Reservation,
    TableMap,
    TableState,
    Touch,
)
from lakevilla.global_log.keys import KeyRecord
from lakevilla.global_log.refs import BaseRef, Policy, RefEntry, RefMap
from lakevilla.global_log.repo import LakeFile
from lakevilla.markers.marker import Marker
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.store.codec import FORMAT, decode, encode
from lakevilla.sublogs.operations import (
    Alter,
    Append,
    Bin,
    Create,
    Delete,
    Drop,
    Guard,
    InlineSource,
    Insert,
    Merge,
    Optimize,
    Overwrite,
    QuerySource,
    ReadRecord,
    StagedSource,
    Update,
)
from lakevilla.sublogs.record import Edge, SavedOperation, SavedTable, Sublog, Ticket, TxnRecord

GOLDEN = Path(__file__).parent / "golden" / "1"

TXN = "01a1fd3e-938f-7a0d-bcd3-691a01e45256"
NONCE = "15691fd60ca94d1765f706d7990de792"
WHERE = parse_predicate("id = 3 AND name LIKE 'a%'")
ADDED = DataFile(
    path=f"day=2024-01-01/lv-h-{TXN}-15691fd60ca94d17.parquet",
    size=1234,
    modification_time=1795250099312,
    partition_values={"day": "2024-01-01"},
    stats='{"numRecords":3}',
)
REMOVED = RemovedFile(
    path="part-0.parquet",
    size=77,
    partition_values={"day": None},
    deletion_vector=DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 34, 2, offset=4),
)
CHANGE = Change(adds=(ADDED,), removes=(REMOVED,))
OTHER = "01a1fd3e-0000-7a0d-bcd3-691a01e45256"
TOUCH = Touch(published=7, adds=True, removes=True, first=6)
SUMMARY = CommitSummary(12, 1795250099312, "transaction", TXN, "0a1b", {"sales/orders": TOUCH})
OPERATIONS = (
    Create("t", Change(metadata={"id": "x"}, protocol={"minReaderVersion": 1})),
    Append("t", (ADDED,)),
    Insert("t", ("id",), QuerySource("SELECT 1", {"u": "u"}, views={"v": InlineSource(b"ipc")})),
    Overwrite("t", (ADDED,), WHERE),
    Update("t", {"id": WHERE}, WHERE),
    Delete("t", WHERE),
    Merge(
        "t",
        StagedSource(("_lakevilla/txns/x/source-0000.arrow",), (3,), b"columns"),
        WHERE,
        "source",
        "target",
        (MergeClause("matched_delete"),),
    ),
    Alter("t", {"set_properties": {"a": "b"}}),
    Guard("t", True),
    Drop("t", "table-id"),
)

OBJECTS: dict[str, msgspec.Struct] = {
    "head": Head(
        1,
        "lake-id",
        "s3://bucket/lake",
        NONCE,
        replacement=40,
        sequence=12,
        floor=TXN,
        aborted=(TXN,),
        history_start=2,
        tables=TableMap(
            {"sales/orders": TableState("table-id", 7, (PendingRef(12, TXN, "0a1b", 7),), True)}
        ),
        names=NameMap({"orders": "sales/orders"}),
        commits=(SUMMARY,),
        pages=(PageRef("0c", 1, 11, 5, 6, 1),),
    ),
    "head_reserved": Head(
        1,
        "lake-id",
        "s3://bucket/lake",
        NONCE,
        reserved=(Reservation(TXN, ("sales/orders", "sales/stock")), Reservation(OTHER, ("t",))),
    ),
    "page": Page(
        1,
        NONCE,
        (SUMMARY,),
        (PageRef("0b", 1, 2, 3, 4),),
        (SUMMARY,),
        TableMap({"sales/orders": TableState("table-id", 7)}),
    ),
    "commit": CommitObject(
        1,
        NONCE,
        TXN,
        {"sales/orders": TablePart("table-id", CHANGE, metrics={"num_added_files": "1"})},
        operations=OPERATIONS,
        reads=(ReadRecord("sales/orders", WHERE, 1), ReadRecord("sales/stock")),
        metadata={"job": "nightly"},
        applications={"job": 3},
        started_ms=1795250099312,
        replaces=((11, TXN, "0a"),),
        voided=((TXN, "column gone"),),
        touched_reads=(TXN,),
        quiet=True,
    ),
    "commit_optimize": CommitObject(
        1,
        NONCE,
        TXN,
        {"sales/orders": TablePart("table-id", CHANGE, operation="OPTIMIZE")},
        operations=(
            Optimize(
                "sales/orders",
                (Bin((("a.parquet", None), ("b.parquet", "uab^-aqEH.-t@S}K")), (ADDED,)),),
                {"id": "x", "partitionColumns": ["day"]},
                {"predicate": "[]", "targetSize": "134217728"},
                7,
            ),
        ),
    ),
    "key": KeyRecord(1, NONCE, "job", TXN, 11, 4, 3),
    "lake": LakeFile(1, NONCE, "lake-id", "s3://bucket/lake"),
    "record": TxnRecord(1, NONCE, TXN, "host:1:ab", 3, 30.0, 11, "0d"),
    "record_waiting": TxnRecord(
        1,
        NONCE,
        TXN,
        "host:1:ab",
        4,
        30.0,
        11,
        claim="15691fd60ca94d17",
        tables=("sales/orders", "sales/stock"),
        tickets=(Ticket("sales/orders", 12, "write"), Ticket("sales/stock", 3, "read")),
        edges=(Edge(TXN, 12, OTHER, 11, "sales/orders"),),
    ),
    "marker": Marker(1, NONCE, TXN, "sales/orders", 12, "append"),
    "sublog": Sublog(
        1,
        NONCE,
        TXN,
        5,
        1795250099312,
        11,
        {"sales/orders": SavedTable(7, ((12, TXN, "0a1b", 7),), (6,), 7, True)},
        (SavedOperation(OPERATIONS[1], CHANGE, (0, 3, 0, 0, 1, 0), {"a": "1"}, True),),
        (ReadRecord("sales/orders", WHERE, 1),),
        {"job": "nightly"},
        {"job": 3},
        ("sales/orders/a.parquet",),
    ),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_of_format_1_is_read_as_it_was_written(name: str) -> None:
    body = (GOLDEN / f"{name}.json").read_bytes().strip()
    assert decode(name, body, type(OBJECTS[name])) == OBJECTS[name]


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_is_written_with_the_bytes_of_format_1(name: str) -> None:
    assert encode(OBJECTS[name]) == (GOLDEN / f"{name}.json").read_bytes().strip()


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_of_a_newer_format_is_refused_by_name(name: str) -> None:
    newer = getattr(type(OBJECTS[name]), "FORMAT", FORMAT) + 1
    body = encode(msgspec.structs.replace(OBJECTS[name], format=newer))
    with pytest.raises(UnsupportedFormat, match=f"{name} has format version {newer}") as raised:
        decode(name, body, type(OBJECTS[name]))
    assert raised.value.key == name


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("cut", [0.0, 0.3, 0.99])
def test_a_truncated_object_is_reported_as_corrupt_with_its_key(name: str, cut: float) -> None:
    body = encode(OBJECTS[name])
    with pytest.raises(CorruptObject, match=name):
        decode(name, body[: int(len(body) * cut)], type(OBJECTS[name]))


#: Objects of HEAD's second format version, and the objects introduced with it.
IN_FORMAT_2: dict[str, msgspec.Struct] = {
    "head": Head(
        2,
        "lake-id",
        "s3://bucket/lake",
        NONCE,
        7,
        3,
        tables=TableMap({"sales/orders": TableState("table-id", 4, vacuumed_ms=1795250099312)}),
        refs=RefMap(
            {
                "closing": RefEntry(
                    "7-15691fd60ca94d17",
                    "tag",
                    BaseRef(7, "0a" * 16, 3, 1795250099312),
                    1795250099313,
                    "host:1:15691fd6",
                    protected=True,
                    metadata={"by": "finance"},
                )
            }
        ),
        policy=Policy("refuse"),
    ),
    "base": Base(
        1,
        "lake-id",
        "closing",
        "tag",
        3,
        1795250099312,
        TableMap({"sales/orders": TableState("table-id", 4, (PendingRef(3, TXN, "0b", 4),))}),
        NameMap({"orders": "sales/orders"}),
    ),
}


@pytest.mark.parametrize("name", IN_FORMAT_2)
def test_an_object_of_format_2_is_read_as_it_was_written(name: str) -> None:
    body = (GOLDEN.parent / "2" / f"{name}.json").read_bytes().strip()
    assert decode(name, body, type(IN_FORMAT_2[name])) == IN_FORMAT_2[name]
    assert encode(IN_FORMAT_2[name]) == body
