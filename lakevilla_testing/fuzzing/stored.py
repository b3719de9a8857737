"""Objects of which the lakes of `lakes` have none or few, and what reads them.

Some are rare, as those of backups. Others are read by programs, which send requests: such a program
gets a store with one object, and no lake around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from lakevilla.api.catalog.pages import PageToken, read_token
from lakevilla.engines.deletes import puffin_of, rows_marked
from lakevilla.formats.delta.checkpoint.file_list import load_files
from lakevilla.formats.delta.checkpoint.reader import open_checkpoint
from lakevilla.formats.delta.deletion_vectors import read_vector, vector_key, vectors_of
from lakevilla.formats.delta.metadata.layout import DeltaDefinition
from lakevilla.formats.files import DataFile, DeleteFile
from lakevilla.formats.iceberg.metadata.definition import IcebergDefinition
from lakevilla.formats.iceberg.metadata.file import decode_metadata, definition_of
from lakevilla.global_log.commits import digest_of
from lakevilla.global_log.head import Head, NameMap, TableMap
from lakevilla.global_log.inbox.proposal import (
    INBOX_PREFIX,
    IntendedTable,
    Intent,
    Proposal,
    ProposedCommit,
    read_proposal,
    seal_proposal,
)
from lakevilla.global_log.leaves import Leaf, LeafMark
from lakevilla.global_log.namespaces import NamespaceFile
from lakevilla.global_log.refs import RefMap
from lakevilla.maintenance.backup.manifest import Manifest, Owner, SavedRef, StateRef
from lakevilla.maintenance.backup.restore import Restoring
from lakevilla.maintenance.upkeep.lease import TaskRecord, TaskResult
from lakevilla.store.codec import FORMAT, decode, encode
from lakevilla.store.effects import Program
from lakevilla.sublogs.record import Sublog
from lakevilla_testing.fuzzing.lakes import lake_of, opened, store_of


class Parser(NamedTuple):
    """A parser, and a sound object for it."""

    key: str
    body: bytes
    parse: Callable[[bytes], Any]


def rare_parsers() -> Mapping[str, Parser]:
    """Return the parsers of these objects by name."""
    return {
        **_structs(),
        "proposal": _proposal(),
        "token of a page": _token(),
        "checkpoint": _checkpoint(),
        "vectors of Delta": _vectors_of_delta(),
        "Puffin": _puffin(),
    }


# -------------------- structs

_STATE = StateRef("0" * 32, "a-table")
_REF = SavedRef(
    *("b", "branch", 3, 1, 2, "me"), tables={"t": _STATE}, names={"t": "t"}, since={"t": _STATE}
)
_STRUCTS: tuple[tuple[str, msgspec.Struct], ...] = (
    (
        "_lakevilla_backup/manifests/m.json",
        Manifest(FORMAT, "lake", "/lake", 3, 4, 5, {"t": _STATE}, {"t": "t"}, (_REF,)),
    ),
    ("_lakevilla_backup/lake.json", Owner(FORMAT, "n", "lake", "/lake")),
    ("_lakevilla/restoring.json", Restoring(FORMAT, "n", "/copy", "m", True, "lake")),
    ("_lakevilla/namespaces/a.json", NamespaceFile(FORMAT, "n", ("a", "b"), {"c": "d"})),
    ("_lakevilla/leaves/3-named.json", LeafMark(FORMAT, "n", 3, 4, ("_lakevilla/leaves/1.json",))),
    (
        "_lakevilla/maintenance/gc.json",
        TaskRecord(FORMAT, "n", "me", "l", 2, 3, TaskResult("lake", 3, 4, True, "", "me", 5)),
    ),
)


def _structs() -> dict[str, Parser]:
    found = {}
    for key, value in _STRUCTS:
        kind = type(value)
        found[kind.__name__] = Parser(key, encode(value), _decoder(key, kind))
    leaves = [
        (key, body) for key, body in sorted(lake_of("delta").items()) if "_lakevilla/leaves/" in key
    ]
    for name, leaf in (("tables", TableMap.leaf), ("names", NameMap.leaf), ("refs", RefMap.leaf)):
        for key, body in leaves:
            if _fits(body, leaf):
                found.setdefault(f"leaf of {name}", Parser(key, body, _decoder(key, leaf)))
    return found


def _decoder(key: str, kind: Any) -> Callable[[bytes], Any]:
    return lambda body: decode(key, body, kind)


def _fits(body: bytes, leaf: type[Leaf[Any]]) -> bool:
    try:
        return bool(msgspec.json.decode(body, type=leaf))
    except msgspec.ValidationError:
        return False


# -------------------- the inbox, and pages of names


def _proposal() -> Parser:
    """Return the parser of a proposal with a commit, and with an intent of a saved transaction."""
    lake = lake_of("delta")
    head = _head()
    key = min(one for one in lake if one.startswith("_lakevilla/commits/"))
    txn, _, digest = key.rpartition("/")[2].removesuffix(".json").rpartition("-")
    commit = ProposedCommit(txn, digest, msgspec.Raw(lake[key]), {})
    saved = next(
        one for one in sorted(lake) if one.startswith("_lakevilla/txns/") and one.count("/") == 3
    )
    sublog = decode(saved, lake[saved], Sublog)
    intent = Intent(
        sublog.txn,
        tuple(one.operation for one in sublog.operations),
        {"t": IntendedTable("a-table", "a-contract")},
    )
    sealed, body = seal_proposal(
        Proposal(
            Proposal.FORMAT,
            "n",
            head.lake_id,
            head.replacement,
            head.sequence,
            (commit,),
            (intent,),
        )
    )

    def parse(body: bytes) -> Proposal:
        # Its name has the hash of what is read, or nothing else of it would be.
        named = f"{INBOX_PREFIX}/{head.replacement:020}-{digest_of(body)}.json"
        found = read_proposal(named, body)
        for one in found.commits:
            one.commit_object()
        return found

    return Parser(sealed, body, parse)


def _head() -> Head:
    key = "_lakevilla/HEAD.json"
    return decode(key, lake_of("delta")[key], Head)


def _token() -> Parser:
    head = _head()
    return Parser(
        "token",
        PageToken(head.lake_id, "", head.sequence, "", "t").text.encode(),
        lambda body: read_token(body.decode("utf-8", "replace"), head.lake_id, ""),
    )


# -------------------- objects that programs read


def _run(objects: Mapping[str, bytes], program: Program[Any]) -> Any:
    with opened(store_of(objects)) as lake:
        return lake._client.run(program)


def _checkpoint() -> Parser:
    lake = lake_of("delta")
    (key,) = [one for one in lake if one.endswith(".checkpoint.parquet")]
    version = int(key.rpartition("/")[2][:20])

    def files() -> Program[pa.Table]:
        checkpoint = yield from open_checkpoint("t", version, [key])
        definition = DeltaDefinition("t", "t", checkpoint.metadata, checkpoint.protocol)
        return (yield from load_files(checkpoint, definition.layout, None))

    return Parser(key, lake[key], lambda body: _run({key: body}, files()))


#: The rows that are deleted of three data files: few, many, and beyond the first four billion.
_DELETED = [
    np.array(rows, dtype=np.int64)
    for rows in ([0, 3, 9], [*range(100, 5000), 70_000], [1, 1 << 33])
]


def _vectors_of_delta() -> Parser:
    vectors, files = vectors_of(_DELETED, lambda end: f"lv-h-01{end}")
    (body,) = files.values()
    there = [one for one in vectors if one is not None]
    key = vector_key("t", there[0])

    def read(body: bytes) -> list[Any]:
        return [_run({key: body}, read_vector("t", one)).tolist() for one in there]

    return Parser(key, body, read)


def _puffin() -> Parser:
    lake = lake_of("iceberg v3")
    newest = max(one for one in lake if one.startswith("t/metadata/v") and one.endswith(".json"))
    metadata = decode_metadata(newest, "t", lake[newest])
    layout = IcebergDefinition("t", "t", definition_of(metadata)).layout
    place = f"{layout.uri}/lv-h-2.parquet"
    sound, spans = puffin_of([(f"{layout.uri}/lv-h-1.parquet", _DELETED[0]), (place, _DELETED[1])])
    at, length = spans[1]
    path = "lv-h-v.puffin"

    def read(body: bytes) -> Any:
        # Its manifest says how long it is, or nothing else of it would be read.
        vector = DeleteFile(
            path, "vector", len(body), offset=at, length=length, rows=len(_DELETED[1])
        )
        file = DataFile("lv-h-2.parquet", 400, 1, stats='{"numRecords":80000}', deletes=(vector,))
        return _run({f"t/{path}": body}, rows_marked(layout, file)).tolist()

    return Parser(f"t/{path}", sound, read)
