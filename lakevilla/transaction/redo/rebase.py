"""Move a transaction to a newer state, and redo its operations there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import msgspec

from lakevilla.errors import (
    CommitOutcomeUnknown,
    InvalidOperation,
    LakeVillaError,
    TransactionAborted,
)
from lakevilla.formats.files import file_key
from lakevilla.formats.layout import Layout
from lakevilla.global_log.head import Head
from lakevilla.global_log.repo import HeldHead
from lakevilla.lake.context import Event, Tail
from lakevilla.lake.operations.comparing.dropped_columns import files_fit
from lakevilla.lake.view import View
from lakevilla.phases import during
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get_immutable, parallel
from lakevilla.sublogs.binding import Moves, locate, moves, renumber, renumber_read, unsettled
from lakevilla.sublogs.operations import (
    Append,
    Create,
    Delete,
    Detach,
    Merge,
    Optimize,
    Overwrite,
    Update,
    given_files,
    is_append,
    tables_read,
)
from lakevilla.transaction.redo.replay import drop_vectors, redo, remarked, replay
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState, conflict

# -------------------- rebase
#
# Move a transaction to a newer HEAD, and redo the operations that are in conflict there (design,
# section 6).


def rebase(txn: TransactionState, held: HeldHead | None, examination: Examination) -> Program[None]:
    """Move the transaction to ``held``; redo its operations there, from ``redo_from`` on.

    Raises
    ------
    ConflictError
        The transaction was redone too often, an operation does not fit any more, or a count that
        the caller has read would change.
    """
    try:
        yield from _moved(txn, held, examination)
    except BaseException as error:
        if txn.state is Status.OPEN:
            # A half-moved transaction has neither its old state nor its new one: a later commit of
            # it would have a part of its operations only, or old ones that were not validated.
            txn.fail(error if isinstance(error, LakeVillaError) else _interrupted(txn))
        raise


def _interrupted(txn: TransactionState) -> LakeVillaError:
    what = f"transaction {txn.id} was interrupted in the middle of a redo"
    if txn.ending.is_in_doubt:
        # HEAD may still get a commit that the transaction has sent or proposed before.
        message = f"{what}, and may have committed before: call `lake.outcome({txn.id!r})`"
        return CommitOutcomeUnknown(message, txn_id=txn.id)
    return TransactionAborted(f"{what}: run it again", txn_id=txn.id)


def _moved(txn: TransactionState, held: HeldHead | None, examination: Examination) -> Program[None]:
    _let_others_detach(txn, examination)
    # The layouts for which the operations have made their files: the redo of an earlier operation
    # may change the layout.
    layouts = _layouts(txn)
    txn.bound.held = held
    txn.work.behind = examination.behind
    if held is not None:
        txn.bound.sequence = held.head.sequence
    reshaped = set()
    moved: Moves = {}
    for location, working in txn.work.tables.items():
        new = examination.views.get(location)
        if new is not None:
            if _definition(new) != _definition(working.view):
                reshaped.add(location)
                old = working.view
                known, now = old.snapshot.layout, new.snapshot.layout
                moved[location] = unsettled(old.base.layout, known, now)
            working.view = new
            working.candidates.clear()
    first = len(txn.work.done) if examination.redo_from is None else examination.redo_from
    if first < len(txn.work.done):
        _count_redo(txn, first, examination)
    for done in txn.work.done:
        if done.deferred and not reshaped.isdisjoint((done.table, *tables_read(done.operation))):
            done.fitted = True
    name = txn.file_namer
    performed = False

    def step(index: int, done: Done) -> Program[None]:
        nonlocal performed
        done.operation = before = renumber(done.operation, moved)
        if index >= first and not keeps_its_side(done):
            # An operation that is performed again makes other files. A later one may have replaced
            # the former files, so its change does not hold any more.
            can_mark = index in examination.remarked and not performed
            if can_mark and (yield from remarked(txn, done, name)):
                return
            performed = True
            yield from redo(txn, done, name)
            moved.setdefault(done.table, {}).update(moves(before, done.operation))
        if (index >= first or done.deferred) and isinstance(done.operation, Append | Overwrite):
            _check_fits(txn, done, layouts[index])

    yield from replay(txn, step)
    drop_vectors(txn)
    reads = [renumber_read(read, moved) for read in txn.work.reads.values()]
    txn.work.reads = {(read.table, read.where): read for read in reads}


def _count_redo(txn: TransactionState, first: int, examination: Examination) -> None:
    """Note a redo from the operation ``first`` on; there is a limit to their number.

    Redos of an optimize need none: each leaves it fewer files to rewrite. Marking other rows of a
    file is no redo.
    """
    if first in examination.remarked:
        return
    table, context = txn.work.done[first].table, txn.context
    txn.work.redos += not isinstance(txn.work.done[first].operation, Optimize)
    if txn.work.redos > context.settings.max_redos:
        raise txn.fail(conflict(txn, table, f"it was redone {txn.work.redos - 1} times already"))
    for txn_id, number in txn.known_as(first):
        what = f"redoing from operation {number} on {table}"
        context.notify(Event("redo", txn_id, what, {"table": table}))


def _let_others_detach(txn: TransactionState, examination: Examination) -> None:
    """Drop a ``Detach`` from the transaction if another client has committed the same one.

    The other client's table is the same, with the same files, so all operations stay valid on it.
    """
    for index in reversed(range(len(txn.work.done))):
        done = txn.work.done[index]
        if not isinstance(done.operation, Detach) or done.table not in examination.views:
            continue
        del txn.work.done[index]
        if examination.redo_from is not None and examination.redo_from > index:
            examination.redo_from -= 1
        examination.remarked = {i - (i > index) for i in examination.remarked if i != index}
        for key, read in txn.work.reads.items():
            if read.after > index:
                txn.work.reads[key] = msgspec.structs.replace(read, after=read.after - 1)


def _definition(view: View) -> tuple[object, object]:
    return view.snapshot.metadata, view.snapshot.protocol


def _layouts(txn: TransactionState) -> list[Layout]:
    """Return, per operation, its table's layout as the transaction saw it after the operation."""
    snapshots = {location: working.view.snapshot for location, working in txn.work.tables.items()}
    layouts = []
    for done in txn.work.done:
        change = done.change
        if change.metadata is not None or change.protocol is not None:
            snapshots[done.table] = snapshots[done.table].apply(change)
        layouts.append(snapshots[done.table].layout)
    return layouts


def _check_fits(txn: TransactionState, done: Done, written: Layout) -> None:
    """Check that the files that an operation keeps in a redo fit the table's new state."""
    after = txn.work.tables[done.table].snapshot.apply(done.change)
    if not files_fit(given_files(done.operation), written, after.layout):
        reason = "its schema or constraints were changed meanwhile"
        raise txn.fail(conflict(txn, done.table, reason))


def keeps_its_side(done: Done) -> bool:
    """Return whether an operation that follows one in conflict need not be redone."""
    return done.deferred or isinstance(done.operation, Create) or is_append(done.operation)


@dataclass(slots=True)
class Examination:
    """The effects that a move to a newer HEAD has on a transaction.

    ``head`` is that HEAD; None if the logs alone were read. ``views`` has the new states of the
    tables that differ there. ``redo_from`` is the number of the
    first operation in conflict. ``conflict`` is a conflict that no redo can repair. ``tails`` has
    the logs as they were read: only their entries are validated. ``passed``: the examination has
    passed over tables that the transaction has read. ``lenient`` has the tables whose reads may be
    outdated, and how many versions were added to each (known under ``slack`` only). ``behind`` has
    the tables whose reads are outdated after the move, see ``Work.behind``. ``remarked`` has the
    numbers of operations that meet the changes only in files of which both have marked other rows
    as deleted. ``is_rough``: lists of files alone were compared, and log entries may show that rows
    were only moved.
    """

    head: Head | None = None
    views: dict[str, View] = field(default_factory=dict)
    tails: dict[str, Tail] = field(default_factory=dict)
    redo_from: int | None = None
    conflict: LakeVillaError | None = None
    passed: bool = False
    lenient: dict[str, int] = field(default_factory=dict)
    behind: dict[str, int] = field(default_factory=dict)
    remarked: set[int] = field(default_factory=set)
    is_rough: bool = False


# -------------------- fetch
#
# Fetch the files of several operations in one round, instead of a round for each operation.


#: Larger files are not fetched: an engine reads only the parts of them that it needs.
FILE_BYTES = 4 * 1024 * 1024
#: The most bytes that one round fetches. Further files wait for the next round.
ROUND_BYTES = 64 * 1024 * 1024


class Fetching:
    """The files of some operations, fetched when the first of them is performed.

    A file is held until all operations whose files were fetched in its round are done. The result
    does not depend on that: an engine itself reads a file that is not held, and a file never
    changes under its name.
    """

    def __init__(self, txn: TransactionState, waiting: Iterable[Done], stack: ExitStack) -> None:
        self._txn, self._waiting, self._held = txn, deque(waiting), stack

    def before(self, done: Done) -> Program[None]:
        """Fetch the files that ``done`` reads, with those of the next operations."""
        if not self._waiting or self._waiting[0] is not done:
            return
        self._held.close()
        wanted: dict[str, int] = {}
        tables: set[str] = set()
        left = ROUND_BYTES
        while self._waiting and self._waiting[0].table not in tables:
            sizes = yield from self._files(self._waiting[0])
            size = sum(sizes.values())
            if size > left and self._waiting[0] is not done:
                break
            # Only one operation per table: the next one reads the files that this one makes.
            tables.add(self._waiting.popleft().table)
            if size <= left and max(sizes.values(), default=0) <= FILE_BYTES:
                wanted |= sizes
                left -= size
        with during("data"):
            found = yield from parallel([get_immutable(key) for key in wanted])
        # A file that is missing, or has another size, is not held: the engine raises the error.
        bodies = {
            key: one.body
            for (key, size), one in zip(wanted.items(), found, strict=True)
            if isinstance(one, Found) and len(one.body) == size
        }
        self._held.enter_context(self._txn.context.engine.holding(bodies))

    def _files(self, done: Done) -> Program[dict[str, int]]:
        """Return keys and sizes of the stored files that an operation may read."""
        snapshot = self._txn.work.tables[done.table].snapshot
        try:
            reads, where = _reading(done, snapshot.layout)
        except InvalidOperation:
            return {}  # the error in the operation is raised when it is performed
        if not reads:
            return {}
        with during("metadata", done.table):
            files = yield from snapshot.files(where)
        paths, sizes = files.column("path").to_pylist(), files.column("size").to_pylist()
        keys = {file_key(done.table, path): size for path, size in zip(paths, sizes, strict=True)}
        return {key: size for key, size in keys.items() if self._is_stored(key)}

    def _is_stored(self, key: str) -> bool:
        return key not in self._txn.work.bodies and key not in self._txn.work.promised


def _reading(done: Done, layout: Layout) -> tuple[bool, Expr | None]:
    """Return whether an operation reads files of its own table, and the predicate of the rows."""
    match locate(done.operation, layout):
        case Update(where=where) | Delete(where=where):
            return True, bind(where, layout.schema)
        case Overwrite(where=where) if where is not None:
            return True, bind(where, layout.schema)
        case Merge():
            return True, None
        case _:
            return False, None


@contextmanager
def fetching(txn: TransactionState, waiting: Iterable[Done]) -> Iterator[Fetching]:
    """Yield a ``Fetching`` for these operations, in their order; drop its files at the end."""
    wants = txn.context.engine.reads_by_parts
    with ExitStack() as stack:
        yield Fetching(txn, waiting if wants else (), stack)
