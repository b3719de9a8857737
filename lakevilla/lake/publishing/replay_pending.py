"""A table's pending commits, performed again on the state that foreign commits have left."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from lakevilla.engines.base import FileNamer
from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    StoreError,
    TableNotFound,
    VersionNotFound,
)
from lakevilla.formats.base import Change, Entry, TableSnapshot
from lakevilla.formats.files import DataFile, file_key, restored
from lakevilla.formats.layout import Ids, Layout
from lakevilla.global_log.commits import CommitObject, TablePart, commit_key, format_of, seal
from lakevilla.global_log.head import (
    Head,
    PendingRef,
    TableState,
    application_id,
)
from lakevilla.lake.applicability import UNREADABLE, is_lost, lost_for_good, paths_written
from lakevilla.lake.context import Context, Tail, file_namer
from lakevilla.lake.operations.changes import in_one_entry
from lakevilla.lake.operations.comparing.computed import Beneath, layout_before
from lakevilla.lake.operations.comparing.dropped_columns import (
    may_have_values,
    named,
    value_that_came,
    withdrawn_fields,
)
from lakevilla.lake.operations.perform import check_append_only, perform, performed_as
from lakevilla.lake.row_changes import (
    NetChange,
    Verdict,
    acted_on,
    judge,
    marked_again,
    net_change,
    rows_fit,
    still_fits,
)
from lakevilla.lake.table_log import entries_at, open_tail, snapshot_at
from lakevilla.lake.view import Placement, View, build_view, place
from lakevilla.store.base import ABSENT, Stored
from lakevilla.store.effects import Program, put, put_all
from lakevilla.sublogs.binding import (
    Moves,
    evolves,
    moves,
    renumber,
    renumber_read,
    withdrawn,
)
from lakevilla.sublogs.describe import summed
from lakevilla.sublogs.operations import (
    Append,
    Delete,
    Insert,
    Merge,
    Operation,
    Optimize,
    Overwrite,
    ReadRecord,
    Transplant,
    Update,
    acts_on_all,
    given_files,
    is_blind,
    staged_keys,
    tables_read,
)

#: The operations that only add, change or delete rows: what they read says when they do the same.
_OF_ROWS = (Append, Insert, Overwrite, Update, Delete, Merge)
#: The most files of a table whose existence is checked after a replay has failed.
_MOST_LOOKED_FOR = 10_000
NONE_REJECTED: Mapping[tuple[str, str], str] = MappingProxyType({})


@dataclass(slots=True)
class Replay:
    """The outcome of replaying the pending commits of one table."""

    snapshot: TableSnapshot
    changes: list[Change] = field(default_factory=list)
    voided: list[tuple[str, str]] = field(default_factory=list)
    metrics: list[dict[str, str]] = field(default_factory=list)
    operation: str = "RECONCILE"
    #: The operations, for the reconcile commit: if it becomes unfit itself, they are needed again.
    operations: list[Operation] = field(default_factory=list)
    #: The reads of the commits: if the reconcile commit is replayed, it reports their changes, too.
    reads: list[ReadRecord] = field(default_factory=list)
    moved: dict[Ids, Ids] = field(default_factory=dict)
    #: All commits up to here have their own changes still, with rows marked in the files of now.
    kept: bool = True

    def keep(self, commit: CommitObject, location: str, change: Change) -> None:
        """Take a commit whose operations, performed again, would change the same rows."""
        self.snapshot = self.snapshot.apply(change)
        self.changes.append(change)
        self.metrics.append(commit.tables[location].metrics)
        self.operations.extend(_of_table(commit, location))
        self.reads.extend(read for read in commit.reads if read.table == location)

    @property
    def is_unmoved(self) -> bool:
        """Return whether the operations do the same as before the foreign changes."""
        # An optimize drops bins that do not fit, and blind appends are added unchanged.
        return self.kept or all(
            isinstance(one, Optimize) or is_blind(one) for one in self.operations
        )

    def void(self, commit: CommitObject, location: str, reason: str) -> None:
        """Cancel the commit on the table: neither its changes nor its new column ids count."""
        self.kept = False
        self.voided.append((commit.txn, reason))
        for operation in _of_table(commit, location):
            self.moved |= withdrawn(operation)


def _of_table(commit: CommitObject, location: str) -> list[Operation]:
    return [operation for operation in commit.operations if operation.table == location]


def _keeps_files(commit: CommitObject, location: str) -> bool:
    """Return whether a replay adds files again that were written for the table's old state."""
    return any(isinstance(one, Append | Overwrite) for one in _of_table(commit, location))


def _given(commit: CommitObject, location: str) -> list[str]:
    """Return the files and sources that a commit's operations on the table were given."""
    operations = _of_table(commit, location)
    files = [file_key(location, f.path) for operation in operations for f in given_files(operation)]
    files += [file_key(location, path) for path in commit.tables[location].objects]
    return files + [key for operation in operations for key in staged_keys(operation)]


def is_among(ref: PendingRef, lost: Collection[tuple[str, str]]) -> bool:
    return (ref.txn, ref.hash) in lost


def replay_pending(
    context: Context,
    head: Head,
    location: str,
    tail: Tail,
    waiting: tuple[PendingRef, ...],
    commits: Sequence[CommitObject],
    missing: Collection[tuple[str, str]],
    rejected: Mapping[tuple[str, str], str] = NONE_REJECTED,
) -> Program[tuple[CommitObject, str, Replay]]:
    """Return the commit that replaces all ``waiting`` ones, its digest, and their outcomes."""
    txn = context.ids.txn_id(above=head.floor)
    state = head.tables[location]
    has_left = yield from is_lost(context, head, location, tail)
    replay = Replay(tail.snapshot)
    reason = _why_none(location, tail, waiting[0], commits[0], missing, is_lost=has_left)
    is_there = not has_left and tail.tip >= 0
    foreign = None
    if is_there:
        foreign = yield from _foreign(context, head, location, tail, commits, missing)
    if reason is not None:
        replay.voided.extend((ref.txn, reason) for ref in waiting)
    else:
        yield from _replay_each(
            context, head, tail, waiting, commits, missing, rejected, replay, txn, foreign
        )
    change = Change()
    bodies: dict[str, bytes] = {}
    if replay.changes:
        name = file_namer(context, txn, through_head=True)
        change, bodies = yield from in_one_entry(context, tail.snapshot, replay.changes, name)
    yield from _store(location, bodies)
    part = _part(state, tail, waiting, replay, change)
    touched = (yield from _touched(context, location, commits, foreign)) if is_there else ()
    unmoved = not touched and replay.is_unmoved
    quiet = _is_quiet(tail, state.published, application_id(head), unmoved=unmoved)
    metadata, applications = _described(commits, replay)
    commit = CommitObject(
        format_of([part]),
        context.ids.nonce(),
        txn,
        {location: part},
        metadata=metadata,
        applications=applications,
        touched_reads=touched,
        quiet=quiet and not replay.voided,
        replaces=tuple((ref.sequence, ref.txn, ref.hash) for ref in waiting),
        voided=tuple(replay.voided),
        operations=tuple(replay.operations),
        reads=tuple(replay.reads),
    )
    return commit, (yield from _stored(context, commit)), replay


def _part(
    state: TableState, tail: Tail, waiting: Sequence[PendingRef], replay: Replay, change: Change
) -> TablePart:
    return TablePart(
        table_id=tail.snapshot.table_id if tail.tip >= 0 else state.table_id,
        change=change,
        operation=replay.operation,
        parameters={"replaces": ",".join(ref.txn for ref in waiting)},
        metrics=summed(replay.metrics),
        contract=replay.snapshot.contract if tail.tip >= 0 else "",
        redefines=change.metadata is not None
        and (_hides(replay) or not rows_fit(tail.snapshot.layout, replay.snapshot.layout)),
    )


def _described(
    commits: Sequence[CommitObject], replay: Replay
) -> tuple[dict[str, str], dict[str, int]]:
    """Return the metadata of the commits that are not void, and their versions of applications.

    Other readers look for both in the log.
    """
    void = {txn for txn, _ in replay.voided}
    metadata: dict[str, str] = {}
    applications: dict[str, int] = {}
    for commit in commits:
        if commit.txn not in void:
            metadata.update(commit.metadata)
            applications.update(commit.applications)
    return metadata, applications


def _store(location: str, bodies: Mapping[str, bytes]) -> Program[None]:
    """Store files of the commit: HEAD must never name one that may not exist."""
    doubtful = yield from put_all(bodies)
    if doubtful is not None:
        raise StoreError(f"could not store {doubtful}, so {location} stays unpublished: try again")


def _hides(replay: Replay) -> bool:
    """Return whether a replayed operation drops columns for which other clients may have values."""
    return any(isinstance(one, Transplant) and one.hides for one in replay.operations)


def _stored(context: Context, commit: CommitObject) -> Program[str]:
    digest, body = seal(commit)
    key = commit_key(commit.txn, digest)
    stored = yield from put(key, body, ABSENT)
    if not isinstance(stored, Stored):
        # HEAD must never name an object that may not exist.
        tables = ", ".join(commit.tables)
        raise StoreError(f"could not store {key}, so {tables} stays unpublished: try again")
    context.keep_commit(digest, commit, len(body))
    return digest


def _why_none(
    location: str,
    tail: Tail,
    first: PendingRef,
    commit: CommitObject,
    missing: Collection[tuple[str, str]],
    *,
    is_lost: bool,
) -> str | None:
    """Return the reason why none of the commits can take effect on the table; else None."""
    if is_lost:
        return f"table {location} was dropped or created again by another client"
    if tail.tip < 0 and not is_among(first, missing):
        return f"files with which table {location} was created were deleted by another client"
    if tail.tip < 0:
        return f"the commit that was to create table {location} is missing: {_object_lost(first)}"
    if commit.tables[location].created:
        return f"another client made table {location} first"
    return None


def _replay_each(
    context: Context,
    head: Head,
    tail: Tail,
    waiting: tuple[PendingRef, ...],
    commits: Sequence[CommitObject],
    missing: Collection[tuple[str, str]],
    rejected: Mapping[tuple[str, str], str],
    replay: Replay,
    txn: str,
    foreign: _Foreign | None,
) -> Program[None]:
    location = tail.location
    parts = [commit.tables[location] for commit in commits]
    for index, (ref, commit) in enumerate(zip(waiting, commits, strict=True)):
        if is_among(ref, missing):
            replay.kept = False
            replay.voided.append((ref.txn, _object_lost(ref)))
            continue
        if (ref.txn, ref.hash) in rejected:
            replay.void(commit, location, rejected[ref.txn, ref.hash])
            continue
        without = yield from lost_for_good(_given(commit, location))
        if without:
            replay.void(commit, location, _without(without))
            continue
        if replay.kept and foreign is not None:
            name = file_namer(context, txn, through_head=True)
            try:
                change = yield from _marked_beside(context, foreign, commit, replay.snapshot, name)
            except CorruptObject:
                change = None  # no log names its vectors yet, so other clients may delete them
            if change is not None:
                replay.keep(commit, location, change)
                continue
        replay.kept = False
        for one in _members_of(commit):
            made_for = _written_layout(context, tail, waiting[: index + 1], parts[: index + 1])
            yield from _replay_commit(context, head, tail, txn, ref, one, made_for, replay)


def _members_of(commit: CommitObject) -> Iterator[CommitObject]:
    """Yield the parts of a combined commit, which can be cancelled one by one (note 68)."""
    for txn, operations in commit.by_member():
        yield msgspec.structs.replace(commit, txn=txn, operations=operations, members=())


@dataclass(frozen=True, slots=True)
class _Foreign:
    """The state before the foreign entries, the log's present one, and their difference."""

    old: View
    new: View
    net: NetChange


def _foreign(
    context: Context,
    head: Head,
    location: str,
    tail: Tail,
    commits: Sequence[CommitObject],
    missing: Collection[tuple[str, str]],
) -> Program[_Foreign | None]:
    """Return what foreign clients have changed, if the commits can be compared with it.

    The log before the first foreign entry is compared with the present log, without the pending
    commits: an operation that sets the same value in both would hide that the value from which it
    was computed has changed.
    """
    old = None if missing else (yield from _before(context, head, location, tail))
    if old is None:
        # The reads may include rows of a cancelled commit, or rows of a state that no longer
        # exists. Neither can be compared with the present state.
        return None
    log = tail.snapshot
    new = View(location, old.state, Placement(tail.tip, ()), (), log, log, tail.tip)
    try:
        return _Foreign(old, new, (yield from net_change(context, old, new, tail)))
    except VersionNotFound:
        return None  # the old state's metadata still exists, but its file lists were expired


def _marked_beside(
    context: Context,
    foreign: _Foreign,
    commit: CommitObject,
    snapshot: TableSnapshot,
    name: FileNamer,
) -> Program[Change | None]:
    """Return a commit's change, with its rows marked beside those that foreign clients have marked.

    None if it must be performed again: foreign clients have changed rows that its operations
    depend on, or a file of it is gone (note 65, rule V4).
    """
    location = foreign.old.location
    operations, change = _of_table(commit, location), commit.tables[location].change
    paths = {file.path for file in change.removes}
    is_plain = not (foreign.net.metadata or foreign.net.contract) and not any(
        not isinstance(one, _OF_ROWS) or evolves(one) for one in operations
    )
    stays = not paths or any(file.path in paths for file in change.adds)
    if change.metadata or change.protocol or change.domains or not (is_plain and stays):
        return None
    acted = yield from acted_on(snapshot.layout, change)
    for one in operations:
        read = tables_read(one)
        if location in read:
            known = acted if acts_on_all(one) else None
            verdict = yield from judge(
                context, foreign.old, foreign.new, foreign.net, read[location], known
            )
            if verdict is Verdict.CHANGED:
                return None
    marked = yield from marked_again(snapshot, change, name)
    if marked is None:
        return None
    again = marked.change
    if (yield from snapshot.missing([file.ref for file in again.removes])):
        return None
    new = [file.ref for file in again.adds if file.path not in paths]
    if len((yield from snapshot.missing(new))) < len(new):
        return None
    bodies = marked.bodies(location)
    keys = [file_key(location, path) for path in paths_written(location, again)]
    if (yield from lost_for_good([key for key in keys if key not in bodies])):
        return None
    yield from _store(location, bodies)
    return again


def _touched(
    context: Context, location: str, commits: Sequence[CommitObject], foreign: _Foreign | None
) -> Program[tuple[str, ...]]:
    """Return the transactions that have read rows of the table which foreign changes touched.

    They are only reported. If the changes are not known, all reads count as changed.
    """
    touched: list[str] = []
    for commit in commits:
        for read in commit.reads:
            if read.table == location:
                verdict = Verdict.CHANGED
                if foreign is not None:
                    verdict = yield from judge(
                        context, foreign.old, foreign.new, foreign.net, read.where
                    )
                if verdict is Verdict.CHANGED:
                    touched.append(commit.txn)
                    break
    return tuple(touched)


def _before(context: Context, head: Head, location: str, tail: Tail) -> Program[View | None]:
    """Return the state before the first foreign entry; None if clean-up has removed it."""
    state = head.tables[location]
    placed = yield from place(context, head, location, tail, accept_hidden=False)
    if placed.hidden:
        # Clean-up removed log entries: foreign changes can't be told from the lake's own.
        return None
    try:
        base = yield from snapshot_at(context, tail, placed.logged)
    except (VersionNotFound, CorruptObject):
        return None
    return View(location, state, Placement(placed.logged, ()), (), base, base, tail.tip)


def _replay_commit(
    context: Context,
    head: Head,
    tail: Tail,
    txn: str,
    ref: PendingRef,
    commit: CommitObject,
    made_for: Program[Layout | None],
    replay: Replay,
) -> Program[None]:
    """Replay one commit's operations on the table; if one fails, cancel the commit on the table."""
    location = tail.location
    name = file_namer(context, txn, through_head=True)
    snapshot = replay.snapshot
    changes: list[Change] = []
    operations: list[Operation] = []
    moved: Moves = {location: dict(replay.moved)}
    metrics = []
    read: list[TableSnapshot] = []

    def lookup(other: str) -> Program[TableSnapshot]:
        if other == location:
            return snapshot
        # A table that this very commit creates may have no log yet.
        tail = yield from open_tail(context, other, missing_ok=True)
        view = yield from build_view(context, head, other, tail)
        read.append(view.snapshot)
        return view.snapshot

    try:
        written = (yield from made_for) if _keeps_files(commit, location) else None
        for operation in _of_table(commit, location):
            # Columns that earlier commits add may have other ids now than when they were decided.
            operation = renumber(operation, moved)
            beneath = yield from _beneath(context, head, tail, ref, commit, operation, operations)
            performed = yield from perform(context, operation, snapshot, name, lookup, beneath)
            check_append_only(snapshot, performed)
            again = performed_as(operation, snapshot, performed)
            moved[location] |= moves(operation, again)
            operations.append(again)
            layout = snapshot.apply(performed.change).layout
            if written is not None and isinstance(operation, Append | Overwrite):
                _check_given(location, operation.files, written, layout, replay)
            if performed.bodies:
                yield from _store(location, performed.bodies)
            snapshot = snapshot.apply(performed.change)
            changes.append(performed.change)
            metrics.append(performed.metrics)
        if written is None and _keeps_files(commit, location):
            # The log no longer has the layout that the files were written for: compare the contract
            # in the commit object.
            _check_fits(location, commit.tables[location].contract == snapshot.contract)
    except LakeVillaError as error:
        replay.void(commit, location, (yield from _why_void(error, [snapshot, *read])))
        return
    replay.snapshot = snapshot
    replay.changes.extend(changes)
    replay.metrics.extend(metrics)
    replay.operations.extend(operations)
    replay.moved = moved[location]
    replay.reads.extend(renumber_read(r, moved) for r in commit.reads if r.table == location)


def _beneath(
    context: Context,
    head: Head,
    tail: Tail,
    ref: PendingRef,
    commit: CommitObject,
    operation: Operation,
    before: Sequence[Operation],
) -> Program[Beneath | None]:
    """Return the commits of which the state for a replay consists, if the operation needs them.

    Raises ``InvalidOperation`` if the changes of other clients do not allow the replay.
    """
    if not isinstance(operation, Transplant):
        return None
    foreign = yield from _of_others(context, head, tail)
    if operation.hides:
        yield from _refuse_hiding(context, tail, operation, [one for _, one in foreign])
    return Beneath(
        ref.sequence - 1,
        tuple(before),
        tuple(version for version, _ in foreign),
        frozenset(sequence for sequence, _, _ in commit.replaces),
    )


def _of_others(context: Context, head: Head, tail: Tail) -> Program[list[tuple[int, Entry | None]]]:
    """Return the foreign log entries that HEAD does not know; None for each that was cleaned up."""
    versions = range(head.tables[tail.location].published + 1, tail.tip + 1)
    entries = yield from entries_at(context, tail, versions)
    return [
        (version, entry)
        for version, entry in zip(versions, entries, strict=True)
        if entry is None or application_id(head) not in entry.applications
    ]


def _refuse_hiding(
    context: Context, tail: Tail, operation: Transplant, entries: Sequence[Entry | None]
) -> Program[None]:
    """Refuse to drop columns to which other clients have written since the drop was decided.

    Raises ``InvalidOperation``.
    """
    known = [entry.change for entry in entries if entry is not None]
    added = [file for change in known for file in change.adds]
    removed = [restored(file) for change in known for file in change.removes]
    layout = layout_before(context, operation, tail.snapshot)
    if len(known) < len(entries):
        found: str | None = "an entry of the log that was cleaned up may have had some"
    else:
        found = yield from value_that_came(
            context, layout, operation.hides, added, removed, operation.keys
        )
    if found is not None:
        raise InvalidOperation(
            f"{named(operation.hides)} is to be dropped from table {tail.location}, and other "
            f"clients have written rows meanwhile: {found}",
            table=tail.location,
        )


def _why_void(error: LakeVillaError, snapshots: Sequence[TableSnapshot]) -> Program[str]:
    """Return why a replay can never be done; raise the error if it may be done later."""
    if error.kind not in UNREADABLE:
        return error.message
    missing = yield from _missing_of(snapshots)
    if not missing:
        raise error
    return _without(missing)


def _check_fits(location: str, fits: bool) -> None:
    if not fits:
        raise TableNotFound(f"rows written to {location} no longer fit its schema")


def _check_given(
    location: str, files: Sequence[DataFile], written: Layout, layout: Layout, replay: Replay
) -> None:
    """Refuse files that do not fit the table's layout any more.

    Nor do rows with values in columns that only cancelled commits had added: the values would be
    lost without notice, or be read as those of another client's column, which may have the id by
    now.
    """
    _check_fits(location, still_fits(written, layout))
    paths = withdrawn_fields(written, replay.moved)
    if may_have_values(files, written, paths):
        raise InvalidOperation(
            f"rows written to {location} have values in {named(paths)}, which a cancelled commit "
            "had added",
            table=location,
        )


def _missing_of(snapshots: Sequence[TableSnapshot]) -> Program[list[str]]:
    """Return the data files of these states that were deleted: no replay can ever read them.

    Called only after a replay has failed, and limited to ``_MOST_LOOKED_FOR`` files of a table.
    """
    keys: list[str] = []
    for snapshot in snapshots:
        files = yield from snapshot.files()
        paths = files["path"].slice(0, _MOST_LOOKED_FOR).to_pylist()
        keys.extend(file_key(snapshot.location, path) for path in paths)
    return (yield from lost_for_good(keys))


def _without(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    return f"{keys[0]}{more}, which it needs, was deleted by another client"


def _object_lost(ref: PendingRef) -> str:
    return f"its commit object {commit_key(ref.txn, ref.hash)} was deleted by another client"


def _written_layout(
    context: Context, tail: Tail, waiting: Sequence[PendingRef], parts: Sequence[TablePart]
) -> Program[Layout | None]:
    """Return the layout for which the last of ``waiting`` has written its files, or None.

    It is the layout of the log version up to which the commit was validated, with the commits laid
    over it that were decided before. None if the log does not have that version any more.
    """
    base = min(waiting[-1].base, tail.tip)
    try:
        snapshot = yield from snapshot_at(context, tail, base)
    except (VersionNotFound, CorruptObject):
        return None
    for part in parts:
        snapshot = snapshot.apply(part.change)
    return snapshot.layout


def _is_quiet(tail: Tail, published: int, application: str, *, unmoved: bool) -> bool:
    """Return whether no transaction need be notified of the foreign entries.

    That is so if they only moved rows, or if their changes do not affect the replayed commits
    (``unmoved``), and if they left the metadata unchanged.
    """
    for version in range(published + 1, tail.tip + 1):
        entry = tail.entries.get(version)
        if entry is None:
            return False
        if application not in entry.applications and (
            (entry.change.changes_data and not unmoved) or entry.change.metadata is not None
        ):
            return False
    return True
