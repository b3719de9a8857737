"""Lakes: the directory under which tables are stored, and the operations on all of it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, Literal, Never, ParamSpec, Self, TypeVar

from lakevilla.api.applying.lake import Applying
from lakevilla.api.applying.merge import Merges
from lakevilla.api.arguments import (
    Hinted,
    PropertyValue,
    check_flag,
    check_place,
    tables_to_register,
    verbs_elsewhere,
)
from lakevilla.api.catalog.lake import Catalog
from lakevilla.api.client.catalogs import catalog_names, named_report
from lakevilla.api.client.client import LakeClient
from lakevilla.api.client.discovering import (
    NamedTables,
    discover_tables,
    lake_html,
    place_of,
    register_all,
    register_named,
    tell_left,
)
from lakevilla.api.client.names import refuse_link
from lakevilla.api.clones import Clones
from lakevilla.api.execution.executor import Executor
from lakevilla.api.execution.inserting import outcome_in_base
from lakevilla.api.feed import ChangeFeed
from lakevilla.api.frame import Frame
from lakevilla.api.history import lake_history
from lakevilla.api.reading.exports import Exports
from lakevilla.api.refs import REFS_ELSEWHERE
from lakevilla.api.run import (
    ATTEMPTS,
    BatchFunction,
    begin_transaction,
    check_attempts,
    check_callable,
    check_location,
    run,
)
from lakevilla.api.session import Sessions
from lakevilla.api.states import States, Verifying
from lakevilla.api.table import Capabilities, Table, capabilities_of, table_of
from lakevilla.api.transaction import Transaction
from lakevilla.api.upkeep import UPKEEP_ELSEWHERE, Upkeep
from lakevilla.display import HtmlList
from lakevilla.engines.deletes import read_deletes
from lakevilla.engines.spark.planned import Read, reader_below
from lakevilla.errors import InvalidOperation, TableExists, TableNotFound
from lakevilla.formats.base import FormatName
from lakevilla.global_log.keys import parse_key
from lakevilla.global_log.rules import Isolation, Validation
from lakevilla.lake.publishing import outcome
from lakevilla.lake.tables import drop_data, registration
from lakevilla.lake.tables.dropped import is_half_deleted, refuse_to_delete
from lakevilla.maintenance import doctor, recovery
from lakevilla.maintenance import transactions as watching
from lakevilla.results import (
    DiscoveredTable,
    HistoryEntry,
    Outcome,
    Report,
    TransactionInfo,
)
from lakevilla.settings import Settings
from lakevilla.store.cached import fresh
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs import save

__all__ = ["Lake"]

T = TypeVar("T")
P = ParamSpec("P")


class Lake(
    NamedTables,
    States[Frame],
    Sessions[Frame],
    Verifying,
    Catalog[Frame],
    ChangeFeed[Frame],
    Applying[Frame],
    Merges[Frame],
    Upkeep,
    Exports,
    Clones,
    Hinted,
    Generic[Frame],
):
    """A directory of tables with one order of transactions; made by ``lakevilla.connect``.

    It is safe across threads and can be pickled. As a context manager it waits for background
    work at the end of the block.

    Examples
    --------
    >>> with lv.connect("warehouse") as lake:
    ...     _ = lake.create_table("stock", [{"sku": "tea", "qty": 5}])
    ...     _ = lake.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 2}]))
    ...     [table.name for table in lake.tables()]
    ['stock']
    """

    _elsewhere = verbs_elsewhere("a transaction writes") | REFS_ELSEWHERE | UPKEEP_ELSEWHERE

    def __init__(self, client: LakeClient, executor: type[Executor[Frame]] = Executor) -> None:
        self._client = client
        self._executor = executor

    @property
    def root(self) -> str:
        """The directory, as a URI or a path."""
        return self._client.root

    @property
    def settings(self) -> Settings:
        """The settings with which it was connected."""
        return self._client.settings

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
        """Wait for publishing and checkpoints in the background, then stop.

        The records of open transactions are no longer renewed.
        """
        self._client.close()

    def __repr__(self) -> str:
        return f"<lakevilla.Lake {self.root}{place_of(self._client)}>"

    def _repr_html_(self) -> str:
        return lake_html(self._client)

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
        idle_timeout_seconds: float | None = None,
        defer: bool = False,
        metadata: Mapping[str, str] | None = None,
        **unknown: Never,
    ) -> Transaction[Frame]:
        """Begin a transaction, which reads one state of the lake: that of its first use or later.

        Parameters
        ----------
        features : Feature
            The guarantees; see ``Feature``.
        isolation : {"serializable", "snapshot", "write-serializable"}
            ``snapshot``: data that was read may have changed by the commit, which admits write
            skew and no other anomaly. ``write-serializable``: like ``serializable``, but a
            transaction that only reads is never checked.
        validation : {"precise", "rules"}
            The check of commits in between: by predicates, files and rows, or only by version
            numbers, as in the paper (rules R1 to R3).
        slack : int
            The number of versions that a table that was read may be behind at the commit. Above 0
            the isolation is really ``snapshot``.
        durability : {"lazy", "every_op"}
            Save its work to the store from time to time, or after each operation.
        wait : {"published", "decided"}
            Let ``commit`` return when every table's log has the commit, or as soon as the commit is
            decided.
        idempotency_key : str or (str, int), optional
            With a key the transaction commits once, no matter how often it is run.
        read_only : bool
            Refuse write operations, and write nothing.
        wait_timeout_seconds : float, optional
            The longest time that it waits for transactions before it (with Feature.CT, or for a
            reservation). After that it commits optimistically. Default: the setting of that name.
        idle_timeout_seconds : float, optional
            The longest time without a call. After that the transaction is undone, its places in
            queues are given back, and its next call raises ``TransactionAborted``. Default, and 0:
            no limit.
        defer : bool
            Only check and note updates, deletes, merges, overwrites and inserts from queries. They
            are performed together by the commit, or as soon as one of their counts is read or a
            table that they change is read. With many tables that saves most of the time. An error
            in the rows (a value that does not fit, a constraint) is then raised by the commit, and
            ends the transaction.
        metadata : Mapping of str to str, optional
            Stored with each table's commit.

        Raises
        ------
        InvalidOperation
            An option is unknown or has a wrong value.
        """
        _check_options(unknown)
        executor = begin_transaction(
            self._client,
            self._executor,
            features,
            isolation=isolation,
            validation=validation,
            slack=slack,
            durability=durability,
            wait=wait,
            idempotency_key=idempotency_key,
            read_only=read_only,
            wait_timeout_seconds=wait_timeout_seconds,
            idle_timeout_seconds=idle_timeout_seconds,
            defer=defer,
            metadata=metadata,
        )
        return Transaction(executor)

    def _begin(
        self, options: Mapping[str, Any], lost: TransactionState | None = None
    ) -> Executor[Frame]:
        """Begin a new transaction with ``options``, or the lost one again, in its place."""
        if lost is None:
            return begin_transaction(self._client, self._executor, **options)
        given = {name: options[name] for name in ("wait", "durability") if name in options}
        return self._executor(self._client.newest(), lost, **given)

    def _beside(self, frame: object) -> AbstractContextManager[None]:
        return self._client.beside(frame)

    def _run_batch(
        self, fn: Callable[[Transaction[Frame]], object], options: dict[str, Any]
    ) -> None:
        run(self._client, partial(self._begin, options), partial(_call, fn, ()), ATTEMPTS)

    def _reader(self, location: str) -> Read | None:
        return reader_below(location, self.root, self._client.run)

    def run(
        self,
        fn: Callable[Concatenate[Transaction[Frame], P], T],
        *args: Any,
        attempts: int = ATTEMPTS,
        **transaction_options: Any,
    ) -> T | None:
        """Call ``fn(txn, *args)`` in a transaction, again after a conflict; return its result.

        ``fn`` must have no other side effects. Unknown outcomes are settled. If the idempotency
        key has committed already, ``fn`` is not called and the result is None.

        Parameters
        ----------
        fn : callable
            Called with the transaction and ``args``.
        *args
            For ``fn``.
        attempts : int
            The maximum number of attempts, including the first.
        **transaction_options
            As for ``transaction``.

        Raises
        ------
        ConflictError, TransactionAborted
            After ``attempts`` attempts.
        ForeignConflict
            The transaction is committed: don't run it again.
        """
        _check_options(transaction_options)
        check_callable(fn)
        begin = partial(self._begin, transaction_options)
        return run(self._client, begin, partial(_call, fn, args), attempts)

    def transactional(
        self, *, attempts: int = ATTEMPTS, **transaction_options: Any
    ) -> Callable[[Callable[..., T]], Callable[..., T | None]]:
        """Decorator: each call of the function runs it as ``run`` does.

        Parameters
        ----------
        attempts : int
            As for ``run``.
        **transaction_options
            As for ``transaction``.
        """
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
        checkpoint_location: str | None = None,
        **transaction_options: Any,
    ) -> Callable[[Any, int], None]:
        """Return the function for Spark's ``writeStream.foreachBatch``: each batch takes effect
        once.

        ``fn(txn, batch_df)`` may write many tables, which commit together under the idempotency
        key ``(query_id, batch_id)``. If Spark delivers a batch again, after a restart or a
        kill, a committed batch is skipped, and any other runs again. A ``query_id`` belongs to
        one streaming query and its checkpoint, for ever: a new checkpoint counts its batches
        from 0 and needs a new ``query_id``. ``InvalidOperation`` is raised where skipping a batch
        would lose rows: for a batch of another checkpoint that the lake seems to have, for a batch
        from before the last, and for a batch that an older copy of the checkpoint has planned
        again. It is also raised for a batch after batches that the lake lacks, because it was set
        back. That is noticed only if Spark itself calls the returned function, and no function
        around it that may leave out batches.

        Parameters
        ----------
        fn : callable
            Must have no other side effects, because it is called again after a conflict.
        query_id : str
            Names the streaming query in the lake.
        checkpoint_location : str, optional
            The checkpoint location of the query. It is needed on Spark Connect alone, to notice an
            older copy of the checkpoint; elsewhere Spark reports it.
        **transaction_options
            As for ``run``, except ``idempotency_key``.

        Raises
        ------
        InvalidOperation
            The query has no name, or an option is unknown.
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
        reader = None
        if checkpoint_location is not None:
            check_location(checkpoint_location)
            reader = partial(self._reader, checkpoint_location)
        return BatchFunction(
            self._run_batch, self._beside, fn, query_id, transaction_options, reader=reader
        )

    # -- tables ------------------------------------------------------------------

    def create_table(
        self,
        name: str,
        data_or_schema: object,
        *,
        format: FormatName | None = None,
        partition_by: str | Sequence[str] = (),
        properties: Mapping[str, PropertyValue] | None = None,
        exist_ok: bool = False,
        or_replace: bool = False,
    ) -> Table[Frame]:
        """Create a table, with rows if data is given; arguments as ``Transaction.create_table``.

        Parameters
        ----------
        name : str
            A path below the root: ``sales/orders``, or ``sales.orders``.
        data_or_schema : data, pyarrow.Schema or Mapping
            Rows, or only the columns.
        format : {"delta", "iceberg"}, optional
            Delta, if not given. A table that is replaced keeps its format.
        partition_by : str or sequence of str
            Columns; for Iceberg also transforms, such as ``day(at)``.
        properties : Mapping, optional
            Values are str, bool, int, float or Decimal.
        exist_ok : bool
            Leave an existing table of that name unchanged.
        or_replace : bool
            Define an existing table of that name again, also one that was dropped and whose data
            was kept.

        Raises
        ------
        InvalidOperation, UnsupportedTableFeature
        TableExists
            Not with ``exist_ok``.
        """
        if check_flag("exist_ok", exist_ok) and check_flag("or_replace", or_replace):
            raise InvalidOperation("create_table takes exist_ok=True or or_replace=True, not both")
        try:
            with self.transaction() as txn:
                txn.create_table(
                    name,
                    data_or_schema,
                    format=format,
                    partition_by=partition_by,
                    properties=properties,
                    or_replace=or_replace,
                )
        except TableExists as error:
            if not exist_ok:
                raise
            try:
                return self.table(name)
            except TableNotFound:
                raise error from None  # its name is taken, but there is no such table
        return self.table(name)

    def drop_table(self, name: str, *, delete_data: bool = False) -> None:
        """Remove a table from the lake; with ``delete_data`` also delete its files, for good.

        Without ``delete_data``, ``register`` brings the table back, and ``create_table`` with
        ``or_replace`` defines it again in its place.

        The name of a table whose data was deleted can be used again ten minutes later
        (``reuse_after_seconds``): before that ``create_table`` raises ``TableExists``, because a
        commit to the old table may still be on its way to its log. To start again at once,
        choose another name, or ``overwrite`` the table instead of dropping it. To finish an
        interrupted deletion, call this again, or run ``gc``.

        After that time clients without LakeVilla may still take the new table for the old one.
        With ``reuse_after_seconds=0`` so may LakeVilla clients that commit by the table's own
        log entry (``Feature.NONE``, ``Feature.R``). If you have such clients, choose a new
        name.

        Parameters
        ----------
        name : str
            As for ``table``.
        delete_data : bool
            Also delete its files, but no other files in its directory: a ``LakeVillaWarning`` and
            the event ``left_out`` report the files that were left.

        Raises
        ------
        TableNotFound
        InvalidOperation
            Its data must not be deleted: a ref keeps it, or it is stored outside of the root and
            its ``lake.json`` does not name this lake and this table.
        """
        delete_data = check_flag("delete_data", delete_data)
        location = self._client.location_of(name)
        if delete_data:
            self._client.main("drop_table with delete_data")
            refuse_link(self.root, name, location)
            self._client.run(refuse_to_delete(self._client.context, location))
        if not (delete_data and self._client.run(is_half_deleted(self._client.context, location))):
            with self.transaction() as txn:
                txn.drop_table(name)
        if delete_data:
            with self._client.measured("drop_table", name):
                left = self._client.run(drop_data.delete_data(self._client.context, location))
            tell_left(self._client, name, left)

    def rename_table(self, old: str, new: str) -> None:
        """Give a table another name; no object moves. See ``Transaction.rename_table``.

        Parameters
        ----------
        old : str
            A registered name, or the table's path under the root where it has none.
        new : str
            A name such as ``create_table`` takes.

        Raises
        ------
        TableNotFound, InvalidOperation
        TableExists
            The new name is registered, or a table is stored at its path.

        Examples
        --------
        >>> lake.rename_table("stock", "inventory")
        >>> lake.table("inventory").uri.endswith("/stock")
        True
        >>> lake.rename_table("inventory", "stock")
        """
        with self.transaction() as txn:
            txn.rename_table(old, new)

    def discover(self) -> list[DiscoveredTable]:
        """Return the tables under the root that are not in the lake: new, dropped, and damaged
        ones.

        Every table under the root can be read and written by its path. It enters the lake with its
        first commit, or by ``register(discover=True)``.

        It walks through the directories and lists nothing inside a table. A new table costs two
        LISTs and the reading of its log, however many files it has. A table of the lake costs
        nothing, any other directory four requests. It skips directories whose name begins with
        ``_`` or ``.`` or contains ``=``, links, and other lakes.

        Raises
        ------
        InvalidOperation
            The root is a table itself, is a file, or does not exist.
        """
        return discover_tables(self._client.main("discover"))

    def register(
        self,
        name: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | None = None,
        uri: str | os.PathLike[str] | None = None,
        *,
        discover: bool = False,
    ) -> list[str]:
        """Add existing tables to the lake, in one commit, and return their names in the lake.

        Call ``register(name, uri)``, ``register({name: uri, ...})``, or ``register(path)`` for a
        table under the root. For a table in one of the lake's catalogs, give its name there,
        ``catalog.namespace.table``. A relative path in a string is under the root; a relative
        ``pathlib.Path`` is under the working directory of this machine.

        ``register(discover=True)`` adds all new tables that ``discover`` finds, by their paths.
        It leaves out a table that can't be added (its log is damaged, or it belongs to another
        lake): a ``LakeVillaWarning``, the log and the event ``left_out`` report the reason. A
        dropped table stays out.

        Parameters
        ----------
        name : str or Mapping of str to str, optional
            A name for the table, or a mapping of names to URIs.
        uri : str, optional
            The location of the table; if not given, ``name`` is its path.
        discover : bool
            Add all new tables under the root, instead of tables by name.

        Raises
        ------
        TableNotFound, InvalidOperation
            There is no such table, it belongs to another lake, or the name could mean two
            tables.
        """
        self._client.main("register")
        if check_flag("discover", discover):
            if name is not None or uri is not None:
                raise InvalidOperation("register takes discover=True, or tables by name, not both")
            return register_all(self._client)
        if isinstance(name, os.PathLike):
            # Under the root, the table's own path is its name.
            name = self._client.place(check_place("name", name))
        given = tables_to_register(name, uri)
        return register_named(self._client, given)

    def unregister(self, name: str) -> None:
        """Remove a table from the lake; another lake may then take it. Its data stays.

        If the table has other names in the lake, it stays under those, and only this name is
        removed.

        Parameters
        ----------
        name : str
            As for ``table``.

        Raises
        ------
        TableNotFound
        """
        client = self._client.main("unregister")
        location = client.location_of(name)
        client.run_safely(registration.unregister(client.context, name, location))

    def table(self, name: str) -> Table[Frame]:
        """Return one table of the lake, in its present state.

        Parameters
        ----------
        name : str
            Its path below the root, a registered name, or its name in a catalog.

        Raises
        ------
        TableNotFound
        """
        with self._begin({"read_only": True}) as executor:
            return table_of(executor, name, executor.look(name))

    def __getitem__(self, name: str) -> Table[Frame]:
        """Return one table of the lake; see ``table``."""
        return self.table(name)

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Return the lake's commits, newest first, as far back as they are kept.

        Parameters
        ----------
        limit : int, optional
            The maximum number of entries.
        """
        return lake_history(self._client.current(), limit)

    # -- operating ---------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether anything was ever committed here; if not, the root may be misspelt.

        Raises
        ------
        CorruptObject
            A lake was here, but its HEAD, or everything except its tables, is lost.
        """
        return self._client.run(self._client.context.existing()) is not None

    def transactions(self) -> list[TransactionInfo]:
        """Return the transactions that are in a queue or were saved, oldest first. Changes nothing.

        Short optimistic transactions leave no trace before they commit, so they are not listed.
        A record that can't be read is skipped; ``doctor`` reports it.
        """
        client = self._client.current()
        return HtmlList(client.run(watching.transactions(client.context)))

    def outcome(
        self, txn_id: str | None = None, *, idempotency_key: str | tuple[str, int] | None = None
    ) -> Outcome:
        """Return how a transaction ended; if it is undecided, this call ends it.

        Parameters
        ----------
        txn_id : str, optional
            The id of the transaction; give this or a key.
        idempotency_key : str or (str, int), optional
            As passed to ``transaction``.

        Raises
        ------
        CommitOutcomeUnknown
            The outcome could not be settled: call it again.
        """
        if (txn_id is None) == (idempotency_key is None):
            raise InvalidOperation("outcome takes a transaction id or an idempotency key")
        client = self._client.current()
        client.ensure_safe_store()
        if txn_id is not None:
            found = client.committed_before(txn_id) or client.run(
                outcome.outcome(client.context, txn_id)
            )
        else:
            key, version = parse_key(idempotency_key)
            found = client.run(registration.outcome_of_key(client.context, key, version))
            if found.state == "expired" and version is None:
                return outcome_in_base(client, key)
        if found.result is None:
            return found
        return Outcome(found.state, client.named(found.result))

    def resume(self, txn_id: str) -> Transaction[Frame]:
        """Continue a saved transaction of another process, in its last saved state.

        Parameters
        ----------
        txn_id : str
            The id of a saved transaction.

        Raises
        ------
        AlreadyCommitted, TransactionAborted, TransactionNotFound
        """
        client = self._client.writing("resume")
        client.ensure_safe_store()
        client.refuse_begun_before(txn_id)
        state = client.run(save.resume(client.context, txn_id, client.owner))
        return Transaction(self._executor(client, state))

    def abort(self, txn_id: str) -> None:
        """Abort a transaction, also of another client; it can never commit afterwards.

        Its places in the queues are cancelled at once.

        Parameters
        ----------
        txn_id : str
            As in ``Transaction.id``, ``transactions`` or ``lakevilla txns``.

        Raises
        ------
        InvalidOperation
            It has committed or may have: it ended before the kept history begins, or it commits
            by its table's own log entry, which can't be fenced.
        """
        client = self._client.writing("abort")
        client.run_safely(recovery.abort(client.context, txn_id))

    def guard(self, table: str) -> None:
        """Make other clients refuse to write the table; all of them can still read it.

        Parameters
        ----------
        table : str
            Its path below the root, a registered name, or its name in a catalog.

        Raises
        ------
        TableNotFound
        UnsupportedTableFeature
            The table is an Iceberg table.
        """
        self._set_guard(table, True)

    def unguard(self, table: str) -> None:
        """Remove the guard: other clients may write the table again.

        Parameters
        ----------
        table : str
            Its path below the root, a registered name, or its name in a catalog.

        Raises
        ------
        TableNotFound
        """
        self._set_guard(table, False)

    def _set_guard(self, table: str, on: bool) -> None:
        def change(executor: Executor[Frame]) -> None:
            executor.set_guard(table, on)

        run(self._client, partial(self._begin, {}), change, ATTEMPTS)

    def capabilities(self, table: str) -> Capabilities:
        """Return the guarantees for a table in its present state.

        Parameters
        ----------
        table : str
            Its path below the root, a registered name, or its name in a catalog.

        Raises
        ------
        TableNotFound
        """
        return capabilities_of(self.table(table))

    def doctor(self, *, adopt: bool = False, files: bool = False) -> Report:
        """Report what is wrong, pending or left over. Changes nothing, except with ``adopt``.

        Parameters
        ----------
        adopt : bool
            Give a copied or moved lake a new identity, so that it can be written.
        files : bool
            Also check every live data file: that it exists, has the logged size, and has a
            footer with the logged number of rows; and check all files that delete rows. This
            takes two requests per file. The middle of a file is not read, so a flipped bit
            there is not found.
        """
        self._client.main("doctor")
        if check_flag("adopt", adopt):
            self._client.ensure_safe_store()
            self._client.run(recovery.adopt_lake(self._client.context))
        read = read_deletes if files else None
        with self._client.measured("doctor"):
            report = self._client.run(fresh(doctor.doctor(self._client.context, files=read)))
        return named_report(report, catalog_names(self._client.context))


_TRANSACTION_OPTIONS = tuple(inspect.signature(Lake.transaction).parameters)[1:-1]


def _check_options(options: Mapping[str, object]) -> None:
    """Refuse a misspelt option where it is written, not at the first transaction."""
    unknown = sorted(options.keys() - set(_TRANSACTION_OPTIONS))
    if unknown:
        raise InvalidOperation(
            f"unknown transaction option {unknown[0]!r}: choose from "
            f"{', '.join(_TRANSACTION_OPTIONS)}"
        )


def _call(fn: Callable[..., T], args: tuple[Any, ...], executor: Executor) -> T:
    return fn(Transaction(executor), *args)
