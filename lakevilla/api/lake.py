"""Lakes: the directory under which tables are stored, and the operations on all of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, Generic, Literal, Never, ParamSpec, Self, TypeVar, overload

import pyarrow as pa

from lakevilla.api import refs, upkeep
from lakevilla.api.applying import states
from lakevilla.api.applying.diff import Diff
from lakevilla.api.applying.merge_branch import Check, StateLike, audited, merge_branch, rebase
from lakevilla.api.arguments import Hinted, PropertyValue, check_flag, verbs_elsewhere
from lakevilla.api.backup import back_up
from lakevilla.api.border import with_border
from lakevilla.api.catalog.pages import ListedTable, TablePage
from lakevilla.api.catalog.query import query
from lakevilla.api.catalog.tables import (
    create_table,
    drop_table,
    list_tables,
    open_table,
    register,
    set_guard,
    unregister,
)
from lakevilla.api.client.client import LakeClient
from lakevilla.api.client.discovering import (
    discover_tables,
    has_table,
    lake_html,
    place_of,
    table_count,
    table_names,
)
from lakevilla.api.clones import clone, export_table
from lakevilla.api.execution.executor import Executor
from lakevilla.api.feed import lake_feed
from lakevilla.api.feed.walk import StopSignal
from lakevilla.api.frame import Frame
from lakevilla.api.history import lake_history
from lakevilla.api.refs import REFS_ELSEWHERE
from lakevilla.api.run import (
    ATTEMPTS,
    Begin,
    abort_transaction,
    batch_function,
    begin_or_rerun,
    begin_transaction,
    check_callable,
    check_options,
    code_of,
    list_transactions,
    outcome_of,
    resume_transaction,
    run,
    run_each_call,
)
from lakevilla.api.session import Session
from lakevilla.api.session.session import begin_session, limited_to
from lakevilla.api.snapshot import Snapshot, Verify, once, take_snapshot
from lakevilla.api.table import Capabilities, Table, capabilities_of
from lakevilla.api.transaction import Transaction
from lakevilla.api.upkeep import ALL_TASKS, UPKEEP_ELSEWHERE
from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import FormatName
from lakevilla.gauges import LakeMetrics
from lakevilla.global_log.rules import Isolation, Validation
from lakevilla.results import (
    Backup,
    DiscoveredTable,
    HistoryEntry,
    MergeResult,
    Outcome,
    Ref,
    Report,
    TransactionInfo,
    Version,
)
from lakevilla.settings import Settings, shown
from lakevilla.sql.expressions.bind import Predicate
from lakevilla.transaction.state.values import Feature

__all__ = ["Lake"]

T = TypeVar("T")
P = ParamSpec("P")


@with_border
class Lake(Hinted, Generic[Frame]):
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
        if isinstance(client, str | os.PathLike):
            raise InvalidOperation(
                f"a lake is opened by a function: write lakevilla.connect({shown(client)})"
            )
        self._client = client
        self._executor = executor

    @property
    def root(self) -> str:
        """The directory, as a URI or a path."""
        return self._client.root

    @property
    def settings(self) -> Settings:
        """The settings that ``connect`` was given."""
        return self._client.settings

    def __repr__(self) -> str:
        return f"<lakevilla.Lake {self.root}{place_of(self._client)}>"

    def _repr_html_(self) -> str:
        return lake_html(self._client)

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
        return create_table(
            self._client,
            self._executor,
            name,
            data_or_schema,
            format=format,
            partition_by=partition_by,
            properties=properties,
            exist_ok=exist_ok,
            or_replace=or_replace,
        )

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
            The table's data must not be deleted: a ref keeps it, or it is stored outside of the
            root and its ``lake.json`` does not name this lake and this table.
        """
        drop_table(self._client, self._executor, name, delete_data=delete_data)

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
        ones; and those of the lake's catalogs.

        Every table under the root can be read and written by its path. It enters the lake with its
        first commit, or by ``register(discover=True)``.

        It walks through the directories and lists nothing inside a table. A new table costs two
        LISTs and the reading of its log, however many files it has. A table of the lake costs
        nothing, any other directory four requests. It skips directories whose name begins with
        ``_`` or ``.`` or contains ``=``, links, and other lakes. A namespace of a catalog costs two
        requests to the catalog, and a table there that is not in the lake two more.

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
        return register(self._client, name, uri, discover=discover)

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
        unregister(self._client, name)

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
        return open_table(self._client, self._executor, name)

    def __getitem__(self, name: str) -> Table[Frame]:
        """Return one table of the lake; see ``table``."""
        return self.table(name)

    @overload
    def tables(
        self,
        prefix: str | None = None,
        *,
        after: str | None = None,
        limit: int | None = None,
        details: Literal[True] = True,
    ) -> TablePage[Table[Frame]]: ...
    @overload
    def tables(
        self,
        prefix: str | None = None,
        *,
        after: str | None = None,
        limit: int | None = None,
        details: Literal[False],
    ) -> TablePage[ListedTable]: ...
    def tables(
        self,
        prefix: str | None = None,
        *,
        after: str | None = None,
        limit: int | None = None,
        details: bool = True,
    ) -> TablePage[Table[Frame]] | TablePage[ListedTable]:
        """Return the tables in HEAD, in the order of their names; all of them, or a page.

        Only their metadata is read, as by deltalake and pyiceberg: missing manifests and data
        files are found by reading the table, and by ``doctor`` and ``recover``. A table that
        can't be opened, such as an external one that was moved away, is left out: a
        ``LakeVillaWarning``, the log, the event ``left_out`` and ``doctor`` report the reason.

        Parameters
        ----------
        prefix : str, optional
            The beginning of their names.
        after : str, optional
            ``next`` of the page before. The page then shows the state that the first page was of,
            whatever is committed in between.
        limit : int, optional
            The maximum number of tables of a page. If not given, all.
        details : bool
            If False, no table is opened: a ``ListedTable`` has what HEAD says.

        Raises
        ------
        InvalidOperation
            ``after`` is no token of this lake's, or of another branch or tag.
        VersionNotFound
            The state of the first page is not known any more: begin with the first page again.
        """
        return list_tables(
            self._client, self._executor, prefix, after=after, limit=limit, details=details
        )

    def _ipython_key_completions_(self) -> list[str]:
        """Return what a shell completes in ``lake["``."""
        return list(table_names(self._client))

    def __iter__(self) -> Iterator[str]:
        """Return the names of the tables in the lake, as ``tables`` lists them, by one GET."""
        return table_names(self._client)

    def __len__(self) -> int:
        """Return the number of tables in the lake."""
        return table_count(self._client)

    def __bool__(self) -> bool:
        """Return True: a lake without tables is a lake, too."""
        return True

    def __contains__(self, name: object) -> bool:
        """Return whether a table of that name is in the lake, in any spelling.

        A table that is only stored under the root is not, until its first commit or ``register``;
        ``discover`` lists such tables.
        """
        return has_table(self._client, name)

    def guard(self, table: str) -> None:
        """Make clients without LakeVilla refuse to write the table; they can still read it.

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
        set_guard(self._client, self._executor, table, True)

    def unguard(self, table: str) -> None:
        """Remove the guard of a table: clients without LakeVilla may write it again.

        Parameters
        ----------
        table : str
            Its path below the root, a registered name, or its name in a catalog.

        Raises
        ------
        TableNotFound
        """
        set_guard(self._client, self._executor, table, False)

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
        alone: bool = False,
        metadata: Mapping[str, str] | None = None,
        **unknown: Never,
    ) -> Transaction[Frame]:
        """Begin a transaction, which reads the lake in one state: that of its first use or a newer
        one.

        Parameters
        ----------
        features : Feature
            The guarantees; see ``Feature``.
        isolation : {"serializable", "snapshot", "write-serializable"}
            ``snapshot``: data that the transaction has read may change before its commit, which
            admits write skew and no other anomaly. ``write-serializable``: like ``serializable``,
            but a transaction that only reads is never checked.
        validation : {"precise", "rules"}
            The check of other commits since the transaction's reads: by predicates, files and rows,
            or only by version numbers, as in the paper (rules R1 to R3).
        slack : int
            The number of versions by which a table may have changed since the transaction has read
            it. Above 0 the isolation is really ``snapshot``.
        durability : {"lazy", "every_op"}
            Save the transaction's work to the store from time to time, or after each operation.
        wait : {"published", "decided"}
            Let ``commit`` return when every table's log has the commit, or as soon as the commit is
            decided.
        idempotency_key : str or (str, int), optional
            With a key the transaction commits once, no matter how often it is run.
        read_only : bool
            Refuse write operations, and write nothing.
        wait_timeout_seconds : float, optional
            The longest time that the commit waits for transactions ahead (with Feature.CT, or for a
            reservation). After that it goes on optimistically. Default: the setting of that name.
        idle_timeout_seconds : float, optional
            The longest time without a call. After that the transaction is undone, its places in
            queues are given back, and its next call raises ``TransactionAborted``. Default, and 0:
            no limit.
        defer : bool
            Only check and note updates, deletes, merges, overwrites and inserts from queries. They
            are performed together by the commit, or as soon as one of their counts is read or a
            table that they change is read. With many tables that saves most of the time. An error
            in the rows (a value that does not fit, a constraint) is then raised by the commit, and
            ends the transaction. The commit may then share its global version with others of this
            lake object that wait at the same time (``HistoryEntry.members``).
        alone : bool
            Give the commit a global version of its own.
        metadata : Mapping of str to str, optional
            Stored with each table's commit.

        Raises
        ------
        InvalidOperation
            An option is unknown or has a wrong value.
        """
        check_options(unknown)
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
            alone=alone,
            metadata=metadata,
        )
        return Transaction(executor)

    @overload
    def run(
        self,
        fn: Callable[Concatenate[Transaction[Frame], P], T],
        *args: Any,
        attempts: int = ...,
        chain: bool = ...,
        idempotency_key: None = ...,
        **transaction_options: Any,
    ) -> T: ...
    @overload
    def run(
        self,
        fn: Callable[Concatenate[Transaction[Frame], P], T],
        *args: Any,
        attempts: int = ...,
        chain: bool = ...,
        idempotency_key: str | tuple[str, int],
        **transaction_options: Any,
    ) -> T | None: ...
    def run(
        self,
        fn: Callable[Concatenate[Transaction[Frame], P], T],
        *args: Any,
        attempts: int = ATTEMPTS,
        chain: bool = True,
        **transaction_options: Any,
    ) -> T | None:
        """Call ``fn(txn, *args)`` in a transaction, again after a conflict; return its result.

        ``fn`` must have no other side effects. If the outcome of a commit is unknown, ``run``
        settles it. If the idempotency key has committed already, ``fn`` is not called and the
        result is None; so it is if another process has resumed and committed the transaction, which
        ``fn`` had saved.

        Parameters
        ----------
        fn : callable
            Called with the transaction and ``args``.
        *args
            For ``fn``.
        attempts : int
            The maximum number of attempts, including the first.
        chain : bool
            Whether, after a conflict, the calls of ``fn`` by the threads of this process wait for
            one another, and see what the others have changed before that is committed. What ``fn``
            returns or raises gets out once it is.
        **transaction_options
            As for ``transaction``.

        Raises
        ------
        ConflictError, TransactionAborted
            After ``attempts`` attempts.
        ForeignConflict
            The transaction is committed: don't run it again.
        """
        check_options(transaction_options)
        check_callable(fn)
        begin = self._begin(transaction_options)
        function = code_of(fn) if check_flag("chain", chain) else None
        return run(self._client, begin, partial(_call, fn, args), attempts, function=function)

    def _begin(self, options: Mapping[str, Any]) -> Begin:
        """Return the function that begins a transaction with ``options``, or reruns a lost one."""
        return partial(begin_or_rerun, self._client, self._executor, options)

    def transactional(
        self, *, attempts: int = ATTEMPTS, **transaction_options: Any
    ) -> Callable[[Callable[..., T]], Callable[..., T | None]]:
        """Decorate a function: each call runs it in a transaction, as ``run`` does.

        Parameters
        ----------
        attempts : int
            As for ``run``.
        **transaction_options
            As for ``transaction``.
        """
        return run_each_call(self.run, attempts, transaction_options)

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

        ``fn(txn, batch_df)`` may write many tables, which commit together under the idempotency key
        ``(query_id, batch_id)``. If Spark delivers a batch again, after a restart or a kill, a
        committed batch is skipped, and any other runs again. A ``query_id`` belongs to one
        streaming query and its checkpoint, for ever: a new checkpoint counts its batches from 0 and
        needs a new ``query_id``. ``InvalidOperation`` is raised where skipping a batch would lose
        rows: for a batch of another checkpoint under a number that the lake already has, for a
        batch from before the last, and for a batch that an older copy of the checkpoint has planned
        again. It is also raised if the lake was set back and lacks batches before this one.
        LakeVilla notices that only if Spark itself calls the returned function, and not a function
        of yours around it, which may leave out batches.

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
        return batch_function(
            self._client, self._run_batch, fn, query_id, checkpoint_location, transaction_options
        )

    def _run_batch(
        self, fn: Callable[[Transaction[Frame]], object], options: dict[str, Any]
    ) -> None:
        """Run a function as ``run`` does, with the options of a stream's batch."""
        run(self._client, self._begin(options), partial(_call, fn, ()), ATTEMPTS)

    def transactions(self) -> list[TransactionInfo]:
        """Return the transactions that are in a queue or were saved, oldest first. Changes nothing.

        Short optimistic transactions leave no trace before they commit, so they are not listed.
        A record that can't be read is skipped; ``doctor`` reports it.
        """
        return list_transactions(self._client)

    def outcome(
        self, txn_id: str | None = None, *, idempotency_key: str | tuple[str, int] | None = None
    ) -> Outcome:
        """Return how a transaction ended; if it is undecided, this call ends it.

        This works for transactions of the lake itself and of all branches, on the lake and on any
        branch.

        Parameters
        ----------
        txn_id : str, optional
            The id of the transaction; give this or a key.
        idempotency_key : str or (str, int), optional
            As passed to ``transaction``.

        Raises
        ------
        CommitOutcomeUnknown
            The outcome could not be settled: call it again; or the branch on which the transaction
            was begun does not exist any more.
        """
        return outcome_of(self._client, txn_id, idempotency_key)

    def resume(self, txn_id: str) -> Transaction[Frame]:
        """Continue a saved transaction of another process, in its last saved state.

        The transaction continues where it began, on the lake or on a branch, wherever this is
        called.

        Parameters
        ----------
        txn_id : str
            The id of a saved transaction.

        Raises
        ------
        AlreadyCommitted, TransactionAborted, TransactionNotFound
        """
        return Transaction(resume_transaction(self._client, self._executor, txn_id))

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
            The transaction has committed or may have: it ended before the kept history begins, it
            commits by its table's own log entry, which can't be fenced, or its branch does not
            exist.
        """
        abort_transaction(self._client, txn_id)

    # -- reading -----------------------------------------------------------------

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        *,
        limit: int | None = None,
        params: Mapping[str, object] | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        verify: Verify = "off",
    ) -> Frame:
        """Return present or past rows of a table; as ``read`` of a new ``snapshot``.

        Two calls may show two states: to read several tables in one state, take a ``snapshot``.

        Parameters
        ----------
        table : str
            Its path below the root, a registered name, or its name in a catalog.
        columns : sequence of str, optional
            All columns if not given.
        where : str, optional
            A predicate; without it all rows.
        limit : int, optional
            The most rows to return, whichever are read first. In a transaction all rows of
            ``where`` count as read.
        params : Mapping, optional
            Values of ``:name`` in ``where``.
        version, timestamp : optional
            A global version, or a time, as ``snapshot`` takes them; ``Table.read`` takes the
            table's own.
        verify : {"off", "on"}
            As ``snapshot`` takes it.

        Raises
        ------
        TableNotFound, InvalidOperation, VersionNotFound

        Examples
        --------
        >>> lake.read("stock", where="qty > 1").to_pylist()
        [{'sku': 'tea', 'qty': 5}]
        """
        with once(self.snapshot(version, timestamp, verify=verify)) as state:
            return state.read(table, columns, where, limit=limit, params=params)

    def scan(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        *,
        params: Mapping[str, object] | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        verify: Verify = "off",
    ) -> pa.RecordBatchReader:
        """Stream the rows that ``read`` returns, in bounded memory, in the state at this call.

        Parameters
        ----------
        table : str
            Its path below the root, a registered name, or its name in a catalog.
        columns : sequence of str, optional
            All columns if not given.
        where : str, optional
            A predicate; without it all rows.
        params : Mapping, optional
            Values of ``:name`` in ``where``.
        version, timestamp : optional
            A global version, or a time, as ``snapshot`` takes them; ``Table.read`` takes the
            table's own.
        verify : {"off", "on"}
            As ``snapshot`` takes it.

        Raises
        ------
        TableNotFound, InvalidOperation, VersionNotFound

        Examples
        --------
        >>> sum(batch.num_rows for batch in lake.scan("stock"))
        1
        """
        return self.snapshot(version, timestamp, verify=verify).scan(
            table, columns, where, params=params
        )

    def snapshot(
        self,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        *,
        verify: Verify = "off",
    ) -> Snapshot[Frame]:
        """Return all tables at one global version, now or in the past. Nothing is written.

        Parameters
        ----------
        version : int, optional
            A global version from ``history``.
        timestamp : datetime or str, optional
            Aware. Gives the newest global version that is not later; a time in the future means
            now.
        verify : {"off", "on"}
            With ``"on"`` each data file whose hash is known is fetched whole and compared with it
            before a row of it is returned; a file that is not what was written raises
            ``CorruptObject``. Files without a known hash, such as those of other clients, are read
            without a comparison: see ``docs/integrity.md``.

        Raises
        ------
        VersionNotFound
            The version does not exist or is not kept any more. If only one table is not kept so
            far back, reading that table raises it.
        InvalidOperation
            Both were given, or the time has no zone.
        """
        return take_snapshot(self._client, self._executor, version, timestamp, verify=verify)

    def attach(
        self, connection: object, tables: str | Sequence[str] | Mapping[str, str] | None = None
    ) -> Snapshot[Frame]:
        """Make the present tables views of a DuckDB connection of yours.

        All show one state, until they are attached again; see ``Snapshot.attach``.

        Parameters
        ----------
        connection : duckdb.DuckDBPyConnection
            Or the module ``duckdb``, for its default connection.
        tables : str, sequence of str, or Mapping of str to str, optional
            Some tables; or the names of views, and the table that each shows. All tables if not
            given.

        Returns
        -------
        Snapshot
            The state that the views show; ``version`` is its number.

        Raises
        ------
        TableNotFound
        InvalidOperation
            The connection has a table or view of that name, which stays unchanged; or the object is
            no connection, or DuckDB refuses. Nothing is attached then.

        Examples
        --------
        >>> import duckdb
        >>> connection = duckdb.connect()
        >>> lake.attach(connection).version
        2
        >>> connection.sql("SELECT sku FROM stock JOIN orders USING (sku)").fetchall()
        [('tea',)]
        """
        state = self.snapshot()
        state.attach(connection, tables)
        return state

    def query(self, path: str, *, at: int | datetime | str | None = None) -> pa.Table:
        """Return the rows to which a path over the catalog leads.

        A path is made of steps: parts of a table's name (``*`` is any part, ``**`` one or more),
        then ``snapshots``, ``partitions``, ``files``, ``columns``, ``statistics`` or ``commits``,
        each of which may be followed by the name of one member. Brackets after a step narrow it: by
        a predicate over its columns, or by a position, the newest last. The result has the columns
        of the last step, and before them the keys of the steps above.

        Parameters
        ----------
        path : str
            Such as ``/sales/*[rows > 0]/files[partition.region = 'Asia']``; ``/`` is all tables.
        at : int, datetime or str, optional
            A global version, an aware time, or the name of a ref. The present lake if not given.

        Raises
        ------
        InvalidOperation
            It is no path; or a step, column or member does not exist: the message names those that
            do.
        TableNotFound, RefNotFound, VersionNotFound

        Examples
        --------
        >>> lake.query("/*[name LIKE 'st%']/columns")["name"].to_pylist()
        ['sku', 'qty']
        """
        return query(self._client, self._executor, path, at)

    def export(self, table: str, to: str, *, copy: bool = False) -> str:
        """Write a table as it is here, on this branch or at this tag, as a separate table
        elsewhere.

        The first export makes the target, and each later export that changes it adds one version.
        Commits of other clients to the target are not copied back, and are undone by the next
        export.

        Without ``copy`` the target names the files where they are, by URIs: it costs one write, and
        for Iceberg the manifests. All readers of Iceberg follow the URIs, and of Delta's readers
        Spark and Trino. It can be read as long as the files are kept: on a branch or tag, until
        that is deleted. With ``copy`` the store copies the files that the target lacks, so that
        deltalake and DuckDB read it too, and it needs nothing of the lake.

        Parameters
        ----------
        table : str
            Its path below the root, or a registered name.
        to : str
            A path below the root, or a URI: a place of its own, outside of all tables.
        copy : bool
            Copy the files, in the store of the lake.

        Returns
        -------
        str
            The URI of the target.

        Raises
        ------
        TableNotFound
        InvalidOperation
            The target is stored in or around a table, or is a table that is no export of this
            table.

        Examples
        --------
        >>> _ = lake.branch("etl")
        >>> lake.on("etl").run(lambda txn: txn.delete("stock", where="true")).rows_deleted
        1
        >>> import deltalake
        >>> uri = lake.on("etl").export("stock", "exports/stock", copy=True)
        >>> deltalake.DeltaTable(uri).version()
        0
        """
        return export_table(self._client, self._executor, table, to, copy=copy)

    # -- SQL ---------------------------------------------------------------------

    def sql(
        self,
        query: str,
        params: Mapping[str, object] | None = None,
        *,
        views: Mapping[str, object] | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        timeout_seconds: float | None = None,
    ) -> Frame:
        """Run one SELECT over the present or a past lake; as ``sql`` of a new ``snapshot``.

        All tables of the query are read in one state.

        Parameters
        ----------
        query : str
            A SELECT.
        params : Mapping, optional
            Values of ``:name`` in the SQL.
        views : Mapping, optional
            Frames by the names that the query uses for them.
        version, timestamp : optional
            A global version, or a time, as ``snapshot`` takes them.
        max_rows, max_bytes, timeout_seconds : optional
            Limits, as of ``session``: the query stops there with an error.

        Raises
        ------
        TableNotFound, VersionNotFound, InvalidOperation
            Also for a statement that writes.

        Examples
        --------
        >>> lake.sql("SELECT sku, qty * 2 AS pieces FROM stock").to_pylist()
        [{'sku': 'tea', 'pieces': 10}]
        """
        given = {"max_rows": max_rows, "max_bytes": max_bytes, "timeout_seconds": timeout_seconds}
        with once(self.snapshot(version, timestamp)) as state, limited_to(state, given):
            return state.sql(query, params, views=views)

    def session(
        self,
        isolation: Isolation | None = None,
        features: Feature | None = None,
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        timeout_seconds: float | None = None,
        **transaction_options: Any,
    ) -> Session[Frame]:
        """Begin a session, which runs SQL statements and keeps a transaction open between them.

        Parameters
        ----------
        isolation, features : optional
            Of its transactions, as for ``transaction``; SET and BEGIN change them.
        max_rows, max_bytes : int, optional
            The most rows that a query may find, and the most bytes that they take as Arrow. The
            query stops there with an error, and has read little more. SET changes them.
        timeout_seconds : float, optional
            The longest time that a statement may run; a commit is never interrupted.
        **transaction_options
            As for ``transaction``, except ``idempotency_key``.

        Raises
        ------
        InvalidOperation
            An option is unknown, or belongs to one transaction alone; or a limit is given, and the
            lake is one with ``spark=``.

        Examples
        --------
        >>> session = lake.session()
        >>> rows = session.sql("INSERT INTO orders VALUES (2, 'jam'); SELECT sku FROM orders")
        >>> sorted(rows["sku"].to_pylist())
        ['jam', 'tea']
        """
        limits = {"max_rows": max_rows, "max_bytes": max_bytes, "timeout_seconds": timeout_seconds}
        return begin_session(
            self, isolation, features, limits=limits, transaction_options=transaction_options
        )

    # -- history and versions ----------------------------------------------------

    def history(self, limit: int | None = None, *, until: int | None = None) -> list[HistoryEntry]:
        """Return the lake's commits, newest first, as far back as they are kept.

        Parameters
        ----------
        limit : int, optional
            The maximum number of entries.
        until : int, optional
            The newest global version to return; the lake's newest if not given.

        Examples
        --------
        >>> [entry.version for entry in lake.history(1, until=1)]
        [1]
        """
        return lake_history(self._client.current(), limit, until)

    def diff(
        self, a: StateLike, b: StateLike = "main", *, tables: Sequence[str] | None = None
    ) -> Diff[Frame]:
        """Return what differs between the lake's states ``a`` and ``b``.

        Only tables that a commit in between has touched are read, and no row is read before
        ``rows`` is called.

        Parameters
        ----------
        a, b : int, datetime or str
            A global version, an aware time, a ref, or ``"etl@57"``. ``"main"`` is the present lake.
        tables : sequence of str, optional
            Names or paths, in which ``*`` and ``?`` stand for anything. All tables if not given.

        Raises
        ------
        VersionNotFound, RefNotFound
        InvalidOperation
            A pattern fits no table.

        Examples
        --------
        >>> _ = lake.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 1}]))
        >>> found = lake.diff(2)
        >>> found.tables.select(["table", "change", "rows_added"]).to_pylist()
        [{'table': 'stock', 'change': 'changed', 'rows_added': 1}]
        >>> found.rows("stock").to_pylist()
        [{'sku': 'jam', 'qty': 1, '_change_type': 'insert'}]
        """
        return states.compare_states(self._client, self._executor, a, b, tables=tables)

    # -- branches and tags -------------------------------------------------------

    def tag(
        self,
        name: str,
        at: int | datetime | str | None = None,
        *,
        tables: Sequence[str] | None = None,
        absorb: Sequence[str] | None = None,
        protected: bool = False,
        metadata: Mapping[str, str] | None = None,
    ) -> Ref:
        """Give a name to a state of the lake, and keep that state until ``delete_ref``.

        A tag takes two writes, however large the lake is, and a read of the log of each table that
        other clients can write. With more than 256 tables no log is read, unless ``absorb`` names
        them, and ``on_event`` gets ``left_out``: then a commit of another client to a table is in
        the tag if a transaction has written the table since.

        ``gc`` and ``vacuum`` keep all that the state needs. The clean-up of other clients does not
        know the tag: it keeps files only for the table's retention.

        Parameters
        ----------
        name : str
            Letters, digits and ``. _ - /``, at most 128. Not digits alone, and not ``main``.
        at : int, datetime or str, optional
            A global version, an aware time, the name of another ref, or a version of a branch
            (``"etl@57"``). The present lake if not given.
        tables : sequence of str, optional
            Names or paths, in which ``*`` and ``?`` stand for anything. Other tables are neither
            kept nor found. All tables if not given.
        absorb : sequence of str, optional
            Names or patterns of the tables whose logs are read for commits of other clients; ``[]``
            for none. Not together with ``at``.
        protected : bool
            The tag can't be deleted before ``protect(name, on=False)``.
        metadata : Mapping of str to str, optional
            Notes about the tag, at most 4 KiB.

        Raises
        ------
        RefExists
        RefNotFound
            ``at`` names no ref.
        VersionNotFound
            The state is not kept any more, or a vacuum may be deleting files of it.
        InvalidOperation
            The name is not allowed, or a pattern fits no table.

        Examples
        --------
        >>> lake.tag("closing", metadata={"by": "finance"}).metadata
        {'by': 'finance'}
        >>> lake.run(lambda txn: txn.delete("stock", where="true")).rows_deleted
        1
        >>> lake.on("closing").read("stock").to_pylist()
        [{'sku': 'tea', 'qty': 5}]
        """
        return refs.create(
            self._client,
            "tag",
            name,
            at,
            tables=tables,
            absorb=absorb,
            protected=protected,
            metadata=metadata,
        )

    def branch(
        self,
        name: str,
        at: int | datetime | str | None = None,
        *,
        tables: Sequence[str] | None = None,
        absorb: Sequence[str] | None = None,
        protected: bool = False,
        metadata: Mapping[str, str] | None = None,
    ) -> Ref:
        """Begin a branch of the lake, on which its tables can be changed unseen by other clients.

        ``on(name)`` returns the lake there, with transactions over all its tables. No file is
        copied: a branch takes three writes, however large the lake is, and a read of the log of
        each table as ``tag`` does. A commit on the branch is in no table's log, so no other client
        sees it. A commit of other clients to the lake is not on the branch.

        Parameters
        ----------
        name : str
            As for ``tag``.
        at : int, datetime or str, optional
            A global version, an aware time, the name of another ref, or a version of a branch
            (``"etl@57"``). The present lake if not given.
        tables : sequence of str, optional
            Names or paths, in which ``*`` and ``?`` stand for anything. Other tables are not on
            the branch. All tables if not given.
        absorb : sequence of str, optional
            As for ``tag``.
        protected : bool
            The branch can't be deleted before ``protect(name, on=False)``.
        metadata : Mapping of str to str, optional
            Notes about the branch, at most 4 KiB.

        Raises
        ------
        RefExists
        RefNotFound
            ``at`` names no ref.
        VersionNotFound
            The state is not kept any more, or a vacuum may be deleting files of it.
        InvalidOperation
            The name is not allowed, or a pattern fits no table.

        Examples
        --------
        >>> etl = lake.branch("etl")
        >>> lake.on("etl").run(lambda txn: txn.delete("stock", where="true")).rows_deleted
        1
        >>> lake.on("etl").read("stock").num_rows, lake.read("stock").num_rows
        (0, 1)
        """
        return refs.create(
            self._client,
            "branch",
            name,
            at,
            tables=tables,
            absorb=absorb,
            protected=protected,
            metadata=metadata,
        )

    def on(self, name: str) -> Self:
        """Return the lake on a branch, or in the state that a tag keeps.

        On a branch transactions write as on the lake itself. At a tag the lake is only read:
        ``read``, ``scan``, ``sql``, ``snapshot``, ``tables`` and ``lake[name]`` show that state,
        and no other version of the lake. A table's own history ends at the tag's state.

        Parameters
        ----------
        name : str
            A branch, a tag, or ``main`` for the lake itself. ``"etl@57"`` is a branch at one of its
            own versions, which is only read.

        Raises
        ------
        RefNotFound
        VersionNotFound
            The branch has no such version.
        InvalidOperation
            The value is not a name.
        """
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new._client = refs.client_on(self._client, name)
        return new

    def refs(self, kind: Literal["branch", "tag", "clone"] | None = None) -> list[Ref]:
        """Return the branches, tags and clones of the lake, by name.

        Parameters
        ----------
        kind : {"branch", "tag", "clone"}, optional
            Only refs of this kind.
        """
        return refs.list_refs(self._client, kind)

    def delete_ref(self, name: str) -> None:
        """Release a tag, or end a branch with all that was committed on it.

        The next ``vacuum`` and ``gc`` delete the objects that only this ref has kept.

        Parameters
        ----------
        name : str
            As in ``refs``.

        Raises
        ------
        RefNotFound
        InvalidOperation
            The ref is protected, or ``main``.
        """
        refs.delete(self._client, name)

    def protect(self, name: str, on: bool = True) -> None:
        """Protect a ref from deletion by LakeVilla's clients, or lift its protection.

        Parameters
        ----------
        name : str
            As in ``refs``.
        on : bool
            False lifts the protection.

        Raises
        ------
        RefNotFound
        """
        refs.protect(self._client, name, on)

    def protect_main(self, on: bool = True) -> None:
        """Allow only merges and upkeep on the lake itself from now on, or allow everything again.

        Transactions that write rows or definitions raise ``InvalidOperation``; one that is open
        raises ``ConflictError`` when it commits. Still allowed are ``merge``, ``rollback``,
        ``revert``, ``cherry_pick``, ``restore`` and ``txn.apply``, and also ``optimize``,
        ``vacuum``, ``gc``, ``recover``, and the verbs that no branch has: ``register``,
        ``unregister``, ``rename_table`` and ``guard``.

        The protection binds LakeVilla's clients. Commits of other clients to a table are absorbed
        as before; only ``guard`` makes these clients refuse the table. A process that writes only
        without ``Feature.I``, and has opened its table before, learns of the protection when it
        next reads HEAD; ``guard`` binds that process too.

        Parameters
        ----------
        on : bool
            False lifts the protection.

        Examples
        --------
        >>> lake.protect_main()
        >>> lake.is_main_protected()
        True
        >>> _ = lake.branch("night")
        >>> _ = lake.on("night").run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 2}]))
        >>> lake.merge("night").tables
        {'stock': 'physical'}
        >>> lake.protect_main(on=False)
        """
        refs.protect_main(self._client, on)

    def is_main_protected(self) -> bool:
        """Return whether only merges and upkeep are allowed on the lake itself: see
        ``protect_main``.
        """
        return refs.is_main_protected(self._client)

    # -- applying and merging ----------------------------------------------------

    def merge(
        self,
        branch: str,
        *,
        tables: Sequence[str] | None = None,
        keys: Mapping[str, str | Sequence[str]] | None = None,
        on_conflict: Literal["error", "ours", "theirs"] = "error",
        on_equal: Literal["conflict", "keep"] = "conflict",
        fast_forward_only: bool = False,
        isolation: Literal["snapshot", "serializable"] = "snapshot",
        checks: Sequence[Check] = (),
        delete: bool = False,
        metadata: Mapping[str, str] | None = None,
    ) -> MergeResult:
        """Apply to the lake the changes made on a branch since it was made, or last merged.

        This is one commit over all tables. Files that were written on the branch become the lake's:
        none is copied, and no row is read, where the lake still has the files that the branch has
        replaced. Else rows are compared. Commits made on the lake meanwhile stay.

        Parameters
        ----------
        branch : str
            Its name, as in ``refs``.
        tables : sequence of str, optional
            Names or paths, in which ``*`` and ``?`` stand for anything; other tables stay to be
            merged. All tables if not given.
        keys : Mapping, optional
            By table, the columns that identify its rows. Then only rows that both sides have
            changed are in conflict.
        on_conflict : {"error", "ours", "theirs"}
            ``"ours"`` leaves a table in conflict unchanged, ``"theirs"`` gives it its state on the
            branch. For a table in ``keys``, that holds only for the rows in conflict.
        on_equal : {"conflict", "keep"}
            A row that both sides have changed to the same, by a value computed from the row itself
            (``qty - 1``), may stand for two changes: ``"conflict"`` raises, ``"keep"`` takes them
            for one change.
        fast_forward_only : bool
            Refuse tables that were changed on the lake since the branch was made, or last merged.
        isolation : {"snapshot", "serializable"}
            ``"snapshot"`` compares the writes. ``"serializable"`` also compares the reads of
            transactions on the branch: if other transactions have changed that data on the lake
            since the branch was made, the merge is refused. Not together with ``tables`` and
            ``on_conflict``, which leave out data that these transactions may have read.
        checks : sequence of callable or str, optional
            Conditions on the merged tables: functions of the transaction (False, or an exception,
            fails), and SELECTs of one boolean. If another transaction changes meanwhile what they
            have read, they run again.
        delete : bool
            End the branch after the merge, unless other clients have committed on it or protected
            it meanwhile. Not with ``tables``: changes of the other tables would be lost.
        metadata : Mapping of str to str, optional
            Notes about the merge in the history.

        Raises
        ------
        MergeConflict
            Both sides have changed the same data, or, with ``isolation="serializable"``, data that
            was read on the branch has changed on the lake. Nothing was merged.
        AuditFailed
            A check failed. Nothing was merged.
        RefNotFound
        ConflictError
            Other transactions wrote the tables at each attempt.
        InvalidOperation
            The ref is a tag, a pattern fits no table, or ``keys`` names a column that its table
            lacks.

        Examples
        --------
        >>> _ = lake.branch("night")
        >>> _ = lake.on("night").run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 2}]))
        >>> done = lake.merge("night", delete=True)
        >>> done.merged, done.tables
        ('night@3', {'stock': 'physical'})
        >>> lake.sql("SELECT sku FROM stock ORDER BY sku").to_pylist()
        [{'sku': 'jam'}, {'sku': 'tea'}]
        """
        return merge_branch(
            self._client,
            self.run,
            branch,
            tables=tables,
            keys=keys,
            on_conflict=on_conflict,
            on_equal=on_equal,
            fast_forward_only=fast_forward_only,
            isolation=isolation,
            checks=checks,
            delete=delete,
            metadata=metadata,
        )

    @contextmanager
    def audited(
        self,
        name: str | None = None,
        *,
        checks: Sequence[Check],
        keep: Literal["failed", "always", "never"] = "failed",
        **merge_options: Any,
    ) -> Iterator[Self]:
        """Enter a block that writes on its own branch, merged at the block's end if all checks
        hold.

        Until then no other client sees what it writes. A batch that fails stays on its branch,
        where it can be inspected.

        Parameters
        ----------
        name : str, optional
            The name of the new branch; a generated name if not given.
        checks : sequence of callable or str
            As for ``merge``: they see the tables as they would be on the lake.
        keep : {"failed", "always", "never"}
            The case in which the branch stays.
        **merge_options
            As for ``merge``: ``tables``, ``keys``, ``on_conflict``, ``on_equal``, ``isolation``,
            ``metadata``.

        Raises
        ------
        AuditFailed
            The lake is unchanged.
        MergeConflict, ConflictError
            The branch could not be merged, and stays as if a check had failed.

        Examples
        --------
        >>> with lake.audited("batch", checks=["SELECT min(qty) >= 0 FROM stock"]) as batch:
        ...     _ = batch.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 2}]))
        >>> lake.sql("SELECT sku FROM stock ORDER BY sku").to_pylist()
        [{'sku': 'jam'}, {'sku': 'tea'}]
        """
        block = audited(
            self._client, self.merge, name, checks=checks, keep=keep, merge_options=merge_options
        )
        with block as called:
            yield self.on(called)

    def rebase(
        self,
        branch: str,
        *,
        keys: Mapping[str, str | Sequence[str]] | None = None,
        on_conflict: Literal["error", "ours", "theirs"] = "error",
        on_equal: Literal["conflict", "keep"] = "conflict",
    ) -> Ref:
        """Base a branch on the present lake, and apply the changes made on the branch on top.

        The lake is not changed. The branch then has all that was committed to the lake since the
        branch was made, including tables that were made since, and, as one commit, the changes made
        on the branch since it was made, or last merged. No data is copied, and no row is read,
        where the lake still has the files that the branch has replaced. Else rows are compared.

        ``Lake`` objects that ``on`` has returned for the branch continue on the rebased branch. A
        transaction that is open on the branch raises ``ConflictError``, as if other transactions
        had written its tables; ``run`` calls its function again.

        Parameters
        ----------
        branch : str
            Its name, as in ``refs``.
        keys : Mapping, optional
            By table, the columns that identify its rows. Then only rows that both sides have
            changed are in conflict.
        on_conflict : {"error", "ours", "theirs"}
            ``"ours"`` gives a table in conflict its state on the lake, ``"theirs"`` leaves it as it
            is on the branch. For a table in ``keys``, that holds only for the rows in conflict.
        on_equal : {"conflict", "keep"}
            A row that both sides have changed to the same, by a value computed from the row itself
            (``qty - 1``), may stand for two changes: ``"conflict"`` raises, ``"keep"`` takes them
            for one change.

        Raises
        ------
        MergeConflict
            Both sides have changed the same data. The branch is unchanged.
        RefNotFound
        InvalidOperation
            The ref is a tag, or protected, or ``keys`` names a column that its table lacks.

        Examples
        --------
        >>> _ = lake.branch("night")
        >>> night = lake.on("night")
        >>> _ = night.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 2}]))
        >>> _ = lake.run(lambda txn: txn.append("stock", [{"sku": "rum", "qty": 3}]))
        >>> lake.rebase("night").base_version
        3
        >>> night.sql("SELECT sku FROM stock ORDER BY sku").to_pylist()
        [{'sku': 'jam'}, {'sku': 'rum'}, {'sku': 'tea'}]
        """
        return rebase(self._client, branch, keys=keys, on_conflict=on_conflict, on_equal=on_equal)

    def rollback(
        self,
        to: StateLike,
        *,
        tables: Sequence[str] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> MergeResult:
        """Set the tables back to an earlier state, by a new commit over all of them.

        No data is read or copied: the files of that state are added again, and other files are
        removed. History stays unchanged, so a rollback can be taken back too. A table that was made
        since is dropped from the lake; a table that was added to the lake with rows of its own
        since is left alone.

        Parameters
        ----------
        to : int, datetime or str
            A global version, an aware time, a ref, or ``"etl@57"``.
        tables : sequence of str, optional
            Names or paths, in which ``*`` and ``?`` stand for anything. All tables if not given.
        metadata : Mapping of str to str, optional
            Notes about the rollback in the history.

        Raises
        ------
        VersionNotFound
            The state is not kept any more, or a vacuum may be deleting files of it.
        RefNotFound
        ConflictError
            Other transactions wrote the tables at each attempt.
        InvalidOperation
            A pattern fits no table, or a table was dropped since.

        Examples
        --------
        >>> _ = lake.run(lambda txn: txn.delete("stock", where="true"))
        >>> lake.rollback(2).version
        4
        >>> lake.read("stock").to_pylist()
        [{'sku': 'tea', 'qty': 5}]
        """
        return states.rollback(self._client, self._executor, to, tables=tables, metadata=metadata)

    def revert(
        self,
        version: int,
        *,
        tables: Sequence[str] | None = None,
        keys: Mapping[str, str | Sequence[str]] | None = None,
        on_conflict: Literal["error", "ours", "theirs"] = "error",
        on_equal: Literal["conflict", "keep"] = "conflict",
        members: Literal["all"] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> MergeResult:
        """Undo the changes of one commit, by a new commit, and keep later changes.

        Parameters
        ----------
        version : int
            The commit, by the global version that it made: see ``history``.
        tables, keys, on_conflict, on_equal
            As for ``Transaction.apply``.
        members : "all", optional
            If several transactions share the version (``HistoryEntry.members``), they can only be
            reverted together, which ``"all"`` allows.
        metadata : Mapping of str to str, optional
            Notes about the new commit in the history.

        Raises
        ------
        MergeConflict
            Later commits changed the same data. Nothing was reverted.
        VersionNotFound
        InvalidOperation
            Several transactions share the version, and ``members`` is not given.

        Examples
        --------
        >>> _ = lake.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": -1}]))
        >>> _ = lake.run(lambda txn: txn.append("stock", [{"sku": "oil", "qty": 3}]))
        >>> lake.revert(3).tables
        {'stock': 'physical'}
        >>> lake.sql("SELECT sku FROM stock ORDER BY sku").to_pylist()
        [{'sku': 'oil'}, {'sku': 'tea'}]
        """
        return states.revert(
            self._client,
            self._executor,
            version,
            tables=tables,
            keys=keys,
            on_conflict=on_conflict,
            on_equal=on_equal,
            members=members,
            metadata=metadata,
        )

    def cherry_pick(
        self,
        version: int | str,
        *,
        tables: Sequence[str] | None = None,
        keys: Mapping[str, str | Sequence[str]] | None = None,
        on_conflict: Literal["error", "ours", "theirs"] = "error",
        on_equal: Literal["conflict", "keep"] = "conflict",
        members: Literal["all"] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> MergeResult:
        """Do the changes of one commit again, for example after a rollback to a version before it.

        Files of that commit that exist in the tables are not added twice.

        Parameters
        ----------
        version : int or str
            The commit, by the global version that it made: see ``history``; one of a branch as
            ``"etl@57"``.
        tables, keys, on_conflict, on_equal
            As for ``Transaction.apply``.
        members : "all", optional
            If several transactions share the version (``HistoryEntry.members``), they can only be
            done again together, which ``"all"`` allows.
        metadata : Mapping of str to str, optional
            Notes about the new commit in the history.

        Raises
        ------
        MergeConflict
            Other commits changed the same data. Nothing was applied.
        VersionNotFound
        InvalidOperation
            Several transactions share the version, and ``members`` is not given.

        Examples
        --------
        >>> _ = lake.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 1}]))
        >>> _ = lake.rollback(2)
        >>> lake.cherry_pick(3).tables
        {'stock': 'physical'}
        """
        return states.cherry_pick(
            self._client,
            self._executor,
            version,
            tables=tables,
            keys=keys,
            on_conflict=on_conflict,
            on_equal=on_equal,
            members=members,
            metadata=metadata,
        )

    # -- clones ------------------------------------------------------------------

    def clone(
        self,
        source: str,
        to: str,
        at: int | datetime | str | None = None,
        *,
        copy: bool = False,
    ) -> Ref:
        """Show a table, or all tables below a directory, at another place, where they can be
        written.

        A clone takes two writes, however large the tables are: no file is copied, and no log is
        made. The tables at ``to`` have the state of those at ``source``, are read by their paths
        there, and are tables of their own: a write on one side is not seen on the other. The first
        write to a table makes its log, with the files where they are; from then on Spark and
        readers of Iceberg see the table.

        The state is kept for as long as the clone exists, as a tag keeps it.

        Parameters
        ----------
        source : str
            A table, or a directory below the root.
        to : str
            A path below the root where nothing is stored. It is the name of the clone, for
            ``refs``, ``keep`` and ``delete_ref``: letters, digits and ``. _ - /``, at most 128.
        at : int, datetime or str, optional
            A global version, an aware time, the name of a tag or branch, or a version of a branch
            (``"etl@57"``). The present state of the lake if not given.
        copy : bool
            Have the store copy the files, into ordinary tables that need nothing of their source:
            deltalake and DuckDB read them too. This takes one copy per file and one transaction per
            table, and there is no clone in the end. An interrupted copy leaves a clone with some
            tables copied: call ``keep`` and ``delete_ref`` with its name.

        Raises
        ------
        RefExists
        RefNotFound, VersionNotFound
            ``at`` names no state that is kept.
        TableNotFound
            There is no table at ``source`` or below.
        InvalidOperation
            ``to`` is in, around or at a table, a clone or the source, or outside the root.

        Examples
        --------
        >>> trial = lake.clone("stock", "trials/stock")
        >>> lake.run(lambda txn: txn.delete("trials/stock", where="true")).rows_deleted
        1
        >>> lake.read("stock").num_rows, lake.read("trials/stock").num_rows
        (1, 0)
        """
        return clone(self._client, source, to, at, copy=copy)

    # -- feed --------------------------------------------------------------------

    def changes(
        self,
        since: int | datetime | str,
        until: int | datetime | str | None = None,
        *,
        tables: Sequence[str] | None = None,
        columns: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        net: bool = False,
    ) -> Iterator[Version[Frame]]:
        """Return the versions after ``since``, up to ``until``, in order, each with all its tables.

        The result is bound to the lake's state at the time of the call. If the rows of the tables
        at ``since`` are known, and each version's ``left`` and ``tables`` are applied, they become
        those at ``until``. For the changes of one table alone, use ``txn.changes``.

        Parameters
        ----------
        since : int, datetime or str
            A global version; it is not included itself. 0 for all that is kept; for a branch, its
            ``base_version``. A time stands for the newest version that is not later.
        until : int, datetime or str, optional
            The last version; the newest if not given.
        tables : sequence of str, optional
            Names, or patterns of names and paths with ``*`` and ``?``. Versions that touched
            none of them are left out. All tables if not given.
        columns : sequence of str, or Mapping of str to sequence of str, optional
            For all tables alike, or by table. All columns if not given.
        net : bool
            Return one version for the whole range, of kind ``net``: the differences between its two
            ends.

        Raises
        ------
        VersionNotFound
            There is no such version, or it is not kept any more: the message says since which
            version changes are kept. Also raised when a table of a version is read whose files were
            removed.
        TableNotFound
            A name in ``tables`` or ``columns`` means no table.
        InvalidOperation
            ``until`` is before ``since``, or the lake is that of a tag, which is a single state.

        Examples
        --------
        >>> _ = lake.run(lambda txn: txn.update("stock", {"qty": "qty - 1"}, where="sku = 'tea'"))
        >>> [version] = lake.changes(2)
        >>> version.version, version.kind, list(version.tables)
        (3, 'transaction', ['stock'])
        >>> rows = version.tables["stock"].select(["_change_type", "qty"]).to_pylist()
        >>> sorted(row["qty"] for row in rows)
        [4, 5]
        """
        return lake_feed.changes(
            self._client,
            self._executor,
            since,
            until,
            tables=tables,
            columns=columns,
            net=net,
        )

    def absorb(self, tables: Sequence[str] | None = None) -> list[str]:
        """Give foreign commits to the tables their places in the lake's order.

        Every transaction does this for the tables that it writes. Before it is done, readers of a
        table see its foreign commits, but reports on the lake as a whole do not show them:
        ``changes``, ``history``, and the catalog tables of SQL. It costs a read of HEAD and of each
        log, and for each 256 tables one replacement of HEAD if a log has grown.

        Parameters
        ----------
        tables : sequence of str, optional
            Names, or patterns of names and paths with ``*`` and ``?``. All tables if not given.

        Returns
        -------
        list of str
            The tables whose foreign commits were absorbed.

        Raises
        ------
        TableNotFound
            A name means no table.
        InvalidOperation
            This is a branch or a tag: other clients commit to the lake alone.

        Examples
        --------
        >>> import deltalake, pyarrow as pa
        >>> row = pa.table({"sku": ["rum"], "qty": pa.array([1], pa.int64())})
        >>> deltalake.write_deltalake(lake["stock"].uri, row, mode="append")
        >>> lake.sql("SELECT rows FROM lakevilla_tables WHERE name = 'stock'").to_pylist()
        [{'rows': 1}]
        >>> lake.absorb()
        ['stock']
        >>> lake.sql("SELECT rows FROM lakevilla_tables WHERE name = 'stock'").to_pylist()
        [{'rows': 2}]
        """
        return lake_feed.absorb(self._client, tables)

    def follow(
        self,
        start: int | datetime | str,
        *,
        tables: Sequence[str] | None = None,
        columns: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        poll_seconds: float = 1.0,
        absorb_seconds: float | None = None,
        stop: StopSignal | None = None,
    ) -> Iterator[Version[Frame]]:
        """Wait for new versions and yield them: as ``changes``, without an end.

        Store the ``version`` of the last processed version together with the effects of processing
        it, and pass it as ``start`` after a restart: then no version is missed or yielded twice. A
        poll that finds nothing new is one request.

        Commits of other clients are yielded when the next transaction that writes their table, or
        ``absorb_seconds``, has given them a place in the lake's order.

        Parameters
        ----------
        start : int, datetime or str
            A global version; later versions are yielded. A time stands for the newest version that
            is not later.
        tables, columns : optional
            As for ``changes``. A pattern also stands for future tables.
        poll_seconds : float
            The interval of the checks for new versions.
        absorb_seconds : float, optional
            The interval at which foreign commits to the followed tables are absorbed: a read of the
            log of each table (at most 256 at a time), and one write if there are such commits. If
            not given, none are absorbed, and nothing is written.
        stop : threading.Event, optional
            Ends the iteration once it is set.

        Raises
        ------
        VersionNotFound, TableNotFound, InvalidOperation
            As ``changes``; also during the iteration, if the next version is not kept any more.

        Examples
        --------
        >>> import threading
        >>> enough = threading.Event()
        >>> for version in lake.follow(0, stop=enough):
        ...     print(version.version, list(version.tables))
        ...     if version.version == 2:
        ...         enough.set()
        1 ['stock']
        2 ['orders']
        """
        return lake_feed.follow(
            self._client,
            self._executor,
            start,
            tables=tables,
            columns=columns,
            poll_seconds=poll_seconds,
            absorb_seconds=absorb_seconds,
            stop=stop,
        )

    # -- upkeep ------------------------------------------------------------------

    def maintain(
        self,
        tasks: Sequence[str] = ALL_TASKS,
        *,
        budget_seconds: float | None = None,
    ) -> Report:
        """Do the upkeep of a lake that is due: call it every few minutes, from anywhere.

        A task that is not due costs two requests. One client at a time works on a task; two would
        do no harm. The report has one note for each task, and the errors.

        - ``recover``: as ``recover``, but no commit whose object is missing is cancelled.
        - ``keep``: as ``keep``, of tags that are older than three days, once a day.
        - ``checkpoint``: write the checkpoints of Delta tables that are overdue.
        - ``optimize``: as ``Table.optimize``, of tables that have many small files.
        - ``vacuum``: as ``Table.vacuum``, with each table's own retention, once a day.
        - ``gc``: as ``gc``, once a day.

        Properties of a table determine what is done to it: ``lakevilla.optimize`` (true),
        ``lakevilla.optimize.small_files`` (50), ``lakevilla.optimize.days`` (unset),
        ``lakevilla.optimize.queued`` (false) and ``lakevilla.vacuum`` (true).

        Parameters
        ----------
        tasks : sequence of str
            The tasks to do, in this order.
        budget_seconds : float, optional
            Begin no more work after this time. The next call continues there.

        Raises
        ------
        InvalidOperation
            There is no such task.

        Examples
        --------
        >>> report = lake.maintain(["recover", "optimize"])
        >>> report.ok, [finding.kind for finding in report.findings]
        (True, ['recover', 'optimize'])
        """
        return upkeep.maintain(self._client, tasks, budget_seconds, lambda: False)

    def _maintain(
        self, tasks: Sequence[str] | None, budget_seconds: float | None, stops: Callable[[], bool]
    ) -> Report:
        """Maintain the lake, until ``stops`` returns True; for the command line."""
        return upkeep.maintain(self._client, tasks, budget_seconds, stops)

    def keep(self, name: str) -> Report:
        """Protect the files of a tag or branch from other clients' clean-up; copy those of a clone.

        Other clients know neither tags nor branches, and delete files that a table has removed.

        The store copies the files that the tables have removed since the ref was made, and the
        state of these tables is stored separately from their logs. The ref can then still be read
        after VACUUM with any retention and after clean-up of the logs. Files that the tables remove
        later are not copied yet: call ``keep`` again, or let ``maintain`` do it, which keeps refs
        that are older than three days.

        A branch goes on as after a ``rebase`` onto the state on which it is already based: its
        earlier versions can't be read any more, and transactions that are open on it conflict.

        In a clone, each table that was written to gets copies of its files, made by the store: then
        no table needs the state that the clone keeps, and ``delete_ref`` may end the clone.

        Parameters
        ----------
        name : str
            A tag, a branch or a clone.

        Raises
        ------
        RefNotFound
        InvalidOperation
            Idempotency keys were committed on the branch and are not merged yet.

        Examples
        --------
        >>> _ = lake.tag("closing")
        >>> _ = lake.run(lambda txn: txn.delete("stock", where="true"))
        >>> [(one.kind, one.table) for one in lake.keep("closing").findings]
        [('kept', 'stock')]
        """
        return upkeep.keep_ref(self._client, name)

    def recover(
        self,
        *,
        rebuild_head: bool = False,
        confirm_head: bool = False,
        reset_head: int | None = None,
        force: bool = False,
    ) -> Report:
        """Finish the work of dead clients: publish what is decided, and give up their places.

        It waits only if owners of places in a queue may be dead, and then at most
        ``lease_seconds``.

        Parameters
        ----------
        rebuild_head : bool
            Instead, rebuild a lost or damaged HEAD.json from the logs of the tables and
            everything else that is left. The report lists what could not be found out. Until
            ``confirm_head``, ``gc`` and ``vacuum`` delete nothing.
        confirm_head : bool
            Instead, confirm that a person has read that report, or that HEAD is right where ``gc``
            can't determine that. A HEAD that is known to be an older one is not confirmed.
        reset_head : int, optional
            Instead, go on from an older HEAD: the number (its replacement) of one that is kept, or
            of the present one. The content of the tables stays, as with ``rebuild_head``; names,
            tags, branches and protection are those of that HEAD.
        force : bool
            With ``rebuild_head``: also where HEAD can be read, because it is an older copy.

        Raises
        ------
        CorruptObject
            HEAD or an object that it needs is lost, or HEAD is an older copy.
        InvalidOperation
            With ``rebuild_head``: HEAD is intact, or there is no lake.
        VersionNotFound
            With ``reset_head``: that HEAD is not kept; the message lists those that are.
        """
        return upkeep.recover(
            self._client,
            rebuild_head=rebuild_head,
            confirm_head=confirm_head,
            reset_head=reset_head,
            force=force,
        )

    def backup(
        self,
        target: str | os.PathLike[str],
        *,
        verify: Literal["sizes", "hashes"] = "sizes",
    ) -> Backup:
        """Copy the lake's tables, tags and branches, as of one global version, to a directory.

        Other clients may go on writing. Each call makes one backup: data files that the directory
        has from earlier ones are not copied again, and ``lakevilla.restore`` can return to each of
        them. The store copies the files, if the directory is in the same bucket or on the same
        disk; else they pass through this process. A backup that was interrupted does not count:
        call it again.

        Parameters
        ----------
        target : str or os.PathLike
            A path or a URI: an empty directory outside of the root, or that of the lake's earlier
            backups.
        verify : {"sizes", "hashes"}
            Compare the copies by their sizes, or also by the hashes that the tables' logs have of
            their files, for which all files of the backup are read.

        Returns
        -------
        Backup

        Raises
        ------
        InvalidOperation
            The target is in or around the lake, has other objects, or is read-only; or a table is
            stored outside of the root.
        CorruptObject, VersionNotFound
            A file of the lake is missing or was damaged. There is no backup then.

        Examples
        --------
        >>> lake.backup("backups").tables
        2
        """
        return back_up(self._client, target, verify)

    def gc(self, dry_run: bool = False) -> Report:
        """Delete objects that no transaction needs any more; with ``dry_run`` only report them.

        Transactions older than ``max_age_seconds`` are fenced: they can't commit afterwards.

        Parameters
        ----------
        dry_run : bool
            Only report what would be deleted.
        """
        return upkeep.collect_garbage(self._client, dry_run)

    # -- verifying ---------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether anything was ever committed here; if not, the root may be misspelt.

        Raises
        ------
        CorruptObject
            A lake was here, but its HEAD, or everything except its tables, is lost.
        """
        return upkeep.exists(self._client)

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
        return upkeep.diagnose(self._client, adopt=adopt, files=files)

    def metrics(self, *, tables: int = 100) -> LakeMetrics:
        """Return numbers about the lake for monitoring, by ten requests or so. Changes nothing.

        It reads no table: HEAD, the inbox, and the records of transactions and of upkeep. So a
        table's number of small files is the least that its files and bytes allow. A commit is
        pending until HEAD, or the task ``recover`` of ``maintain``, has seen it in each table's
        log.

        Parameters
        ----------
        tables : int
            The most tables that get numbers of their own: those with the most small files.

        Raises
        ------
        InvalidOperation
            There is no lake at the root.
        CorruptObject
            HEAD is lost, or can't be read.
        """
        return upkeep.measure(self._client, tables)

    def verify(
        self,
        tables: Sequence[str] | None = None,
        *,
        at: StateLike | None = None,
        sample: float = 1.0,
    ) -> Report:
        """Compare the lake's objects and data files with their known hashes and sizes. Changes
        nothing.

        Leaves, pages, bases and commit objects are compared with the hashes in their names. A data
        file whose hash is known is fetched whole and compared; of other files the size, the footer
        and its number of rows are checked. This covers the present tables and the tables of each
        tag and branch, each file once. See ``docs/integrity.md``.

        Parameters
        ----------
        tables : sequence of str, optional
            Names or paths, in which ``*`` and ``?`` stand for anything: then only the data files of
            these tables are checked.
        at : int, datetime or str, optional
            A global version, an aware time, or a ref: then only the data files of that state are
            checked.
        sample : float
            The share of data files whose content is checked, above 0 and up to 1. They are drawn
            again each day. The size of every data file is checked in any case.

        Returns
        -------
        Report
            ``ok`` is False if anything is wrong. A note reports how many files were compared, and
            of how many the hash is not known.

        Raises
        ------
        InvalidOperation
            A pattern fits no table, or ``sample`` is no share.
        RefNotFound, VersionNotFound
            There is no such state.

        Examples
        --------
        >>> report = lake.verify()
        >>> report.ok, [finding.kind for finding in report.findings]
        (True, ['verified'])
        """
        return upkeep.verify_lake(self._client, tables, at=at, sample=sample)

    # -- closing -----------------------------------------------------------------

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


def _call(fn: Callable[..., T], args: tuple[Any, ...], executor: Executor) -> T:
    return fn(Transaction(executor), *args)
