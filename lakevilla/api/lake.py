"""Lakes: the directory under which tables live, and what can be asked of it as a whole."""

from __future__ import annotations

import inspect
import logging
import math
import os
import socket
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from functools import partial, wraps
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Concatenate, Generic, Literal, Never, ParamSpec, Self, TypeVar, get_args

from lakevilla.api.arguments import check_choice, check_flag, check_number, check_text
from lakevilla.api.batches import BatchFunction
from lakevilla.api.frame import Frame
from lakevilla.api.history import lake_history
from lakevilla.api.properties import PropertyValue
from lakevilla.api.run import check_attempts, check_callable, run
from lakevilla.api.snapshot import Snapshot
from lakevilla.api.table import Capabilities, Table
from lakevilla.api.transaction import Transaction
from lakevilla.api.transaction_base import is_callers
from lakevilla.client.catalogs import Catalogs, locate, pointer_of
from lakevilla.client.forks import begin_anew_after_fork
from lakevilla.client.heartbeat import Heartbeat
from lakevilla.client.names import resolve
from lakevilla.clock import Clock, SystemClock
from lakevilla.engines.base import Engine
from lakevilla.engines.deletes import read_deletes
from lakevilla.engines.duckdb import DuckDBEngine
from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    LakeVillaWarning,
    StoreError,
    TableExists,
    TableNotFound,
    UnsafeStore,
    UnsupportedFormat,
    UnsupportedTableFeature,
    VersionNotFound,
)
from lakevilla.formats.base import FormatName, TableFormat
from lakevilla.formats.delta import DeltaFormat
from lakevilla.formats.registry import Formats
from lakevilla.global_log.head import Head, shown_names
from lakevilla.global_log.keys import parse_key
from lakevilla.global_log.repo import load_names
from lakevilla.global_log.rules import Isolation, Validation
from lakevilla.ids import NO_TXN, Ids
from lakevilla.lake.context import Context, Event
from lakevilla.lake.relied_on import is_relied_on
from lakevilla.lake.view import View
from lakevilla.maintenance import doctor, gc, recovery, vacuum
from lakevilla.maintenance import rebuild_head as rebuilding
from lakevilla.maintenance import transactions as watching
from lakevilla.publishing import outcome
from lakevilla.results import CommitResult, Finding, HistoryEntry, Outcome, Report, TransactionInfo
from lakevilla.settings import MOST_SECONDS, Settings, is_unicode, shown
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.base import Store
from lakevilla.store.data_files import DataFiles
from lakevilla.store.effects import Program
from lakevilla.store.probe import probe, probe_plain
from lakevilla.store.runner import Runner
from lakevilla.tables import drop_data as emptying
from lakevilla.tables import registration as operating
from lakevilla.tables.dropped import is_half_deleted, refuse_in_catalog
from lakevilla.transaction.commit.commit import publish_or_tell
from lakevilla.transaction.state import transaction as core
from lakevilla.transaction.state.features import Feature
from lakevilla.transaction.state.values import KeyUse
from lakevilla.transaction.verbs import save as saving
from lakevilla.transaction.verbs.begin import begin

__all__ = ["Lake"]

_LOG = logging.getLogger("lakevilla")
_LOG.addHandler(logging.NullHandler())

T = TypeVar("T")
P = ParamSpec("P")

#: These tell of one table: HEAD, and what it lies in, was read before.
_WRONG_WITH_ONE = (
    TableNotFound,
    VersionNotFound,
    UnsupportedTableFeature,
    UnsupportedFormat,
    CorruptObject,
    InvalidOperation,  # it was moved, or its catalog is not known here
)

#: Stores that this process has probed, and which writes are conditional there: all, creates
#: alone, or none.
_PROBED: dict[str, Literal["all", "creates", "none"]] = {}

#: The tables, with their lakes, of which this process has warned.
_WARNED_OF: set[tuple[str, str]] = set()

#: How long it is known where a table lies that was named by its catalog.
_LOCATED_SECONDS = 60.0


class Lake(Generic[Frame]):
    """A directory of tables with one order of transactions; made by ``lakevilla.connect``.

    Safe across threads and fork; pickles as its arguments. A context manager
    that waits for work in the background when it is left.
    """

    def __init__(
        self,
        root: str,
        store: Store,
        *,
        settings: Settings,
        on_event: Callable[[Event], None] | None = None,
        conditional_writes: Literal["require", "check"] = "require",
        clock: Clock | None = None,
        ids: Ids | None = None,
        catalogs: Catalogs | None = None,
        reopen: Callable[[], tuple[Any, ...]] | None = None,
    ) -> None:
        self.root = root
        self.settings = settings
        clock = clock or SystemClock()
        ids = ids or Ids(clock)
        # Checks until it is known that the store needs none: a client that only reads, and
        # may have no right to probe, reads what has settled.
        checks = conditional_writes == "check" and _PROBED.get(self._place()) != "all"
        where = store.place if isinstance(store, LakeStore) else root
        relied_on = is_relied_on if checks else None
        self.runner = Runner(store, ids, settings, checked=relied_on, where=where)
        engine = DuckDBEngine(DataFiles(self.runner), settings, ids)
        formats = _formats(self.uri_of)
        self.context = Context(
            root,
            clock,
            ids,
            settings,
            formats,
            self._engine(engine),
            notify=self._notify,
            connected=tuple(catalogs or ()),
        )
        self.context.replaces = self._replaces
        self._catalogs = catalogs or {}
        self._located: dict[str, tuple[str, float]] = {}
        self._on_event = on_event
        self._reopen = reopen
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{ids.nonce()[:8]}"
        self._background: ThreadPoolExecutor | None = None
        self._background_pid = 0
        self._heartbeat = Heartbeat(self.runner, clock, settings.lease_seconds, self.log)
        self.context.renewed = self._heartbeat.add
        begin_anew_after_fork(self.context.lanes)
        self.context.is_callers = is_callers
        self._lock = threading.Lock()

    def _engine(self, embedded: DuckDBEngine) -> Engine:
        """The engine of the lake's transactions."""
        return embedded

    # -- life --------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait for publishing and checkpoints in the background, and stop.

        Transactions that are still open are not renewed any more.
        """
        self._heartbeat.close()
        with self._lock:
            pool, self._background = self._background, None
            owner = self._background_pid
        if pool is not None and owner == os.getpid():
            pool.shutdown(wait=True)

    @contextmanager
    def beside(self, frame: object) -> Iterator[None]:
        """A block in which frames come from where ``frame`` does; they may be used together."""
        yield

    def __repr__(self) -> str:
        return f"<lakevilla.Lake {self.root}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._reopen is None:
            raise TypeError("this lake was not made by lakevilla.connect and can't be pickled")
        return self._reopen()

    # -- transactions ------------------------------------------------------------

    def transaction(
        self,
        features: Feature = Feature.R | Feature.I,
        *,
        isolation: Isolation = "serializable",
        validation: Validation = "precise",
        slack: int = 0,
        durability: Literal["lazy", "every_op"] = "lazy",
        wait: Literal["published", "decided"] = "published",
        idempotency_key: str | tuple[str, int] | None = None,
        read_only: bool = False,
        wait_timeout_seconds: float | None = None,
        metadata: Mapping[str, str] | None = None,
        **unknown: Never,
    ) -> Transaction[Frame]:
        """Begin a transaction; it is bound to the lake's state at its first use.

        Parameters
        ----------
        features : Feature
            Its guarantees; see ``Feature``.
        isolation : {"serializable", "snapshot", "write-serializable"}
            ``snapshot``: what was read need not be true any more at the commit, so it admits
            write skew, and no other anomaly. ``write-serializable``: transactions that only
            read are never validated; the others as by ``serializable``.
        validation : {"precise", "rules"}
            Whether a commit that came between is looked at, by predicates, files and rows, or
            is a conflict by its version number alone, as in the paper (rules R1 to R3).
        slack : int
            By how many versions what was read of a table may be outdated at the commit;
            above 0 the isolation is ``snapshot`` in truth.
        durability : {"lazy", "every_op"}
            When its sublogs are written to the store: now and then, or after each verb.
        wait : {"published", "decided"}
            Whether ``commit`` returns when every table's log has it, or once it is decided.
        idempotency_key : str or (str, int), optional
            Commits once, however often it is run.
        read_only : bool
            Refuses write verbs, and writes nothing.
        wait_timeout_seconds : float, optional
            How long it waits for transactions before it (with Feature.CT, or for a
            reservation); then it commits optimistically. Default: the setting of that name.
        metadata : Mapping of str to str, optional
            Goes into each table's commit.

        Raises
        ------
        InvalidOperation
            An option is not understood.
        """
        _check_options(unknown)
        check_choice("isolation", isolation, *get_args(Isolation))
        check_choice("validation", validation, *get_args(Validation))
        slack = check_number("slack", slack)
        check_choice("durability", durability, "lazy", "every_op")
        check_choice("wait", wait, "published", "decided")
        if not isinstance(features, Feature):
            raise InvalidOperation(f"features must be a lakevilla.Feature, not {shown(features)}")
        if metadata is not None and not isinstance(metadata, Mapping):
            raise InvalidOperation("metadata maps strings to strings")
        _check_timeout(wait_timeout_seconds)
        told = dict(metadata or {})
        if any(not isinstance(x, str) for pair in told.items() for x in pair):
            raise InvalidOperation("metadata maps strings to strings")
        broken = [x for pair in told.items() for x in pair if not is_unicode(x)]
        if broken:
            raise InvalidOperation(
                f"metadata must be Unicode, and {broken[0]!r} has half of a surrogate pair: "
                "take it out"
            )
        held = self.context.held
        floor = NO_TXN if held is None else held.head.floor
        in_head = Feature.I | Feature.CT
        through_head = bool(features & in_head) or idempotency_key is not None
        state = begin(
            core.Transaction(
                self.context,
                features,
                self.context.ids.txn_id(above=floor, by_entry=not through_head),
                owner=self._owner,
                read_only=check_flag("read_only", read_only),
                isolation=isolation,
                validation=validation,
                slack=slack,
                metadata=told,
                wait_timeout_seconds=wait_timeout_seconds,
            )
        )
        state.through_head = through_head
        if idempotency_key is not None:
            key, version = parse_key(idempotency_key)
            state.key = KeyUse(key, version)
            if version is not None:
                state.applications = {key: version}
        return self.begun(state, wait=wait, durability=durability)

    def begun(self, state: core.Transaction, **options: Any) -> Transaction[Frame]:
        """A transaction's state in the hands of its user; ``options`` are ``Workings``'s."""
        return Transaction(self, state, **options)

    def run(
        self,
        fn: Callable[Concatenate[Transaction[Frame], P], T],
        *args: Any,
        attempts: int = 10,
        **transaction_options: Any,
    ) -> T | None:
        """Call ``fn(txn, *args)`` in a transaction, again on conflict; returns what it returns.

        ``fn`` must have no other side effects. Unknown outcomes are settled. A
        key that is done already skips ``fn`` and returns None.

        Raises
        ------
        ConflictError, TransactionAborted
            After ``attempts`` attempts.
        ForeignConflict
            It is committed: never run again.
        """
        _check_options(transaction_options)
        check_callable(fn)
        return run(self, partial(_call, fn, args), attempts, transaction_options)

    def transactional(
        self, *, attempts: int = 10, **transaction_options: Any
    ) -> Callable[[Callable[..., T]], Callable[..., T | None]]:
        """Decorator: the function is run as by ``run`` whenever it is called."""
        _check_options(transaction_options)
        check_attempts(attempts)

        def decorate(fn: Callable[..., T]) -> Callable[..., T | None]:
            check_callable(fn)

            @wraps(fn)
            def called(*args: Any, **kwargs: Any) -> T | None:
                return self.run(
                    lambda txn: fn(txn, *args, **kwargs),
                    attempts=attempts,
                    **transaction_options,
                )

            return called

        return decorate

    def foreach_batch(
        self,
        fn: Callable[[Transaction[Frame], Frame], object],
        *,
        query_id: str,
        **transaction_options: Any,
    ) -> Callable[[Any, int], None]:
        """The function for Spark's ``writeStream.foreachBatch``: each batch takes effect once.

        ``fn(txn, batch_df)`` may write many tables; all of it commits together, under the
        idempotency key ``(query_id, batch_id)``. A batch that Spark hands over again, after
        a restart or a kill, is done already and skipped; one that was not committed is run
        anew. A ``query_id`` belongs to one streaming query and its checkpoint, for ever:
        a new checkpoint counts its batches from 0 and needs a new ``query_id``.

        Parameters
        ----------
        fn : callable
            Must have no other side effects; is called again on a conflict.
        query_id : str
            Names the streaming query in the lake.
        **transaction_options
            As ``run`` takes them, but for ``idempotency_key``.

        Raises
        ------
        InvalidOperation
            The query has no name, or an option is not understood.
        """
        _check_options(transaction_options)
        check_callable(fn)
        if type(query_id) is not str or not query_id:
            raise InvalidOperation("foreach_batch needs a query_id, the same after each restart")
        if check_flag("read_only", transaction_options.get("read_only", False)):
            raise InvalidOperation("foreach_batch writes: leave read_only out")
        if "idempotency_key" in transaction_options:
            raise InvalidOperation(
                "foreach_batch makes the idempotency_key of query_id and the batch's number: "
                "leave it out"
            )
        return BatchFunction(self, fn, query_id, transaction_options)

    # -- tables ------------------------------------------------------------------

    def create_table(
        self,
        name: str,
        data_or_schema: object,
        *,
        format: FormatName = "delta",
        partition_by: str | Sequence[str] = (),
        properties: Mapping[str, PropertyValue] | None = None,
        exist_ok: bool = False,
    ) -> Table:
        """Create a table, with rows if data is given; arguments as ``Transaction.create_table``.

        Raises
        ------
        InvalidOperation, UnsupportedTableFeature
        TableExists
            Unless ``exist_ok``; then the table is left as it is.
        """
        check_flag("exist_ok", exist_ok)
        try:
            with self.transaction() as txn:
                txn.create_table(
                    name,
                    data_or_schema,
                    format=format,
                    partition_by=partition_by,
                    properties=properties,
                )
        except TableExists as error:
            if not exist_ok:
                raise
            try:
                return self.table(name)
            except TableNotFound:
                raise error from None  # its name is taken, and no table is there
        return self.table(name)

    def drop_table(self, name: str, *, delete_data: bool = False) -> None:
        """Take a table out of the lake; with ``delete_data`` its files go too, for good.

        The name of a table whose data was deleted can be used again ten minutes later
        (``reuse_after_seconds``): before that ``create_table`` raises ``TableExists``, because a
        commit to the old table may still be on its way to its log. To begin anew at once, choose
        another name, or ``overwrite`` the table instead of dropping it. A deletion that was
        interrupted is finished by calling this again, or by ``gc``.

        Other clients than LakeVilla's may still believe then that the old one is there, and so
        may LakeVilla's with ``reuse_after_seconds=0`` that commit by the table's own log entry
        (``Feature.NONE``, ``Feature.R``): where there are such, choose a new name.
        """
        delete_data = check_flag("delete_data", delete_data)
        location = self._location(name)
        if delete_data:
            self.runner.run(refuse_in_catalog(self.context, location))
        if not (delete_data and self.runner.run(is_half_deleted(self.context, location))):
            with self.transaction() as txn:
                txn.drop_table(name)
        if delete_data:
            self.runner.run(emptying.delete_data(self.context, location))

    def register(self, name: str | Mapping[str, str], uri: str | None = None) -> None:
        """Take existing tables into the lake, in one step.

        ``register(name, uri)``, ``register({name: uri, ...})``, or ``register(path)`` for
        a table under the root. A table in one of the lake's catalogs is given by its name there,
        ``catalog.namespace.table``.

        Raises
        ------
        TableNotFound, InvalidOperation
            There is no table, it belongs to another lake, or the name could mean two tables.
        """
        given = _registered(name, uri)
        self.ensure_safe_store()
        locations = {key: self.resolve({}, where) for key, where in given.items()}
        # What the name would mean if it were not registered: a name that no path can have is
        # refused here, and one that is a path already is no name for another table.
        own = {key: resolve(self.root, {}, key) for key in given}
        self.runner.run(operating.register(self.context, locations, own))

    def unregister(self, name: str) -> None:
        """Let a table go: another lake may take it then. Its data stays.

        A table that has other names in the lake stays under those; only this one goes.
        """
        self.ensure_safe_store()
        self.runner.run(operating.unregister(self.context, name, self._location(name)))

    def table(self, name: str) -> Table:
        """What the lake knows of a table now. Raises ``TableNotFound``."""
        with self.transaction(read_only=True) as txn:
            return self._table(name, txn.look(name))

    def tables(self) -> list[Table]:
        """The tables in HEAD, by name.

        They are listed by their metadata alone, as deltalake and pyiceberg list them: of manifests
        and data files that are gone, reading tells, and ``doctor`` and ``recover``.
        One that can't be opened, such as an external table that was moved away, is left out:
        a ``LakeVillaWarning``, the log and the event ``left_out`` say why, and so does ``doctor``.
        """
        with self.transaction(read_only=True) as txn:
            return [self._table(name, view) for name, view in self.views(txn).items()]

    def views(self, txn: Transaction[Frame]) -> dict[str, View]:
        """All tables at a transaction's state of the lake, by the names that are shown.

        What is wrong with one table does not hide the others: it is left out and told of. But
        what the store fails at is raised, so that nobody takes an outage for a lake without
        the table.
        """
        state = txn.state_of_lake(whole=True)
        if state is None:
            return {}
        names = shown_names(state.names)
        found = {}
        for location, table in sorted(state.tables.items()):
            if table.dropped:
                continue
            name = names.get(location, location)
            try:
                found[name] = txn.look(name)
            except _WRONG_WITH_ONE as error:
                told = f"table {name} is left out: {error.message}"
                if not isinstance(error, VersionNotFound):
                    self._warn_once(name, told)
                self._notify(Event("left_out", None, told, {"table": name, "reason": error.kind}))
        return found

    def _warn_once(self, table: str, message: str) -> None:
        """Show it to a person, who may have set up no log: once a table and process."""
        if (self.root, table) not in _WARNED_OF:
            _WARNED_OF.add((self.root, table))
            warnings.warn(message, LakeVillaWarning, stacklevel=4)

    def _table(self, name: str, view: View) -> Table:
        layout = view.snapshot.layout
        return Table(
            name=name,
            uri=self.uri_of(view.location),
            format=view.snapshot.format,
            version=view.log_version,
            snapshot_id=view.snapshot_id,
            schema=layout.schema,
            partition_by=layout.partition_by
            or tuple(part.spelled for part in layout.partition_fields),
            properties=dict(layout.properties),
            guarded=view.guarded,
            _lake=self,
        )

    def snapshot(
        self, version: int | None = None, timestamp: datetime | None = None
    ) -> Snapshot[Frame]:
        """The lake as it is now, or was: all tables at one global version. It writes nothing.

        Parameters
        ----------
        version : int, optional
            A global version, as ``history`` lists them.
        timestamp : datetime, optional
            Aware. The newest global version that is not later; so a time to come is now.

        Raises
        ------
        VersionNotFound
            The version is not there, or not kept any more. Of a table that is not kept so
            far back, it is raised when the table is read.
        InvalidOperation
            Both were given, or a time without a zone.
        """
        txn = self.transaction(read_only=True)
        if version is not None or timestamp is not None:
            txn.bind_to(version, timestamp)
        return Snapshot(self, txn)

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """The lake's commits, newest first, as far back as they are kept."""
        return lake_history(self, limit)

    # -- operating ---------------------------------------------------------------

    def exists(self) -> bool:
        """Whether anything was ever committed here; if not, the root may be misspelt."""
        return self.runner.run(self.context.head()) is not None

    def transactions(self) -> list[TransactionInfo]:
        """The transactions that are in a queue or were saved, oldest first. It only looks.

        Short optimistic ones leave no trace before they commit, and are not told of. A record
        that can't be read is passed over; ``doctor`` tells of it.
        """
        return self.runner.run(watching.transactions(self.context))

    def outcome(
        self, txn_id: str | None = None, *, idempotency_key: str | tuple[str, int] | None = None
    ) -> Outcome:
        """How a transaction ended; one that is still undecided is ended by asking.

        Raises
        ------
        CommitOutcomeUnknown
            It could not be settled: ask again.
        """
        if (txn_id is None) == (idempotency_key is None):
            raise InvalidOperation("outcome takes a transaction id or an idempotency key")
        self.ensure_safe_store()
        if txn_id is not None:
            told = self.runner.run(outcome.outcome(self.context, txn_id))
        else:
            key, version = parse_key(idempotency_key)
            told = self.runner.run(operating.outcome_of_key(self.context, key, version))
        if told.result is None:
            return told
        return Outcome(told.state, self.named(told.result))

    def resume(self, txn_id: str) -> Transaction[Frame]:
        """Take over a saved transaction of another process, as it was when last saved.

        Raises
        ------
        AlreadyCommitted, TransactionAborted, TransactionNotFound
        """
        self.ensure_safe_store()
        return self.begun(self.runner.run(saving.resume(self.context, txn_id, self._owner)))

    def abort(self, txn_id: str) -> None:
        """Abort a transaction, another client's too; it can never commit afterwards.

        Its places in the queues are void at once.

        Raises
        ------
        InvalidOperation
            It has committed, or may have: it ended before the history that is kept, or
            commits by its table's own log entry, which nothing can fence.
        """
        self.ensure_safe_store()
        self.runner.run(recovery.abort(self.context, txn_id))

    def guard(self, table: str) -> None:
        """Make other clients refuse to write the table; all of them can still read it."""
        self._set_guard(table, True)

    def unguard(self, table: str) -> None:
        """Lift the guard."""
        self._set_guard(table, False)

    def _set_guard(self, table: str, on: bool) -> None:
        def change(txn: Transaction[Frame]) -> None:
            txn.set_guard(table, on)

        self.run(change)

    def capabilities(self, table: str) -> Capabilities:
        """What is guaranteed on a table as it is now."""
        return Capabilities.of(self.table(table))

    def recover(self, *, rebuild_head: bool = False, confirm_head: bool = False) -> Report:
        """Finish what others have left: publish what is decided, give up the places of the dead.

        Only if there are places in a queue whose owners may be dead it waits, and for no
        longer than ``lease_seconds``.

        Parameters
        ----------
        rebuild_head : bool
            Instead, make a HEAD.json that is lost or damaged anew, from the logs of the tables
            and what else is left. The report says what could not be told; nothing is deleted by
            ``gc`` and ``vacuum`` until ``confirm_head``.
        confirm_head : bool
            Instead, say that somebody has read that report.

        Raises
        ------
        CorruptObject
            HEAD is lost, or what it needs.
        InvalidOperation
            With ``rebuild_head``: HEAD is sound, or nothing of a lake is there.
        """
        if rebuild_head and confirm_head:
            raise InvalidOperation("recover: read the report of rebuild_head before confirm_head")
        if rebuild_head:
            self.ensure_safe_store()
            self.context.held = None
            return self.runner.run(rebuilding.rebuild_head(self.context))
        if not self.exists():
            return self._no_lake()
        self.ensure_safe_store()
        if confirm_head:
            return self.runner.run(rebuilding.confirm_head(self.context))
        report = self.runner.run(recovery.recover(self.context, self._owner))
        self._checkpoint_soon()
        return report

    def gc(self, dry_run: bool = False) -> Report:
        """Delete what no transaction needs any more; with ``dry_run`` only tell.

        Transactions older than ``max_age_seconds`` are fenced: they can't commit afterwards.
        """
        dry_run = check_flag("dry_run", dry_run)
        if not self.exists():
            return self._no_lake()
        if not dry_run:
            self.ensure_safe_store()
        return self.runner.run(gc.gc(self.context, dry_run=dry_run))

    def vacuum_table(
        self, name: str, retention_hours: float | None, dry_run: bool, enforce: bool
    ) -> list[str]:
        """See ``Table.vacuum``."""
        if not dry_run:
            self.ensure_safe_store()
        program = vacuum.vacuum(
            self.context,
            self._location(name),
            retention_seconds=None if retention_hours is None else retention_hours * 3600,
            dry_run=dry_run,
            enforce_retention=enforce,
        )
        return self.runner.run(program)

    def _no_lake(self) -> Report:
        """Nothing is written where nothing is: the root may be misspelt."""
        told = f"{self.root} has no lake yet: the first transaction that writes makes one"
        return Report(True, (Finding("note", "empty", told),))

    def doctor(self, *, adopt: bool = False, files: bool = False) -> Report:
        """Tell what is wrong, pending or left over. Changes nothing, but for ``adopt``.

        Parameters
        ----------
        adopt : bool
            Give a copied or moved lake a new identity, so that it can be written.
        files : bool
            Look at every live data file, too: that it is there, has the logged size, and a
            footer with the logged number of rows; and at all that deletes rows. Two requests
            a file. What lies between is not read: a bit that has flipped there is not found.
        """
        if check_flag("adopt", adopt):
            self.ensure_safe_store()
            self.runner.run(recovery.adopt_lake(self.context))
        read = read_deletes if files else None
        return self.runner.run(doctor.doctor(self.context, files=read))

    # -- inside ------------------------------------------------------------------

    def ensure_safe_store(self) -> None:
        """Probe conditional writes, once per store and process, before the first of them.

        A store that does not replace under a condition is used without: HEAD is a log there.
        With ``conditional_writes="check"`` a store that honours conditions is used as any other:
        it is cheaper, and safe, and goes with clients that require them. Only one that fails is
        used with checks.
        """
        if self.runner.checked is None:
            self.runner.run(self._replaces())
            return
        place = self._place()
        if place not in _PROBED:
            _PROBED[place] = self._honoured()
        self.runner.replaces = _PROBED[place] == "all"
        # A lake whose HEAD is replaced under checks stays so: it was made before this store was
        # known to create, or is one that clients without conditions made.
        held = self.runner.run(self.context.head()) if _PROBED[place] == "creates" else None
        if _PROBED[place] == "all" or (
            _PROBED[place] == "creates" and (held is None or held.head.as_log)
        ):
            self.runner.checked = None

    def _replaces(self) -> Program[bool]:
        """Whether the store, checks included, replaces under a condition; asked once."""
        if self.runner.checked is not None:
            return True
        place = self._place()
        if place not in _PROBED:
            _PROBED[place] = "all" if (yield from probe(self.context.ids)) else "creates"
        self.runner.replaces = _PROBED[place] == "all"
        return self.runner.replaces

    def _honoured(self) -> Literal["all", "creates", "none"]:
        where = self.runner.where
        plain = Runner(self.runner.store, self.context.ids, self.settings, where=where)
        try:
            return "all" if plain.run(probe(self.context.ids)) else "creates"
        except (UnsafeStore, StoreError) as error:
            # Where a plain write fails too, conditions are not what is wrong: raised.
            plain.run(probe_plain(self.context.ids))
            told = (
                f"{self.root} is written with checks in the place of conditional writes, which is "
                f"best effort: {error.message.partition(';')[0]}"
            )
            _LOG.warning(told)
            self._notify(Event("unsafe_store", None, told, {}))
            return "none"

    def _place(self) -> str:
        return f"{os.getpid()}:{self.root}"

    def _location(self, name: str) -> str:
        held = self.runner.run(self.context.head())
        head = None if held is None else held.head
        return self.resolve(self.names(head, name), name)

    def resolve(self, names: Mapping[str, str], table: str) -> str:
        """The location of a table: a registered name, a path, a URI, or its name in a catalog.

        Raises
        ------
        InvalidOperation, TableNotFound
            The name is none, or its catalog has no such table.
        """
        pointer = pointer_of(self._catalogs, table)
        if pointer is None or table in names:
            return resolve(self.root, names, table)
        now = self.context.clock.elapsed()
        location, at = self._located.get(table, ("", 0.0))
        if not location or now - at > _LOCATED_SECONDS:
            location = self.runner.run(locate(self.context, pointer, table))
            self._located[table] = location, now
        return location

    def names(self, head: Head | None, table: object) -> Mapping[str, str]:
        """Registered names, with all that is needed to look up what a caller calls a table."""
        if head is None or not isinstance(table, str):
            return {}
        if head.names.refs:
            self.runner.run(load_names(head, [table, table.replace(".", "/")]))
        return head.names

    def uri_of(self, location: str) -> str:
        """A location as any other client may be given it."""
        if "://" in location or location.startswith("/"):
            return location
        return f"{self.root.rstrip('/')}/{location}"

    def named(self, result: CommitResult) -> CommitResult:
        """A result with the tables by their registered names."""
        held = self.context.held
        if held is None or not held.head.names or result.versions is None:
            return result
        # Whatever the transaction has called by its name was looked up, so it is at hand.
        names = shown_names(held.head.names.at_hand())
        versions = {names.get(k, k): version for k, version in result.versions.items()}
        return CommitResult(
            result.id, versions, result.global_version, result.retries, result.operations
        )

    def log(self, message: str, txn_id: str | None) -> None:
        _LOG.info(message, extra={"txn_id": txn_id})

    def _notify(self, event: Event) -> None:
        loud = event.kind == "left_out" or event.detail.get("long")
        level = logging.WARNING if loud else logging.INFO
        _LOG.log(level, event.message, extra={"txn_id": event.txn_id})
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception:  # a caller's listener must not undo a commit
                _LOG.exception("on_event raised", extra={"txn_id": event.txn_id})

    def after_commit(self, state: core.Transaction, *, publish: bool) -> None:
        """What a commit leaves to the background: publishing if not waited for, checkpoints."""
        decided = state.decided
        if decided is not None and not publish:
            head = decided.held.head
            for location in decided.summary.tables:
                self._soon(partial(publish_or_tell, state, head, location))
        self._checkpoint_soon()

    def _checkpoint_soon(self) -> None:
        while self.context.checkpoints_due:
            location, version = self.context.checkpoints_due.popleft()
            self._soon(partial(recovery.checkpoint, self.context, location, version))

    def _soon(self, program: Callable[[], Program[object]]) -> None:
        """Run a program in the background; what fails is logged and left to the next client."""

        def work() -> None:
            try:
                self.runner.run(program())
                self._checkpoint_soon()
            except Exception:
                _LOG.warning("background work failed; it is left to the next client", exc_info=True)

        with self._lock:
            if self._background is None or self._background_pid != os.getpid():
                self._background = ThreadPoolExecutor(1, thread_name_prefix="lakevilla")
                self._background_pid = os.getpid()
            self._background.submit(work)


def _formats(uri_of: Callable[[str], str]) -> Formats:
    """Delta, and Iceberg where pyiceberg is installed, which is loaded when it is needed."""
    if find_spec("pyiceberg") is None:
        return Formats(DeltaFormat())

    def iceberg() -> TableFormat:
        from lakevilla.formats.iceberg.table_format import IcebergFormat

        return IcebergFormat(uri_of)

    return Formats(DeltaFormat(), later={"iceberg": iceberg})


def _registered(name: object, uri: object) -> dict[str, str]:
    """Names to places, as the three forms of ``register`` give them."""
    if isinstance(name, Mapping):
        if uri is not None:
            raise InvalidOperation("register takes a mapping of names to URIs, or a name and a URI")
        given = dict(name)
        if not given:
            raise InvalidOperation("register was given no table: name at least one")
    else:
        given = {check_text("name", name): name if uri is None else uri}
    return {check_text("name", key): check_text("uri", where) for key, where in given.items()}


def _check_timeout(seconds: object) -> None:
    if seconds is None:
        return
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    endless = seconds == math.inf
    if not is_number or not (endless or 0 <= seconds <= MOST_SECONDS):  # type: ignore[operator]
        raise InvalidOperation(
            f"wait_timeout_seconds must be a number of seconds from 0 to {MOST_SECONDS:.12g}, or "
            f"infinite, not {shown(seconds)}"
        )


_TRANSACTION_OPTIONS = tuple(inspect.signature(Lake.transaction).parameters)[1:-1]


def _check_options(options: Mapping[str, object]) -> None:
    """Refuse a misspelt option where it is written, not at the first transaction."""
    unknown = sorted(options.keys() - set(_TRANSACTION_OPTIONS))
    if unknown:
        raise InvalidOperation(
            f"unknown transaction option {unknown[0]!r}: choose from "
            f"{', '.join(_TRANSACTION_OPTIONS)}"
        )


def _call(fn: Callable[..., T], args: tuple[Any, ...], txn: Transaction) -> T:
    return fn(txn, *args)
