"""One transaction, as one thread uses it: its lock, its names, its errors and its end."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Generic, Literal, Self, TypeVar

from lakevilla.api.client.background import Use
from lakevilla.api.client.catalogs import catalog_names, name_in_error
from lakevilla.api.client.client import LakeClient
from lakevilla.api.client.names import no_name
from lakevilla.api.execution.turns import IdleEnd, LatePlaces, LazySave, Turns
from lakevilla.api.frame import Frame
from lakevilla.api.history import bind_to_version
from lakevilla.api.merge import Described
from lakevilla.errors import (
    ConflictError,
    InvalidOperation,
    LakeVillaError,
    LakeVillaWarning,
    StoreError,
    TableNotFound,
)
from lakevilla.global_log.head import Head, NameMap, shown_names
from lakevilla.global_log.repo import load_all
from lakevilla.lake.missing_tables import catalog_hint
from lakevilla.lake.own_versions import OwnVersion
from lakevilla.lake.table_log import known_tail
from lakevilla.lake.tables.dotted_names import path_of
from lakevilla.lake.tables.renaming import renamed
from lakevilla.lake.view import View
from lakevilla.phases import during, of
from lakevilla.results import CommitResult, Counts, OperationResult
from lakevilla.store.effects import Program
from lakevilla.store.location import is_external
from lakevilla.sublogs.record import Access
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.queue.late import perform_late
from lakevilla.transaction.state.late_reads import is_due_in_verb
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.status import TERMINAL, Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.validation.checks import refuse_direct
from lakevilla.transaction.verbs import save as saving
from lakevilla.transaction.verbs.abort import give_up
from lakevilla.transaction.verbs.bind import bind_to_head, take_places, touch, touch_each
from lakevilla.transaction.verbs.catalog.names import bind_if_made, bind_where_it_is
from lakevilla.transaction.verbs.read_write import bind_to_own, refuse_missing_files

__all__ = ["ExecutorBase"]

T = TypeVar("T")

#: Verbs that need no place in a queue before the commit, if they are deferred until then.
_PUT_OFF = frozenset({"update", "delete", "merge", "upsert", "overwrite", "insert"})
#: Verbs that a protected lake permits.
_UPKEEP = frozenset({"optimize", "guard", "unguard"})


class ExecutorBase(Generic[Frame]):
    """The base of an executor: the part that all verbs of a transaction need.

    Every verb takes the lock (a transaction belongs to one thread at a time), makes programs from
    its arguments, and has the client's runner run them.
    """

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
        #: True if ``lake.run`` takes over its places after a conflict.
        self.keeps_place = False
        self.turns = Turns(state.id)
        self._is_watched = False
        self._places_are_watched = False
        self.idle = IdleEnd(self, idle_timeout_seconds)
        self._use = Use(state)
        state.phases = client.phases_of(state)

    @property
    def id(self) -> str:
        """The transaction's id; reading it notes that the caller has seen it."""
        self.state.ending.id_was_seen = True
        return self.state.id

    @property
    def result(self) -> CommitResult | None:
        """The result of the commit, with the tables by their registered names."""
        result = self.state.ending.result
        return None if result is None else self.client.named(result)

    @property
    def lost(self) -> TransactionState | None:
        """The transaction's state, if it ended with ``ConflictError`` and may run again in its
        place.
        """
        return self.state if self.state.ending.may_run_again else None

    @property
    def is_past(self) -> bool:
        """True if the transaction is bound to a past state for good."""
        return self.state.bound.is_past

    def shown_names(self) -> Mapping[str, str]:
        """Return registered names by location, as far as they are cached."""
        held = self.state.bound.held or self.client.context.held
        return {} if held is None else shown_names(held.head)

    # -- life --------------------------------------------------------------------

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        """Warn of lost writes; Python shows a ResourceWarning only if that is requested."""
        # The constructor may have raised before it set these attributes.
        if getattr(self, "_use", None) is None or not self._is_left_open():
            return
        count = len(self.state.work.done)
        lost = f"what it has written ({count} operation{'' if count == 1 else 's'}) is lost"
        warn(
            f"transaction {self.state.id} was dropped and neither committed nor aborted"
            f"{f': {lost}' if count else ''}; commit it, as `with lake.transaction() as txn:` does",
            LakeVillaWarning if count else ResourceWarning,
            stacklevel=2,
            source=None if count else self,
        )

    def _is_left_open(self) -> bool:
        """Return whether the caller has forgotten the transaction.

        That is so if it was used, and nothing can end it any more.
        """
        work, claims, ending = self.state.work, self.state.claims, self.state.ending
        if self.keeps_place or self.state.options.read_only or not self._use.is_of_this_process:
            return False  # it is run again under its id, is a snapshot, or is the parent's
        if self.state.state is not Status.OPEN or ending.tried:
            return False
        if claims.saved is not None and claims.saved.operations == len(work.done):
            return False  # saved in this state: another process may continue it
        return bool(self.state.bound.is_bound or work.done or claims.queue)

    def __enter__(self) -> Self:
        if self.state.claims.key is not None:
            try:
                with self.alone():
                    # A key that is done already must be reported before the body runs.
                    self.run(bind_to_head(self.state))
            except BaseException:
                self._undo()  # a transaction that is run again has places from before
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
        """Undo after a commit that raised, where that is safe.

        Before the commit point was tried, nothing of the transaction can become visible. Nothing of
        a failed transaction ever will. Between these two, another ``commit``, or ``outcome``, may
        determine the outcome: only its places are given back.
        """
        status = self.state.state
        if status is Status.FAILED or (status is Status.OPEN and not self.state.ending.tried):
            self._undo()
        elif self.state.ending.is_in_doubt:
            self.give_back()
            self.client.tell_end(self.state)

    def _undo(self) -> None:
        """Abort because of an exception; an exception of the abort must not hide that one."""
        if not self._use.is_of_this_process:
            return  # a forked child leaves the block: the transaction is not its own
        if self.keeps_place and isinstance(self.state.ending.failure, ConflictError):
            self.client.tell_end(self.state)
            return  # it is run again, in its place
        try:
            self.abort()
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
        with self.alone():
            for merge in self.merges:
                if not merge.ended:
                    raise InvalidOperation(
                        f"a merge into {merge.table} was described and never executed: "
                        "call execute()",
                        table=merge.table,
                        txn_id=self.id,
                    )
            if self.state.work.done or self.state.claims.key is not None:
                self.client.ensure_safe_store()
            publish = self.wait == "published"
            try:
                with self.client.measured("commit", None, self.state.id):
                    result = self.run(commit(self.state, publish=publish))
            except BaseException:
                ended = self.state.state is Status.FAILED or self.state.ending.is_in_doubt
                if ended and not self.keeps_place:
                    # The caller may keep the object for long; nothing must wait for it.
                    self.give_back()
                if self.state.state is Status.FAILED:
                    self.client.tell_end(self.state)
                raise
            finally:
                if self.state.state is Status.COMMITTED:
                    self.client.tell_end(self.state)
                self.client.after_commit(self.state, publish=publish)
            return self.client.named(result)

    def abort(self) -> None:
        """Undo everything; does nothing after the end."""
        with self.alone():
            try:
                self.run(give_up(self.state))
            finally:
                self.client.tell_end(self.state)

    def save(self) -> None:
        """Store the transaction as it is now, so that ``lake.resume`` can continue it elsewhere."""
        with self.alone():
            self.state.check_alive("save")
            self.client.ensure_safe_store()
            self.run(saving.save(self.state))

    def give_back(self) -> None:
        """Release its places and its record: the transaction has ended, or never will."""
        try:
            self.run(saving.forget(self.state))
        except LakeVillaError as error:
            self.client.log(f"could not clean up after transaction {self.id}: {error}", self.id)

    # -- one verb ----------------------------------------------------------------

    @contextmanager
    def alone(self, verb: str = "", table: str | None = None) -> Generator[None]:
        if not self._use.is_of_this_process:
            # This is a forked child's copy. It must not commit concurrently with its parent, and
            # must not undo: that would delete the files that the parent goes on to commit.
            raise InvalidOperation(
                f"transaction {self.id} belongs to the process that began it, not to this forked "
                "one: begin another here, or save() it there and resume it by its id",
                txn_id=self.id,
            )
        with self.turns.verb():
            self._use.begin()
            try:
                shown = "" if verb == "open" else verb
                measured = self.client.measured(shown, table, self.state.id)
                with of(self.state.phases), self.placing(verb, table), measured:
                    if verb and table is not None and not isinstance(table, str):
                        raise InvalidOperation(no_name(table))
                    yield
            finally:
                self._use.end()
                self._watch_reads()
                self.idle.note_use()

    @contextmanager
    def placing(self, verb: str, table: str | None) -> Generator[None]:
        """Name, in errors raised inside, the transaction and the verb and table that failed."""
        try:
            yield
        except LakeVillaError as error:
            error.txn_id = error.txn_id or self.id
            held = self.client.context.held
            names = {} if held is None else held.head.names.cached()
            if isinstance(error, TableNotFound) and isinstance(table, str):
                hint = catalog_hint(self.client.context, table)
                if hint is not None and "catalog" not in error.message:
                    error.message += f"; {hint}"
                    error.args = (error.message,)
            if isinstance(table, str) and error.table in (None, names.get(table)):
                names_table = error.table is not None
                if error.table is not None:
                    name_in_error(error, {error.table: table})
                error.table = table  # as the caller named it
                if isinstance(error, InvalidOperation) and not names_table:
                    message = error.message.removeprefix(f"{verb}: ")
                    error.message = f"{f'{verb} {table}'.rstrip()}: {message}"
                    error.args = (error.message,)
            name_in_error(error, catalog_names(self.client.context))
            raise

    def run(self, program: Program[T]) -> T:
        return self.client.run(program)

    def done(self, program: Program[Done]) -> OperationResult:
        done = self.run(program)
        self.save_if_due()

        def counts() -> Counts:
            if done.deferred:
                self._perform_deferred(done)
            return done.counts

        def observe() -> None:
            counts()
            done.observed = True

        def settled() -> bool:
            return done.observed or self.state.state is Status.COMMITTED

        return OperationResult(counts, observe, settled)

    def _perform_deferred(self, done: Done) -> None:
        """Perform a deferred operation before its counts are returned."""
        with self.alone():
            self.state.check_open("counts")
            self.run(perform_late(self.state))
            if done.deferred:
                raise InvalidOperation(
                    f"counts: the operation was undone, and transaction {self.id} runs again: "
                    "read the counts of its new run",
                    txn_id=self.id,
                )

    def save_if_due(self) -> None:
        """Save after a verb, if each verb must be saved or this one must; else watch it.

        A transaction that is watched is saved once it lasts. A verb that raises has had no effect.
        So a failed save is not the verb's failure, unless saving each operation was requested: then
        nothing can commit.
        """
        if not (self._durability == "every_op" or is_due_in_verb(self.state)):
            self._watch()
            return
        try:
            self.run(saving.save(self.state))
        except StoreError as error:
            if self._durability == "every_op":
                raise self.state.fail(error) from error
            self.client.log(f"could not save transaction {self.id} now: {error}", self.id)

    def _watch(self) -> None:
        """Have the transaction saved once it has lasted; most end before, and are never saved."""
        state, interval = self.state, self.client.settings.save_interval_seconds
        if self._is_watched or not interval or Feature.R not in state.options.features:
            return
        self._is_watched = True
        self.client.saver.add(LazySave(self))

    def _watch_reads(self) -> None:
        """Have the places of its reads taken once it lasts; most transactions end before that."""
        state = self.state
        if not state.queues or state.claims.queue is not None or not state.work.reads:
            return
        if self._places_are_watched or state.state is not Status.OPEN or state.ending.tried:
            return
        self._places_are_watched = True
        self.client.placer.add(LatePlaces(self))

    # -- tables and the lake -------------------------------------------------------

    def resolve(self, table: str, *, also_renamed: bool = False) -> str:
        """Return the table's location by the names of the HEAD that the transaction is bound to.

        ``also_renamed``: a path leads to its table even if the table has another name now.
        """
        if not self.state.through_head:
            return self._resolve_by_log(table)
        bound = self.state.bound
        held = self.state.bound.held or self.client.context.held
        if held is None:
            if not also_renamed:
                location = self.client.resolve(self.client.names(None, table), table, None)
                self.run(bind_where_it_is(self.state, location))
            if not bound.is_bound:
                if not self.state.options.read_only:
                    # Binding creates HEAD if there is none, in the form that the store allows.
                    self.client.ensure_safe_store()
                self.run(bind_to_head(self.state))
            held = self.state.bound.held
        head = None if held is None else held.head
        names = self._names(head, table)
        location = self.client.resolve(names, table, head, also_renamed=True)
        may_move = (
            path_of(table) is not None or _knows(names, table, location) or self._is_new(location)
        )
        if not bound.is_bound and may_move:
            # Such a name may mean another table by now, and a path may mean none.
            self.run(bind_to_head(self.state))
            head = self.state.head
            names = self._names(head, table)
        elif not bound.is_bound and not (also_renamed or is_external(table)):
            bound.paths.add(location)
        return self.client.resolve(names, table, head, also_renamed=also_renamed)

    def _names(self, head: Head | None, table: str) -> NameMap:
        """Return registered names, including those that the transaction itself has given."""
        return renamed(self.client.names(head, table), self.state.work.renames)

    def _is_new(self, location: str) -> bool:
        """Return whether the HEAD known here has no such table: a newer HEAD may have the name."""
        held = self.client.context.held
        return held is not None and location not in held.head.tables.cached()

    def _resolve_by_log(self, table: str) -> str:
        """Return the table's location for a transaction that commits by the table's own entry.

        HEAD is read for the name, unless the name is a path whose log is known already.
        """
        context = self.client.context
        head = None if context.held is None else context.held.head
        names = self.client.names(head, table)
        location = self.client.resolve(names, table, head, also_renamed=True)
        may_move = path_of(table) is not None or _knows(names, table, location)
        if may_move or known_tail(context, location) is None:
            with during("version"):
                held = self.run(context.head())
            head = None if held is None else held.head
            location = self.client.resolve(self.client.names(head, table), table, head)
        return location

    def to_write(self, table: str, verb: str) -> str:
        """Return the location of a table that a verb is allowed to change, with places taken."""
        self.state.check_open(verb)
        location = self.resolve(table)
        self.state.check_write(location, verb)
        self.client.ensure_safe_store()
        if verb not in _UPKEEP:
            self.run(refuse_direct(self.state, location, verb))
        if not (self.state.defers and verb in _PUT_OFF):
            access: Access = "append" if verb == "append" else "write"
            self.run(take_places(self.state, [location], access))
        return location

    def state_of_lake(self, *, whole: bool = False) -> Head | None:
        """Return the HEAD that it is bound to; ``whole``: with all tables and names."""
        with self.alone():
            self.run(bind_if_made(self.state))
            if whole:
                self.run(load_all(self.state.head))
            return self.state.head

    def bind_to(self, version: int | None, timestamp: datetime | None) -> None:
        """Bind the transaction for good to a global version, or to the newest version at a time."""
        with self.alone():
            bind_to_version(self.client, self.state, version, timestamp)

    def bind_to_own(self, asked: OwnVersion) -> None:
        """Bind it for good to a past state, by its own log, of the table that it will read."""
        with self.alone():
            self.run(bind_to_own(self.state, asked))

    def refuse_missing_files(self) -> None:
        """Raise ``VersionNotFound`` if files of a past state that it has opened are deleted."""
        with self.alone():
            self.run(refuse_missing_files(self.state))

    def look_at_each(self, tables: Mapping[str, str]) -> dict[str, View | LakeVillaError]:
        """Return the states of tables by name, or the error of each; all are read together."""
        found: dict[str, View | LakeVillaError] = {}
        with self.alone():
            errors = self.run(touch_each(self.state, tables.values()))
        for (name, location), error in zip(tables.items(), errors, strict=True):
            if error is None:
                found[name] = self.state.work.tables[location].view
                continue
            try:
                with self.placing("open", name):
                    error.table = name if error.table == location else error.table
                    raise error
            except LakeVillaError as named:
                found[name] = named
        return found

    def look(self, table: str) -> View:
        """Return a table's state without its rows: nothing becomes part of its reads."""
        with self.alone("open", table):
            location = self.resolve(table)
            self.run(touch(self.state, [location], probing=True))
            return self.state.work.tables[location].view


def _knows(names: NameMap, table: str, location: str) -> bool:
    """Return whether HEAD has an entry for a caller's name of a table, or for its location."""
    return any(not names.missing([name]) and name in names for name in (table, location))
