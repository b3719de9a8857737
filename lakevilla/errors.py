"""The errors of LakeVilla, grouped by what a handler does about them.

Every error has a stable ``kind`` (a test has the list), the transaction and the table that it
concerns, if any, and a message that ends with the next step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Literal

from lakevilla.results import CommitResult

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "AuditFailed",
    "AlreadyCommitted",
    "CommitOutcomeUnknown",
    "ConflictError",
    "CorruptObject",
    "ForeignConflict",
    "InvalidOperation",
    "LakeVillaError",
    "LakeVillaWarning",
    "MergeConflict",
    "RefExists",
    "RefNotFound",
    "StoreError",
    "TableExists",
    "TableNotFound",
    "TransactionAborted",
    "TransactionNotFound",
    "UnsafeStore",
    "UnsupportedFormat",
    "UnsupportedTableFeature",
    "VersionNotFound",
]


class LakeVillaWarning(UserWarning):
    """A problem that does not stop the operation, but that users should see.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("warehouse/stock/_delta_log/00000000000000000000.json").write_text("damaged")
    >>> with warnings.catch_warnings(record=True) as told:
    ...     warnings.simplefilter("always")
    ...     [table.name for table in lv.connect("warehouse").tables()]
    ['orders']
    >>> told[0].category.__name__
    'LakeVillaWarning'
    """


class LakeVillaError(Exception):
    """Base of every error that LakeVilla raises on purpose.

    Attributes
    ----------
    kind : str
        Stable name of the error, for logs and for programs.
    message : str
        The text of the error.
    table : str or None
        The table in question, as the caller named it.
    txn_id : str or None
        The id of the transaction in question.

    Examples
    --------
    >>> try:
    ...     lake.table("stok")
    ... except lv.LakeVillaError as error:
    ...     error.kind
    'table_not_found'
    """

    kind: ClassVar[str] = "error"

    def __init__(
        self, message: str, *, table: str | None = None, txn_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.table = table
        self.txn_id = txn_id

    def __reduce__(self) -> tuple[object, ...]:
        # Errors are pickled between processes (multiprocessing, Spark); the default ``__reduce__``
        # would lose keyword-only attributes.
        return (_rebuild, (type(self), self.message, self.__dict__))


def _rebuild(
    cls: type[LakeVillaError], message: str, attributes: dict[str, object]
) -> LakeVillaError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(attributes)
    return error


class ConflictError(LakeVillaError):
    """Another commit changed what this transaction relied on: run it again.

    Attributes
    ----------
    version : int or None
        The global version of the newest commit on the table that this transaction has not read;
        None if no commit is known to be at fault.
    timestamp : datetime or None
        Its time, aware, in UTC.
    metadata : Mapping of str to str
        What its writer has given, such as ``identity`` of ``Settings``; empty if that is nothing.
    commit : tuple of str
        The id of its transaction, and the hash by which its object is found; empty texts if there
        is none.

    Examples
    --------
    >>> first = lake.transaction()
    >>> first.update("stock", {"qty": "qty - 1"}, where="sku = 'tea'").rows_updated
    1
    >>> _ = lake.run(lambda txn: txn.delete("stock", where="sku = 'tea'"))
    >>> try:
    ...     first.commit()
    ... except lv.ConflictError as error:
    ...     error.kind, error.table
    ('conflict', 'stock')
    """

    kind = "conflict"
    version: int | None = None
    timestamp: datetime | None = None
    metadata: Mapping[str, str] = MappingProxyType({})
    commit: tuple[str, str] = ("", "")


class TransactionAborted(LakeVillaError):
    """Another client took over or aborted the transaction: resume it or run it again.

    Examples
    --------
    >>> txn = lake.transaction()
    >>> _ = txn.append("stock", [{"sku": "jam", "qty": 1}])
    >>> lake.abort(txn.id)  # another client, or `lakevilla abort`
    >>> try:
    ...     txn.commit()
    ... except lv.TransactionAborted as error:
    ...     error.kind
    'aborted'
    """

    kind = "aborted"


class CommitOutcomeUnknown(LakeVillaError):
    """The commit may or may not have happened: call ``lake.outcome(txn_id)``.

    Attributes
    ----------
    idempotency_key : str or None
        The idempotency key, if it is unknown whether that key has committed before. Then the
        transaction has done nothing, and running it again does not help: the message says what
        does.

    Examples
    --------
    >>> txn = lake.transaction()
    >>> _ = txn.append("stock", [{"sku": "jam", "qty": 1}])
    >>> try:
    ...     _ = txn.commit()
    ... except lv.CommitOutcomeUnknown as error:  # the store did not answer
    ...     settled = lake.outcome(error.txn_id)
    ... else:
    ...     settled = lake.outcome(txn.id)
    >>> settled.state
    'committed'
    """

    kind = "outcome_unknown"

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        txn_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        super().__init__(message, table=table, txn_id=txn_id)
        self.idempotency_key = idempotency_key


class _WithResult(LakeVillaError):
    def __init__(
        self,
        message: str,
        *,
        result: CommitResult | None = None,
        table: str | None = None,
        txn_id: str | None = None,
    ) -> None:
        super().__init__(message, table=table, txn_id=txn_id)
        self.result = result


class AlreadyCommitted(_WithResult):
    """The idempotency key or transaction has committed before: nothing is left to do.

    Attributes
    ----------
    result : CommitResult or None
        The commit that was found; None for a key with a version, and if the commit is not kept any
        more.

    Examples
    --------
    >>> for _ in range(2):
    ...     try:
    ...         with lake.transaction(idempotency_key="load/2026-01-31") as txn:
    ...             _ = txn.append("stock", [{"sku": "jam", "qty": 1}])
    ...     except lv.AlreadyCommitted as error:
    ...         error.kind
    'already_committed'
    """

    kind = "already_committed"


class ForeignConflict(_WithResult):
    """Committed, but a client without LakeVilla interfered before it was published.

    Attributes
    ----------
    result : CommitResult or None
        The commit.

    Examples
    --------
    >>> def take(txn):
    ...     _ = txn.update("stock", {"qty": "qty - 1"}, where="sku = 'tea'")
    >>> try:
    ...     lake.run(take)
    ... except lv.ForeignConflict as error:  # it is committed: tell a person, don't run it again
    ...     print(error.table, error.result)
    """

    kind = "foreign_conflict"


class UnsupportedTableFeature(LakeVillaError):
    """The table requires a feature that LakeVilla does not implement.

    Examples
    --------
    >>> try:
    ...     managed = {"delta.feature.catalogManaged": "supported"}
    ...     lake.create_table("new", [{"a": 1}], properties=managed)
    ... except lv.UnsupportedTableFeature as error:
    ...     error.kind
    'unsupported_table_feature'
    """

    kind = "unsupported_table_feature"


class UnsafeStore(LakeVillaError):
    """The store does not support conditional writes.

    Examples
    --------
    >>> try:
    ...     _ = lake.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 1}]))
    ... except lv.UnsafeStore as error:  # a store that honours no conditions: nothing was written
    ...     print(error)
    """

    kind = "unsafe_store"


class _OfObject(LakeVillaError):
    def __init__(
        self,
        message: str,
        *,
        key: str | None = None,
        table: str | None = None,
        txn_id: str | None = None,
    ) -> None:
        super().__init__(message, table=table, txn_id=txn_id)
        self.key = key


class CorruptObject(_OfObject):
    """An object in the store is damaged or missing.

    Attributes
    ----------
    key : str or None
        The object's key below the lake's root; None if the error is about no single object.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("warehouse/_lakevilla/HEAD.json").write_text("{")
    >>> try:
    ...     lv.connect("warehouse").tables()
    ... except lv.CorruptObject as error:
    ...     error.key
    '_lakevilla/HEAD.json'
    """

    kind = "corrupt_object"


class UnsupportedFormat(_OfObject):
    """A newer LakeVilla wrote an object in the store.

    Attributes
    ----------
    key : str or None
        The object's key below the lake's root; None if the error is about no single object.

    Examples
    --------
    >>> import json
    >>> from pathlib import Path
    >>> head = Path("warehouse/_lakevilla/HEAD.json")
    >>> _ = head.write_text(json.dumps({**json.loads(head.read_text()), "format": 99}))
    >>> try:
    ...     lv.connect("warehouse").tables()
    ... except lv.UnsupportedFormat as error:
    ...     error.key
    '_lakevilla/HEAD.json'
    """

    kind = "unsupported_format"


class TableNotFound(LakeVillaError):
    """There is no table with that name.

    Examples
    --------
    >>> try:
    ...     lake.snapshot().read("stok")
    ... except lv.TableNotFound as error:
    ...     error.table
    'stok'
    """

    kind = "table_not_found"


class TableExists(LakeVillaError):
    """There is already a table with that name.

    Examples
    --------
    >>> try:
    ...     lake.create_table("stock", [{"sku": "oil"}])
    ... except lv.TableExists as error:
    ...     error.table
    'stock'
    """

    kind = "table_exists"


class VersionNotFound(LakeVillaError):
    """The requested version does not exist, or is not kept any more.

    Examples
    --------
    >>> try:
    ...     lake.snapshot(version=99).read("stock")
    ... except lv.VersionNotFound as error:
    ...     error.kind
    'version_not_found'
    """

    kind = "version_not_found"


class MergeConflict(LakeVillaError):
    """Changes to be applied conflict with other changes to the tables: decide which of them count.

    Nothing was changed. Call the verb again with ``keys=`` for a table, so that single rows are
    compared, or with ``on_conflict="ours"`` or ``"theirs"``.

    Attributes
    ----------
    tables : list of str
        The names of the tables in conflict, sorted.
    by_table : dict of str to (pyarrow.Table or None)
        For each table in conflict, the rows in conflict as ``rows`` returns them; None if the table
        is in conflict as a whole.

    Examples
    --------
    >>> _ = lake.run(lambda txn: txn.update("stock", {"qty": 6}, where="sku = 'tea'"))
    >>> _ = lake.run(lambda txn: txn.update("stock", {"qty": 7}, where="sku = 'tea'"))
    >>> try:
    ...     lake.revert(3)
    ... except lv.MergeConflict as error:
    ...     error.tables
    ['stock']
    """

    kind = "merge_conflict"

    def __init__(
        self,
        message: str,
        *,
        rows: Mapping[str, pa.Table | None] | None = None,
        table: str | None = None,
        txn_id: str | None = None,
    ) -> None:
        super().__init__(message, table=table, txn_id=txn_id)
        self.by_table = dict(rows or {})

    @property
    def tables(self) -> list[str]:
        """The names of the tables in conflict."""
        return sorted(self.by_table)

    def rows(self, table: str) -> pa.Table:
        """Return the rows in conflict, with the columns ``key``, ``base``, ``ours`` and ``theirs``.

        On a lake with ``spark=`` these are about the first thousand rows; the message has their
        total number.

        Parameters
        ----------
        table : str
            One of ``tables``. Its rows were compared only if ``keys`` named it.

        Raises
        ------
        InvalidOperation
            The table is in conflict as a whole, or not at all.
        """
        found = self.by_table.get(table)
        if found is None:
            why = "is in conflict as a whole" if table in self.by_table else "is not in conflict"
            raise InvalidOperation(
                f"table {table} {why}, so there are no rows to show: give keys= for it to have "
                "its rows compared",
                table=table,
            )
        return found


class RefNotFound(LakeVillaError):
    """The lake has no tag or branch of that name.

    Examples
    --------
    >>> try:
    ...     lake.on("yesterday")
    ... except lv.RefNotFound as error:
    ...     error.kind
    'ref_not_found'
    """

    kind = "ref_not_found"


class RefExists(LakeVillaError):
    """There is already a tag or branch of that name.

    Examples
    --------
    >>> _ = lake.tag("closing")
    >>> try:
    ...     lake.tag("closing")
    ... except lv.RefExists as error:
    ...     error.kind
    'ref_exists'
    >>> lake.delete_ref("closing")
    """

    kind = "ref_exists"


class AuditFailed(LakeVillaError):
    """The changes on a branch do not pass the checks, and were not merged.

    Attributes
    ----------
    failed : list of str
        The checks that failed: the names of functions, and SELECTs.

    Examples
    --------
    >>> _ = lake.branch("night")
    >>> _ = lake.on("night").run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": -1}]))
    >>> try:
    ...     lake.merge("night", checks=["SELECT min(qty) >= 0 FROM stock"])
    ... except lv.AuditFailed as error:
    ...     error.failed
    ['SELECT min(qty) >= 0 FROM stock']
    """

    kind = "audit_failed"

    def __init__(
        self,
        message: str,
        *,
        failed: Iterable[str] = (),
        table: str | None = None,
        txn_id: str | None = None,
    ) -> None:
        super().__init__(message, table=table, txn_id=txn_id)
        self.failed = list(failed)


class TransactionNotFound(LakeVillaError):
    """No transaction was saved under that id.

    Examples
    --------
    >>> try:
    ...     lake.resume("01a205c6-197c-7ddd-a8c3-f4faa68a8d2e")
    ... except lv.TransactionNotFound as error:
    ...     error.kind
    'transaction_not_found'
    """

    kind = "transaction_not_found"


#: The cause of an ``InvalidOperation``, for programs that have to distinguish it.
Reason = Literal["constraint", "value", "unsupported", "limit", "view"]


class InvalidOperation(LakeVillaError):
    """A wrong argument, predicate or schema, or a call at the wrong time.

    Attributes
    ----------
    reason : {"constraint", "value", "unsupported", "limit", "view"} or None
        ``constraint``: a row violates a constraint of the table, such as NOT NULL or CHECK.
        ``value``: a value can't be computed, or does not fit its type. ``unsupported``: LakeVilla
        has no such statement. ``limit``: a statement goes beyond a limit of its session, such as
        ``max_rows``. ``view``: a verb of tables was given a view. None: any other cause.

    Examples
    --------
    >>> try:
    ...     with lake.transaction() as txn:
    ...         txn.delete("stock")
    ... except lv.InvalidOperation as error:
    ...     error.kind, error.reason
    ('invalid_operation', None)
    """

    kind = "invalid_operation"

    def __init__(
        self,
        message: str,
        *,
        reason: Reason | None = None,
        table: str | None = None,
        txn_id: str | None = None,
    ) -> None:
        super().__init__(message, table=table, txn_id=txn_id)
        self.reason = reason


class StoreError(LakeVillaError):
    """The store refused or failed a request; the message names the request, without secrets.

    Attributes
    ----------
    permanent : bool
        True if the store refused the request and will refuse it again; nothing was written.
    rejected : bool
        True if a catalog turned down the content of a commit, whoever sends it: `recover` cancels
        such a commit if it was decided.

    Examples
    --------
    >>> options = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true"}
    >>> options |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "x"}
    >>> quick = lv.Settings(retry_limit=1, request_timeout_seconds=2.0)
    >>> try:  # nobody listens there
    ...     lv.connect("s3://bucket/lake", storage_options=options, settings=quick).tables()
    ... except lv.StoreError as error:
    ...     error.kind, error.permanent
    ('store', False)
    """

    kind = "store"

    def __init__(
        self,
        message: str,
        *,
        permanent: bool = False,
        rejected: bool = False,
        table: str | None = None,
        txn_id: str | None = None,
    ) -> None:
        super().__init__(message, table=table, txn_id=txn_id)
        self.permanent = permanent
        self.rejected = rejected
