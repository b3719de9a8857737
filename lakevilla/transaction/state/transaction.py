"""One transaction: what it is bound to, what it has done, what its caller has seen.

The verbs are programs. They keep the rules of a transaction (design, section
12): a verb that raises has had no effect; after ``ConflictError`` nothing can
commit. How it commits is in ``commit`` and ``entry_commit``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from lakevilla.engines.base import TableInput
from lakevilla.errors import (
    CommitOutcomeUnknown,
    ConflictError,
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    StoreError,
    TableNotFound,
    TransactionAborted,
    VersionNotFound,
)
from lakevilla.expressions.bind import bind
from lakevilla.expressions.render import render_sql
from lakevilla.expressions.tree import Expr
from lakevilla.formats.base import Change, Constraint, DataFile, FormatName, Layout, Snapshot
from lakevilla.global_log.head import HEAD_KEY, Head, application_id
from lakevilla.global_log.repo import HeldHead, check_lake, load_tables
from lakevilla.global_log.rules import Isolation, Validation
from lakevilla.ids import is_by_entry
from lakevilla.lake.context import Context
from lakevilla.lake.file_names import file_namer
from lakevilla.lake.past import Past, view_at
from lakevilla.lake.table_log import Tail, known_tail, open_tail, probe
from lakevilla.lake.view import View, build_view
from lakevilla.operations.perform import Performed, check_append_only, perform, performed_as
from lakevilla.results import CommitResult, Counts
from lakevilla.store.base import ANY, PutOutcome, Stored
from lakevilla.store.effects import Program, Put, delete, parallel
from lakevilla.sublogs.binding import tie, tie_predicate
from lakevilla.sublogs.operations import (
    Append,
    Create,
    Drop,
    Operation,
    Overwrite,
    ReadRecord,
    tables_read,
)
from lakevilla.sublogs.record import Access
from lakevilla.transaction.queue.places import enter, leave
from lakevilla.transaction.redo.deferred import NOT_PERFORMED, is_put_off, perform_deferred
from lakevilla.transaction.redo.replay import made_files
from lakevilla.transaction.state.features import Feature
from lakevilla.transaction.state.record import no_queues
from lakevilla.transaction.validation.validate import extend
from lakevilla.transaction.verbs.create_table import create_change
from lakevilla.transaction.verbs.idempotency import KeyUse, enter_key
from lakevilla.transaction.verbs.replaced_tables import explained, made_anew, replaced, seen

if TYPE_CHECKING:
    from lakevilla.transaction.commit.through_head import Decided
    from lakevilla.transaction.queue.places import Queue
    from lakevilla.transaction.state.record import HeldRecord
    from lakevilla.transaction.verbs.save import Saved

__all__ = ["Done", "EntryTried", "Transaction", "Working"]

State = Literal["open", "failed", "committed", "aborted"]


@dataclass(slots=True)
class Done:
    """An operation: the sublog's entry, logical and physical side.

    ``deferred``: it is put off, so it has no physical side yet. ``fitted``: it has
    fitted a state that others have changed since, so if it does not fit when it
    is performed, that is a conflict with them and no mistake of the caller's.
    """

    operation: Operation
    change: Change
    counts: Counts
    metrics: dict[str, str]
    observed: bool = False
    deferred: bool = False
    fitted: bool = False

    @property
    def table(self) -> str:
        return self.operation.table


@dataclass(slots=True)
class Working:
    """A table as the transaction sees it: the bound view, and its own changes laid over.

    ``candidates``: see ``overlap``; of the bound view.
    """

    view: View
    snapshot: Snapshot
    probed: bool
    candidates: dict[Expr | None, frozenset[int] | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EntryTried:
    """A number of its table's log under which a transaction has tried its entry.

    ``seen_at`` is when the number before it was last read, by the client's own clock.
    """

    version: int
    seen_at: float


@dataclass(slots=True, weakref_slot=True)
class Transaction:
    """The state of one transaction; used by one thread at a time.

    Attributes
    ----------
    held : HeldHead or None
        The HEAD it is bound to; None without Feature.I, or while the lake has none.
    done : list of Done
        Its sublog.
    reads : dict
        What its caller has seen, in order.
    bodies : dict
        Files, by key, that are made and still to be stored.
    tried : bool
        Whether it may have reached its commit point: then its files are not its
        own to delete any more (hazard 20).
    entry_tried : EntryTried or None
        Where its entry may stand, or may yet come to: see ``again``.
    head_tried : int or None
        Which replacement of HEAD may be its own, or the one after it: see ``again``.
    impatient : bool
        Whether its caller was told that it waits no longer.
    ousted : bool
        Whether the heartbeat has found the record gone, or another's.
    beside : set of str
        Transactions of the same thread that it did not wait for.
    used : set of str
        Tables of earlier attempts of it, where ``lake.run`` has run it again.
    told : bool
        Whether its caller has seen the id: from then on it is kept, even where it
        can't commit any more, because somebody may ask what became of it.
    isolation, validation, slack
        How it is validated; see ``global_log.rules``.
    behind : dict of str to int
        Tables whose rows it has read at an older state than the one it has moved to, and
        how many versions older (told under ``slack`` only). Whatever is made from other
        rows than those reads go with is in conflict.
    past : Past or None
        The global version that it is bound to for good, if that was asked for. It never
        moves, and sees nothing that came later.
    shared : bool
        Whether it was saved: another process may have resumed it and committed
        the files that this one has made, so only gc may tell whose they are.
    """

    context: Context
    features: Feature
    id: str
    owner: str = ""
    read_only: bool = False
    isolation: Isolation = "serializable"
    validation: Validation = "precise"
    slack: int = 0
    metadata: dict[str, str] = field(default_factory=dict)
    applications: dict[str, int] = field(default_factory=dict)
    key: KeyUse | None = None
    through_head: bool = False
    held: HeldHead | None = None
    past: Past | None = None
    bound: bool = False
    bound_sequence: int = 0
    began: int = 0
    began_at: float = 0.0
    record: HeldRecord | None = None
    claim: str = ""
    saved: Saved | None = None
    queue: Queue | None = None
    wait_timeout_seconds: float | None = None
    patience_ends: float | None = None
    impatient: bool = False
    ousted: bool = False
    beside: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    tables: dict[str, Working] = field(default_factory=dict)
    done: list[Done] = field(default_factory=list)
    reads: dict[tuple[str, Expr | None], ReadRecord] = field(default_factory=dict)
    behind: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    stored: list[str] = field(default_factory=list)
    digests: set[str] = field(default_factory=set)
    tried: bool = False
    entry_tried: EntryTried | None = None
    head_tried: int | None = None
    shared: bool = False
    told: bool = False
    state: State = "open"
    failure: LakeVillaError | None = None
    result: CommitResult | None = None
    answered: bool = False
    decided: Decided | None = None
    retries: int = 0
    redos: int = 0
    started_ms: int = 0

    @property
    def head(self) -> Head | None:
        return None if self.held is None else self.held.head

    @property
    def in_doubt(self) -> bool:
        """Whether its commit point was tried and nobody has told what became of that."""
        return self.entry_tried is not None or self.head_tried is not None

    # -- binding ---------------------------------------------------------------

    def bind(self, locations: Sequence[str] = (), *, probing: bool = False) -> Program[None]:
        """Bind to HEAD at the first use; warm tables are probed in the same round."""
        if self.bound:
            return
        warm = [] if not probing else [self._warm(location) for location in locations]
        probes: list[Program[object]] = [
            probe(self.context, tail) for tail in warm if tail is not None
        ]
        if self.through_head:
            results = yield from parallel([self.context.head(), *probes])
            held = results[0]
            assert held is None or isinstance(held, HeldHead)
            if held is None and not self.read_only:
                held = yield from self.context.make_head()
            self.held = held
            if held is not None:
                if not self.read_only:
                    self.context.refuse_foreign_root()
                if self._queues and held.head.as_log:
                    raise self.fail(no_queues(self.id))
                self.bound_sequence = self.began = held.head.sequence
                if self.id <= held.head.floor and not self.done and not self.told:
                    # This machine's clock is behind: an id below the floor
                    # could never commit, so take one above it.
                    yield from leave(self)
                    by_entry = is_by_entry(self.id)
                    self.id = self.context.ids.txn_id(above=held.head.floor, by_entry=by_entry)
            if self.key is not None and held is not None:
                yield from enter_key(self, self.key)
        else:
            yield from parallel(probes)
        for tail in warm:
            if tail is not None:
                self._fresh.add(tail.location)
        self.bound = True
        self.started_ms = self.started_ms or self.context.now_ms()
        self.began_at = self.began_at or self.context.clock.elapsed()

    def _warm(self, location: str) -> Tail | None:
        tail = known_tail(self.context, location)
        if tail is None or tail.tip < 0 or tail.snapshot.guarded:
            return None
        return tail

    def touch(
        self, locations: Iterable[str], *, probing: bool, access: Access | None = None
    ) -> Program[None]:
        """Make the tables part of the transaction, at the state it is bound to.

        ``probing``: the rows matter, so foreign commits are looked for, once a
        table. A blind append needs none: the commit probes. ``access``: what is to
        be done there; with Feature.CT it takes a place in the queue first.
        """
        wanted = list(dict.fromkeys(locations))
        if access is not None:
            yield from self.enter(wanted, access)
        was_bound = self.bound
        yield from self.bind(wanted, probing=probing)
        missing = [
            location
            for location in wanted
            if location not in self.tables or (probing and not self.tables[location].probed)
        ]
        if was_bound and self._reads_newest and not self.tables.keys() >= set(wanted):
            # Not bound to one state of the lake: each table as it is when first used.
            self.held = yield from self.context.head()
        elif was_bound and self._placed_since:
            # Whoever went before is in the newest HEAD, or is waited for: on an older
            # one the work that is done now would have to be done again.
            self._placed_since = False
            held = yield from self.context.head()
            if held is not self.held:
                yield from extend(self)
        yield from parallel([self._open(location, probing) for location in missing])
        if access is not None and self._queues:
            yield from enter(self, dict.fromkeys(wanted, access))

    @property
    def _queues(self) -> bool:
        return Feature.CT in self.features and not self.read_only

    @property
    def has_one_state(self) -> bool:
        """Whether all that it reads is of one moment; else only validation makes it fit."""
        return Feature.I in self.features or len(self.tables) <= 1

    @property
    def _reads_newest(self) -> bool:
        return Feature.CT in self.features and Feature.I not in self.features

    def enter(
        self, locations: Iterable[str], access: Access, *, creating: bool = False
    ) -> Program[None]:
        """Take places in the queues of tables that are there, before their state is read."""
        if not self._queues:
            return
        wanted = list(locations)
        if not creating:
            tails = yield from parallel(
                [open_tail(self.context, where, missing_ok=True) for where in wanted]
            )
            # Where there is no log a name may be misspelt: nothing is left behind there.
            wanted = [tail.location for tail in tails if tail.tip >= 0]
        places = 0 if self.queue is None else len(self.queue.places)
        yield from enter(self, dict.fromkeys(wanted, access))
        if self.queue is not None and len(self.queue.places) > places:
            # What is appended does not mind who went before.
            self._placed_since |= self.bound and access != "append" and not self._reads_newest

    def is_behind(self, location: str) -> bool:
        """Whether others go first on the table: then operations there are put off."""
        return self.queue is not None and self.queue.is_behind(location)

    def _open(self, location: str, probing: bool) -> Program[None]:
        """Take a table in at the bound state, which may move on to a newer HEAD meanwhile.

        Several tables are opened at once, and any of them may make the
        transaction move. A view counts only if it was built on the HEAD that
        the transaction is bound to when it is taken in; else it is built anew.
        """
        if self.past is not None:
            view = yield from view_at(self.context, self.past, location)
            self.tables[location] = Working(view, view.snapshot, probed=True)
            return
        behind = (
            self.head is not None
            and self.bound_sequence != self.head.sequence
            and not self._reads_newest
        )
        # Resumed: its tables are those of an older HEAD, which is gone. A further
        # one can be shown beside them only on a HEAD that they fit.
        if behind and not (yield from extend(self)):
            raise self.fail(
                ConflictError(
                    f"transaction {self.id} was resumed and what it has read was changed "
                    f"meanwhile, so table {location} can't be read beside it: run it again",
                    table=location,
                    txn_id=self.id,
                )
            )
        while True:
            held = self.held
            try:
                view, probed = yield from self._view(location, probing)
            except (TableNotFound, VersionNotFound, CorruptObject, StoreError) as error:
                gone = yield from replaced(self, [location])
                if gone or isinstance(error, VersionNotFound):
                    # The log is another table's by now, or clean-up has taken what the
                    # bound state needs: a newer HEAD means what is there, or needs less.
                    moved = yield from extend(self)
                    if not moved and self._reads_newest:
                        self.held = self.context.held
                    if self.held is not held:
                        continue
                if gone:
                    raise made_anew(self, location) from error
                raise
            if view.placement.stale:
                # The log has a commit of the lake that the bound HEAD does not know.
                if (yield from extend(self)):
                    self._check_newer(held, location)
                    continue
                if self._reads_newest and self.held is not self.context.held:
                    self.held = self.context.held
                    continue
                if view.state is None:
                    raise self.fail(self._entered(location))
            if self.held is held:
                break
        snapshot = view.snapshot
        known = self.tables.get(location)
        if known is not None and any(done.table == location for done in self.done):
            before = known.view.snapshot
            if snapshot.metadata != before.metadata or snapshot.protocol != before.protocol:
                # Rows were only appended so far, and the probe that a read asks
                # for has found new metadata: they were made for the old.
                raise self.fail(
                    ConflictError(
                        f"the schema or properties of table {location} were changed by another "
                        f"client after transaction {self.id} wrote to it: run it again",
                        table=location,
                        txn_id=self.id,
                    )
                )
        for done in self.done:
            if done.table == location:
                snapshot = snapshot.apply(done.change)
        probed = probed or (known is not None and known.probed)
        self.tables[location] = Working(view, snapshot, probed)

    def _check_newer(self, held: HeldHead | None, location: str) -> None:
        """Refuse a HEAD that was set back: a log never shows what no HEAD has decided."""
        if (
            held is not None
            and self.held is not None
            and self.held.head.replacement <= held.head.replacement
        ):
            raise CorruptObject(
                f"{HEAD_KEY} (global version {held.head.sequence}) is older than the log of table "
                f"{location}, which holds a later commit of this lake: HEAD was set back, as by "
                "restoring it from a copy; bring back the newest one",
                key=HEAD_KEY,
                table=location,
                txn_id=self.id,
            )

    def _view(self, location: str, probing: bool) -> Program[tuple[View, bool]]:
        """The table's state at the bound HEAD, and whether foreign commits were looked for."""
        head = self.head
        yield from load_tables(head, [location])
        state = None if head is None else head.tables.get(location)
        if self.through_head and state is None:
            try:
                yield from check_lake(location, head, self.context.root)
            except (InvalidOperation, CorruptObject):
                if head is not None or (yield from self.context.head()) is None:
                    raise
                # The lake came into being since this transaction looked for it;
                # run again, it will be told whose table this is.
                raise self.fail(self._entered(location)) from None
        was_known = known_tail(self.context, location) is not None
        tail = yield from open_tail(self.context, location, missing_ok=state is not None)
        # A tail that was listed just now is as good as probed.
        fresh = not was_known or location in self._fresh
        guarded = tail.tip >= 0 and tail.snapshot.guarded
        behind = state is not None and (
            tail.tip < state.published
            or (bool(state.pending) and not _covers(head, tail, state.pending[-1].sequence))
        )
        # A list that shows less than HEAD knows was stale: then numbers tell more.
        stale = state is not None and tail.tip < state.published
        if stale or (not fresh and (behind or (probing and not guarded))):
            tail = yield from probe(self.context, tail)
            fresh = True
        if guarded and not self.through_head:
            # On a guarded table every commit goes through HEAD (section 8).
            yield from self._join_head()
        if self.through_head and self.held is None:
            # Read-only, and the lake had no HEAD. Looked for after the log was
            # read: while there is none, no log can show a state of the lake.
            moved = yield from extend(self)
            if not moved and self.context.held is not None:
                raise self.fail(self._entered(location))
        view = yield from build_view(self.context, self.head, location, tail)
        return view, fresh or guarded

    def add_table(self, location: str, view: View) -> None:
        """Take in a table that this transaction creates."""
        self.tables[location] = Working(view, view.snapshot, probed=True)

    def forget_table(self, location: str) -> None:
        """Let go of a table that nothing relies on: it is opened anew when it is next used."""
        del self.tables[location]
        self._fresh.discard(location)

    def _join_head(self) -> Program[None]:
        self.through_head = True
        self.bound = False
        yield from self.bind()

    def _entered(self, location: str) -> ConflictError:
        return ConflictError(
            f"table {location} entered the lake after transaction {self.id} began: "
            "run the transaction again",
            table=location,
            txn_id=self.id,
        )

    # -- what verbs need ---------------------------------------------------------

    def check_open(self, verb: str) -> None:
        """Refuse a verb after the transaction has ended or failed, or may have committed."""
        self.check_alive(verb)
        if self.in_doubt:
            raise InvalidOperation(
                f"{verb}: transaction {self.id} may have committed, and what is done now would "
                "not be in it: commit it again, which tells",
                txn_id=self.id,
            )

    def check_alive(self, verb: str) -> None:
        """Refuse a verb after the transaction has ended or failed."""
        if self.state == "failed":
            assert self.failure is not None
            raise self.failure
        if self.state != "open":
            raise InvalidOperation(
                f"{verb}: transaction {self.id} has {self.state}: begin a new one", txn_id=self.id
            )
        if self.behind:
            # Its commit was tried and did not end; what is read now would not fit the reads.
            raise InvalidOperation(
                f"{verb}: transaction {self.id} was moved past what it has read: commit it again, "
                "or begin a new one",
                txn_id=self.id,
            )

    def check_write(self, location: str, verb: str) -> None:
        """Refuse writes that the transaction's features do not cover, before anything is done."""
        self.check_open(verb)
        if self.read_only:
            raise InvalidOperation(
                f"{verb} {location}: transaction {self.id} is read-only: write in another one",
                table=location,
                txn_id=self.id,
            )
        if Feature.I in self.features or Feature.CT in self.features:
            return
        others = sorted({done.table for done in self.done} - {location})
        if others:
            raise InvalidOperation(
                f"{verb}: transaction {self.id} has written {others[0]} and would write {location} "
                "too: a transaction over two tables needs Feature.I or Feature.CT",
                table=location,
                txn_id=self.id,
            )
        if self.done and Feature.R not in self.features:
            raise InvalidOperation(
                f"{verb}: transaction {self.id} has done one operation already: several in one "
                "transaction need Feature.R (or Feature.CT or Feature.I)",
                table=location,
                txn_id=self.id,
            )

    def fail(self, error: LakeVillaError) -> LakeVillaError:
        """Note an error after which nothing can commit; returns it to be raised."""
        self.state = "failed"
        self.failure = error
        return error

    def layout(
        self, location: str, *, reading: bool = False, probing: bool = False
    ) -> Program[Layout]:
        """The layout of a table, own schema changes included.

        ``probing``: as other clients have left it. Without, it is the one that this process
        has met, which serves who needs to know no more than a few of its columns.
        """
        access: Access | None = "read" if reading else None
        yield from self.touch([location], probing=reading or probing, access=access)
        return self.tables[location].snapshot.layout

    def lookup(self, location: str) -> Program[Snapshot]:
        """The transaction's state of a table, own changes included and stored."""
        yield from self.touch([location], probing=True, access="read")
        self._check_alive(location, "read")
        yield from perform_deferred(self, [location])
        yield from self.store_bodies(location)
        return self.tables[location].snapshot

    def store_bodies(self, location: str | None = None) -> Program[None]:
        """Store the files made so far (of one table): an engine is about to read them."""
        prefix = "" if location is None else f"{location}/"
        keys = [key for key in self.bodies if key.startswith(prefix)]
        puts = [Put(key, self.bodies[key], ANY) for key in keys]
        # Noted before they are asked for: an interruption in between leaves
        # some of them stored, and an abort must find them.
        self.stored.extend(keys)
        outcomes: list[PutOutcome] = yield from parallel(puts)
        for key, outcome in zip(keys, outcomes, strict=True):
            if not isinstance(outcome, Stored):
                raise StoreError(
                    f"could not store {key}: nothing was committed, run the transaction again",
                    txn_id=self.id,
                )
            del self.bodies[key]

    # -- verbs -------------------------------------------------------------------

    def see(self, location: str, where: Expr | None) -> Program[TableInput]:
        """The files of an observed read: it is part of the transaction from here on."""
        self.check_open("read")
        yield from self.touch([location], probing=True, access="read")
        self._check_alive(location, "read")
        yield from perform_deferred(self, [location])
        yield from self.store_bodies(location)
        snapshot = self.tables[location].snapshot
        predicate = None if where is None else bind(where, snapshot.layout.schema)
        files = yield from snapshot.files(predicate)
        self.observe(location, None if where is None else tie_predicate(where, snapshot.layout))
        return TableInput(snapshot.layout, files)

    def observe(self, location: str, where: Expr | None) -> None:
        """Note that the caller sees these rows; ``where`` is tied to fields."""
        record = ReadRecord(location, where, after=len(self.done))
        # The same question asked again is one read: its predicate is held
        # against all that came since the bound state, and the later asking has
        # seen more operations of the transaction's own.
        self.reads[(location, where)] = record

    def scan(
        self, location: str, columns: Sequence[str] | None, where: Expr | None
    ) -> Program[pa.RecordBatchReader]:
        """Rows for which ``where`` is true, streamed."""

        def see() -> Program[pa.RecordBatchReader]:
            table = yield from self.see(location, where)
            predicate = None if where is None else bind(where, table.layout.schema)
            return (yield from self.context.engine.scan(table, columns, predicate))

        return (yield from seen(self, [location], see))

    def query(
        self,
        sql: str,
        tables: Mapping[str, str],
        views: Mapping[str, pa.RecordBatchReader],
        params: Mapping[str, object],
    ) -> Program[pa.Table]:
        """One SELECT; ``tables`` maps its names to locations. All their rows count as seen."""
        self.check_open("sql")

        def see() -> Program[pa.Table]:
            yield from self.touch(tables.values(), probing=True, access="read")
            inputs = {}
            for alias, location in tables.items():
                inputs[alias] = yield from self.see(location, None)
            return (yield from self.context.engine.query(sql, inputs, views, params))

        return (yield from seen(self, list(dict.fromkeys(tables.values())), see))

    def append(
        self, location: str, data: pa.RecordBatchReader, columns: bytes | None = None
    ) -> Program[Done]:
        """Add rows, already in the table's columns and types."""
        self.check_write(location, "append")
        access: Access = "append" if columns is None else "write"
        layout = yield from self._written_layout(location, columns, access)
        files = yield from self._write(layout, data)
        with self._giving_back(location, files):
            return (yield from self.execute(Append(location, files, columns), "append"))

    def overwrite(
        self,
        location: str,
        data: pa.RecordBatchReader,
        where: Expr | None = None,
        columns: bytes | None = None,
    ) -> Program[Done]:
        """Replace all rows, or those for which ``where`` is true."""
        self.check_write(location, "overwrite")
        layout = yield from self._written_layout(location, columns, "write")
        if where is not None:
            # Rows that the predicate would not delete again are not its to replace.
            condition = bind(where, layout.schema)
            must = Constraint("where of the overwrite", condition, render_sql(where))
            layout = dataclasses.replace(layout, constraints=(*layout.constraints, must))
        files = yield from self._write(layout, data)
        with self._giving_back(location, files):
            operation = Overwrite(location, files, where, columns)
            return (yield from self.execute(operation, "overwrite"))

    @contextmanager
    def _giving_back(self, location: str, files: Iterable[DataFile]) -> Iterator[None]:
        """A verb that raises has had no effect: the commit must not store its files."""
        try:
            yield
        except BaseException:
            for file in files:
                self.bodies.pop(f"{location}/{file.path}", None)
            raise

    def _written_layout(
        self, location: str, columns: bytes | None, access: Access
    ) -> Program[Layout]:
        yield from self.touch([location], probing=False, access=access)
        self._check_alive(location, "write")
        snapshot = self.tables[location].snapshot
        snapshot.check_writable()
        if columns is None:
            return snapshot.layout
        wider = self.context.formats.of(snapshot).merge_schema(
            snapshot, pa.ipc.read_schema(pa.py_buffer(columns))
        )
        return snapshot.apply(wider).layout

    def _write(self, layout: Layout, data: pa.RecordBatchReader) -> Program[tuple[DataFile, ...]]:
        name = file_namer(self.context, self.id, self.through_head)
        written = yield from self.context.engine.write(layout, data, name)
        for item in written:
            key = f"{layout.location}/{item.file.path}"
            if item.body is None:
                self.stored.append(key)
            else:
                self.bodies[key] = item.body
        return tuple(item.file for item in written)

    def create(
        self,
        location: str,
        schema: pa.Schema,
        partition_by: Sequence[str],
        properties: Mapping[str, str],
        format: FormatName = "delta",
    ) -> Program[Done]:
        """Create a table; its rows come by ``append``."""
        self.check_write(location, "create_table")
        if not self.through_head:
            yield from self._join_head()
        yield from self.enter([location], "write", creating=True)
        change = yield from create_change(self, location, schema, partition_by, properties, format)
        return (yield from self.execute(Create(location, change), "create_table"))

    def drop(self, location: str) -> Program[Done]:
        """Take a table out of the lake: a tombstone in HEAD, nothing in its log."""
        self.check_write(location, "drop_table")
        yield from self.touch([location], probing=True, access="write")
        self._check_alive(location, "drop_table")
        table_id = self.tables[location].snapshot.table_id
        return (yield from self.execute(Drop(location, table_id), "drop_table"))

    def execute(self, operation: Operation, verb: str) -> Program[Done]:
        """Perform an operation on the transaction's state and note it in the sublog.

        Behind others it is noted only, and performed once it must be.
        """
        location = operation.table
        self.check_write(location, verb)
        reading = tables_read(operation)
        blind = isinstance(operation, Append) and operation.columns is None
        access: Access = "append" if blind else "write"
        yield from self.touch([location], probing=location in reading, access=access)
        others = [table for table in reading if table != location]
        yield from self.touch(others, probing=True, access="read")
        working = self.tables[location]
        if not isinstance(operation, Create | Drop):
            self._check_alive(location, verb)
            working.snapshot.check_writable()
            # From here on its names mean these fields, whatever becomes of them.
            sources = {table: self.tables[table].snapshot.layout for table in reading}
            operation = tie(operation, working.snapshot.layout, sources)
        if (yield from is_put_off(self, operation)):
            return self._note(operation, NOT_PERFORMED, deferred=True)
        if not blind:
            yield from perform_deferred(self, {location, *reading})
        if reading:
            yield from self.store_bodies(location)
        name = file_namer(self.context, self.id, self.through_head)
        performed = yield from explained(
            self,
            {location: None, **reading},
            perform(self.context, operation, working.snapshot, name, self.lookup),
        )
        check_append_only(working.snapshot, performed, verb)
        operation = performed_as(operation, working.snapshot, performed)
        return self._note(operation, performed)

    def _check_alive(self, location: str, verb: str) -> None:
        for done in reversed(self.done):
            if done.table == location and isinstance(done.operation, Drop):
                raise InvalidOperation(
                    f"{verb}: table {location} was dropped by this transaction",
                    table=location,
                    txn_id=self.id,
                )

    def _note(self, operation: Operation, performed: Performed, *, deferred: bool = False) -> Done:
        done = Done(
            operation, performed.change, performed.counts, performed.metrics, deferred=deferred
        )
        self.keep(done, performed.bodies)
        self.done.append(done)
        working = self.tables[operation.table]
        working.snapshot = working.snapshot.apply(performed.change)
        return done

    def keep(self, done: Done, bodies: Mapping[str, bytes]) -> None:
        """Note the files that an operation has made: some to be stored, the large ones stored."""
        self.bodies.update(bodies)
        self.stored.extend(key for key in made_files(done) if key not in bodies)

    # -- ending ------------------------------------------------------------------

    def abort(self) -> Program[None]:
        """Undo everything. What was stored is deleted if nobody can have committed it."""
        if self.state in ("committed", "aborted"):
            return
        undecided = isinstance(self.failure, CommitOutcomeUnknown)
        if self.key is not None and self.state == "failed" and not (undecided or self.shared):
            # Whoever runs again with the key in this process need not wait for
            # a lease: no replacement of HEAD by this id is under way any more, and
            # nobody can have resumed it.
            self.context.ended.add(self.id)
        self.state = "aborted"
        self.bodies.clear()
        if not (self.tried or self.shared):
            keys, self.stored = self.stored, []
            yield from parallel([delete(key) for key in keys])

    def check_not_fenced(self, head: Head) -> None:
        """Raise if somebody has aborted this transaction, or gc has passed its age."""
        if head.is_fenced(self.id):
            raise self.fail(
                TransactionAborted(
                    f"transaction {self.id} was aborted by another client, or is older than "
                    "max_age: run it again",
                    txn_id=self.id,
                )
            )

    _fresh: set[str] = field(default_factory=set)
    #: It has taken a place after it was bound.
    _placed_since: bool = False


def _covers(head: Head | None, tail: Tail, sequence: int) -> bool:
    """Whether the known log has published the commit of that sequence."""
    if head is None or tail.tip < 0:
        return False
    version = tail.snapshot.application_version(application_id(head))
    return version is not None and version >= sequence
