"""Results, outcomes and reports, as values for callers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Generic, Literal

from lakevilla.display import HtmlFields, fields_html, table_html

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar

    #: The type of a caller's frames; for an embedded lake, an Arrow table.
    Rows = TypeVar("Rows", default=pa.Table)
else:
    from typing import TypeVar

    Rows = TypeVar("Rows")

__all__ = [
    "Backup",
    "CommitResult",
    "Counts",
    "DiscoveredTable",
    "Finding",
    "HistoryEntry",
    "KeptVersion",
    "LoggedOperation",
    "MergeResult",
    "OperationResult",
    "OptimizeResult",
    "Outcome",
    "QueuePlace",
    "Ref",
    "Report",
    "TableHistoryEntry",
    "TableQueue",
    "TransactionInfo",
    "Version",
]


@dataclass(frozen=True, slots=True)
class Counts:
    """The rows and files that one operation has changed."""

    rows_matched: int = 0
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    files_added: int = 0
    files_removed: int = 0

    @property
    def rows(self) -> tuple[int, int, int, int]:
        """The counts of rows, which a caller may act on; counts of files are left out."""
        return self.rows_matched, self.rows_inserted, self.rows_updated, self.rows_deleted


class OperationResult:
    """The result of a write operation.

    If you read a row count, it becomes part of the transaction: if a redo would change it, the
    commit raises ``ConflictError`` (design, section 12).

    Attributes
    ----------
    rows_matched : int
        Rows of the table for which ``where`` was true, or which a merge or upsert matched with a
        row of the source; 0 for an append.
    rows_inserted : int
        Rows added, those of an overwrite included.
    rows_updated : int
        Rows changed by an update, merge or upsert.
    rows_deleted : int
        Rows deleted, those that an overwrite replaces included.
    files_added : int
        Data files added to the table. Reading this count makes nothing part of the transaction.
    files_removed : int
        Data files removed from the table. Reading this count makes nothing part of the transaction.

    Examples
    --------
    >>> with lake.transaction() as txn:
    ...     done = txn.update("stock", {"qty": "qty + 1"}, where="sku = 'tea'")
    ...     done.rows_updated  # now it is part of the transaction
    1
    """

    __slots__ = ("_counts", "_observe", "_settled")

    def __init__(
        self,
        counts: Callable[[], Counts],
        observe: Callable[[], None],
        settled: Callable[[], bool],
    ) -> None:
        self._counts = counts
        self._observe = observe
        self._settled = settled

    def _look(self) -> Counts:
        self._observe()
        return self._counts()

    @property
    def rows_matched(self) -> int:
        return self._look().rows_matched

    @property
    def rows_inserted(self) -> int:
        return self._look().rows_inserted

    @property
    def rows_updated(self) -> int:
        return self._look().rows_updated

    @property
    def rows_deleted(self) -> int:
        return self._look().rows_deleted

    @property
    def files_added(self) -> int:
        return self._counts().files_added

    @property
    def files_removed(self) -> int:
        return self._counts().files_removed

    def __repr__(self) -> str:
        # A notebook, a log or a debugger may print a result that no user acts on: printing must not
        # make the counts part of the transaction.
        if not self._settled():
            return "OperationResult(not counted yet: reading rows_updated or another count does so)"
        counts = self._counts()
        return (
            f"OperationResult(rows_matched={counts.rows_matched}, "
            f"rows_inserted={counts.rows_inserted}, rows_updated={counts.rows_updated}, "
            f"rows_deleted={counts.rows_deleted}, files_added={counts.files_added}, "
            f"files_removed={counts.files_removed})"
        )

    def _repr_html_(self) -> str:
        if not self._settled():
            return f"<p>{self!r}</p>"
        return fields_html(self._counts(), "OperationResult")


@dataclass(frozen=True, slots=True)
class OptimizeResult(HtmlFields):
    """The result of ``Table.optimize``.

    Attributes
    ----------
    files_added : int
        The number of data files that were written.
    files_removed : int
        The number of data files that these replace.
    bytes_added : int
        The size of the files that were written, in bytes.
    bytes_removed : int
        The size of the files that they replace, in bytes, by the table's log.
    partitions : int
        The number of partitions in which files were replaced.
    files_considered : int
        The number of files in the chosen partitions.
    files_given_up : int
        The number of files that another transaction changed after ``optimize`` had rewritten them:
        the rewritten files were discarded.
    version : int or None
        The log version of the commit; None if there was nothing to do, or if it could not be
        published in time.
    global_version : int or None
        The lake's version that the commit created; None if there was nothing to do, or if it did
        not go through HEAD.

    Examples
    --------
    >>> for sku in ("jam", "oil"):
    ...     _ = lake.run(lambda txn, sku: txn.append("stock", [{"sku": sku, "qty": 1}]), sku)
    >>> done = lake.table("stock").optimize()
    >>> done.files_removed, done.files_added
    (3, 1)
    """

    files_added: int = 0
    files_removed: int = 0
    bytes_added: int = 0
    bytes_removed: int = 0
    partitions: int = 0
    files_considered: int = 0
    files_given_up: int = 0
    version: int | None = None
    global_version: int | None = None


@dataclass(frozen=True, slots=True)
class CommitResult(HtmlFields):
    """A committed transaction.

    Attributes
    ----------
    id : str
        The id of the transaction, a UUIDv7.
    versions : Mapping of str to (int or None), or None
        For each written table, the log version that holds the commit; None for a table that
        could not be published in time. With ``wait="decided"`` the whole value is None.
    global_version : int or None
        The lake's version that the commit created; None if it did not go through HEAD.
    retries : int
        The number of lost races and redos.
    operations : int
        The number of write operations in the transaction.

    Examples
    --------
    >>> txn = lake.transaction()
    >>> _ = txn.append("stock", [{"sku": "jam", "qty": 1}])
    >>> result = txn.commit()
    >>> result.versions, result.global_version, result.operations
    ({'stock': 1}, 3, 1)
    """

    id: str
    versions: Mapping[str, int | None] | None
    global_version: int | None
    retries: int = 0
    operations: int = 0


@dataclass(frozen=True, slots=True)
class Outcome(HtmlFields):
    """The final state of a transaction; it never changes.

    Attributes
    ----------
    state : {"committed", "aborted", "expired"}
        ``aborted``: it has not committed and never will. ``expired``: it can't commit any more, and
        the history that would show whether it has is not kept.
    result : CommitResult or None
        The commit; None unless ``state`` is ``committed``.

    Examples
    --------
    >>> txn = lake.transaction()
    >>> _ = txn.append("stock", [{"sku": "jam", "qty": 1}])
    >>> _ = txn.commit()
    >>> lake.outcome(txn.id).state
    'committed'
    """

    state: Literal["committed", "aborted", "expired"]
    result: CommitResult | None = None


@dataclass(frozen=True, slots=True)
class LoggedOperation(HtmlFields):
    """The effect of a commit on one table, as in the table's own log.

    Attributes
    ----------
    table : str
        The table's present name.
    operation : str
        The name of the operation in the table's log, such as WRITE or MERGE.
    parameters : Mapping of str to str
        The parameters of the operation, as the log has them.
    metrics : Mapping of str to str
        The counts of the operation (rows, files), as the log has them.

    Examples
    --------
    >>> _ = lake.run(lambda txn: txn.delete("stock", where="qty > 4"))
    >>> entry = lake.history(limit=1)[0]
    >>> [(done.table, done.operation) for done in entry.operations]
    [('stock', 'DELETE')]
    """

    table: str
    operation: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HistoryEntry(HtmlFields):
    """One commit in the lake's history.

    Attributes
    ----------
    version : int
        The global version that the commit created.
    timestamp : datetime
        Aware, in UTC; grows with the version.
    txn_id : str or None
        None for ``foreign``. Where a version has ``members``, the id of all of them together.
    tables : tuple of str
        The tables that the commit changed, by their present names.
    operations : tuple of LoggedOperation
        One for each written table; empty if only the table's log has them.
    metadata : Mapping
        As given to the transaction.
    kind : str
        ``transaction``; ``foreign``: commits of other clients, which have got their place in the
        lake's order here; ``reconcile``: the replay of a commit that another client's change had
        made unfit; ``register``: tables entered or left the lake; ``rebuilt``: a lost HEAD was
        rebuilt with these tables, and older commits are not known.
    members : tuple of str
        The transactions that share the version, in the order in which they were performed; empty
        for the commit of a single transaction.
    merged : str or None
        The branch that the commit merged, with its version: ``night@3``; None for all others.

    Examples
    --------
    >>> [(entry.version, entry.kind, entry.tables) for entry in lake.history()]
    [(2, 'transaction', ('orders',)), (1, 'transaction', ('stock',))]
    """

    version: int
    timestamp: datetime
    txn_id: str | None
    tables: tuple[str, ...]
    operations: tuple[LoggedOperation, ...]
    metadata: Mapping[str, str]
    kind: Literal["transaction", "foreign", "reconcile", "register", "rebuilt"]
    members: tuple[str, ...] = ()
    merged: str | None = None


@dataclass(frozen=True, slots=True)
class TableHistoryEntry(HtmlFields):
    """One entry of a table's log.

    Attributes
    ----------
    version : int
        The version of the table's own log.
    timestamp : datetime
        Aware, in UTC; by its writer's clock.
    operation : str
        The name of the operation, as the writer recorded it.
    parameters : Mapping
        The parameters of the operation, as the writer recorded them.
    metrics : Mapping
        The counts of the operation (rows, files), as the writer recorded them.
    txn_ids : tuple of str
        The LakeVilla transactions in the entry, in order; empty for entries of other clients.
    metadata : Mapping
        The metadata that the user gave with the commit.
    members : tuple of str
        The transactions that were performed together, in order, where there are such: they share an
        id in ``txn_ids``, as they share a global version (``HistoryEntry``).

    Examples
    --------
    >>> newest = lake.table("stock").history(limit=1)[0]
    >>> newest.version, newest.timestamp.tzinfo, len(newest.txn_ids)
    (0, datetime.timezone.utc, 1)
    """

    version: int
    timestamp: datetime
    operation: str
    parameters: Mapping[str, object]
    metrics: Mapping[str, object]
    txn_ids: tuple[str, ...]
    metadata: Mapping[str, object]
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptVersion(HtmlFields):
    """A version of a table's own log that can still be read.

    Attributes
    ----------
    version : int
        The version of the table's own log: for Delta the number of the log entry, for Iceberg that
        of the metadata file, counted from 0.
    timestamp : datetime
        Aware, in UTC; the time that ``Table.read(timestamp=...)`` uses. For Delta the in-commit
        timestamp, or, without one, the store's modification time of the log entry, as in deltalake
        and Spark; for Iceberg the time in the metadata file.
    snapshot_id : int or None
        The Iceberg snapshot that was current; None for Delta, and before the first one.

    Examples
    --------
    >>> [kept.version for kept in lake.table("stock").versions()]
    [0]
    """

    version: int
    timestamp: datetime
    snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class Finding(HtmlFields):
    """One thing found or done in the lake.

    Attributes
    ----------
    severity : {"note", "warning", "error"}
        ``note``: nothing to repair.
    kind : str
        A name for programs: the ``kind`` of an error, or another name, such as ``empty``.
    message : str
        The finding in words.
    table : str or None
        The table in question; None if the finding is about no single table.
    txn_id : str or None
        The transaction in question.
    key : str or None
        The object in question: its key below the lake's root.

    Examples
    --------
    >>> report = lv.connect("elsewhere").recover()
    >>> [(finding.severity, finding.kind) for finding in report.findings]
    [('note', 'empty')]
    """

    severity: Literal["note", "warning", "error"]
    kind: str
    message: str
    table: str | None = None
    txn_id: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionInfo(HtmlFields):
    """A transaction that has a record, because it is or was in a queue, or was saved.

    Other transactions have no record and are not listed. Times are hints, because they are by
    different clocks.

    Attributes
    ----------
    id : str
        The id of the transaction, a UUIDv7.
    state : str
        ``running``; ``waiting`` for other transactions; ``saved``: its owner has not renewed the
        record for one lease, and ``lake.resume`` can continue the transaction; ``committed``, but
        not cleaned up yet; ``aborted``: the transaction can't commit any more, but its owner may
        not know that yet.
    owner : str
        The client: its ``Settings.identity``, if it has one, and a random part.
    started : datetime
        Aware; the time in the id, by the clock of the client that made it.
    last_seen : datetime
        Aware; the time at which the record was last renewed, by the store's clock.
    tables : tuple of str
        The tables in the record, which each renewal updates.
    waits_for : tuple of str
        The transactions for which this one is waiting.

    Examples
    --------
    >>> txn = lake.transaction(lv.Feature.R | lv.Feature.CT | lv.Feature.I)
    >>> txn.take_turn("stock")
    >>> [(info.state, info.waits_for) for info in lake.transactions()]
    [('running', ())]
    >>> txn.abort()
    """

    id: str
    state: Literal["running", "waiting", "saved", "committed", "aborted"]
    owner: str
    started: datetime
    last_seen: datetime
    tables: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueuePlace(HtmlFields):
    """One ticket in a table's queue.

    Attributes
    ----------
    number : int
        The number of the ticket; lower numbers go first.
    state : str
        The state of the ticket's transaction, as in ``TransactionInfo``; or ``void`` if the
        transaction has no record any more (then no other waits for it), or ``unreadable`` if the
        marker or the record can't be read.
    key : str
        The key of the ticket's marker below the lake's root.
    txn_id : str or None
        The transaction that holds the ticket; None if the marker can't be read.
    access : {"read", "append", "write"} or None
        The access for which the ticket is held; None if the marker can't be read.
    owner : str or None
        The client of the transaction, as in ``TransactionInfo``; None if it is not known.
    waits_for : tuple of str
        The transactions for which the ticket's transaction is waiting.

    Examples
    --------
    >>> txn = lake.transaction(lv.Feature.R | lv.Feature.CT | lv.Feature.I)
    >>> txn.take_turn("stock")
    >>> place = lake.doctor().queues[0].places[0]
    >>> place.number, place.access, place.txn_id == txn.id
    (1, 'write', True)
    >>> txn.abort()
    """

    number: int
    state: Literal["running", "waiting", "saved", "committed", "aborted", "void", "unreadable"]
    key: str
    txn_id: str | None = None
    access: Literal["read", "append", "write"] | None = None
    owner: str | None = None
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableQueue(HtmlFields):
    """The places in a table's queue.

    Attributes
    ----------
    table : str
        The table's name in the lake.
    places : tuple of QueuePlace
        The tickets, lowest number first.
    reserved_by : tuple of str
        Transactions that have reserved the table after many conflicts: they go before the
        transactions in the queue.

    Examples
    --------
    >>> txn = lake.transaction(lv.Feature.R | lv.Feature.CT | lv.Feature.I)
    >>> txn.take_turn("orders", "stock")
    >>> [(queue.table, len(queue.places)) for queue in lake.doctor().queues]
    [('orders', 1), ('stock', 1)]
    >>> txn.abort()
    """

    table: str
    places: tuple[QueuePlace, ...] = ()
    reserved_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report(HtmlFields):
    """The findings and actions of ``recover``, ``gc``, ``maintain``, ``doctor`` or ``verify``.

    Attributes
    ----------
    ok : bool
        True if nothing is left that the user must repair or decide.
    findings : tuple of Finding
        What was found, and what was done.
    queues : tuple of TableQueue
        In a report of ``doctor``: the tables' queues that are not empty.
    cycles : tuple of (tuple of str)
        In a report of ``doctor``: sets of transactions that wait for each other.

    Examples
    --------
    >>> report = lake.doctor()
    >>> report.ok, report.findings
    (True, ())
    """

    ok: bool
    findings: tuple[Finding, ...] = field(default_factory=tuple)
    queues: tuple[TableQueue, ...] = ()
    cycles: tuple[tuple[str, ...], ...] = ()

    def _repr_html_(self) -> str:
        rows: list[tuple[object, ...]] = [
            (one.severity, one.kind, one.message, one.table, one.key) for one in self.findings
        ]
        rows += [
            ("", "queue", f"{place.state} {place.txn_id}", queue.table, place.key)
            for queue in self.queues
            for place in queue.places
        ]
        rows += [("", "cycle", " ↔ ".join(cycle), None, None) for cycle in self.cycles]
        heads = ("severity", "kind", "message", "table", "key")
        return table_html(f"Report: {'well' if self.ok else 'findings'}", heads, rows)


@dataclass(frozen=True, slots=True)
class Backup(HtmlFields):
    """A copy of a lake, as of one global version; see ``Lake.backup``.

    Attributes
    ----------
    target : str
        The directory of the lake's backups.
    name : str
        The name of this backup there.
    version : int
        The global version of the lake.
    tables : int
        The number of tables in it.
    refs : tuple of str
        Its tags and branches.
    files, bytes : int
        The data files that the backup needs.
    copied_files, copied_bytes : int
        Those that were copied now, as the directory did not have them.

    Examples
    --------
    >>> made = lake.backup("../copies")
    >>> made.tables, made.copied_files
    (2, 2)
    >>> lake.backup("../copies").copied_files
    0
    """

    target: str
    name: str
    version: int
    tables: int
    refs: tuple[str, ...]
    files: int
    bytes: int
    copied_files: int
    copied_bytes: int


@dataclass(frozen=True, slots=True)
class DiscoveredTable(HtmlFields):
    """A table under the lake's root, or in one of its catalogs, that is not in the lake.

    Attributes
    ----------
    name : str
        The table's path below the root, or its name in the catalog.
    uri : str
        The location of the table's directory; empty if its catalog can't tell.
    format : {"delta", "iceberg"} or None
        The format of the table; None if it can't be determined.
    version : int or None
        The newest version in the table's log; None if the table can't be opened.
    state : {"new", "dropped", "in_catalog", "refused"}
        ``new``: ``register(discover=True)`` adds the table. ``dropped``: the table was in the lake
        once, and only ``register`` with its name revives it. ``in_catalog``: a connected catalog
        has it, and only ``register`` with its name adds it. ``refused``: the table can't be added;
        ``reason`` says why.
    reason : str
        The reason for which ``register(discover=True)`` leaves it out; empty if ``new``.

    Examples
    --------
    >>> import deltalake, pyarrow
    >>> deltalake.write_deltalake("warehouse/returns", pyarrow.table({"sku": ["tea"]}))
    >>> [(table.name, table.state) for table in lake.discover()]
    [('returns', 'new')]
    """

    name: str
    uri: str
    format: Literal["delta", "iceberg"] | None
    version: int | None
    state: Literal["new", "dropped", "in_catalog", "refused"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MergeResult(HtmlFields):
    """The outcome for the tables to which changes were applied.

    Attributes
    ----------
    version : int or None
        The global version of the commit; None before the commit, and if there was nothing to do.
    merged : str
        A description of the applied changes, such as ``night@3`` for a branch at its version 3.
    tables : Mapping of str to str
        By name: ``physical`` (files were added and removed, no row was read), ``rows`` (rows were
        written), ``created``, ``dropped``, or ``kept`` (left unchanged).

    Examples
    --------
    >>> _ = lake.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 1}]))
    >>> lake.rollback(2).tables
    {'stock': 'physical'}
    """

    version: int | None
    merged: str
    tables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ref(HtmlFields):
    """A named state of the lake, which is kept, or a branch that was made from such a state.

    Attributes
    ----------
    name : str
        The ref's name, which ``lake.on`` takes.
    kind : {"tag", "branch", "clone"}
        ``tag``: a state that does not change. ``branch``: a state of the lake that transactions
        change. ``clone``: tables that are shown at another place.
    version : int
        The global version of the state; for a branch, its newest version.
    base_version : int
        The global version from which a branch was made, or onto which it was last rebased. For a
        tag or clone the same as ``version``.
    created : datetime
        Aware, in UTC; the time at which the ref was made.
    created_by : str
        The client that made the ref: its ``Settings.identity``, if it has one, and a random part.
    protected : bool
        True if the ref can't be deleted before ``protect(name, on=False)``.
    metadata : Mapping of str to str
        Notes about the ref, as given when it was made.
    merged : int or None
        The version of a branch that was last merged; None before the first merge and after a
        rebase.

    Examples
    --------
    >>> opening = lake.tag("opening", protected=True)
    >>> opening.kind, opening.version, opening.protected
    ('tag', 2, True)
    """

    name: str
    kind: Literal["tag", "branch", "clone"]
    version: int
    base_version: int
    created: datetime
    created_by: str
    protected: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    merged: int | None = None


@dataclass(frozen=True, slots=True)
class Version(HtmlFields, Generic[Rows]):
    """One global version in the change feed: a commit, and its changes to all tables.

    Attributes
    ----------
    version : int
        The global version; also the position from which ``lake.follow`` and ``lake.changes``
        continue.
    since : int
        The version before this one. Versions between the two, as with ``reconcile``, are part of
        this one.
    timestamp : datetime
        Aware, in UTC.
    txn_id : str or None
        None for ``foreign`` and ``net``; as in ``HistoryEntry`` where there are ``members``.
    kind : str
        As in ``HistoryEntry``; ``net`` for the net changes of a range.
    metadata : Mapping
        As given to the transaction.
    tables : Mapping of str to pyarrow.Table
        By name, the changed rows of each table that the commit has changed, as ``txn.changes``
        returns them, in the columns that the table had at this version. Rows are read when a table
        is looked up. With ``spark=`` a DataFrame, whose rows are read by tasks when it is used.
    entered : tuple of str
        Tables that were added to the lake: ``tables`` has all their rows.
    left : tuple of str
        Tables that were removed from the lake. A table that was dropped and created again is in
        ``entered``, too: apply the removal first.
    uris : Mapping of str to str
        The location of each of these tables, which no rename changes.
    merged : str or None
        The branch that the commit has merged, and the branch's version (``etl@57``).
    members : tuple of str
        The transactions that share the version, as in ``HistoryEntry``; empty for ``net``.

    Examples
    --------
    >>> for version in lake.changes(0):
    ...     for name, rows in version.tables.items():
    ...         version.version, name, rows["_change_type"].to_pylist()
    (1, 'stock', ['insert'])
    (2, 'orders', ['insert'])
    """

    version: int
    since: int
    timestamp: datetime
    txn_id: str | None
    kind: Literal["transaction", "foreign", "reconcile", "register", "net"]
    metadata: Mapping[str, str]
    tables: Mapping[str, Rows] = field(compare=False)
    entered: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    uris: Mapping[str, str] = field(default_factory=dict)
    merged: str | None = None
    members: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        # Show only the names of the tables: showing a table would read its rows.
        values = [(one.name, getattr(self, one.name)) for one in fields(self)]
        shown = [(name, repr(value) if name == "tables" else value) for name, value in values]
        return table_html("Version", ("field", "value"), shown)
