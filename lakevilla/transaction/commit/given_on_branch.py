"""Commits of Iceberg REST clients on a branch, whose states are in no log.

The rules B1 to B4 are argued in docs/design/0073-given-commits.md. A branch publishes nothing, so a
commit that its HEAD has is done, on all of its tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from lakevilla.engines.base import TableInput
from lakevilla.engines.deletes import can_be_marked, mark, read_deletes
from lakevilla.errors import (
    CommitOutcomeUnknown,
    ConflictError,
    CorruptObject,
    InvalidOperation,
    TableNotFound,
    UnsupportedTableFeature,
)
from lakevilla.formats.base import Change, ClientUpdates
from lakevilla.formats.delta.deletion_vectors import RowIndices, united
from lakevilla.formats.files import (
    DataFile,
    files_from_structs,
    has_only_vectors,
    is_elsewhere,
    paths_of,
    restored,
)
from lakevilla.formats.iceberg.given import consequence_of_state
from lakevilla.formats.iceberg.metadata.file import Metadata
from lakevilla.formats.iceberg.metadata.requirements import check_requirements
from lakevilla.formats.iceberg.metadata.updates import added_snapshots
from lakevilla.formats.iceberg.snapshot import IcebergSnapshot
from lakevilla.formats.layout import Layout
from lakevilla.lake.context import branch_directory, branch_of
from lakevilla.lake.state_digest import state_digest
from lakevilla.lake.state_files import given_snapshot, state_file, state_snapshot
from lakevilla.lake.table_log import open_tail
from lakevilla.lake.view import View, build_view
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.operations import Given
from lakevilla.transaction.commit.asked import Answer, TableRequest, no_table
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.files import hold_written
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.bind import touch
from lakevilla.transaction.verbs.read_write import execute


def decided_on_branch(
    txn: TransactionState, requests: Sequence[TableRequest]
) -> Program[Answer | None]:
    """Compare a request with the branch's newest state, and decide it in the branch's HEAD.

    None if the request must be compared with a newer state.
    """
    if any(one.makes is not None for one in requests):
        return Answer("unsupported", "a table is made on the lake itself, and not on a branch")
    try:
        yield from touch(txn, [one.location for one in requests], probing=False)
    except TableNotFound as error:
        return no_table(error.message, adds_files=any(one.adds_files for one in requests))
    except ConflictError:
        return None
    views = {one.location: txn.work.tables[one.location].view for one in requests}
    refused = _refused(views)
    if refused is not None:
        return refused
    for one in requests:
        if (yield from _is_there(txn, one, views[one.location])):
            return (yield from newest_on_branch(txn, requests))
    shown: dict[str, Metadata] = {}
    for location, view in views.items():
        shown[location] = yield from state_file(txn.context, view)
    try:
        yield from _note_operations(txn, requests, views, shown)
    except ConflictError as error:
        for one in requests:
            if one.adds_files and (yield from _never_took_effect(txn, one, views[one.location])):
                return Answer("conflict", error.message)
        has_files = any(one.adds_files for one in requests)
        return Answer("unknown" if has_files else "conflict", error.message)
    except CommitOutcomeUnknown as error:
        return Answer("unknown", error.message)
    except UnsupportedTableFeature as error:
        return Answer("unsupported", error.message)
    except InvalidOperation as error:
        return Answer("invalid", error.message)
    if not any(one.updates for one in requests):
        return Answer("done", tables=shown)
    try:
        yield from commit(txn)
    except ConflictError:
        return None
    except CommitOutcomeUnknown as error:
        return Answer("unknown", error.message)
    return (yield from newest_on_branch(txn, requests))


def newest_on_branch(txn: TransactionState, requests: Sequence[TableRequest]) -> Program[Answer]:
    """Answer a request that the branch's HEAD has, with the newest states of its tables."""
    context = txn.context
    held = yield from context.head()
    assert held is not None
    documents = {}
    for one in requests:
        tail = yield from open_tail(context, one.location, missing_ok=True)
        try:
            view = yield from build_view(context, held.head, one.location, tail)
        except TableNotFound:
            continue  # it was dropped since
        documents[one.location] = yield from state_file(context, view)
    return Answer("done", tables=documents)


def _refused(views: Mapping[str, View]) -> Answer | None:
    for location, view in views.items():
        if view.mount is not None:
            return Answer("unsupported", f"table {location} is a clone's: write to it on the lake")
        if view.snapshot.format != "iceberg":
            return Answer("unsupported", f"table {location} is a Delta table, and read only here")
        if view.snapshot.catalog:
            return Answer(
                "unsupported", f"table {location} is in a catalog: commit to it through that"
            )
    return None


def _is_there(txn: TransactionState, one: TableRequest, view: View) -> Program[bool]:
    """Return whether a commit above the log has given the table a snapshot of the request (B3)."""
    if not one.adds_files:
        return False
    commits = yield from txn.context.commit_objects(view.placement.overlay)
    return any(given_snapshot(commit, one.location) in one.snapshots for commit in commits)


def _never_took_effect(txn: TransactionState, one: TableRequest, view: View) -> Program[bool]:
    """Return whether it is certain that a request is not, and never was, part of the branch (B3).

    It could only follow the state that its client knew. So that state must be one of this epoch,
    which is known, and so must each commit after it.
    """
    snapshot = added_snapshots(one.updates)[0]
    parent, state = snapshot.get("parent-snapshot-id"), view.snapshot
    assert isinstance(state, IcebergSnapshot)
    path = state.definition.place.path(str(snapshot.get("manifest-list")))
    if branch_of(path) != txn.context.epoch:
        return False
    commits = yield from txn.context.commit_objects(view.placement.overlay)
    for above in range(len(commits) + 1):
        if state_snapshot(view, commits, txn.context.epoch, above) == parent:
            # The object of several commits does not tell what they have given.
            later = [commit.tables[one.location] for commit in commits[above:]]
            return all(part.operation != "SQUASH" for part in later)
    return False


def _note_operations(
    txn: TransactionState,
    requests: Sequence[TableRequest],
    views: Mapping[str, View],
    shown: Mapping[str, Metadata],
) -> Program[None]:
    """Compare all requirements, and note an operation for each table (B1, B2).

    Raises
    ------
    ConflictError
        A requirement does not hold, or numbers of a snapshot are behind.
    InvalidOperation, UnsupportedTableFeature
        The updates do not fit the table, or a branch.
    CommitOutcomeUnknown
        The client's files are of another epoch of the branch, which may have the request.
    """
    epoch = txn.context.epoch
    for one in requests:
        known = shown[one.location]
        check_requirements({n: known.get(n) for n in known.parts}, one.requirements, one.location)
    now_ms = txn.context.now_ms()
    found = []
    for one in requests:
        view, change, snapshot = views[one.location], Change(), None
        base = view.base
        assert isinstance(base, IcebergSnapshot)
        if one.updates:
            directory = branch_directory("", epoch).removeprefix("/")
            state = view.snapshot
            assert isinstance(state, IcebergSnapshot)
            below = IcebergSnapshot(base.version, state.definition, base.document, base.cache)
            change, snapshot = yield from consequence_of_state(
                below, shown[one.location], one.updates, now_ms, directory
            )
            yield from _check_files(txn, view, change)
            try:
                change = yield from _with_own_marks(txn, view, change)
            except CorruptObject as error:
                raise InvalidOperation(
                    f"table {one.location}: deletes that the updates name can't be read: "
                    f"{error.message}",
                    table=one.location,
                ) from error
        given = ClientUpdates(
            base.version, now_ms=now_ms, snapshot=snapshot, state=state_digest(view, epoch)
        )
        found.append(Given(one.location, given, change))
    for operation in found:
        yield from execute(txn, operation, "commit")


def _check_files(txn: TransactionState, view: View, change: Change) -> Program[None]:
    """Compare the files of a change with the state, and with where a branch's files lie.

    Raises
    ------
    CommitOutcomeUnknown
        New files are of another epoch of the branch, which may have had the request.
    InvalidOperation
        New files lie where a clean-up of the lake's own table deletes them.
    UnsupportedTableFeature
        A file is removed that the branch names in another way.
    """
    place = branch_directory(view.location, txn.context.epoch)
    known = {path for file in change.removes for path in paths_of(file)}
    for file in change.adds:
        for path in (path for path in paths_of(file) if path not in known):
            epoch = branch_of(path)
            if epoch == txn.context.epoch:
                continue
            if epoch is not None:
                raise CommitOutcomeUnknown(
                    f"table {view.location}: {path} was written before the branch was rebased",
                    table=view.location,
                    txn_id=txn.id,
                )
            if path != file.path and not is_elsewhere(path):
                continue  # deletes beside the data file: the branch gets marks of its own
            raise InvalidOperation(
                f"{path} of table {view.location} is not in {place}, where the branch's files are: "
                "store it below the location that a load tells",
                table=view.location,
            )
    absent = yield from view.snapshot.missing([file.ref for file in change.removes])
    if absent:
        raise UnsupportedTableFeature(
            f"table {view.location}: {absent[0]} is removed, which the branch has in another way: "
            "`optimize` the table on the branch",
            table=view.location,
        )


def _is_of(file: DataFile, epoch: str) -> bool:
    """Return whether the deletes of a file are one vector, which is kept as the branch is."""
    one = next(iter(file.deletes))
    return len(file.deletes) == 1 and has_only_vectors(file) and branch_of(one.path) == epoch


def _with_own_marks(txn: TransactionState, view: View, change: Change) -> Program[Change]:
    """Return a change in which the deletes of each file have the one form that a merge carries.

    That is a vector, or in version 2 a position delete file of this data file alone, with all its
    deleted rows (B5). A client's vector has it already.

    Raises
    ------
    UnsupportedTableFeature
        A file has equality deletes, or deleted rows would come back.
    """
    layout = view.snapshot.layout
    before = {file.path: file for file in change.removes}
    marked: list[tuple[DataFile, RowIndices]] = []
    unmarked: dict[str, DataFile] = {}
    same = set()
    for file in change.adds:
        _refuse_equality(view, file)
    olds = [restored(before[file.path]) for file in change.adds if file.path in before]
    rows_before, rows_now = yield from parallel(
        [_rows_deleted(layout, olds), _rows_deleted(layout, change.adds)]
    )
    for file in change.adds:
        old, rows = before.get(file.path), rows_now[file.path]
        if old is None:
            bare = unmarked[file.path] = msgspec.structs.replace(file, deletes=())
            if len(rows):
                marked.append((bare, rows))
            continue
        was = rows_before[file.path]
        if len(united(was, rows)) > len(rows):
            raise UnsupportedTableFeature(
                f"table {view.location}: deleted rows of {file.path} would come back, and on a "
                "branch LakeVilla alone brings rows back: commit this on the lake itself",
                table=view.location,
            )
        if len(was) == len(rows):
            same.add(file.path)
        elif not (layout.lineage and _is_of(file, txn.context.epoch)):
            marked.append((msgspec.structs.replace(file, deletes=old.deletes), rows))
    # A file of several vectors is dropped whole by DuckDB, with those that it does not replace.
    written = [one for pair in marked for one in mark(layout, [pair], txn.file_namer)]
    hold_written(txn, view.location, (one for one in written if one.bodies))
    own = {**unmarked, **{one.file.path: one.file for one in written}}
    adds = tuple(own.get(file.path, file) for file in change.adds if file.path not in same)
    removes = tuple(file for file in change.removes if file.path not in same)
    change = msgspec.structs.replace(change, adds=adds, removes=removes)
    if change.is_empty:  # deletes of which only the files differ: the definition stays, and is said
        return msgspec.structs.replace(change, metadata=dict(view.snapshot.metadata))
    return change


def _rows_deleted(layout: Layout, files: Sequence[DataFile]) -> Program[dict[str, RowIndices]]:
    """Return the deleted rows of files by their paths; each delete file is read once."""
    found = yield from read_deletes(TableInput(layout, files_from_structs(files)))
    return {file.path: found.rows_of(number) for number, file in enumerate(files)}


def _refuse_equality(view: View, file: DataFile) -> None:
    if not can_be_marked(file.deletes):
        raise UnsupportedTableFeature(
            f"table {view.location}: {file.path} has equality deletes, which can't be committed on "
            "a branch: commit them on the lake itself, or write by copy-on-write",
            table=view.location,
        )
