"""Clones: copies of metadata, the files that they keep, and their end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from blake3 import blake3

from lakevilla.branches.branches import LeftAsIs, Next, find_ref, following, until_replaced
from lakevilla.errors import (
    ConflictError,
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    RefNotFound,
    StoreError,
    TableNotFound,
    VersionNotFound,
)
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.delta.deletion_vectors import vector_key
from lakevilla.formats.files import (
    DataFile,
    DeleteFile,
    DeletionVector,
    data_files,
    file_key,
    files_not_among,
)
from lakevilla.global_log.head import Head, TableState, with_refs
from lakevilla.global_log.refs import RefEntry, is_at
from lakevilla.global_log.repo import HeldHead, load_tables, load_tables_below
from lakevilla.ids import uuid7
from lakevilla.lake.context import Context, Tail, branch_directory, branch_of, file_path
from lakevilla.lake.frozen.kept import outside
from lakevilla.lake.frozen.mounts import mount_of, mounted_below
from lakevilla.lake.frozen.states import not_found
from lakevilla.lake.publishing.publish import publish_table
from lakevilla.lake.table_log import open_tail, refresh
from lakevilla.lake.view import build_view
from lakevilla.results import Finding, Report
from lakevilla.store.effects import Program, copy_all, list_objects, parallel
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.parts import Options
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs.abort import abort
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.bring_in import bring_in

# -------------------- copies
#
# Copies of the files that a state needs and its table has removed, in a directory of a ref.
#
# See docs/design/0037-upkeep.md.


#: The length of the encoded name that ends the path of a deletion vector's file in Delta's log.
_VECTOR_NAME = 20


def unsafe_objects(
    context: Context, location: str, snapshot: TableSnapshot
) -> Program[dict[str, int]]:
    """Return the objects that a state needs and its table has removed: their sizes, by key.

    The log decides, as for another client that cleans up. Objects in a branch's directory are not
    returned, because such clients don't delete them; a table without a log has none.
    """
    tail = yield from open_tail(context, location, missing_ok=True)
    return {} if tail.tip < 0 else (yield from removed_since(tail, snapshot))


def removed_since(tail: Tail, snapshot: TableSnapshot) -> Program[dict[str, int]]:
    """Return the same as ``unsafe_objects``, by a log that was already read."""
    location = tail.location
    files = yield from snapshot.files()
    live: set[str] = set()
    if tail.tip >= 0:
        now = yield from tail.snapshot.files()
        files = files_not_among(files, now)
        if not files.num_rows:
            return {}
        live = set(objects_of(location, data_files(_that_may_share(now, files))))
    needed = objects_of(location, data_files(files))
    return {
        key: size
        for key, size in needed.items()
        if key not in live and _is_below(location, key) and not _is_owned(location, key)
    }


def _that_may_share(now: pa.Table, files: pa.Table) -> pa.Table:
    """Return the files of a list that may share an object with one of ``files``."""
    if not files.num_rows:
        return now.slice(0, 0)
    has_path = pc.is_in(now["path"], value_set=files["path"].combine_chunks())
    # Several data files may share a file of deletes, or of vectors.
    has_deletes = pc.or_(
        pc.is_valid(now["deletion_vector"]),
        pc.fill_null(pc.greater(pc.list_value_length(now["deletes"]), 0), False),
    )
    return now.filter(pc.or_(has_path, has_deletes))


@dataclass
class Copies:
    """The new places of a state's objects: those that are ``unsafe`` get copies.

    A copy's name is derived from its source, so a client that begins again finds earlier copies.
    """

    location: str
    entry: RefEntry
    unsafe: dict[str, int]
    copies: dict[str, str] = field(default_factory=dict)

    def file(self, file: DataFile) -> DataFile:
        key = file_key(self.location, file.path)
        if key in self.unsafe:
            deletes = tuple(_naming(one, file.path) for one in file.deletes)
            file = msgspec.structs.replace(
                file, path=self._copy(key), raw_path=None, deletes=deletes
            )
        if file.deletion_vector is not None:
            vector = self._vector(file.deletion_vector)
            file = msgspec.structs.replace(file, deletion_vector=vector)
        if file.deletes:
            deletes = tuple(self._deletes(one) for one in file.deletes)
            file = msgspec.structs.replace(file, deletes=deletes)
        return file

    def _copy(self, key: str) -> str:
        path = f"{self._directory}/{self._name(key)}"
        self.copies[key] = f"{self.location}/{path}"
        return path

    @property
    def _directory(self) -> str:
        return branch_directory(self.location, self.entry.epoch)[len(self.location) + 1 :]

    def _name(self, key: str) -> str:
        """Name a copy like a new file of a branch: gc deletes it once the ref is deleted."""
        digest = blake3(key.encode()).digest(length=24)
        txn = uuid7(max(self.entry.created_ms, 0), int.from_bytes(digest[:10]) % 2**74)
        own = file_path("", txn, True, digest[16:].hex())
        return own if key.endswith(".parquet") else f"{own[:-8]}.{key.rpartition('.')[2]}"

    def _vector(self, vector: DeletionVector) -> DeletionVector:
        if vector.storage_type != "u":
            return vector
        key = vector_key(self.location, vector)
        if key not in self.unsafe:
            return vector
        name = key.rpartition("/")[2]
        self.copies[key] = f"{self.location}/{self._directory}/{name}"
        tail = vector.path_or_inline[-_VECTOR_NAME:]
        return msgspec.structs.replace(vector, path_or_inline=f"{self._directory}{tail}")

    def _deletes(self, file: DeleteFile) -> DeleteFile:
        key = file_key(self.location, file.path)
        if key not in self.unsafe:
            return file
        return msgspec.structs.replace(file, path=self._copy(key))


def _naming(delete: DeleteFile, path: str) -> DeleteFile:
    """Note the path by which an Iceberg position delete file, or a vector, names its data file.

    The delete file keeps naming that path, although the data file's copy has another one.
    """
    if delete.kind == "equality":
        return delete
    return msgspec.structs.replace(delete, names=delete.names or path)


def store_copies(moved: Copies) -> Program[int]:
    """Have the store copy the objects that have no copy yet, and check the sizes of the copies.

    Nothing needs the source any more once a ref names its copy. So a copy of a truncated file must
    not count, even if the file is restored later.

    Raises
    ------
    VersionNotFound
        A source was deleted.
    CorruptObject
        A source is smaller than the table's log says.
    """
    if not moved.copies:
        return 0
    wanted = yield from _wrong_copies(moved)
    missing = yield from copy_all(list(wanted.items()))
    if missing is not None:
        raise VersionNotFound(f"{missing} was removed", table=moved.location)
    wrong = (yield from _wrong_copies(moved)) if wanted else {}
    for source in wrong:
        raise CorruptObject(
            f"data file {source} of table {moved.location} is smaller than its log says: restore "
            "it from a copy",
            key=source,
        )
    return len(wanted)


def _wrong_copies(moved: Copies) -> Program[dict[str, str]]:
    """Return the copies, by source, that are missing or smaller than their sources should be.

    An object of vectors may be larger than those that the state has.
    """
    listed = yield from list_objects(branch_directory(moved.location, moved.entry.epoch))
    sizes = {info.key: info.size for info in listed}
    return {
        source: key
        for source, key in moved.copies.items()
        if sizes.get(key, -1) < moved.unsafe.get(source, 0)
    }


def objects_of(location: str, files: Iterable[DataFile]) -> dict[str, int]:
    """Return the keys of all objects that belong to some files, with their sizes."""
    found: dict[str, int] = {}
    for file in files:
        found[file_key(location, file.path)] = file.size
        vector = file.deletion_vector
        if vector is not None and vector.storage_type != "i":
            found[vector_key(location, vector)] = vector.size_in_bytes
        found.update({file_key(location, one.path): one.size for one in file.deletes})
    return found


def _is_below(location: str, key: str) -> bool:
    return key.startswith(f"{location}/")


def _is_owned(location: str, key: str) -> bool:
    return branch_of(key.removeprefix(f"{location}/")) is not None


# -------------------- ending
#
# End a clone, unless one of its tables needs files that it keeps (docs/design/0039-clones.md).


#: The most tables that the error for a clone that can't be ended names.
_NAMED = 5


def end_clone(context: Context, name: str, first: RefEntry) -> Program[None]:
    """Remove a clone from HEAD, and the entries of mounts that were dropped before any write.

    This is safe because the HEAD that is replaced shows which of the clone's tables were written
    to: a client that writes to another one later finds no clone, and has a conflict.

    Raises
    ------
    RefNotFound
    InvalidOperation
        The clone is protected, or one of its tables that was written to names files that it keeps.
    """
    is_again = False

    def step(held: HeldHead | None, entry: RefEntry | None) -> Program[LeftAsIs[None] | Next[None]]:
        nonlocal is_again
        if held is None or entry is None or entry.id != first.id:
            if is_again:
                # the store's answer was lost, or another client has ended the clone
                return LeftAsIs(None)
            raise (yield from not_found(None if held is None else held.head, name))
        is_again = True
        if entry.protected:
            raise InvalidOperation(
                f"clone {name!r} is protected: protect({name!r}, on=False) lifts that"
            )
        states = yield from tables_of(held.head, name)
        yield from _refuse_needed(context, held.head, name, states)
        new = following(context, held)
        never_made = {location: None for location, one in states.items() if _was_never_made(one)}
        if never_made:
            new = msgspec.structs.replace(new, tables=new.tables.updated(never_made))
        return Next(with_refs(new, {name: None}), None)

    yield from until_replaced(context, name, step)


def tables_of(head: Head, name: str) -> Program[dict[str, TableState]]:
    """Return HEAD's own tables at and below the place of a clone, dropped ones included."""
    yield from load_tables(head, [name])
    yield from load_tables_below(head, f"{name}/")
    return {
        location: one for location, one in head.tables.cached().items() if is_at(location, name)
    }


def files_elsewhere(context: Context, head: Head, location: str) -> Program[set[str]]:
    """Return the objects outside of a table's directory that it needs, by HEAD or by its log.

    Readers of the log alone still need what a pending commit removes, and so does a replay of it.
    """
    tail = yield from refresh(context, location)
    view = yield from build_view(context, head, location, tail)
    table_format = context.formats.of(view.snapshot)
    needed = yield from table_format.objects_of(view.snapshot)
    if view.placement.overlay and tail.tip >= 0:
        needed |= yield from table_format.objects_of(tail.snapshot)
    return outside(context, needed)


def _refuse_needed(
    context: Context, head: Head, name: str, states: dict[str, TableState]
) -> Program[None]:
    """Refuse to end a clone while one of its tables names files that the clone keeps."""
    live = sorted(location for location, state in states.items() if not state.dropped)
    found = yield from parallel([_needs_it(context, head, location) for location in live])
    needing = [location for location, needs in zip(live, found, strict=True) if needs]
    if needing:
        more = f" and {len(needing) - _NAMED} more" if len(needing) > _NAMED else ""
        raise InvalidOperation(
            f"delete_ref: {', '.join(needing[:_NAMED])}{more} of clone {name!r} "
            f"{'names' if len(needing) == 1 else 'name'} files of its source, which the clone "
            f"keeps: keep({name!r}) copies them, or drop these tables first",
            table=needing[0],
        )


def _needs_it(context: Context, head: Head, location: str) -> Program[bool]:
    if not (yield from files_elsewhere(context, head, location)):
        return False
    if not head.tables[location].pending:
        return True
    # Perhaps only the log names them, and a pending commit removes them: publish first.
    yield from publish_table(context, head, location)
    return bool((yield from files_elsewhere(context, head, location)))


def _was_never_made(state: TableState) -> bool:
    """Return whether the entry only hides a clone's table that was dropped before any write."""
    return state.dropped and state.published < 0 and not state.pending


# -------------------- keeping
#
# Give the tables of a clone copies of the files that they name (docs/design/0039-clones.md).
#
# Each table gets its copies in a separate transaction, which changes no rows: an interrupted client
# goes on with the next table.


#: The most attempts with one table while other clients write it.
_TRIES = 20


def keep_clone(
    context: Context, name: str, first: RefEntry, *, all_tables: bool = False
) -> Program[Report]:
    """Copy the source's files that tables of a clone name, so that the clone may end.

    This is done for the tables that were written to; with ``all_tables``, also for the others.

    Raises
    ------
    RefNotFound
    """
    findings: list[Finding] = []
    for location in (yield from _tables(context, name, first, all_tables=all_tables)):
        try:
            copied = yield from _own(context, location)
        except StoreError:
            raise
        except TableNotFound:
            continue  # the table was dropped meanwhile
        except LakeVillaError as error:
            message = f"table {location} can't be kept: {error.message}"
            findings.append(Finding("warning", "ref_lost", message, table=location))
            continue
        if copied:
            message = f"table {location} has its own files: {copied} were copied"
            findings.append(Finding("note", "kept", message, table=location))
    return Report(all(one.severity == "note" for one in findings), tuple(findings))


def _tables(
    context: Context, name: str, first: RefEntry, *, all_tables: bool
) -> Program[list[str]]:
    head = yield from _head_with(context, name, first)
    states = yield from tables_of(head, name)
    found = [location for location, state in states.items() if not state.dropped]
    if all_tables:
        found += yield from mounted_below(head, name)
        if (yield from mount_of(head, name)) is not None:
            found.append(name)
    return sorted(found)


def _head_with(context: Context, name: str, first: RefEntry) -> Program[Head]:
    head, entry = yield from find_ref(context, name)
    if entry.id != first.id:
        raise RefNotFound(f"clone {name!r} was deleted, and another one created meanwhile")
    return head


def _own(context: Context, location: str) -> Program[int]:
    """Copy all files that one table names elsewhere into its directory; return their number."""
    for attempt in range(_TRIES):
        options = Options(Feature.R | Feature.I)
        state = TransactionState(context, context.new_txn_id(), options, through_head=True)
        txn = begin(state)
        try:
            done = yield from bring_in(txn, location)
            if done is None:
                yield from abort(txn)
                return 0
            yield from commit(txn)
            return len(done.change.removes)
        except ConflictError:
            yield from abort(txn)
            if attempt == _TRIES - 1:
                raise
        except LakeVillaError:
            yield from abort(txn)
            raise
    raise AssertionError("the last try returns or raises")
