"""A state of a Delta table as files of Iceberg: metadata, a list of manifests, and manifests.

All of them follow from the state, and have names that do. Manifests have up to 10,000 files each,
and are named by what they say: states that share files share them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from blake3 import blake3

from lakevilla.engines.deletes import puffin_of, rows_marked
from lakevilla.errors import StoreError
from lakevilla.formats.delta.shown import shown_directory
from lakevilla.formats.delta.snapshot import DeltaSnapshot
from lakevilla.formats.files import (
    PUFFIN_SUFFIX,
    DataFile,
    DeleteFile,
    data_files,
    is_elsewhere,
    rows_in,
)
from lakevilla.formats.iceberg.manifests.columns import (
    Integers,
    encode_columns,
    listed_columns,
)
from lakevilla.formats.iceberg.manifests.manifests import (
    deletes_entry,
    encode_list,
    encode_manifest,
)
from lakevilla.formats.iceberg.metadata.definition import IcebergDefinition
from lakevilla.formats.iceberg.metadata.file import Metadata, decode_metadata
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.frozen import uri_at
from lakevilla.lake.view import View
from lakevilla.serve.delta.files import file_columns, with_statistics
from lakevilla.serve.delta.footers import Footer, Footers, check_ids, is_own
from lakevilla.serve.delta.schema import Shown, shown_definition
from lakevilla.store.base import ABSENT, ANY, Found, ObjectInfo, Refused, Stored
from lakevilla.store.effects import Program, copy, get, parallel, put, some_at_once, stat

#: The version of what is made of a state: part of its name.
_RENDERING = 1
#: The number of times that a state is made again within the retention of its table.
_PERIODS = 4
#: A manifest has at most so many files, and ends on average after so many (``_runs``).
_MOST_FILES, _FILES = 10_000, 4096
#: The number of the only snapshot of a state.
_SEQUENCE = 1


def shown_delta(
    context: Context, view: View, footers: Footers, *, makes: bool = True
) -> Program[tuple[Metadata, str] | None]:
    """Return the metadata of a Delta table's state, and the URI of its file.

    Without ``makes``, None if no gateway has made the file.

    Raises
    ------
    UnsupportedTableFeature
        Iceberg can't have the state, or a reader would take its columns for others.
    StoreError
        A file could not be stored.
    """
    snapshot, base = view.snapshot, view.base
    assert isinstance(snapshot, DeltaSnapshot)
    retention = context.formats.of(snapshot).file_retention_seconds(snapshot)
    period = int(context.clock.now() / retention * _PERIODS) if retention else 0
    uri = uri_at(context.root, snapshot.location)
    above = [(one.txn, one.hash) for one in view.placement.overlay]
    digest = _digest([_RENDERING, uri, snapshot.table_id, base.version, above])
    state = _State(context.root, snapshot, uri, digest, period, footers)
    key = f"{state.directory}/{digest}.metadata.json"
    found = yield from get(key)
    if isinstance(found, Found):
        body = found.body
    elif makes:
        body = yield from state.made()
        if not isinstance((yield from put(key, body, ANY)), Stored):
            raise StoreError(f"table {snapshot.table}: {key} could not be stored")
    else:
        return None
    return decode_metadata(key, snapshot.table, body), uri_at(context.root, key)


@dataclass(frozen=True, slots=True)
class _State:
    """A state that is made: its table, its name, and where its files lie."""

    root: str
    snapshot: DeltaSnapshot
    uri: str
    digest: str
    period: int
    footers: Footers

    @property
    def directory(self) -> str:
        return shown_directory(self.snapshot.location, self.period)

    def made(self) -> Program[bytes]:
        """Store the state's manifests and their list; return its metadata."""
        files = _ordered((yield from self.snapshot.files()))
        marked = files.filter(_is_marked(files))
        version = 3 if marked.num_rows else 2
        shown = shown_definition(self.snapshot.definition, self.uri, version)
        definition = IcebergDefinition(
            self.snapshot.location, self.snapshot.table, dict(shown.definition)
        )
        snapshot_id = int(self.digest[:16], 16) >> 1 or 1
        maker = _Manifests(self, shown, definition, snapshot_id)
        manifests = yield from parallel(
            [maker.of_files(run) for run in _runs(files)]
            + [maker.of_vectors(run) for run in _runs(marked)]
        )
        if not manifests:
            return _encoded(shown.definition, self.snapshot, None, 0)
        key = f"{self.directory}/snap-{self.digest}.avro"
        uri = uri_at(self.root, key)
        body, _ = encode_list(
            uri,
            manifests,
            snapshot_id=snapshot_id,
            parent_id=None,
            sequence=_SEQUENCE,
            definition=definition,
        )
        if not isinstance((yield from put(key, body, ANY)), Stored):
            raise StoreError(f"table {self.snapshot.table}: {key} could not be stored")
        rows = sum(one.added_rows_count or 0 for one in manifests if not one.content)
        taken = {
            "snapshot-id": snapshot_id,
            "sequence-number": _SEQUENCE,
            "timestamp-ms": pc.max(files["modification_time"]).as_py(),
            "manifest-list": uri,
            "schema-id": 0,
            "summary": _summary(files, marked, rows),
        }
        return _encoded(shown.definition, self.snapshot, taken, rows)

    def stored(self, name: str, make: Callable[[], Program[bytes]]) -> Program[int]:
        """Return the size of a file of the state's directory, which is made if it is not there.

        A copy of that of the period before suffices: the name says what is in it.
        """
        key = f"{self.directory}/{name}"
        known = yield from stat(key)
        if isinstance(known, ObjectInfo):
            return known.size
        before = f"{shown_directory(self.snapshot.location, self.period - 1)}/{name}"
        known = yield from stat(before)
        if isinstance(known, ObjectInfo) and isinstance((yield from copy(before, key)), Stored):
            return known.size
        body = yield from make()
        outcome = yield from put(key, body, ABSENT)
        if isinstance(outcome, Refused):
            # Another gateway was first; its compression may be another, and lists say the size.
            known = yield from stat(key)
            if isinstance(known, ObjectInfo):
                return known.size
        if not isinstance(outcome, Stored):
            raise StoreError(f"table {self.snapshot.table}: {key} could not be stored")
        return len(body)


@dataclass(frozen=True, slots=True)
class _Manifests:
    """The manifests of a state, each of a run of its files."""

    state: _State
    shown: Shown
    definition: IcebergDefinition
    snapshot_id: int

    def of_files(self, files: pa.Table) -> Program[Any]:
        """Return the entry, in the list, of the manifest of some data files."""
        snapshot, uris = self.state.snapshot, self._uris(files)
        rows = yield from self._rows(files)
        columns = file_columns(files, uris, rows, self.shown, snapshot.table)
        # The period is no part of it: what the period before has is copied.
        name = f"{_digest([self.shown.definition, _content(files)])}.avro"
        uri = uri_at(self.state.root, f"{self.state.directory}/{name}")

        def make() -> Program[bytes]:
            foreign = [one for one in _sizes(files) if not is_own(one[0])]
            check_ids((yield from self._footers(foreign)), self.shown, snapshot.table)
            full = with_statistics(columns, files, self.shown)
            return encode_columns(uri, full, self.definition)

        size = yield from self.state.stored(name, make)
        return listed_columns(uri, size, columns, self.snapshot_id, self.definition)

    def of_vectors(self, files: pa.Table) -> Program[Any]:
        """Return the entry, in the list, of the manifest of the vectors of some data files."""
        snapshot, uris = self.state.snapshot, self._uris(files)
        marked = data_files(files)
        rows = np.array([one.deletion_vector.cardinality for one in marked if one.deletion_vector])
        columns = file_columns(files, uris, rows, self.shown, snapshot.table)
        # The manifest names the file of vectors, so it is of the period.
        name = _digest([self.shown.definition, self.state.period, _content(files)])
        uri = uri_at(self.state.root, f"{self.state.directory}/{name}.avro")

        def make() -> Program[bytes]:
            deletes = yield from self._vectors(name, marked, uris)
            types = self.definition.partition_types(0)
            entries = [
                deletes_entry(
                    msgspec.structs.replace(
                        file,
                        raw_path=spelled,
                        partition_values=types.texts(columns.partitions[place]),
                    ),
                    vector,
                    0,
                    None,
                    self.definition,
                )
                for file, spelled, vector, place in zip(
                    marked, uris.to_pylist(), deletes, columns.partition_of, strict=True
                )
            ]
            return encode_manifest(uri, entries, 0, 0, self.definition, deletes=True).body

        size = yield from self.state.stored(f"{name}.avro", make)
        return listed_columns(uri, size, columns, self.snapshot_id, self.definition, deletes=True)

    def _vectors(
        self, name: str, marked: Sequence[DataFile], uris: pa.Array
    ) -> Program[list[DeleteFile]]:
        """Store the vectors of files in a Puffin file, and return where each is."""
        layout = self.state.snapshot.layout
        rows = yield from some_at_once(rows_marked(layout, file) for file in marked)
        body, spans = puffin_of(list(zip(uris.to_pylist(), rows, strict=True)))
        key = f"{self.state.directory}/{name}{PUFFIN_SUFFIX}"
        if not isinstance((yield from put(key, body, ANY)), Stored):
            raise StoreError(f"table {layout.table}: {key} could not be stored")
        uri = uri_at(self.state.root, key)
        return [
            DeleteFile(uri, "vector", len(body), offset=at, length=length, rows=len(own))
            for own, (at, length) in zip(rows, spans, strict=True)
        ]

    def _rows(self, files: pa.Table) -> Program[Integers]:
        """Return the number of each file's rows, from its footer where the log does not say it."""
        told = list(map(rows_in, files["stats"].to_pylist()))
        untold = [one for one, rows in zip(_sizes(files), told, strict=True) if rows is None]
        footers = yield from self._footers(untold)
        paths = files["path"].to_pylist()
        return np.array(
            [
                footers[path].rows if rows is None else rows
                for path, rows in zip(paths, told, strict=True)
            ],
            np.int64,
        )

    def _footers(self, files: Sequence[tuple[str, int]]) -> Program[Mapping[str, Footer]]:
        return (yield from self.state.footers.of(self.state.snapshot.location, files))

    def _uris(self, files: pa.Table) -> pa.Array:
        root, uri = self.state.root, self.state.uri
        return pa.array(
            [
                uri_at(root, path) if is_elsewhere(path) else f"{uri}/{path}"
                for path in files["path"].to_pylist()
            ],
            pa.string(),
        )


def _ordered(files: pa.Table) -> pa.Table:
    """Return files in an order that new files do not change: the oldest first."""
    keys = [("modification_time", "ascending"), ("path", "ascending"), ("dv_id", "ascending")]
    return files.take(pc.sort_indices(files, sort_keys=keys)).combine_chunks()


def _is_marked(files: pa.Table) -> pa.Array:
    vectors = files["deletion_vector"].combine_chunks()
    rows = vectors.field("cardinality") if len(vectors) else pa.array([], pa.int64())
    return pc.fill_null(pc.and_(vectors.is_valid(), pc.greater(rows, 0)), False)


def _runs(files: pa.Table) -> Iterator[pa.Table]:
    """Yield files in runs whose ends the paths themselves tell.

    So a file that came or went changes the run that it is in, and not those behind it.
    """
    start = 0
    for place, path in enumerate(files["path"].to_pylist(), 1):
        is_end = zlib.crc32(path.encode()) % _FILES == 0 or place - start == _MOST_FILES
        if is_end or place == files.num_rows:
            yield files.slice(start, place - start)
            start = place


def _sizes(files: pa.Table) -> list[tuple[str, int]]:
    return list(zip(files["path"].to_pylist(), files["size"].to_pylist(), strict=True))


def _content(files: pa.Table) -> str:
    """Return a digest of what manifests say of files."""
    sink = pa.BufferOutputStream()
    named = files.select(["path", "dv_id", "size", "partition_values", "stats"]).combine_chunks()
    with pa.ipc.new_stream(sink, named.schema) as stream:
        stream.write_table(named)
    return blake3(sink.getvalue()).hexdigest(length=16)


def _digest(what: Any) -> str:
    return blake3(msgspec.json.encode(what)).hexdigest(length=16)


def _summary(files: pa.Table, marked: pa.Table, rows: int) -> dict[str, str]:
    vectors = marked["deletion_vector"].combine_chunks()
    deleted = pc.sum(vectors.field("cardinality")).as_py() if marked.num_rows else 0
    return {
        "operation": "append",
        "total-data-files": str(files.num_rows),
        "total-delete-files": str(marked.num_rows),
        "total-records": str(rows),
        "total-files-size": str(pc.sum(files["size"]).as_py()),
        "total-position-deletes": str(deleted),
        "total-equality-deletes": "0",
    }


def _encoded(
    definition: Mapping[str, Any],
    snapshot: DeltaSnapshot,
    taken: Mapping[str, Any] | None,
    rows: int,
) -> bytes:
    """Return the text of a metadata file with one snapshot, or none."""
    created = int(snapshot.metadata.get("createdTime") or 0)
    time_ms = created if taken is None else max(created, taken["timestamp-ms"])
    number = -1 if taken is None else taken["snapshot-id"]
    snapshots = []
    parts = {**definition, "last-sequence-number": 0 if taken is None else _SEQUENCE}
    parts |= {"last-updated-ms": time_ms, "current-snapshot-id": number}
    if taken is not None:
        snapshots = [{**taken, "timestamp-ms": time_ms}]
        parts["refs"] = {"main": {"snapshot-id": number, "type": "branch"}}
        parts["snapshot-log"] = [{"snapshot-id": number, "timestamp-ms": time_ms}]
    if definition["format-version"] >= 3:
        parts["next-row-id"] = rows
        snapshots = [{**one, "first-row-id": 0, "added-rows": rows} for one in snapshots]
    return msgspec.json.encode({**parts, "snapshots": snapshots})
