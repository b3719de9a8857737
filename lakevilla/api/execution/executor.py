"""The executor of one transaction's verbs, as one thread uses it.

The executor's methods are short: each takes the lock, resolves the names of tables, and passes the
arguments to functions of the other modules of this package. ``names`` has the names of tables,
``turns`` the lock and the work between verbs, ``ending`` the commit, ``sources`` the rows that
callers give, ``queries`` the SELECTs, and ``changing`` updates, deletes and merges.
``SparkExecutor`` overrides the methods that return rows or take them from callers.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, overload

import pyarrow as pa

from lakevilla.api.arguments import check_columns, check_number, parameters
from lakevilla.api.client.background import Use
from lakevilla.api.client.client import LakeClient
from lakevilla.api.client.discovering import refuse_places
from lakevilla.api.client.names import no_name
from lakevilla.api.execution import ending, names, queries, sources, turns
from lakevilla.api.execution.changing import (
    delete_of,
    fitting,
    is_read_once,
    merge_of,
    own_row_test,
    result_of,
    update_of,
)
from lakevilla.api.execution.queries import BoundQuery, conflict_if_replaced
from lakevilla.api.execution.schemas import SchemaChange, carry_out
from lakevilla.api.execution.sources import NO_COLUMNS, frames_go_in_views
from lakevilla.api.frame import Frame
from lakevilla.api.history import bind_to_version
from lakevilla.api.merge import Described, MergeBuilder, PlannedMerge
from lakevilla.arrow import input
from lakevilla.arrow.input import refuse_unknown
from lakevilla.engines.base import MergeClause
from lakevilla.errors import (
    AlreadyCommitted,
    ConflictError,
    InvalidOperation,
    LakeVillaError,
    LakeVillaWarning,
    MergeConflict,
    UnsupportedTableFeature,
)
from lakevilla.formats.layout import Layout
from lakevilla.global_log.head import Head, shown_names
from lakevilla.global_log.repo import load_all
from lakevilla.lake.operations.difference import TableDifference, rows_between
from lakevilla.lake.operations.feed_rows import RequestedRows, rows_of
from lakevilla.lake.operations.inserted import assigned_rows
from lakevilla.lake.operations.sources import read_source
from lakevilla.lake.own_versions import OwnVersion
from lakevilla.lake.view import View
from lakevilla.meter import note
from lakevilla.phases import during, of, streamed
from lakevilla.results import CommitResult, OperationResult
from lakevilla.sql.expressions.bind import Predicate, bind
from lakevilla.sql.expressions.parse import (
    Meaning,
    StatementExpressions,
    parse_predicate,
    refuse_unused,
)
from lakevilla.sql.expressions.syntax.slips import naming_quotes
from lakevilla.sql.expressions.syntax.sql_nodes import Foreign
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sql.statements.determinism import refuse_volatile, with_fixed_time
from lakevilla.sql.statements.dml import InsertStatement, MergeStatement
from lakevilla.sql.statements.meaning.duckdb import OtherMeaning, meaning_in
from lakevilla.sql.statements.select import Dialect, Select
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Guard, InlineSource, QuerySource, StagedSource
from lakevilla.sublogs.operations import Insert as InsertOperation
from lakevilla.sublogs.record import Access
from lakevilla.transaction.commit.together.chain import may_run_in_turn, may_take_turn
from lakevilla.transaction.queue.places import perform_late
from lakevilla.transaction.state.files import forget_created
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.status import TERMINAL, Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.validation.checks import refuse_direct
from lakevilla.transaction.verbs import optimize
from lakevilla.transaction.verbs import save as saving
from lakevilla.transaction.verbs.abort import give_up
from lakevilla.transaction.verbs.applying.apply import Outcome
from lakevilla.transaction.verbs.bind import (
    bind_to_head,
    raise_if_outdated,
    take_places,
    touch,
    touch_each,
)
from lakevilla.transaction.verbs.catalog.names import bind_if_made
from lakevilla.transaction.verbs.read_write import (
    bind_to_own,
    changes_seen,
    execute,
    layout_of,
    refuse_missing_files,
    scan,
)
from lakevilla.transaction.verbs.replaced_tables import raise_if_replaced
from lakevilla.transaction.verbs.savepoints import Savepoint, savepoint, undo_to

__all__ = ["Executor", "SavedMoment"]

T = TypeVar("T")

#: A moment of a transaction, with the number of its changes of schemas.
SavedMoment = tuple[Savepoint, int]
#: Verbs that, if deferred, take no place in a queue before the commit.
_DEFERRABLE = frozenset({"update", "delete", "merge", "upsert", "overwrite", "insert"})
#: Verbs that a transaction of a chain may have (note 69); the first is that of small steps.
_CHAINED = frozenset(
    {"", "open", "read", "explain", "append", "insert", "update", "delete", "merge", "upsert"}
)
#: Verbs that change a table and are allowed while the lake itself is protected.
_UPKEEP = frozenset({"optimize", "guard", "unguard"})


class Executor(Generic[Frame]):
    """The executor of one transaction's verbs; rows are returned as Arrow tables.

    Every verb takes the lock (a transaction belongs to one thread at a time), makes programs from
    its arguments, and has the client's runner run them.

    Parameters
    ----------
    client : LakeClient
    state : TransactionState
    wait : {"published", "decided"}
        The step of a commit after which it returns.
    durability : {"lazy", "every_op"}
        Whether the transaction is saved after each verb.
    idle_timeout_seconds : float
        The longest time between two verbs, after which the transaction is undone.
    """

    #: The SQL dialect of the statements of ``sql``.
    dialect: Dialect = "duckdb"

    def __init__(
        self,
        client: LakeClient,
        state: TransactionState,
        *,
        wait: Literal["published", "decided"] = "published",
        durability: Literal["lazy", "every_op"] = "lazy",
        idle_timeout_seconds: float = math.inf,
    ) -> None:
        self.client = client
        self.state = state
        self.wait = wait
        self._durability = durability
        self._now: datetime | None = None
        self.merges: list[Described] = []
        #: True if ``lake.run`` runs the transaction again in its places after a conflict.
        self.keeps_place = False
        #: True if ``lake.run`` has deferred the operations by itself.
        self.is_deferred = False
        #: True if a verb has found that this transaction, or its idempotency key, had committed.
        self.was_committed = False
        #: True within a statement of several verbs: no part of that may be saved.
        self.is_midway = False
        #: The changes of schemas, which are carried out once the transaction has committed.
        self.schema_changes: list[SchemaChange] = []
        #: True once a statement has met a view that the known HEAD did not have.
        self.looks_for_views = False
        #: Its savepoints by name, the oldest first.
        self.savepoints: list[tuple[str, SavedMoment]] = []
        self.turns = turns.Turns(state.id)
        self.watched = turns.Watched()
        self.idle = turns.IdleEnd(self, idle_timeout_seconds)
        self._use = Use(state)
        state.phases = client.phases_of(state)

    # -- state -------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The transaction's id; reading the id notes that the caller has seen it."""
        return names.shown_id(self.state)

    @property
    def result(self) -> CommitResult | None:
        """The result of the commit, with the tables by their registered names."""
        result = self.state.ending.result
        return None if result is None else self.client.named(result)

    @property
    def lost(self) -> TransactionState | None:
        """The transaction's state, if it ended with ``ConflictError`` and may run again in its
        places.
        """
        return self.state if self.state.ending.may_run_again else None

    @property
    def meaning(self) -> Meaning | None:
        """The dialect's meaning of expressions, which texts in statements of ``sql`` must have."""
        return meaning_in(self.dialect)

    def shown_names(self) -> Mapping[str, str]:
        """Return registered names by location, as far as they are cached."""
        held = self.state.bound.held or self.client.context.held
        return {} if held is None else shown_names(held.head)

    def _fixed_now(self) -> datetime:
        """Return the time of the transaction's statements, fixed by the first one that uses it."""
        if self._now is None:
            self._now = datetime.fromtimestamp(self.client.context.clock.now(), UTC)
        return self._now

    # -- lifetime ----------------------------------------------------------------

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        """Warn of lost writes; without any, give a ResourceWarning, which Python mostly hides."""
        if getattr(globals()["ending"], "is_left_open", None) is None:
            return  # Python is shutting down, and has emptied this module, or that one
        # The constructor may have raised before it set these attributes.
        use = getattr(self, "_use", None)
        if use is None or not ending.is_left_open(self.state, use, keeps_place=self.keeps_place):
            return
        has_written = bool(self.state.work.done)
        warn(
            ending.loss_of(self.state),
            LakeVillaWarning if has_written else ResourceWarning,
            stacklevel=2,
            source=None if has_written else self,
        )

    def __enter__(self) -> Self:
        if self.state.claims.key is not None:
            try:
                with self.verb_scope():
                    # An idempotency key that has committed must be reported before the body runs.
                    self.run(bind_to_head(self.state))
            except BaseException:
                self._undo()  # a transaction that runs again has places from before
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._undo()
        elif self.state.state not in TERMINAL:
            try:
                self.commit()
            except BaseException:
                self._give_up()
                raise

    def _give_up(self) -> None:
        """Undo the transaction after its commit has raised, if that is safe.

        Undoing is safe if the commit point was not tried, or if the transaction has failed: then
        its changes can't become visible. If the outcome is in doubt, a second ``commit``, or
        ``outcome``, may still find it committed: then only the places are given back.
        """
        status = self.state.state
        if status is Status.FAILED or (status is Status.OPEN and not self.state.ending.tried):
            self._undo()
        elif self.state.ending.is_in_doubt:
            self.give_back()
            self.client.tell_end(self.state)

    def _undo(self) -> None:
        """Abort because of an exception, and only log an error of the abort."""
        if not self._use.is_of_this_process:
            return  # the block of a forked child has ended: the transaction is the parent's
        if self.keeps_place and isinstance(self.state.ending.failure, ConflictError):
            self.client.tell_end(self.state)
            return  # the transaction runs again in its places
        try:
            self._abort()
        except LakeVillaError as error:
            self.client.log(f"could not clean up after transaction {self.id}: {error}", self.id)

    def commit(self) -> CommitResult:
        """Make the changes take effect.

        Raises
        ------
        ConflictError
            Another commit changed what was read: run the transaction again.
        TransactionAborted, CommitOutcomeUnknown, ForeignConflict
        """
        if self.schema_changes:
            self._leave_chain("commit")
        with self.verb_scope():
            ending.refuse_unfinished(self.state, self.merges)
            publish = self.wait == "published"
            result = ending.run_commit(
                self.client, self.state, publish=publish, keeps_place=self.keeps_place
            )
            while self.state.work.noted:
                with suppress(LakeVillaError):  # gc deletes these objects if this fails
                    self.run(forget_created(self.state, self.state.work.noted.pop()))
            carry_out(self.client, self.schema_changes, self.state.id)
            return result

    def abort(self) -> None:
        """Undo everything; do nothing if the transaction has ended."""
        if self.state.state not in TERMINAL:
            self._leave_chain("abort")
        self._abort()

    def _abort(self) -> None:
        with self.verb_scope():
            try:
                self.run(give_up(self.state))
            finally:
                self.client.tell_end(self.state)

    def save(self) -> None:
        """Store the transaction's present state, so that any client can ``lake.resume`` it."""
        self._leave_chain("save")
        with self.verb_scope():
            self.state.check_alive("save")
            if self.schema_changes:
                raise InvalidOperation(
                    f"transaction {self.id} changes schemas, and can't be saved: change them in "
                    "a transaction of their own",
                    txn_id=self.id,
                )
            self.client.ensure_safe_store()
            self.run(saving.save(self.state))

    def give_back(self) -> None:
        """Release the places and the record of the transaction, which has ended or never will."""
        ending.give_back(self.client, self.state)

    # -- one verb ----------------------------------------------------------------

    @contextmanager
    def verb_scope(self, verb: str = "", table: str | None = None) -> Generator[None]:
        """Enter a verb: take the lock, measure its phases, and name its table in its errors.

        A forked child's copy of the transaction is refused. The idle time begins at the verb's end.

        Parameters
        ----------
        verb, table : str
            The names that errors and reports of progress have; both may be missing.

        Raises
        ------
        InvalidOperation
            Another verb of the transaction is running, or a parent process has begun it.
        """
        if not self._use.is_of_this_process:
            # This is a forked child's copy of the transaction. It must not commit concurrently with
            # its parent, and must not undo: that would delete files of the parent's coming commit.
            raise InvalidOperation(
                f"transaction {self.id} belongs to the process that began it, not to this forked "
                "one: begin another here, or save() it there and resume it by its id",
                txn_id=self.id,
            )
        if verb not in _CHAINED:
            self._leave_chain(verb)
        turn = self.state.turn
        with self.turns.verb(), nullcontext() if turn is None else turn.used():
            self._use.begin()
            try:
                shown = "" if verb == "open" else verb
                measured = self.client.measured(shown, table, self.state.id)
                named = self.naming_errors(verb, table)
                with of(self.state.phases), named, measured, self._refusing_as_of_now(table):
                    if verb and table is not None and not isinstance(table, str):
                        raise InvalidOperation(no_name(table))
                    yield
            except AlreadyCommitted:
                self.was_committed = True
                raise
            finally:
                self._use.end()
                turns.watch_reads(self)
                self.idle.note_use()

    @property
    def is_of_this_process(self) -> bool:
        """True if this process began the transaction, and not its parent before a fork."""
        return self._use.is_of_this_process

    @property
    def may_take_turn(self) -> bool:
        """True if the transaction may wait for its turn among others, before it is used."""
        is_idle = self.idle.seconds == math.inf
        return is_idle and self._durability == "lazy" and may_take_turn(self.state)

    def _leave_chain(self, verb: str) -> None:
        """Have the transaction run again by itself, if it is performed in a chain."""
        turn, state = self.state.turn, self.state
        if turn is None or state.state is not Status.OPEN or turn.waiting is not None:
            return
        turn.is_unfit = True
        turn.give_back()
        raise state.fail(
            ConflictError(
                f"{verb}: transaction {self.id} is performed among others that change the same "
                "rows, where this can't be done: run it again (`lake.run` does so by itself)",
                txn_id=self.id,
            )
        )

    def _leave_chain_after(self, done: Done) -> None:
        """Have the transaction run again by itself if no chain can have what it has done."""
        if self.state.work.tables[done.table].snapshot.layout.change_data_feed:
            # A reader of the feed takes the change files of a log entry for those of one commit.
            self._leave_chain("change data feed")
        if not may_run_in_turn(self.state):
            # If another client is first, the operation that makes the table goes from the sublog.
            self._leave_chain("first write to a clone")

    def naming_errors(self, verb: str, table: str | None) -> AbstractContextManager[None]:
        """Name, in errors raised inside, the transaction and the verb and table that failed."""
        return names.naming_errors(self.client, self.state, verb, table)

    @contextmanager
    def _refusing_as_of_now(self, table: str | None) -> Generator[None]:
        """Raise a conflict if a verb was refused because of an outdated state of its table."""
        try:
            yield
        except (InvalidOperation, UnsupportedTableFeature) as refusal:
            if isinstance(table, str) and table in self.state.bound.meant:
                location, _ = self.state.bound.meant[table]
                self.run(raise_if_outdated(self.state, location, refusal))
            raise

    def run(self, program: Program[T]) -> T:
        """Run a program; return what it returns, and raise what it raises."""
        return self.client.run(program)

    def run_verb(self, program: Program[Done]) -> OperationResult:
        """Run the program of a verb that writes, and save the transaction if a save is due."""
        done = self.run(program)
        if self.state.turn is not None:
            self._leave_chain_after(done)
        self.save_if_due()
        return result_of(self.state, done, self._perform_for_counts)

    def perform_deferred(self) -> None:
        """Perform the deferred operations, if the transaction is open."""
        with self.verb_scope():
            if self.state.state is Status.OPEN and not self.state.ending.tried:
                self.run(perform_late(self.state))

    def _perform_for_counts(self, done: Done) -> None:
        """Perform a deferred operation before its counts are returned."""
        with self.verb_scope():
            self.state.check_open("counts")
            self.run(perform_late(self.state))
            if done.deferred:
                raise InvalidOperation(
                    f"counts: the operation was undone, and transaction {self.id} runs again: "
                    "read the counts of its new run",
                    txn_id=self.id,
                )

    def save_if_due(self) -> None:
        """Save the transaction after a verb if a save is due; see ``turns.save_if_due``."""
        if not self.is_midway:
            turns.save_if_due(self, every_verb=self._durability == "every_op")

    @contextmanager
    def as_one(self) -> Generator[None]:
        """Enter a statement of several verbs, which is saved as a whole at its end, or not at all.

        If the statement raises, its verbs are undone. A process that resumed the transaction with a
        part of them would commit that part.
        """
        self.is_midway = True
        try:
            yield
        finally:
            self.is_midway = False
        with self.verb_scope():
            self.save_if_due()

    def savepoint(self) -> SavedMoment:
        """Return the present moment, to which ``undo_to`` takes the transaction back."""
        with self.verb_scope("savepoint"):
            return savepoint(self.state), len(self.schema_changes)

    def undo_to(self, moment: SavedMoment) -> None:
        """Undo all that the transaction has done since a moment; what it has read stays read."""
        point, changes = moment
        with self.verb_scope("rollback"):
            self.run(undo_to(self.state, point))
            del self.schema_changes[changes:]

    @contextmanager
    def whole_or_undone(self) -> Generator[None]:
        """Enter a statement of several verbs, which are undone if one of them raises."""
        moment = self.savepoint()
        with self.as_one():
            try:
                yield
            except BaseException:
                if self.state.state is Status.OPEN:
                    self.undo_to(moment)
                raise

    def change_schema(self, change: SchemaChange) -> None:
        """Note a change of a schema, which is carried out once the transaction has committed."""
        with self.verb_scope("schema"):
            self.state.check_open("schema")
            if self._durability == "every_op":
                raise InvalidOperation(
                    "a transaction with durability every_op is stored after each statement, and a "
                    "change of a schema can't be: SET durability = 'lazy'",
                    reason="unsupported",
                )
            self.schema_changes.append(change)

    # -- tables and the lake -------------------------------------------------------

    def resolve(self, table: str, *, also_renamed: bool = False) -> str:
        """Return the table's location by the names of the HEAD that the transaction is bound to.

        ``also_renamed``: accept a path although its table has another name by now.
        """
        return names.resolve(self.client, self.state, table, also_renamed=also_renamed)

    def resolve_in_sql(self, table: str) -> str:
        """Return the location of a table, as ``resolve``, by its name in a statement.

        Raises
        ------
        InvalidOperation
            The name is a place outside of the root, where the lake has no table.
        """
        refuse_places(self.client, table, self.state.work.tables)
        return self.resolve(table)

    def begin_write(self, table: str, verb: str) -> str:
        """Take places in the queue of a table that a verb changes, and return its location.

        A verb that is not allowed on the table is refused. A deferred verb takes its place later.
        """
        self.state.check_open(verb)
        location = self.resolve(table)
        self.state.check_write(location, verb)
        self.client.ensure_safe_store()
        if verb not in _UPKEEP:
            self.run(refuse_direct(self.state, location, verb))
        if not (self.state.defers and verb in _DEFERRABLE):
            access: Access = "append" if verb == "append" else "write"
            self.run(take_places(self.state, [location], access))
        return location

    def begin_write_into(self, table: str, verb: str) -> tuple[str, Layout]:
        """Return ``begin_write``'s location and ``bind``'s layout, for a verb that needs the
        columns.
        """
        location = self.begin_write(table, verb)
        return location, self.bind(location, probing=True)

    def bind(self, location: str, *, probing: bool = False) -> Layout:
        """Bind the transaction to HEAD, if it is not bound yet, and return the table's layout.

        From then on the transaction reads the table in the state of that HEAD. ``probing`` is as in
        ``layout_of``.
        """
        return self.run(layout_of(self.state, location, probing=probing))

    def state_of_lake(self, *, whole: bool = False) -> Head | None:
        """Return the HEAD to which it is bound; ``whole``: with all tables and names loaded."""
        with self.verb_scope():
            self.run(bind_if_made(self.state))
            if whole:
                self.run(load_all(self.state.head))
            return self.state.head

    def bind_to(
        self,
        version: int | None,
        timestamp: datetime | str | None,
        only: Collection[str] | None = None,
    ) -> None:
        """Bind the transaction for good to a global version, or to the newest version at a time.

        With ``only`` it sees these tables alone, which costs less.
        """
        with self.verb_scope():
            bind_to_version(self.client, self.state, version, timestamp, only)

    def bind_to_own(self, own: OwnVersion) -> None:
        """Bind the transaction for good to a past state of a table, by the version of the table's
        log.
        """
        with self.verb_scope():
            self.run(bind_to_own(self.state, own))

    def refuse_missing_files(self) -> None:
        """Raise ``VersionNotFound`` if files were deleted of a past state that the transaction
        reads.
        """
        with self.verb_scope():
            self.run(refuse_missing_files(self.state))

    def look(self, table: str) -> View:
        """Return a table's state without its rows; this does not count as a read."""
        with self.verb_scope("open", table):
            location = self.resolve(table)
            self.run(touch(self.state, [location], probing=True))
            return self.state.work.tables[location].view

    def look_at_each(self, tables: Mapping[str, str]) -> dict[str, View | LakeVillaError]:
        """Return the states of tables by name, or each table's error; all are read in one round."""
        found: dict[str, View | LakeVillaError] = {}
        with self.verb_scope():
            errors = self.run(touch_each(self.state, tables.values()))
        for (name, location), error in zip(tables.items(), errors, strict=True):
            if error is None:
                found[name] = self.state.work.tables[location].view
                continue
            try:
                with self.naming_errors("open", name):
                    error.table = name if error.table == location else error.table
                    raise error
            except LakeVillaError as named:
                found[name] = named
        return found

    # -- texts -----------------------------------------------------------------------

    def together(
        self,
        params: Mapping[str, object] | None,
        foreign: Foreign | None = None,
        meaning: Meaning | None = None,
    ) -> StatementExpressions:
        """Return the parser of the expressions of one statement, which share these parameters."""
        given = parameters(params, nested=True)
        return StatementExpressions(given, self._fixed_now(), foreign, meaning)

    def optional_predicate(
        self, where: object, params: Mapping[str, object] | None, table: str | None = None
    ) -> Expr | None:
        """Return the tree of a ``where``, or None if there is none; ``table`` has the columns in
        it.
        """
        if where is None:
            if parameters(params):
                raise InvalidOperation(
                    "params were given without a predicate that uses them: pass where, or leave "
                    "them out"
                )
            return None
        foreign = None if table is None else self.foreign(table)
        return parse_predicate(where, parameters(params), self._fixed_now(), foreign)

    def foreign(self, table: str, alias: str | None = None) -> Foreign | None:
        """Return the parser for expressions over a table that are the engine library's objects.

        ``alias`` is a name by which they may qualify its columns.
        """
        return None

    def foreign_of_merge(
        self, location: str, source: object, rows: pa.Schema, aliases: tuple[str, str]
    ) -> Foreign | None:
        """Return ``foreign``'s parser for a merge's two sides; ``rows``: the source's columns."""
        return None

    # -- rows that callers give ----------------------------------------------------

    def incoming(
        self, location: str, layout: Layout, data: object, schema_mode: Literal["merge"] | None
    ) -> tuple[pa.RecordBatchReader, bytes | None]:
        """Return rows with the columns of a table, and their new columns for it, or None."""
        return sources.incoming(self.client, self.state, location, layout, data, schema_mode)

    def replacing(self, location: str, data: object) -> tuple[pa.RecordBatchReader, bytes]:
        """Return rows as ``incoming`` does, for a verb that replaces the table's columns."""
        return sources.replacing(self.client, self.state, location, data)

    def fitted(self, layout: Layout, data: Any) -> Any:
        """Return rows with the columns and types of a layout; refuse rows that don't fit it."""
        return input.to_reader(data, table=layout.table, schema=layout.schema)

    def schema_of(self, data_or_schema: object, name: str) -> tuple[pa.Schema, object]:
        """Return the columns of a new table, and its rows, which are None for a schema alone."""
        return sources.schema_of(data_or_schema, name)

    def merge_rows(
        self, layout: Layout, data: object, *, widens: bool = False
    ) -> tuple[pa.Schema, Callable[[], InlineSource | StagedSource]]:
        """Return the columns of a merge's source, and a function that stores its rows."""
        rows = sources.merge_rows(layout, data, widens=widens)
        return rows.schema, partial(sources.stored_source, self.client, self.state, rows)

    def keyed_rows(
        self, layout: Layout, data: object, keys: Sequence[str], *, widens: bool = False
    ) -> tuple[pa.Schema, Callable[[], InlineSource | StagedSource]]:
        """Return as ``merge_rows``, after a check that the keys of the rows are unique and not
        null.
        """
        rows = sources.keyed_rows(self.client, layout, data, keys, widens=widens)
        return rows.schema, partial(sources.stored_source, self.client, self.state, rows)

    def assigned_rows(
        self, layout: Layout, columns: Sequence[str], rows: Frame, *, literals: bool
    ) -> pa.RecordBatchReader:
        """Return the rows that a query has found as values for the ``columns`` of an insert."""
        found: Any = rows
        return assigned_rows(columns, layout, found, literals=literals)

    def _source_rows(self, data: object, name: str, like: pa.Schema = NO_COLUMNS) -> pa.Table:
        """Return a statement's rows, called ``name`` in messages; see ``sources.source_rows``."""
        return sources.source_rows(data, name, like)

    def _view_rows(self, data: object, name: str, like: pa.Schema = NO_COLUMNS) -> pa.Table:
        try:
            return self._source_rows(data, name, like)
        except InvalidOperation as error:
            raise InvalidOperation(f"view {name}: {error.message}") from None

    # -- reading -----------------------------------------------------------------

    def kept(self) -> AbstractContextManager[None]:
        """Raise ``VersionNotFound`` if the block fails as files of a past state were vacuumed."""
        return queries.kept(self)

    def framed(self, rows: pa.Table) -> Frame:
        """Return rows in memory as a frame of the kind that the lake's callers get."""
        frame: Frame = rows
        return frame

    def read(
        self,
        table: str,
        columns: Sequence[str] | None,
        where: Predicate | None,
        params: Mapping[str, object] | None,
        limit: int | None = None,
    ) -> Frame:
        """Return rows of a table; see ``Transaction.read``."""
        most = None if limit is None else check_number("limit", limit)
        with self.kept(), self.client.measured("read", table, self.state.id):
            found = self.scan(table, columns, where, params)
            rows: Frame = found.read_all() if most is None else _first(found, most)
            return rows

    def scan(
        self,
        table: str,
        columns: Sequence[str] | None,
        where: Predicate | None,
        params: Mapping[str, object] | None,
    ) -> pa.RecordBatchReader:
        """Return rows of a table as ``read`` does, streamed."""
        with self.kept(), self.verb_scope("read", table):
            self.state.check_open("read")
            columns = check_columns(columns)
            predicate = self.optional_predicate(where, params, table)
            return self._scanned(table, columns, predicate)

    def scan_where(
        self, table: str, columns: Sequence[str] | None, predicate: Expr | None
    ) -> pa.RecordBatchReader:
        """Return rows of a table as ``scan`` does, by a parsed predicate."""
        with self.kept(), self.verb_scope("read", table):
            self.state.check_open("read")
            return self._scanned(table, columns, predicate)

    def _scanned(
        self, table: str, columns: Sequence[str] | None, predicate: Expr | None
    ) -> pa.RecordBatchReader:
        location = self.resolve(table)
        rows = self.run(scan(self.state, location, columns, predicate))
        return pa.RecordBatchReader.from_batches(rows.schema, self._streamed(location, rows))

    def _streamed(self, location: str, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Yield a table's rows; raise a conflict if a file is gone as its table was dropped."""
        with self.kept():
            try:
                for batch in streamed(self.state.phases, "data", location, iter(rows)):
                    note(rows=batch.num_rows, bytes=batch.nbytes)
                    self.idle.note_use()  # a transaction is not idle while its rows are read
                    yield batch
            except (LakeVillaError, OSError) as error:
                self.run(raise_if_replaced(self.state, [location], error))
                raise

    def changes(
        self,
        table: str,
        since: int,
        columns: Sequence[str] | None,
        where: Predicate | None,
        params: Mapping[str, object] | None,
    ) -> Frame:
        """Return the rows changed after a global version; see ``Transaction.changes``."""
        with self.verb_scope("changes", table):
            self.state.check_open("changes")
            columns = check_columns(columns)
            since = check_number("since", since)
            predicate = self.optional_predicate(where, params, table)
            location = self.resolve(table)
            return self._changed(location, since, columns, predicate)

    def _changed(
        self, location: str, since: int, columns: Sequence[str] | None, where: Expr | None
    ) -> Frame:
        return self.framed(self.run(changes_seen(self.state, location, since, columns, where)))

    @staticmethod
    def rows_changed(client: LakeClient, request: RequestedRows) -> Frame:
        """Return the rows of a table that a version of the feed has changed; see
        ``Version.tables``.
        """
        rows: Frame = client.run(rows_of(client.context, request))
        return rows

    @staticmethod
    def differing(
        client: LakeClient, table: TableDifference, keys: Sequence[str] | None, limit: int | None
    ) -> Frame:
        """Return the rows in which two states of a table differ; see ``Diff.rows``."""
        found = client.run(rows_between(client.context, table, keys))
        rows: Frame = found if limit is None else found.slice(0, limit)
        return rows

    # -- queries -------------------------------------------------------------------

    def select(
        self, statement: Select, params: dict[str, object], views: Mapping[str, object]
    ) -> Frame:
        """Run a SELECT; its tables' rows count as read."""
        with self.verb_scope():
            bound = self._bound_query(statement, params, views)
            now = self._fixed_now()
            found: Frame = queries.select(self.client, self.state, bound, self.dialect, now)
            return found

    def plan(
        self, statement: Select, params: dict[str, object], views: Mapping[str, object]
    ) -> str:
        """Return the engine's plan of a query, which is not run; nothing counts as read."""
        with self.verb_scope():
            bound = self._bound_query(statement, params, views)
            return queries.plan_of(self.client, self.state, bound)

    def columns(
        self, statement: Select, params: dict[str, object], views: Mapping[str, object]
    ) -> pa.Schema:
        """Return the columns of a query; nothing counts as read."""
        with self.verb_scope():
            bound = self._bound_query(statement, params, views)
            return queries.columns_of(self.client, self.state, bound)

    def schema_of_query(
        self, statement: Select, params: dict[str, object], views: Mapping[str, object]
    ) -> pa.Schema:
        """Return the columns of a query that becomes a source; no row of it counts as seen."""
        with self.verb_scope():
            source = self._query_source(statement, params, views, NO_COLUMNS)
            return queries.columns_of_source(self.client, self.state, source)

    def rows_within(
        self, statement: Select, params: Mapping[str, object], schemas: Mapping[str, pa.Schema]
    ) -> dict[str, Expr]:
        """Return the conditions on the rows that a query reads, by the paths of its tables in it.

        Spark reports nothing about its own queries.
        """
        if self.dialect != "duckdb":
            return {}
        now = self._fixed_now()
        return queries.rows_within(self.client, statement, params, schemas, self.dialect, now)

    def _bound_query(
        self, statement: Select, params: Mapping[str, object], views: Mapping[str, object]
    ) -> BoundQuery:
        tables = self._sql_tables(statement, views)
        given = queries.given_rows(self.client, views, self._view_rows)
        return BoundQuery(statement, params, views, tables, given)

    def _sql_tables(self, statement: Select, views: Mapping[str, object]) -> dict[str, str]:
        return queries.tables_of(statement, views, self.resolve_in_sql)

    def _query_source(
        self,
        statement: Select,
        params: Mapping[str, object],
        views: Mapping[str, object],
        like: pa.Schema,
    ) -> QuerySource:
        """Return a query as a source for an operation, which a redo runs again."""
        refuse_volatile(statement.sql)
        sql = with_fixed_time(statement.sql, self._fixed_now(), self.dialect)
        rows = ((name, self._view_rows(view, name, like)) for name, view in views.items())
        stored = {name: sources.stored_source(self.client, self.state, one) for name, one in rows}
        used = queries.parameters_of(sql, params)
        return QuerySource(sql, self._sql_tables(statement, views), used, stored)

    # -- changing rows ---------------------------------------------------------------

    @overload
    def update(
        self,
        table: str,
        assignments: Mapping[str, object],
        where: Predicate | None,
        params: Mapping[str, object] | None,
    ) -> OperationResult: ...

    @overload
    def update(
        self,
        table: str,
        assignments: Mapping[str, object],
        where: Predicate | None,
        params: Mapping[str, object] | None,
        alias: str | None,
        meaning: Meaning | None,
    ) -> OperationResult | OtherMeaning: ...

    def update(
        self,
        table: str,
        assignments: Mapping[str, object],
        where: Predicate | None,
        params: Mapping[str, object] | None,
        alias: str | None = None,
        meaning: Meaning | None = None,
    ) -> OperationResult | OtherMeaning:
        """Set columns of the rows for which ``where`` is true; see ``Transaction.update``.

        For a statement of ``sql``, ``meaning`` is what its texts must mean. If a text means
        something else to LakeVilla, return that as ``OtherMeaning`` and do nothing. ``alias`` is
        the table's name in the statement.
        """
        with self.verb_scope("update", table):
            location = self.begin_write(table, "update")
            texts = self.together(params, self.foreign(table, alias), meaning)
            condition = texts.predicate(where)
            with naming_quotes(assignments):
                values = texts.assignments(assignments)
            texts.finish()
            with naming_quotes(assignments):
                operation = fitting(
                    self.client,
                    self.state,
                    location,
                    lambda layout: update_of(location, layout, texts, values, condition, alias),
                )
                if isinstance(operation, OtherMeaning):
                    return operation
                return self.run_verb(execute(self.state, operation, "update"))

    @overload
    def delete(
        self, table: str, where: Predicate | None, params: Mapping[str, object] | None
    ) -> OperationResult: ...

    @overload
    def delete(
        self,
        table: str,
        where: Predicate | None,
        params: Mapping[str, object] | None,
        alias: str | None,
        meaning: Meaning | None,
    ) -> OperationResult | OtherMeaning: ...

    def delete(
        self,
        table: str,
        where: Predicate | None,
        params: Mapping[str, object] | None,
        alias: str | None = None,
        meaning: Meaning | None = None,
    ) -> OperationResult | OtherMeaning:
        """Delete the rows for which ``where`` is true; see ``Transaction.delete``, and ``update``
        for ``alias`` and ``meaning``.
        """
        with self.verb_scope("delete", table):
            location = self.begin_write(table, "delete")
            texts = self.together(params, self.foreign(table, alias), meaning)
            condition = texts.predicate(where)
            texts.finish()
            operation = fitting(
                self.client,
                self.state,
                location,
                lambda layout: delete_of(location, layout, texts, condition, alias),
            )
            if isinstance(operation, OtherMeaning):
                return operation
            return self.run_verb(execute(self.state, operation, "delete"))

    def merge(self, merge: PlannedMerge, clauses: tuple[MergeClause, ...]) -> OperationResult:
        """Merge a source into a table; bind the clauses to the columns that the table has now."""
        operation = merge_of(self.client, self.state, merge, clauses)
        return self.run_verb(execute(self.state, operation, "merge"))

    def merge_builder(
        self, described: Described, merge: PlannedMerge, texts: StatementExpressions
    ) -> MergeBuilder:
        """Return the builder by which a caller describes the clauses of a merge.

        ``texts`` has parsed the merge's condition, and parses the clauses.
        """
        layout = self.bind(merge.location, probing=True)
        # This refuses a condition that can't be bound; otherwise `execute` would refuse it.
        bind(merge.on, merge.schemas(layout.schema))
        return MergeBuilder(self, described, merge, layout.schema, texts)

    # -- verbs of sql alone --------------------------------------------------------

    def insert(
        self, statement: InsertStatement, params: dict[str, object], views: Mapping[str, object]
    ) -> OperationResult:
        """Insert the rows of a query; the operation has the query, so a redo runs it again."""
        with self.verb_scope("insert", statement.table):
            location = self.begin_write(statement.table, "insert")

            def named(layout: Layout) -> tuple[Layout, tuple[str, ...]]:
                columns = statement.columns or tuple(layout.schema.names)
                refuse_unknown(columns, layout.schema, layout.table, "name another")
                return layout, columns

            layout, columns = fitting(self.client, self.state, location, named)
            source = self._query_source(statement.source, params, views, layout.schema)
            refuse_unused(params, source.params)
            operation = InsertOperation(location, columns, source)
            with frames_go_in_views(source.tables):
                return self.run_verb(execute(self.state, operation, "insert"))

    def merge_from(
        self,
        statement: MergeStatement,
        params: dict[str, object],
        views: Mapping[str, object],
        meaning: Meaning | None = None,
    ) -> MergeBuilder:
        """Return the builder of a merge whose source is a query."""
        with self.verb_scope(statement.verb, statement.table):
            location, layout = self.begin_write_into(statement.table, "merge")
            source = self._query_source(statement.source, params, views, layout.schema)
            # A deferred merge has to raise its query's errors now, not at the commit.
            within = statement.within if is_read_once(source, location) else None
            own = None if within is None else (location, within)
            alone = not self.state.defers
            reading = read_source(
                self.client.context, source, self.state.lookup, own, columns_alone=alone
            )
            tables = source.tables
            with (
                frames_go_in_views(tables),
                during("data"),
                conflict_if_replaced(self.client, self.state, tables.values()),
            ):
                rows = self.run(reading)
            texts = self.together(params, None, meaning)
            texts.use(source.params)
            merge = PlannedMerge(
                location,
                rows.schema,
                lambda: source,
                texts.predicate(statement.on),
                (statement.source_alias, statement.target_alias),
                within=within,
                of_own_row=own_row_test(statement, location, tables),
            )
            described = Described(statement.table, verb=statement.verb)
            return self.merge_builder(described, merge, texts)

    # -- upkeep, and states that are applied -----------------------------------------

    def optimize(
        self,
        table: str,
        where: Predicate | None,
        target_file_size_bytes: int | None,
        z_order_by: Sequence[str],
    ) -> Done | None:
        """Move a table's rows into fewer files, and do nothing else.

        Return None if no file needs it.
        """
        with self.verb_scope("optimize", table):
            location = self.begin_write(table, "optimize")
            return self.run(
                optimize.optimize(
                    self.state,
                    location,
                    self.optional_predicate(where, None, table),
                    target_file_size_bytes=target_file_size_bytes,
                    z_order_by=z_order_by,
                )
            )

    def set_guard(self, table: str, on: bool) -> None:
        """Add the writer feature ``lakevilla`` to the table's log, or remove it."""
        with self.verb_scope():
            location = self.begin_write(table, "guard" if on else "unguard")
            self.run_verb(execute(self.state, Guard(location, on), "guard"))

    def applied(self, program: Program[dict[str, Outcome]]) -> dict[str, str]:
        """Run a program that applies one state to another; return the outcomes by the tables'
        names.
        """
        with self.verb_scope("apply"):
            self.client.ensure_safe_store()
            try:
                outcomes = self.run(program)
            except MergeConflict as error:
                shown = self.shown_names()
                rows = error.by_table
                error.by_table = {shown.get(table, table): found for table, found in rows.items()}
                raise
            self.save_if_due()
            shown = self.shown_names()
            return {shown.get(location, location): str(one) for location, one in outcomes.items()}


def _first(reader: pa.RecordBatchReader, most: int) -> pa.Table:
    """Return the first rows of a stream, and read no more of it than the batches that have them."""
    batches: list[pa.RecordBatch] = []
    left = most
    while left > 0 and (batch := next(reader, None)) is not None:
        batches.append(batch.slice(0, left))
        left -= batches[-1].num_rows
    return pa.Table.from_batches(batches, reader.schema)
