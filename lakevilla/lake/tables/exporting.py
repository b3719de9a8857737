"""Exports: a state of a table as an ordinary table elsewhere, for readers without LakeVilla.

Each export adds the next version to the target's log if no other client has added it, so two
concurrent exports follow each other. A property marks the target: a table without it is never
overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import msgspec
from blake3 import blake3

from lakevilla.engines.deletes import puffin_of, rows_marked, with_vector
from lakevilla.errors import ConflictError, InvalidOperation, StoreError, TableNotFound
from lakevilla.formats.base import Change, CommitInfo, TableSnapshot
from lakevilla.formats.delta.actions import encode_path
from lakevilla.formats.delta.commit import ROW_TRACKING_DOMAIN, high_water_mark
from lakevilla.formats.delta.deletion_vectors import vector_key
from lakevilla.formats.delta.metadata.properties import ENABLEMENT, TRACKS, enablement
from lakevilla.formats.delta.snapshot import DeltaSnapshot
from lakevilla.formats.files import (
    PUFFIN_SUFFIX,
    DataFile,
    DeleteFile,
    DeletionVector,
    data_files,
    file_key,
    removal,
)
from lakevilla.formats.views import refuse_view
from lakevilla.global_log.head import Head
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.frozen import (
    HISTORY,
    has_vectors,
    is_named_by,
    name_in_vectors,
    unguarded,
)
from lakevilla.lake.tables.overlaps import in_the_way, refuse_overlaps
from lakevilla.store.base import ANY, Stored
from lakevilla.store.effects import Program, copy_all, parallel, put

#: The property that marks an export, and names its table.
MARK = "lakevilla.export"
_TRIES = 10
#: The length of the encoded UUID at the end of a vector's name, after the optional prefix.
_VECTOR_NAME = 20


@dataclass(frozen=True, slots=True)
class Export:
    """The state to export, and its target.

    ``uri_of`` returns a location as a URI for other clients. ``head`` is the lake's HEAD, with
    whose tables the target must not overlap.
    """

    name: str
    snapshot: TableSnapshot
    target: str
    copies: bool
    head: Head | None
    uri_of: Callable[[str], str]

    def uri(self, location: str) -> str:
        found = self.uri_of(location)
        return f"file://{found}" if found.startswith("/") else found


def export(context: Context, what: Export) -> Program[int]:
    """Bring the target to the state to export, unless it has it; return the target's version.

    Raises
    ------
    InvalidOperation
        The target is not empty and not an export of this table, or overlaps a table.
    ConflictError
        Other clients have written the target again and again.
    """
    refuse_view(what.snapshot.layout, "export")
    for _ in range(_TRIES):
        current = yield from _current(context, what)
        moved = _Moved(what)
        sources = data_files((yield from what.snapshot.files()))
        files = [moved.file(file) for file in sources]
        files, vectors = yield from _with_own_vectors(what, current, sources, files)
        there = data_files((yield from current.files())) if current.version >= 0 else []
        wanted, known = {file.ref: file for file in files}, {file.ref for file in there}
        change = Change(
            adds=tuple(file for ref, file in wanted.items() if ref not in known),
            removes=tuple(removal(file) for file in there if file.ref not in wanted),
            metadata=_metadata(context, what, current, files),
            protocol=_protocol(what, current),
        )
        if change.is_empty:
            return current.version
        change = msgspec.structs.replace(change, domains=_row_ids(what, current))
        yield from _copy(what, moved, change)
        yield from _store(what, vectors, change)
        table_format = context.formats.of(what.snapshot)
        info = CommitInfo(
            operation="EXPORT",
            parameters={"table": what.name},
            metrics={},
            is_blind_append=False,
            txn_ids=(),
            nonce=context.ids.nonce(),
        )
        attempt = yield from table_format.prepare(current, change, info, context.now_ms())
        outcome = yield from put(attempt.key, attempt.body, attempt.condition)
        if not isinstance(outcome, Stored) or attempt.entry is None:
            continue  # another client was first, or the outcome is unknown: read the target again
        newer = table_format.advance(current, attempt.entry)
        yield from table_format.announce(newer)
        if table_format.checkpoint_due(newer.version, newer):
            yield from table_format.checkpoint(newer)
        return newer.version
    raise ConflictError(
        f"export of table {what.name}: {what.target} was written by other clients {_TRIES} times "
        "in a row",
        table=what.name,
    )


def _current(context: Context, what: Export) -> Program[TableSnapshot]:
    """Return the target's present state: an export of this table, or empty; refuse all else."""
    target = what.target
    head = what.head
    if head is not None and target in head.tables:
        raise InvalidOperation(
            f"export of table {what.name}: {target} is a table of the lake: choose another place",
            table=what.name,
        )
    if target == what.snapshot.location:
        raise InvalidOperation(
            f"export of table {what.name}: {target} is the table itself: choose another place",
            table=what.name,
        )
    reason = yield from in_the_way(target, head)
    if reason is not None:
        raise InvalidOperation(f"export of table {what.name}: {reason}", table=what.name)
    try:
        found = yield from context.formats.open(target, target)
    except TableNotFound:
        yield from refuse_overlaps(target, head, "")
        return context.formats.of(what.snapshot).blank(target, target)
    mark = found.layout.properties.get(MARK)
    if mark != _mark(what):
        problem = "is a table, and no export" if mark is None else "is an export of another table"
        raise InvalidOperation(
            f"export of table {what.name}: {target} {problem}: choose another place, or delete it",
            table=what.name,
        )
    return found


def _mark(what: Export) -> str:
    return f"table {what.snapshot.table_id}"


def _metadata(
    context: Context, what: Export, current: TableSnapshot, files: Sequence[DataFile]
) -> dict[str, Any] | None:
    """Return the metadata for the target; None if the target has it already."""
    known = current.metadata if current.version >= 0 else {}
    if what.snapshot.format == "iceberg":
        wanted = _of_iceberg(context, what, known)
    else:
        wanted = _of_delta(context, what, known, _have_ids(files))
    if all(_same(name, known.get(name), value) for name, value in wanted.items()):
        return None
    return wanted


def _same(name: str, known: object, wanted: object) -> bool:
    if name == "configuration" and isinstance(known, dict):
        # Delta's writers note in it where the target's own in-commit timestamps begin.
        return {k: v for k, v in known.items() if k not in enablement(known)} == wanted
    if name == "properties" and isinstance(known, dict) and isinstance(wanted, dict):
        # LakeVilla's Iceberg writer notes in it which commits it has published.
        return {k: v for k, v in known.items() if k == MARK or not _is_own(k)} == wanted
    return known == wanted


def _is_own(name: str) -> bool:
    return name.startswith("lakevilla.")


def _have_ids(files: Sequence[DataFile]) -> bool:
    """Return whether the log has assigned ids to the rows of all files.

    That of a branch assigns none. The target's ids for such rows could be those of other rows,
    which the source's log assigns later.
    """
    return all(file.base_row_id is not None for file in files)


def _of_delta(
    context: Context, what: Export, known: dict[str, Any], have_ids: bool
) -> dict[str, Any]:
    metadata = dict(what.snapshot.metadata)
    configuration = {
        name: value
        for name, value in (metadata.get("configuration") or {}).items()
        if not name.startswith(ENABLEMENT) and not _is_own(name)
    }
    had_ids = not known or (known.get("configuration") or {}).get(TRACKS) == "true"
    if configuration.get(TRACKS) == "true" and not (have_ids and had_ids):
        # Files that were exported earlier have no row ids, or others than in the source.
        del configuration[TRACKS]
    metadata["configuration"] = {**configuration, MARK: _mark(what)}
    metadata["id"] = known.get("id") or context.ids.uuid()
    metadata["createdTime"] = known.get("createdTime") or context.now_ms()
    return metadata


def _row_ids(what: Export, current: TableSnapshot) -> tuple[dict[str, Any], ...]:
    """Return the domain with the source's highest row id, which the files may contain.

    Empty if the target has assigned a higher one: a table's highest row id never decreases.
    """
    if not (isinstance(what.snapshot, DeltaSnapshot) and isinstance(current, DeltaSnapshot)):
        return ()
    domains = what.snapshot.domains
    mark, known = (high_water_mark(one, what.name) for one in (domains, current.domains))
    if mark <= known:
        return ()
    return ({"domain": ROW_TRACKING_DOMAIN, "configuration": domains[ROW_TRACKING_DOMAIN]},)


def _of_iceberg(context: Context, what: Export, known: dict[str, Any]) -> dict[str, Any]:
    document = {k: v for k, v in what.snapshot.metadata.items() if k not in HISTORY}
    properties = document.get("properties") or {}
    kept = {name: value for name, value in properties.items() if not _is_own(name)}
    document["properties"] = {**kept, MARK: _mark(what)}
    document["location"] = known.get("location") or what.uri(what.target)
    document["table-uuid"] = known.get("table-uuid") or context.ids.uuid()
    return document


def _protocol(what: Export, current: TableSnapshot) -> dict[str, Any] | None:
    """Return Delta's protocol for the target, without the guard; None if the target has it."""
    protocol = unguarded(what.snapshot.protocol)
    if not protocol:
        return None
    known = current.protocol if current.version >= 0 else {}
    return None if protocol == dict(known) else protocol


@dataclass
class _Moved:
    """Files as the target's log names them: by their URIs, or as copies in the target."""

    what: Export
    copies: dict[str, str] = field(default_factory=dict)

    def file(self, file: DataFile) -> DataFile:
        vector, deletes = file.deletion_vector, file.deletes
        is_iceberg = self.what.snapshot.format == "iceberg"
        path = self._path(file.path, len(file.partition_values))
        if deletes and not self.what.copies:
            path = name_in_vectors(self.what.snapshot, file)
        moved = msgspec.structs.replace(file, path=path, raw_path=None)
        fits = is_named_by(moved, self.what.snapshot, file)
        # A copy gets a vector of its own.
        if not (fits or (self.what.copies and has_vectors(self.what.snapshot, file))):
            raise InvalidOperation(
                f"export of table {self.what.name}: rows of file {file.path} are deleted by files "
                "of their own, which would not apply to it elsewhere: optimize the table first",
                table=self.what.name,
            )
        location = self.what.snapshot.location
        return msgspec.structs.replace(
            moved,
            data_change=True,
            deletes=tuple(
                msgspec.structs.replace(one, path=self.what.uri(file_key(location, one.path)))
                for one in deletes
            ),
            deletion_vector=None if vector is None else self._vector(vector),
            default_row_commit_version=file.default_row_commit_version if is_iceberg else None,
        )

    def _path(self, path: str, partitions: int) -> str:
        key = file_key(self.what.snapshot.location, path)
        if not self.what.copies:
            return self.what.uri(key)
        # Keep the partitions' directories: polars reads partition values from paths, not the log.
        # https://github.com/pola-rs/polars/issues/23391
        *folders, last = key.split("/")
        kept = list(takewhile(lambda one: "=" in one, reversed(folders)))[:partitions][::-1]
        name = "/".join([*kept, f"{blake3(key.encode()).hexdigest(length=8)}-{last}"])
        self.copies[name] = key
        return name

    def _vector(self, vector: DeletionVector) -> DeletionVector:
        if vector.storage_type == "i":
            return vector
        key = vector_key(self.what.snapshot.location, vector)
        if not self.what.copies or vector.storage_type != "u":
            uri = encode_path(self.what.uri(key))
            return msgspec.structs.replace(vector, storage_type="p", path_or_inline=uri)
        self.copies[key.rpartition("/")[2]] = key
        return msgspec.structs.replace(vector, path_or_inline=vector.path_or_inline[-_VECTOR_NAME:])


def _with_own_vectors(
    what: Export, current: TableSnapshot, sources: Sequence[DataFile], files: Sequence[DataFile]
) -> Program[tuple[list[DataFile], dict[str, bytes]]]:
    """Return the files with vectors that name the copies, and the vectors' objects by their paths.

    The names of the objects are those of their contents, so an export that is made again finds
    them.
    """
    if not what.copies:
        return list(files), {}
    own = current.metadata.get("location") or what.uri(what.target)
    bodies: dict[str, bytes] = {}
    found: list[DataFile] = []
    for source, file in zip(sources, files, strict=True):
        if source.deletes:
            rows = yield from rows_marked(what.snapshot.layout, source)
            body, ((offset, length),) = puffin_of([(f"{own}/{file.path}", rows)])
            path = f"{blake3(body).hexdigest(length=16)}{PUFFIN_SUFFIX}"
            bodies[path] = body
            vector = DeleteFile(
                path, "vector", len(body), offset=offset, length=length, rows=len(rows)
            )
            file = with_vector(file, vector)
        found.append(file)
    return found, bodies


def _store(what: Export, vectors: Mapping[str, bytes], change: Change) -> Program[None]:
    """Store the vectors that the target lacks."""
    named = {one.path for file in change.adds for one in file.deletes}
    puts = [put(f"{what.target}/{path}", vectors[path], ANY) for path in vectors if path in named]
    if not all(isinstance(outcome, Stored) for outcome in (yield from parallel(puts))):
        raise StoreError(f"export of table {what.name}: a deletion vector could not be stored")


def _copy(what: Export, moved: _Moved, change: Change) -> Program[None]:
    """Let the store copy the files that the target lacks, before the target's log names them."""
    if not what.copies:
        return
    there = {file.path for file in change.removes}  # with other deleted rows
    named = {file.path for file in change.adds} - there
    named |= {
        vector_key(what.target, file.deletion_vector).rpartition("/")[2]
        for file in change.adds
        if file.deletion_vector is not None and file.deletion_vector.storage_type == "u"
    }
    wanted = [(key, f"{what.target}/{name}") for name, key in moved.copies.items() if name in named]
    missing = yield from copy_all(wanted)
    if missing is not None:
        raise ConflictError(
            f"export of table {what.name}: {missing} was removed meanwhile: export again",
            table=what.name,
        )
