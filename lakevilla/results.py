"""What a caller gets back: results, outcomes and reports, as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

__all__ = [
    "CommitResult",
    "Counts",
    "Finding",
    "HistoryEntry",
    "LoggedOperation",
    "OperationResult",
    "OptimizeResult",
    "Outcome",
    "QueuePlace",
    "Report",
    "TableHistoryEntry",
    "TableQueue",
    "TransactionInfo",
]


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows and files of one operation."""

    rows_matched: int = 0
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    files_added: int = 0
    files_removed: int = 0

    @property
    def rows(self) -> tuple[int, int, int, int]:
        """The counts that a caller may act on; those of files he may not."""
        return self.rows_matched, self.rows_inserted, self.rows_updated, self.rows_deleted


class OperationResult:
    """What a write verb did.

    Looking at a row count makes it part of the transaction: should a redo
    change it, the commit raises ``ConflictError`` instead (design, section 12).

    Attributes
    ----------
    rows_matched, rows_inserted, rows_updated, rows_deleted : int
    files_added, files_removed : int
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
        # A notebook, a log or a debugger prints more than anybody looks at: that alone
        # must not make the counts part of the transaction.
        if not self._settled():
            return "OperationResult(rows_...: not looked at yet)"
        counts = self._counts()
        return (
            f"OperationResult(rows_matched={counts.rows_matched}, "
            f"rows_inserted={counts.rows_inserted}, rows_updated={counts.rows_updated}, "
            f"rows_deleted={counts.rows_deleted}, files_added={counts.files_added}, "
            f"files_removed={counts.files_removed})"
        )


@dataclass(frozen=True, slots=True)
class OptimizeResult:
    """What ``Table.optimize`` did.

    Attributes
    ----------
    files_added, files_removed, bytes_added, bytes_removed : int
    partitions : int
        Partitions in which files were replaced.
    files_considered : int
        Files of the table in the partitions asked for.
    files_given_up : int
        Files that it had rewritten when another transaction changed them: their new
        versions were let go.
    version : int or None
        The log version that holds it; None if there was nothing to do, or it could not
        be published in time.
    global_version : int or None
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
class CommitResult:
    """A committed transaction.

    Attributes
    ----------
    id : str
    versions : dict of str to (int or None), or None
        Per table written, the log version that holds the commit; None for a
        table that could not be published in time. None as a whole under
        ``wait="decided"``.
    global_version : int or None
        The lake's version that the commit made; None if it did not go through HEAD.
    retries : int
        Lost races and redos on the way.
    operations : int
        Write verbs in the transaction.
    """

    id: str
    versions: Mapping[str, int | None] | None
    global_version: int | None
    retries: int = 0
    operations: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a transaction ended; once told, it never changes."""

    state: Literal["committed", "aborted", "expired"]
    result: CommitResult | None = None


@dataclass(frozen=True, slots=True)
class LoggedOperation:
    """What a commit did to one table: as in the table's own log."""

    table: str
    operation: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One commit in the lake's history.

    Attributes
    ----------
    version : int
        The global version that it made.
    timestamp : datetime
        Aware, in UTC; grows with the version.
    txn_id : str or None
        None for ``foreign``.
    tables : tuple of str
        Those that it touched, by the names that the lake knows them by now.
    operations : tuple of LoggedOperation
        One for each table written; empty where the table's log tells.
    metadata : Mapping
        As given to the transaction.
    kind : str
        ``transaction``; ``foreign``, what another client did, from here on part of the
        lake's order; ``reconcile``, the replay of what did not fit another client's change;
        ``register``, tables came into the lake or were let go; ``rebuilt``, a lost HEAD was made
        anew with these tables, and older commits can't be told.
    """

    version: int
    timestamp: datetime
    txn_id: str | None
    tables: tuple[str, ...]
    operations: tuple[LoggedOperation, ...]
    metadata: Mapping[str, str]
    kind: Literal["transaction", "foreign", "reconcile", "register", "rebuilt"]


@dataclass(frozen=True, slots=True)
class TableHistoryEntry:
    """One entry of a table's log.

    Attributes
    ----------
    version : int
        The table's own, in its log.
    timestamp : datetime
        Aware, in UTC; by its writer's clock.
    operation : str
    parameters, metrics : Mapping
        As the writer tells them.
    txn_ids : tuple of str
        The LakeVilla transactions in it, in order; empty for other clients.
    metadata : Mapping
        What the user has given with the commit.
    """

    version: int
    timestamp: datetime
    operation: str
    parameters: Mapping[str, object]
    metrics: Mapping[str, object]
    txn_ids: tuple[str, ...]
    metadata: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found (or done) on the lake. ``severity`` is ``note``, ``warning`` or ``error``."""

    severity: Literal["note", "warning", "error"]
    kind: str
    message: str
    table: str | None = None
    txn_id: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A transaction that has a record: it is, or was, in a queue, or was saved.

    One that is neither has none and is not told of. Times are hints: each is by its
    writer's clock.

    Attributes
    ----------
    id : str
    state : str
        ``running``; ``waiting`` for others; ``saved``, with no sign of life from its
        owner for a lease: ``lake.resume`` goes on with it; ``committed``, and not yet
        cleaned up; ``aborted``: it can't commit any more, and its owner may not know it.
    owner : str
        Host, process and a random part.
    started : datetime
        Aware; from the id, by its maker's clock.
    last_seen : datetime
        Aware; when its record was last renewed, by the store's clock.
    tables : tuple of str
        As far as its record tells; it is brought up to date with each renewal.
    waits_for : tuple of str
        The transactions that it waits for now.
    """

    id: str
    state: Literal["running", "waiting", "saved", "committed", "aborted"]
    owner: str
    started: datetime
    last_seen: datetime
    tables: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """One ticket in a table's queue.

    ``state`` is its transaction's, or ``void`` where that has no record any more
    (nobody waits for it), or ``unreadable`` where the marker, or the record, can't be
    read. What can't be told is None.
    """

    number: int
    state: Literal["running", "waiting", "saved", "committed", "aborted", "void", "unreadable"]
    key: str
    txn_id: str | None = None
    access: Literal["read", "append", "write"] | None = None
    owner: str | None = None
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableQueue:
    """Who is in a table's queue, first to last. Those in ``reserved_by`` go before all."""

    table: str
    places: tuple[QueuePlace, ...] = ()
    reserved_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What ``recover``, ``gc`` or ``doctor`` found and did.

    ``queues`` (of tables in which anybody is) and ``cycles`` (transactions that wait for
    each other) are told by ``doctor``.
    """

    ok: bool
    findings: tuple[Finding, ...] = field(default_factory=tuple)
    queues: tuple[TableQueue, ...] = ()
    cycles: tuple[tuple[str, ...], ...] = ()
