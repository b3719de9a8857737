"""Apply the changes between two states, roll back, and restore tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

import pyarrow as pa

from lakevilla.errors import (
    ConflictError,
    InvalidOperation,
    MergeConflict,
    TableExists,
    VersionNotFound,
)
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.files import data_files
from lakevilla.global_log.head import CommitSummary, Head, TableState
from lakevilla.global_log.refs import parsed
from lakevilla.global_log.repo import load_all, load_tables
from lakevilla.lake.frozen.mounts import is_there_in
from lakevilla.lake.frozen.states import (
    AtBase,
    AtHead,
    LakeState,
    StateName,
    between,
    chosen_places,
    commit_of,
    state_of,
)
from lakevilla.lake.operations.comparing.computed import reached_by
from lakevilla.lake.operations.comparing.dropped_columns import missing_fields, named
from lakevilla.lake.operations.difference import Difference, difference
from lakevilla.lake.own_versions import OwnVersion, own_view
from lakevilla.lake.row_changes import rows_fit
from lakevilla.lake.view import View
from lakevilla.phases import during
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Create, Defined, OnConflict, OnEqual, Reached, Transplant
from lakevilla.transaction.redo.replay import undo_since
from lakevilla.transaction.state.files import store_files
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.validation.checks import note_kept
from lakevilla.transaction.verbs.applying.observed import hiding
from lakevilla.transaction.verbs.bind import bind_to_head, join_head, take_places, touch
from lakevilla.transaction.verbs.create_table import copied_change
from lakevilla.transaction.verbs.read_write import drop, execute, lookup, observe

# -------------------- requests
#
# What the verbs that apply states are to do with each table, and their errors on a conflict.


#: The positions of a table in its histories if they can't be known.
UNKNOWN: tuple[Reached, Reached] = ({}, {})


@dataclass(frozen=True, slots=True)
class Settle:
    """The choices for rows that both sides have changed, and for changes that are equal."""

    on_conflict: OnConflict = "error"
    on_equal: OnEqual = "conflict"


#: Refuse rows that both sides have changed.
REFUSE = Settle()


@dataclass(frozen=True, slots=True)
class Request:
    """The parameters of the verb for one table, with the table's positions in the two states."""

    location: str
    keys: tuple[str, ...]
    settle: Settle
    verb: str
    parameters: dict[str, str]
    since: Reached
    until: Reached

    @property
    def on_conflict(self) -> OnConflict:
        return self.settle.on_conflict


def conflict_of(request: Request, why: str, *, theirs: bool = True) -> MergeConflict:
    """Return the conflict of a table; ``theirs``: if ``on_conflict="theirs"`` can settle it."""
    may = "'ours' or 'theirs'" if theirs else "'ours'"
    left_out = "" if request.verb == "REBASE" else "leave it out by tables=, or "
    return MergeConflict(
        f"table {request.location}: {why}; {left_out}give on_conflict={may}",
        rows={request.location: None},
        table=request.location,
    )


def together(conflicts: Sequence[MergeConflict]) -> MergeConflict:
    """Return the conflicts of several tables as one error."""
    if len(conflicts) == 1:
        return conflicts[0]
    rows = {table: found for one in conflicts for table, found in one.by_table.items()}
    message = "; ".join(one.message for one in conflicts)
    return MergeConflict(f"{len(conflicts)} tables are in conflict: {message}", rows=rows)


def reached(old: LakeState, new: LakeState, location: str) -> tuple[Reached, Reached]:
    """Return a table's positions in the histories of two states.

    They are ``UNKNOWN`` if neither state has developed from the other one.
    """
    was, now = _reached_by(old, location), _reached_by(new, location)
    if was.keys() == now.keys():
        return was, now
    if isinstance(old, AtBase) and old.base.kind == "branch" and old.base.epoch in now:
        return was, {**was, **now}  # the epoch was made of this base
    return UNKNOWN


def _reached_by(state: LakeState, location: str) -> Reached:
    return reached_by(state.base, location) if isinstance(state, AtBase) else {"": state.version}


def check_keys(snapshot: TableSnapshot, keys: Collection[str]) -> None:
    """Raise ``InvalidOperation`` for key columns that the table lacks, or of nested types."""
    schema = snapshot.layout.schema
    for key in keys:
        if key not in schema.names:
            raise InvalidOperation(
                f"keys: table {snapshot.layout.table} has no column {key!r}; it has "
                f"{', '.join(schema.names)}",
                table=snapshot.layout.table,
            )
        if pa.types.is_nested(schema.field(key).type):
            raise InvalidOperation(
                f"keys: column {key!r} of table {snapshot.layout.table} is a "
                f"{schema.field(key).type}, whose values identify no rows: name other columns",
                table=snapshot.layout.table,
            )


def names_of(old: LakeState, new: LakeState) -> dict[str, str]:
    """Return the names of the two states, as parameters in the table's history."""
    if isinstance(new, AtBase) and new.base.kind == "branch" and isinstance(old, AtBase):
        return {"branch": f"{new.base.name}@{new.version}"}
    return {"before": old.name, "after": new.name}


def is_later(one: StateName, other: StateName) -> bool:
    """Return whether ``one`` comes after ``other``: two versions of the lake, or of one branch."""
    numbers = [_number(name) for name in (one, other)]
    return numbers[0] > numbers[1]


def _number(name: StateName) -> int:
    match name:
        case ("version", int(version)):
            return version
        case ("ref", str(ref)):
            return parsed(ref)[1] or -1
    return -1


def transplant_of(request: Request, found: Difference) -> Transplant:
    """Return the operation that applies a difference to the table of a request."""
    return Transplant(
        request.location,
        found.removes,
        found.adds,
        found.before,
        found.after,
        keys=request.keys,
        on_conflict=request.on_conflict,
        on_equal=request.settle.on_equal,
        since=request.since,
        until=request.until,
        verb=request.verb,
        parameters=request.parameters,
    )


# -------------------- apply
#
# Apply the changes between two states of the lake to its present state
# (docs/design/0032-apply.md).


#: The outcome for a table: "physical" if whole files were added and removed, "rows" if rows were
#: compared, "kept" if nothing was changed.
Outcome = Literal["physical", "rows", "created", "dropped", "kept"]


def apply(
    txn: TransactionState,
    before: StateName,
    after: StateName,
    *,
    tables: Sequence[str] | None = None,
    keys: Mapping[str, tuple[str, ...]],
    settle: Settle = REFUSE,
    verb: str = "APPLY",
    single: StateName = None,
) -> Program[dict[str, Outcome]]:
    """Apply to the transaction's state the changes from ``before`` to ``after``.

    Parameters
    ----------
    tables : sequence of str, optional
        Patterns of names or paths; all tables if not given.
    keys : Mapping
        By location, the columns that identify a row.
    single : StateName
        The state that one commit has made, if no other transaction may share that commit.

    Returns
    -------
    dict of str to Outcome
        By location, for the tables that differ in the two states.

    Raises
    ------
    MergeConflict
        Other clients have changed the same rows or tables; the transaction is unchanged.
    VersionNotFound, RefNotFound
        A state, or a file that must be brought back, is not kept any more.
    InvalidOperation
        A pattern matches no table, ``keys`` names a column that a table lacks, or several
        transactions share the ``single`` commit.
    """
    head = yield from bound(txn)
    if is_later(before, after):
        # If both versions are missing, the error names ``before``, which the user has given.
        old = yield from state_of(head, before)
        new = yield from state_of(head, after)
    else:
        new = yield from state_of(head, after)
        old = yield from state_of(head, before)
    commit = yield from commit_of(head, single)
    if commit is not None and len(commit.members) > 1:
        raise _shared(commit, verb)
    return (yield from apply_states(txn, head, old, new, tables, keys, settle, verb))


def _shared(commit: CommitSummary, verb: str) -> InvalidOperation:
    name = verb.lower()
    return InvalidOperation(
        f"{name}: {len(commit.members)} transactions share version {commit.sequence}, and there is "
        f"no state between them: {', '.join(commit.members)}; pass members='all' to {name} them all"
    )


def apply_states(
    txn: TransactionState,
    head: Head,
    old: LakeState,
    new: LakeState,
    tables: Sequence[str] | None,
    keys: Mapping[str, tuple[str, ...]],
    settle: Settle,
    verb: str,
) -> Program[dict[str, Outcome]]:
    """Apply loaded states as ``apply`` does; ``head`` is the HEAD to which ``txn`` is bound."""
    for location, columns in keys.items():
        yield from touch(txn, [location], probing=True)
        check_keys(txn.work.tables[location].snapshot, columns)
    changed = yield from between(txn.context, head, old, new)
    wanted = yield from chosen_places(head, changed.tables, tables)
    was = yield from old.views(txn.context, wanted)
    now = yield from new.views(txn.context, wanted)
    outcomes: dict[str, Outcome] = {}
    conflicts: list[MergeConflict] = []
    with _whole_or_not_at_all(txn):
        for location in wanted:
            pair = was[location], now[location]
            if None in pair and location not in changed.made:
                continue  # it was registered with an older log: its state before that is not known
            names = names_of(old, new)
            since, until = reached(old, new, location)
            request = Request(location, keys.get(location, ()), settle, verb, names, since, until)
            try:
                outcome = yield from _applied(txn, head, request, *pair)
            except MergeConflict as error:
                conflicts.append(error)
            else:
                if outcome is not None:
                    outcomes[location] = outcome
        if conflicts:
            raise together(conflicts)
    return outcomes


def roll_back(
    txn: TransactionState, to: StateName, *, tables: Sequence[str] | None = None
) -> Program[dict[str, Outcome]]:
    """Return the tables to an earlier state. All their rows count as read.

    Raises
    ------
    VersionNotFound, RefNotFound
        The state, or a file of it, is not kept any more.
    InvalidOperation
        A pattern matches no table, or a table was dropped since.
    """
    head = yield from bound(txn)
    target = yield from state_of(head, to)
    now = yield from state_of(head, None)
    changed = yield from between(txn.context, head, now, target)
    wanted = yield from chosen_places(head, changed.tables, tables)
    yield from load_tables(head, wanted)
    try:
        views = yield from target.views(txn.context, wanted)
    except VersionNotFound as error:
        state = head.tables.get(error.table or "")
        if state is not None and state.dropped:
            raise _dropped_since(state, str(error.table), target) from error
        raise
    within = yield from _locations_of(head, tables)
    outcomes: dict[str, Outcome] = {}
    with _whole_or_not_at_all(txn):
        for location in wanted:
            view = views[location]
            is_there = yield from is_there_in(head, location)
            state = head.tables.get(location)
            if view is not None and state is not None and state.dropped:
                raise _dropped_since(state, location, target)
            if view is not None and view.mount is not None and not is_there:
                raise InvalidOperation(
                    f"table {location} was shown by clone {view.mount.name!r}, which was deleted, "
                    "or the table dropped, since: clone it again, or leave it out by tables=",
                    table=location,
                )
            if view is None:
                if is_there and location in changed.made:
                    yield from drop(txn, location, applied=True)
                    outcomes[location] = "dropped"
                elif is_there:
                    outcomes[location] = "kept"
                continue
            parameters = {"to": target.name}
            reached_states = reached(now, target, location)
            outcomes[location] = yield from become(
                txn, location, view.snapshot, reached_states, parameters=parameters, within=within
            )
        if txn.bound.sequence != head.sequence:
            # The opening of a table has moved the transaction to a newer HEAD, which was not
            # compared with the target.
            raise txn.fail(
                ConflictError(
                    f"transaction {txn.id}: other transactions have committed while the rollback "
                    "was prepared; run it again",
                    txn_id=txn.id,
                )
            )
    return outcomes


def _dropped_since(state: TableState, location: str, target: LakeState) -> InvalidOperation:
    emptied = state.emptying or state.emptied_ms is not None
    way = "its data was deleted" if emptied else "`register` revives it while its log exists"
    return InvalidOperation(
        f"table {location} was dropped since {target.name}: {way}; or leave it out, by tables=",
        table=location,
    )


def restore(
    txn: TransactionState, location: str, to: OwnVersion | StateName
) -> Program[dict[str, Outcome]]:
    """Return one table to an earlier state: a version of its own log, or the state in a ref.

    Errors as ``roll_back``.
    """
    head = yield from bound(txn)
    if isinstance(to, OwnVersion):
        view = yield from own_view(txn.context, head, location, to)
        parameters, reached_states = {"to": str(to)}, UNKNOWN
    else:
        state = yield from state_of(head, to)
        found = (yield from state.views(txn.context, [location]))[location]
        if found is None:
            raise VersionNotFound(f"table {location} is not in {state.name}", table=location)
        view, parameters = found, {"to": state.name}
        reached_states = reached(AtHead(head), state, location)
    with _whole_or_not_at_all(txn):
        return {
            location: (
                yield from become(
                    txn, location, view.snapshot, reached_states, parameters=parameters
                )
            )
        }


def become(
    txn: TransactionState,
    location: str,
    target: TableSnapshot,
    reached_states: tuple[Reached, Reached] = UNKNOWN,
    *,
    verb: str = "RESTORE",
    parameters: dict[str, str],
    within: tuple[str, ...] = (),
) -> Program[Outcome]:
    """Return one table to the state ``target``. All its rows count as read.

    ``reached_states``: the table's positions in its histories now, and at ``target``.

    Raises
    ------
    VersionNotFound
        A file is not kept any more.
    InvalidOperation
        The table's present state does not allow the definition of ``target``.
    """
    snapshot = yield from lookup(txn, location)
    observe(txn, location, None)
    with during("metadata", location):
        found = yield from difference(snapshot, target)
    if found.is_empty:
        return "kept"
    operation = Transplant(
        location,
        found.removes,
        found.adds,
        found.before,
        found.after,
        exact=True,
        within=within,
        since=reached_states[0],
        until=reached_states[1],
        verb=verb,
        parameters=parameters,
    )
    return (yield from _done(txn, operation))


def bound(txn: TransactionState) -> Program[Head]:
    """Bind the transaction, and return the HEAD to which it applies states.

    Raises ``InvalidOperation``, ``VersionNotFound``.
    """
    txn.check_write("", "apply")
    if not txn.through_head:
        yield from join_head(txn)
    yield from bind_to_head(txn)
    head = txn.head
    if head is not None and head.epoch is not None:
        raise InvalidOperation(
            "a transaction on a branch can't apply a state (rollback, revert, cherry-pick, merge): "
            'begin it on `lake.on("main")`',
            txn_id=txn.id,
        )
    if head is None:
        raise VersionNotFound("the lake has no global version yet: its first transaction makes one")
    return head


def _locations_of(head: Head, patterns: Sequence[str] | None) -> Program[tuple[str, ...]]:
    """Return patterns of the locations to roll back; ``patterns`` may also match names."""
    if patterns is None:
        return ("*",)
    yield from load_all(head)
    called = {
        location
        for name, location in head.names.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    return (*patterns, *sorted(called))


def _applied(
    txn: TransactionState, head: Head, request: Request, old: View | None, new: View | None
) -> Program[Outcome | None]:
    """Apply the changes to one table; None if the table is the same in both states."""
    location = request.location
    is_there = yield from is_there_in(head, location)
    if old is None or new is None:
        return (yield from _made_or_dropped(txn, request, old, new, is_there=is_there))
    if old.snapshot.table_id != new.snapshot.table_id:
        raise conflict_of(request, "it was dropped and created again between the two states")
    with during("metadata", location):
        found = yield from difference(old.snapshot, new.snapshot)
    if found.is_empty:
        return None
    if not is_there:
        if request.on_conflict == "ours":
            return "kept"
        raise conflict_of(
            request,
            f"it is to be changed, but was dropped: `register({location!r})` revives it while its "
            "log exists",
            theirs=False,
        )
    yield from touch(txn, [location], probing=True, access="write")
    if (yield from lookup(txn, location)).table_id != new.snapshot.table_id:
        if request.on_conflict == "ours":
            return "kept"
        raise conflict_of(request, "the lake has another table there", theirs=False)
    parameters = request.parameters
    try:
        if rows_fit(old.snapshot.layout, new.snapshot.layout):
            operation = transplant_of(request, found)
            operation = yield from hiding(txn, operation, old.snapshot, new.snapshot)
            return (yield from _done(txn, operation))
        yield from _refuse_rows_of_others(txn, request, old.snapshot, new.snapshot)
    except MergeConflict:
        if request.on_conflict == "ours":
            return "kept"
        if request.on_conflict == "error":
            raise
        parameters = {**parameters, "onConflict": "theirs"}
    reached_states = ({"": head.sequence}, request.until) if "" in request.until else UNKNOWN
    return (
        yield from become(
            txn, location, new.snapshot, reached_states, verb=request.verb, parameters=parameters
        )
    )


def _refuse_rows_of_others(
    txn: TransactionState, request: Request, old: TableSnapshot, new: TableSnapshot
) -> Program[None]:
    """Refuse to change a table's definition if the table has rows that neither state has.

    The new definition may not fit them: they may violate a constraint, or have values in a column
    that it drops.
    """
    snapshot = yield from lookup(txn, request.location)
    for state in (old, new):
        if (yield from difference(state, snapshot)).is_empty:
            return
    paths = missing_fields(old.layout, new.layout)
    what = (
        f"{named(paths)} is to be dropped from it" if paths else "its definition is to be changed"
    )
    raise conflict_of(
        request,
        f"{what} ({' to '.join(request.parameters.values())}), and it was changed by other "
        "transactions, whose rows may not fit its columns, partitions or constraints then",
    )


def _made_or_dropped(
    txn: TransactionState,
    request: Request,
    old: View | None,
    new: View | None,
    *,
    is_there: bool,
) -> Program[Outcome | None]:
    """Create or drop a table that only one of the two states has (rule 2)."""
    location = request.location
    if old is None and new is None:
        return None
    if new is not None:
        if request.on_conflict == "ours" and is_there:
            return "kept"
        if is_there:
            raise conflict_of(request, "it is to be created, but exists", theirs=False)
        if new.placement.logged < 0:
            return (yield from _create(txn, request, new.snapshot))
        raise InvalidOperation(
            f"table {location} was dropped since: `register({location!r})` revives it while its "
            "log exists; then apply this again, or leave it out by tables=",
            table=location,
        )
    assert old is not None
    if not is_there:
        return None
    snapshot = yield from lookup(txn, location)
    changed = yield from difference(old.snapshot, snapshot)
    if not changed.is_empty and request.on_conflict != "theirs":
        if request.on_conflict == "ours":
            return "kept"
        raise conflict_of(request, "it is to be dropped, but was changed by other transactions")
    yield from drop(txn, location, applied=True)
    return "dropped"


def _create(txn: TransactionState, request: Request, made: TableSnapshot) -> Program[Outcome]:
    """Create a table that was created on a branch, with the files that it has there."""
    location = request.location
    yield from take_places(txn, [location], "write", creating=True)
    try:
        change = yield from copied_change(txn, location, made)
    except TableExists as error:
        raise conflict_of(request, f"it is to be created: {error.message}") from error
    yield from execute(txn, Create(location, change, applied=True), "apply")
    files = yield from made.files()
    defined = Defined(dict(made.metadata), dict(made.protocol))
    adds = tuple(data_files(files))
    if adds:
        operation = Transplant(
            location,
            (),
            adds,
            defined,
            None,
            since=request.since,
            until=request.until,
            verb=request.verb,
            parameters=request.parameters,
        )
        yield from _done(txn, operation)
    return "created"


def _done(txn: TransactionState, operation: Transplant) -> Program[Outcome]:
    """Perform a transplant; check that HEAD keeps the files that it brings back."""
    head = txn.head
    assert head is not None
    count = len(txn.work.done)
    yield from store_files(txn, operation.table)  # the transaction's own new files may be compared
    done = yield from execute(txn, operation, "apply")
    if done.change.is_empty:
        undo_since(txn, count)
        return "kept"
    yield from load_tables(head, [operation.table])
    yield from note_kept(txn, head, done)
    given = {file.path for file in operation.adds}
    made = any(file.path not in given for file in done.change.adds)
    return "rows" if made else "physical"


@contextmanager
def _whole_or_not_at_all(txn: TransactionState) -> Iterator[None]:
    """Undo the operations of a block that raises, so that its verb has had no effect."""
    count, reads = len(txn.work.done), dict(txn.work.reads)
    try:
        yield
    except BaseException:
        undo_since(txn, count)
        txn.work.reads = reads
        raise
