"""The files of a transaction, and the log entry under which it may have committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import msgspec

from lakevilla.engines.base import KeptRows, Written
from lakevilla.engines.deletes import rows_in_positions, rows_in_puffin, rows_marked
from lakevilla.errors import CommitOutcomeUnknown, CorruptObject, StoreError, TransactionAborted
from lakevilla.formats.base import Change
from lakevilla.formats.delta.deletion_vectors import (
    RowIndices,
    paths_of,
    rows_in_file,
    vector_key,
)
from lakevilla.formats.files import DataFile, RemovedFile, holds_vectors, is_elsewhere
from lakevilla.formats.layout import Layout
from lakevilla.ids import txn_in
from lakevilla.lake.applicability import lost_for_good
from lakevilla.lake.context import Tail
from lakevilla.lake.operations.perform import Performed
from lakevilla.lake.table_log import entry_at, is_cleaned_up_soon, open_tail
from lakevilla.phases import during
from lakevilla.store.base import ANY, NEW, PutOutcome, Stored
from lakevilla.store.effects import Program, Put, delete, parallel, put
from lakevilla.store.location import is_external
from lakevilla.sublogs.operations import (
    Create,
    Delete,
    Detach,
    Insert,
    Merge,
    Update,
    given_files,
)
from lakevilla.sublogs.record import creates_key
from lakevilla.transaction.state.late_reads import MOST_HELD_BYTES
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState

# -------------------- files
#
# The files that a transaction's operations have made, in memory or in the store.
#
# An engine reads them from memory where it can, and a file that a later operation of the
# transaction has replaced is never stored. Of operations that an engine performs on rows in its
# memory, a file is only promised until something needs its contents
# (docs/design/0067-many-changes.md).


#: The files of which combined transactions and chains keep the rows, one after the other.
MOST_KEPT_BYTES = 64 * 1024 * 1024


def made_files(done: Done) -> list[str]:
    """Return the keys of the files that performing an operation made.

    The files that the operation was given are its source, and those that it removes were there
    before. When the operation is undone, only the files that it made may be dropped: a redo makes
    them again, and nothing could make other files again. So a file elsewhere is none of them, such
    as those of a clone's source.
    """
    place = done.table
    given = {path for file in given_files(done.operation) for path in paths_of(place, file)}
    # A file of which rows were deleted is added again.
    given.update(path for file in done.change.removes for path in paths_of(place, file))
    made = [path for file in done.change.adds for path in sorted(paths_of(place, file))]
    made += [file.path for file in done.change.change_files]
    return [f"{place}/{path}" for path in made if path not in given and not is_elsewhere(path)]


def own_files(txn: str, keys: Iterable[str]) -> list[str]:
    """Return those keys of a sublog that bear the transaction's id.

    A sublog may name any key; the transaction may delete only keys that bear its own id.
    """
    return [key for key in keys if txn_in(key) == txn]


def held_files(
    txn: TransactionState, location: str, kept: KeptRows | None = None
) -> Program[AbstractContextManager[None]]:
    """Return a block in which an engine can read the files made so far on a table.

    It reads them from memory. If it can't, if they are too many bytes to stay there, or if files
    are compared with what is stored, they are stored first. Promised files are made now, except
    those that are current in ``kept``.
    """
    yield from make_promised(txn, location, kept=kept)
    engine = txn.context.engine
    fits = txn.work.held_bytes <= MOST_HELD_BYTES and not txn.options.verify
    if not (engine.reads_by_parts and fits):
        yield from store_held(txn, _held(txn, location), location)
        return nullcontext()
    # Vectors are read by requests, whatever the engine.
    vectors = [key for key in _held(txn, location) if holds_vectors(key)]
    yield from store_held(txn, vectors, location)
    bodies = {key: txn.work.bodies[key] for key in _held(txn, location)}
    return engine.holding(bodies) if bodies else nullcontext()


def keep_rows(txn: TransactionState, table: str) -> KeptRows | None:
    """Have the engine keep rows of a table from now on; None if it can't."""
    if txn.options.verify:
        return None
    limit = txn.context.settings.in_memory_file_limit_bytes
    if txn.work.keeps_first:
        limit = max(limit, MOST_KEPT_BYTES)
    kept = txn.context.engine.keep(txn.work.tables[table].snapshot.layout, limit)
    if kept is not None:
        txn.work.kept[table] = kept
    return kept


def without_file(txn: TransactionState, key: str) -> TransactionAborted:
    """Return the error of a transaction that lacks one of its own files."""
    return TransactionAborted(
        f"transaction {txn.id} ran so long that its file {key} was removed by another client's "
        "clean-up: nothing was committed, run it again",
        txn_id=txn.id,
    )


def fail_if_collected(txn: TransactionState, error: Exception) -> Program[None]:
    """Abort the transaction if the error comes from a file of its own that gc has deleted."""
    key = error.key if isinstance(error, CorruptObject) else None
    if key is None or txn_in(key) != txn.names_files_by:
        return
    if (yield from lost_for_good([key])):
        raise txn.fail(without_file(txn, key)) from error


def holds_files(txn: TransactionState, location: str) -> bool:
    """Return whether the transaction has files of a table in memory."""
    return bool(_held(txn, location))


def store_files(txn: TransactionState, location: str | None = None) -> Program[None]:
    """Store the files made so far (with ``location``, of this table): an engine will read them."""
    yield from make_promised(txn, location)
    yield from store_held(txn, _held(txn, location), location)


def _held(txn: TransactionState, location: str | None) -> list[str]:
    prefix = "" if location is None else f"{location}/"
    return [key for key in txn.work.bodies if key.startswith(prefix)]


def store_held(
    txn: TransactionState, keys: list[str], location: str | None = None
) -> Program[None]:
    """Store some of the files in memory, by their keys; with ``location``, all are of this table.

    Raises
    ------
    StoreError
        A file could not be stored.
    """
    if not keys:
        return
    for place in [one for one in txn.work.tables if location in (None, one)]:
        if is_created_by(txn, place) and any(key.startswith(f"{place}/") for key in keys):
            yield from note_created(txn, place)
    puts = [Put(key, txn.work.bodies[key], NEW) for key in keys]
    # Note the keys before the puts are sent: an interruption may leave some of the files stored,
    # and an abort must find them.
    txn.work.stored.extend(keys)
    with during("data", location):
        outcomes: list[PutOutcome] = yield from parallel(puts)
    for key, outcome in zip(keys, outcomes, strict=True):
        if not isinstance(outcome, Stored):
            raise StoreError(
                f"could not store {key}: nothing was committed, run the transaction again",
                txn_id=txn.id,
            )
        txn.work.held_bytes -= len(txn.work.bodies.pop(key))


def held_and_needed(txn: TransactionState, changes: Mapping[str, Change]) -> list[str]:
    """Return the keys of those files in memory that a commit with these changes must store.

    ``changes`` are the sums of the operations, by table. A file that an operation has made and a
    later one has replaced is in no sum. It stays in memory: if the transaction loses a race, only
    the later operation may have to be performed again, and reads it.
    """
    if not txn.work.bodies:
        return []
    replaced = {
        key
        for done in txn.work.done
        if isinstance(done.operation, Update | Delete | Merge | Insert)
        for key in made_files(done)
    }
    for location, change in changes.items():
        replaced.difference_update(
            f"{location}/{path}" for file in change.adds for path in paths_of(location, file)
        )
        replaced.difference_update(f"{location}/{file.path}" for file in change.change_files)
    return [key for key in txn.work.bodies if key not in replaced]


def marked_rows(
    txn: TransactionState, layout: Layout, file: DataFile | RemovedFile
) -> Program[RowIndices]:
    """Return the deleted rows of a file; the transaction may have their vector in memory."""
    for vector in file.deletes:
        body = txn.work.bodies.get(f"{layout.location}/{vector.path}")
        if body is not None and vector.kind == "vector":
            return rows_in_puffin(body, vector)
        if body is not None:
            return rows_in_positions(body)  # it has those of the file's other deletes, too
    own = file.deletion_vector
    if own is not None and own.storage_type == "u":
        body = txn.work.bodies.get(vector_key(layout.location, own))
        if body is not None:
            return rows_in_file(body, own)
    try:
        return (yield from rows_marked(layout, file))
    except CorruptObject as error:
        yield from fail_if_collected(txn, error)
        raise


def hold_written(
    txn: TransactionState, location: str, written: Iterable[Written]
) -> tuple[DataFile, ...]:
    """Note the files that an engine has made: the commit must store those that have a body."""
    written = tuple(written)
    for item in written:
        for path, body in item.bodies.items():
            hold_file(txn, f"{location}/{path}", body)
        if not item.bodies:
            txn.work.stored.append(f"{location}/{item.file.path}")
    return tuple(item.file for item in written)


def hold_file(txn: TransactionState, key: str, body: bytes) -> None:
    """Keep a new file in memory, until it is stored in one round with further files."""
    txn.work.bodies[key] = body
    txn.work.held_bytes += len(body)


def keep_files(txn: TransactionState, done: Done, performed: Performed) -> None:
    """Note the files that an operation has made: in memory, promised, or stored already."""
    for key, body in performed.bodies.items():
        hold_file(txn, key, body)
    for key in made_files(done):
        if key in performed.promised:
            txn.work.promised[key] = txn.work.kept[done.table]
        elif key not in performed.bodies:
            txn.work.stored.append(key)


def drop_files(txn: TransactionState, done: Done) -> None:
    """Drop the files in memory that an operation has made: it is undone, or performed again."""
    for key in made_files(done):
        txn.work.bodies.pop(key, None)
        txn.work.promised.pop(key, None)


def make_promised(
    txn: TransactionState,
    location: str | None = None,
    *,
    kept: KeptRows | None = None,
    replaced: bool = False,
) -> Program[None]:
    """Make the live files that were promised (with ``location``, of this table).

    Not those that are current in ``kept``; with ``replaced``, also those that a later operation has
    replaced. From here on the operations have the files as they are.
    """
    if not txn.work.promised:
        return
    gone = (
        set()
        if replaced
        else {(done.table, file.path) for done in txn.work.done for file in done.change.removes}
    )
    wanted: dict[tuple[str, int], list[str]] = {}
    owners: dict[int, KeptRows] = {}
    for done in txn.work.done:
        if location not in (None, done.table):
            continue
        for file in done.change.adds:
            owner = txn.work.promised.get(f"{done.table}/{file.path}")
            if owner is not None and (done.table, file.path) not in gone:
                owners[id(owner)] = owner
                wanted.setdefault((done.table, id(owner)), []).append(file.path)
    for (place, number), paths in wanted.items():
        owner = owners[number]
        spared = owner.current(paths) if owner is kept else ()
        paths = [path for path in paths if path not in spared]
        if paths:
            with during("data", place):
                written = yield from owner.write(paths)
            _take_made(txn, place, written)
            yield from note_stored(txn, place)


def _take_made(txn: TransactionState, location: str, written: tuple[Written, ...]) -> None:
    """Put files that were promised in the place of their promises."""
    made = {file.path: file for file in hold_written(txn, location, written)}
    for path in made:
        del txn.work.promised[f"{location}/{path}"]
    for done in txn.work.done:
        change = done.change
        files: tuple[DataFile | RemovedFile, ...] = (*change.adds, *change.removes)
        if done.table != location or all(file.path not in made for file in files):
            continue
        adds = tuple(made.get(file.path, file) for file in change.adds)
        removes = tuple(
            msgspec.structs.replace(file, size=made[file.path].size) if file.path in made else file
            for file in change.removes
        )
        done.change = msgspec.structs.replace(change, adds=adds, removes=removes)
    working = txn.work.tables[location]
    gone = {file.path for done in txn.work.done for file in done.change.removes}
    live = tuple(file for path, file in made.items() if path not in gone)
    working.snapshot = working.snapshot.apply(Change(adds=live))


# -------------------- created
#
# Notes on tables that only one transaction knows until it commits: if its process dies, gc finds by
# them the files that the transaction has stored there (docs/design/0042-spark-writes.md).


def is_created_by(txn: TransactionState, location: str) -> bool:
    """Return whether a transaction makes a table itself.

    It also makes a table if it is the first to write to a table that a clone shows.
    """
    working = txn.work.tables.get(location)
    if working is None or working.view.base.version >= 0 or not txn.through_head:
        return False
    made = (done for done in txn.work.done if done.table == location)
    return any(isinstance(done.operation, Create | Detach) for done in made)


def note_created(txn: TransactionState, location: str) -> Program[None]:
    """Note where a table that only this transaction knows will be stored, before its first file is.

    If the process dies, only this note leads gc to the files there, once the id is fenced. On a
    branch no note is needed: the files are in the branch's own directory.
    """
    if txn.context.epoch or is_external(location) or location in txn.work.noted:
        return
    stored = yield from put(creates_key(txn.id, location), b"{}", ANY)
    if not isinstance(stored, Stored):
        raise StoreError(
            f"could not note that transaction {txn.id} creates table {location}: try again",
            table=location,
            txn_id=txn.id,
        )
    txn.work.noted.add(location)


def note_stored(txn: TransactionState, location: str) -> Program[None]:
    """Note where a created table is, if an engine has stored files there itself (large files)."""
    if is_created_by(txn, location):
        start = f"{location}/"
        if any(key.startswith(start) for key in txn.work.stored):
            yield from note_created(txn, location)


def forget_created(txn: TransactionState, location: str) -> Program[None]:
    """Delete the note of ``note_created``: the table is in HEAD by now."""
    if not (txn.context.epoch or is_external(location)):
        yield from delete(creates_key(txn.id, location))


# -------------------- own entry
#
# Find out whether an entry that a transaction has tried to create is in its table's log (note 19).


def found_in_log(txn: TransactionState, tail: Tail) -> Program[int | None]:
    """Return the version of the known log that is the entry that the transaction tried to create.

    None if no version is: then the entry's number is free, and the outcome stays in doubt, or
    another entry has the number.

    Raises
    ------
    CommitOutcomeUnknown
        Clean-up has deleted the log entries that would show the outcome.
    """
    tried = txn.ending.entry_tried
    if tried is None or tail.tip < tried.version:
        return None
    known = txn.work.tables[tail.location].view.base.table_id
    for version in range(tried.version, tail.tip + 1):
        entry = yield from entry_at(txn.context, tail, version)
        if entry is None:
            if (yield from _holds_its_files(txn, tail)):
                return version
            raise _unknown(txn, tail.location, f"its log was cleaned up beyond version {version}")
        if txn.id in entry.txn_ids:
            if not (yield from _counts(txn, tail, version)):
                reason = f"it may have been cleaned up before version {version} landed"
                raise _unknown(txn, tail.location, reason)
            return version
    if tail.snapshot.table_id == known:
        txn.ending.entry_tried = None
    return None


def _counts(txn: TransactionState, tail: Tail, version: int) -> Program[bool]:
    """Return whether an entry that was found under its number is part of the log (hazard 10).

    An entry that was stored under a number that clean-up had freed is below a checkpoint that does
    not include it. This can happen only after the time for which a tip is trusted, or in a log that
    clean-up shortens quickly.
    """
    tried, context = txn.ending.entry_tried, txn.context
    assert tried is not None
    age = context.clock.elapsed() - tried.seen_at
    if age <= context.settings.trusted_tip_seconds and not is_cleaned_up_soon(context, tail):
        return True
    context.tails.pop(tail.location, None)
    newest = yield from open_tail(context, tail.location)
    return newest.tip == version or (yield from _holds_its_files(txn, newest))


def _holds_its_files(txn: TransactionState, tail: Tail) -> Program[bool]:
    """Return whether the table has a file of the transaction, which only its own entry can add.

    A file of which the transaction has deleted rows is none: another client may have deleted the
    same rows of it.
    """
    adds = {file.ref for done in txn.work.done for file in done.change.adds}
    removed = {file.ref for done in txn.work.done for file in done.change.removes}
    there = {path for path, _ in removed - adds}
    made = sorted(ref for ref in adds - removed if ref[0] not in there)
    return bool(made) and len((yield from tail.snapshot.missing(made))) < len(made)


def _unknown(txn: TransactionState, location: str, why: str) -> CommitOutcomeUnknown:
    tried = txn.ending.entry_tried
    assert tried is not None
    return CommitOutcomeUnknown(
        f"it is not known whether transaction {txn.id} became version {tried.version} of table "
        f"{location}: {why}; check the table for its rows before you run it again",
        table=location,
        txn_id=txn.id,
    )
