"""Tables of a frozen state, and tables that name the files of another table by URI."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from lakevilla.errors import CorruptObject, TableNotFound, VersionNotFound
from lakevilla.formats.base import VOIDED, Change, TableSnapshot
from lakevilla.formats.delta.actions import encode_path
from lakevilla.formats.delta.deletion_vectors import vector_key
from lakevilla.formats.delta.metadata.properties import ENABLEMENT
from lakevilla.formats.delta.snapshot import DeltaSnapshot
from lakevilla.formats.files import (
    DataFile,
    DeleteFile,
    DeletionVector,
    data_files,
    file_key,
    has_only_vectors,
    rows_in,
)
from lakevilla.formats.iceberg.metadata.definition import TableAddress
from lakevilla.global_log.bases import Base, head_of, load_base, load_base_tables
from lakevilla.global_log.commits import TablePart
from lakevilla.global_log.head import Head, PendingRef, TableState, application_id
from lakevilla.global_log.refs import BaseRef, KeptTable, RefEntry, parsed
from lakevilla.global_log.repo import load_refs
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.frozen.mounts import Mount, mount_in, mounted_id
from lakevilla.lake.kept_state import kept_snapshot
from lakevilla.lake.missing_tables import near_tables
from lakevilla.lake.table_log import entry_at, load_snapshots, open_tail, probe, snapshot_at
from lakevilla.lake.view import Mounted, Placement, View, pending_parts
from lakevilla.store.effects import Program, parallel
from lakevilla.store.location import is_external

# -------------------- frozen
#
# The lake as a ref keeps it: each table in the state of the ref's base, whatever was committed
# later.
#
# A base has a table as HEAD had it: log[..published], with the pending commits laid over it. Log
# entries and commit objects never change. So the state can be read as long as these objects exist,
# and the files that they name. Later log entries are not read, and entries that HEAD did not know
# do not count.


#: The approximate memory, in bytes, for one file in a table's file list.
_FILE_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Frozen:
    """The lake at a ref. ``head`` is the HEAD of that state, as far as a reader needs it."""

    name: str
    base: Base
    head: Head

    @classmethod
    def of(cls, name: str, entry: RefEntry, base: Base, now: Head) -> Frozen:
        return cls(name, base, head_of(base, entry, now))

    def refuse_other(self, version: int | None, timestamp_ms: int | None) -> None:
        """Refuse any global version except the ref's own. Raises ``VersionNotFound``."""
        if (version is None and timestamp_ms is None) or version == self.base.sequence:
            return
        requested = "the newest at a time" if version is None else f"version {version}"
        raise VersionNotFound(
            f"{self.base.kind} {self.name!r} is global version {self.base.sequence} alone: leave "
            f"out the version, or read {requested} from the lake itself"
        )


def frozen_view(context: Context, base: Base, location: str) -> Program[View]:
    """Return a table's state in a base.

    Raises
    ------
    TableNotFound
        The base has no such table.
    VersionNotFound
        The table's log is not kept any more, or is another table's by now.
    """
    yield from load_base_tables(base, [location])
    state = base.tables.get(location)
    if state is None:
        mount = yield from mount_in(base.clones, location)
        if mount is not None:
            return (yield from mounted_view(context, mount, location))
    if state is None or state.dropped:
        raise TableNotFound(
            f"table {location} is not in {base.kind} {base.name!r}: it was not in the lake at "
            f"global version {base.sequence}, or was left out of the {base.kind}"
            f"{near_tables(location, base.tables, base.names)}",
            table=location,
        )
    try:
        kept = base.kept_of(location)
        if kept is not None:
            return (yield from _kept_view(context, location, state, kept))
        return (yield from _view(context, location, state, base.sequence))
    except VersionNotFound as error:
        why = error.message.partition("; request")[0].partition(": request")[0]
        raise not_kept(base, location, why) from error


def mounted_view(context: Context, mount: Mount, location: str) -> Program[View]:
    """Return the view of a table that a clone shows, like a new table with the source's files.

    Raises
    ------
    VersionNotFound
        The clone's base can't be read any more.
    """
    name = f"mounted {mount.entry.id} {mount.entry.base.hash} {location}"
    known = context.commits.get(name)
    if isinstance(known, View):
        return known
    snapshot = yield from source_of_clone(context, mount.entry.base, mount.source)
    table_id = mounted_id(mount.entry.id, location)
    made_ms = mount.entry.created_ms
    made = yield from made_elsewhere(snapshot, context.root, location, table_id, made_ms)
    blank = context.formats.of(snapshot).blank(location, location)
    shown = blank.apply(made)
    # This part adds the files that the table's creation will add: so the creation changes no rows.
    part = TablePart(table_id, made, created=True, contract=shown.contract)
    clone = Mounted(mount.name, mount.entry, mount.source)
    view = View(location, None, Placement(-1, ()), (part,), blank, shown, -1, clone)
    context.commits.keep(name, view, _FILE_BYTES * len(made.adds))
    return view


def source_of_clone(context: Context, ref: BaseRef, source: str) -> Program[TableSnapshot]:
    """Return the state of a table in the base of a clone. Raises the errors of ``frozen_view``."""
    # In the context of a branch, logs end with the branch's base, which is unrelated to the clone's
    # base. So the lake's own context is used.
    base = yield from load_base(ref)
    return (yield from frozen_view(context.lake, base, source)).snapshot


def not_kept(base: Base, location: str, why: str) -> VersionNotFound:
    """Return the error for a table whose state in a ref another client's clean-up has deleted."""
    return VersionNotFound(
        f"table {location} can't be read in {base.kind} {base.name!r} any more: {why}; the "
        "clean-up of other clients does not know tags (docs/tags.md lists what each of them keeps)",
        table=location,
    )


def not_kept_now(
    context: Context, frozen: Frozen, error: VersionNotFound
) -> Program[VersionNotFound]:
    """Return ``error``, or an error that says that the ref was deleted since it was opened.

    A deleted ref keeps no state.
    """
    name, version = parsed(frozen.name)
    held = yield from context.head()
    head = None if held is None else held.head
    yield from load_refs(head, [name])
    entry = None if head is None else head.refs.get(name)
    is_same = entry is not None and entry.base.sequence == frozen.base.sequence
    if is_same or (entry is not None and entry.epoch == frozen.base.epoch and version is not None):
        return error
    kind = frozen.base.kind
    return VersionNotFound(
        f"table {error.table} can't be read in {kind} {frozen.name!r} any more: the {kind} was "
        "deleted since it was opened, and nothing keeps its state",
        table=error.table,
    )


def frozen_views(
    context: Context, bases: Iterable[Base], location: str
) -> Program[list[View | VersionNotFound]]:
    """Return the different states of a table in bases; an error for each that can't be read."""
    wanted: dict[tuple[int, object, KeptTable | None], Base] = {}
    for base in bases:
        if base.tables.refs:
            yield from load_base_tables(base, [location])
        state = base.tables.get(location)
        if state is not None and base.has(location):
            pending = tuple((ref.txn, ref.hash) for ref in state.pending)
            wanted.setdefault((state.published, pending, base.kept_of(location)), base)
    logged = {version for version, _, kept in wanted if kept is None and version >= 0}
    yield from _load_logged(context, location, logged)
    return (
        yield from parallel([_view_or_error(context, base, location) for base in wanted.values()])
    )


def load_states(context: Context, bases: Iterable[Base]) -> Program[None]:
    """Cache the states of tables in bases; read all states of one table together.

    Call this before ``frozen_view`` of many bases. For states that can't be read, ``frozen_view``
    raises the error.
    """
    logged: dict[str, set[int]] = defaultdict(set)
    for base in bases:
        for location, state in base.tables.cached().items():
            is_logged = base.kept_of(location) is None and state.published >= 0
            if base.has(location) and is_logged:
                logged[location].add(state.published)
    yield from parallel(
        [_load_logged(context, location, versions) for location, versions in logged.items()]
    )


def _load_logged(context: Context, location: str, versions: set[int]) -> Program[None]:
    """Cache the wanted states of a table's log if there are several; skip separately kept ones."""
    if len(versions) < 2:
        return
    tail = yield from open_tail(context, location, missing_ok=True)
    if tail.tip < max(versions):
        tail = yield from probe(context, tail)
    yield from load_snapshots(context, tail, versions)


def _view_or_error(context: Context, base: Base, location: str) -> Program[View | VersionNotFound]:
    try:
        return (yield from frozen_view(context, base, location))
    except VersionNotFound as error:
        return error


def _view(context: Context, location: str, state: TableState, sequence: int) -> Program[View]:
    """Return the view for ``frozen_view``; errors contain only the reason."""
    if state.published < 0:
        # The table's creation was pending in this state, or was committed on a branch: the present
        # log does not matter.
        blank = context.formats[state.format].blank(location, location, catalog=state.catalog)
        tail = Tail(location, -1, {-1: blank})
        return (yield from _laid_over(context, location, state, tail, blank, -1, state.pending))
    tail = yield from open_tail(context, location, missing_ok=True)
    if tail.tip < state.published:
        tail = yield from probe(context, tail)
    if tail.tip < state.published:
        raise VersionNotFound(f"its log ends at version {tail.tip}")
    logged, waiting = state.published, state.pending
    try:
        base = yield from _kept(context, tail, logged)
    except VersionNotFound:
        logged, waiting = yield from _followed(context, tail, state, sequence)
        base = yield from _kept(context, tail, logged)
    return (yield from _laid_over(context, location, state, tail, base, logged, waiting))


def _kept_view(
    context: Context, location: str, state: TableState, kept: KeptTable
) -> Program[View]:
    """Return the view of a table whose state is kept separate from its log.

    Errors contain only the reason.
    """
    base = yield from kept_snapshot(context, location, state, kept)
    tail = Tail(location, state.published, {state.published: base})
    waiting = beyond(kept, state)
    return (yield from _laid_over(context, location, state, tail, base, state.published, waiting))


def beyond(kept: KeptTable, state: TableState) -> tuple[PendingRef, ...]:
    """Return the pending commits that are not in the separately kept state."""
    if kept.through is None:
        return ()
    return tuple(ref for ref in state.pending if ref.sequence > kept.through)


def _laid_over(
    context: Context,
    location: str,
    state: TableState,
    tail: Tail,
    base: TableSnapshot,
    logged: int,
    waiting: tuple[PendingRef, ...],
) -> Program[View]:
    """Return the view of a state of the log with the pending commits laid over it."""
    try:
        parts = yield from pending_parts(context, location, waiting)
    except CorruptObject as error:
        raise VersionNotFound(
            f"the commits that were decided then are lost ({error.message})"
        ) from error
    snapshot = base
    for part in parts:
        if not part.change.is_empty:
            snapshot = snapshot.apply(part.change)
    if snapshot.table_id != state.table_id:
        raise VersionNotFound(
            f"the table was dropped and created again since (id {state.table_id} then, id "
            f"{snapshot.table_id} now)"
        )
    placement = Placement(logged, waiting)
    return View(location, state, placement, tuple(parts), base, snapshot, tail.tip)


def _kept(context: Context, tail: Tail, version: int) -> Program[TableSnapshot]:
    """Return a state of the log, if the table still has it. Raises ``VersionNotFound``."""
    snapshot = yield from snapshot_at(context, tail, version)
    if 0 <= version < tail.tip:
        yield from context.formats.of(snapshot).check_kept(tail.snapshot, snapshot)
    return snapshot


def _followed(
    context: Context, tail: Tail, state: TableState, sequence: int
) -> Program[tuple[int, tuple[PendingRef, ...]]]:
    """Return the newest log version with only commits of a state, and the commits to lay over it.

    Commits that were pending in the state may have been published since. The lake's own log entries
    up to global version ``sequence`` are part of the state. So the state can still be read if
    another client has cleaned up the earlier entries.
    """
    logged, waiting = state.published, state.pending
    held = context.held
    assert held is not None, "a base was found by a HEAD"
    application = application_id(held.head)
    while waiting and logged < tail.tip:
        entry = yield from entry_at(context, tail, logged + 1)
        published = None if entry is None else entry.applications.get(application)
        # In a branch's state, its own commits are pending, too; the lake has other commits with the
        # same numbers.
        last = max((ref.sequence for ref in waiting if not ref.epoch), default=-1)
        if published is None or published > min(sequence, last):
            break
        logged += 1
        waiting = tuple(ref for ref in waiting if ref.sequence > published)
    return logged, waiting


# -------------------- by uri
#
# A state of a table as the state of another table, whose log names the same files by URIs.
#
# No file is copied. The files stay where they are, so a table that names them by URIs needs a ref
# that keeps them: a clone, by its base (docs/design/0039-clones.md).


#: The fields of an Iceberg table's metadata that are its own history, not its definition.
HISTORY = frozenset(
    {
        "snapshots",
        "current-snapshot-id",
        "snapshot-log",
        "metadata-log",
        "refs",
        "last-sequence-number",
        "last-updated-ms",
        "statistics",
        "partition-statistics",
        "next-row-id",
    }
)
#: Properties that mark one particular table, so no other table may have them.
_OF_ONE = (ENABLEMENT, "lakevilla.export", VOIDED)
#: An address to which no path is relative.
_NOWHERE = TableAddress("", "memory://nowhere")


def uri_at(root: str, key: str) -> str:
    """Return the URI of an object, as other clients write it."""
    found = key if is_external(key) else f"{root.rstrip('/')}/{key}"
    return f"file://{found}" if found.startswith("/") else found


def key_below(root: str, uri: str) -> str:
    """Return the key of an object of the lake by its URI."""
    return uri_at(root, uri).removeprefix(uri_at(root, ""))


def file_by_uri(root: str, snapshot: TableSnapshot, file: DataFile) -> DataFile:
    """Return a file of a table named by URIs, so that any other table may include it.

    Its rows keep their ids. The version of the commit that added it is the other table's own.

    The URIs of an Iceberg file are spelled as in the table's own metadata: position delete files
    name the data file by that spelling.
    """
    location = snapshot.location
    if snapshot.format == "iceberg":
        address = TableAddress("", snapshot.metadata["location"])

        def uri(path: str) -> str:
            return _NOWHERE.path(address.spelled(path))
    else:

        def uri(path: str) -> str:
            return uri_at(root, file_key(location, path))

    def moved(one: DeleteFile) -> DeleteFile:
        return msgspec.structs.replace(one, path=uri(one.path))

    return msgspec.structs.replace(
        file,
        path=uri(file.path),
        raw_path=None,
        data_change=True,
        deletion_vector=vector_by_uri(root, location, file.deletion_vector),
        deletes=tuple(moved(one) for one in file.deletes),
        # Iceberg's new table goes on above these ids (docs/design/0064-iceberg-v3.md).
        default_row_commit_version=(
            file.default_row_commit_version if snapshot.format == "iceberg" else None
        ),
    )


def is_named_by(moved: DataFile, snapshot: TableSnapshot, file: DataFile) -> bool:
    """Return whether the deletes of a file apply to it in another table, where it is ``moved``.

    They do if they are vectors that name the file as the other table does: readers compare the
    names by letters.
    """
    if not file.deletes:
        return True
    return has_vectors(snapshot, file) and moved.path == name_in_vectors(snapshot, file)


def has_vectors(snapshot: TableSnapshot, file: DataFile) -> bool:
    """Return whether all deletes of a file are vectors, in a table that takes them."""
    return snapshot.metadata["format-version"] >= 3 and has_only_vectors(file)


def name_in_vectors(snapshot: TableSnapshot, file: DataFile) -> str:
    """Return the URI by which vectors of a table of Iceberg name one of its data files."""
    return file.raw_path or TableAddress("", snapshot.metadata["location"]).spelled(file.path)


def vector_by_uri(root: str, location: str, vector: DeletionVector | None) -> DeletionVector | None:
    """Return a deletion vector named by its URI; one that the log itself holds is unchanged."""
    if vector is None or vector.storage_type == "i":
        return vector
    uri = encode_path(uri_at(root, vector_key(location, vector)))
    return msgspec.structs.replace(vector, storage_type="p", path_or_inline=uri)


def made_elsewhere(
    snapshot: TableSnapshot, root: str, location: str, table_id: str, created_ms: int
) -> Program[Change]:
    """Return the change that makes a table at ``location`` with the state of ``snapshot``."""
    files = data_files((yield from snapshot.files()))
    iceberg = snapshot.format == "iceberg"
    metadata = (
        _of_iceberg(snapshot.metadata, uri_at(root, location), table_id)
        if iceberg
        else _of_delta(snapshot.metadata, table_id, created_ms)
    )
    domains = snapshot.domains if isinstance(snapshot, DeltaSnapshot) else {}
    return Change(
        adds=tuple(file_by_uri(root, snapshot, file) for file in files),
        metadata=metadata,
        protocol=unguarded(snapshot.protocol) or None,
        domains=tuple(
            {"domain": name, "configuration": text, "removed": False}
            for name, text in domains.items()
        ),
        row_ids_below=_row_ids_below(snapshot, files) if iceberg else 0,
        sequence_from=_newest(files) if iceberg else 0,
    )


def _row_ids_below(snapshot: TableSnapshot, files: Iterable[DataFile]) -> int:
    """Return an id above those of all rows; the ids that a file stores are below its own first."""
    ends = [
        file.base_row_id + (rows_in(file.stats) or 0)
        for file in files
        if file.base_row_id is not None
    ]
    return max(snapshot.next_row_id or 0, *ends, 0)


def _newest(files: Iterable[DataFile]) -> int:
    """Return the number of the commit that has last changed a row with an id."""
    known = [one.default_row_commit_version or 0 for one in files if one.base_row_id is not None]
    return max(known, default=0)


def unguarded(protocol: Mapping[str, Any]) -> dict[str, Any]:
    """Return a protocol without the guard, the feature that stops foreign writers."""
    kept = dict(protocol)
    if "writerFeatures" in kept:
        kept["writerFeatures"] = [one for one in kept["writerFeatures"] if one != "lakevilla"]
    return kept


def _of_delta(metadata: Mapping[str, Any], table_id: str, created_ms: int) -> dict[str, Any]:
    configuration = metadata.get("configuration") or {}
    kept = {name: text for name, text in configuration.items() if not name.startswith(_OF_ONE)}
    return {**metadata, "configuration": kept, "id": table_id, "createdTime": created_ms}


def _of_iceberg(metadata: Mapping[str, Any], uri: str, table_id: str) -> dict[str, Any]:
    kept = {name: value for name, value in metadata.items() if name not in HISTORY}
    properties = metadata.get("properties") or {}
    kept["properties"] = {
        name: text for name, text in properties.items() if not name.startswith(_OF_ONE)
    }
    return {**kept, "location": uri, "table-uuid": table_id}
