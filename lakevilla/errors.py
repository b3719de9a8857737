"""What can go wrong, grouped by what a handler does about it.

Every error has a stable ``kind`` (a test holds the list), the transaction and
the table it belongs to where there is one, and a message that ends with the
next step.
"""

from __future__ import annotations

from typing import ClassVar

from lakevilla.results import CommitResult

__all__ = [
    "AlreadyCommitted",
    "CommitOutcomeUnknown",
    "ConflictError",
    "CorruptObject",
    "ForeignConflict",
    "InvalidOperation",
    "LakeVillaError",
    "LakeVillaWarning",
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
    """Something is wrong that stops nobody, and that a person must see."""


class LakeVillaError(Exception):
    """Base of every error that LakeVilla raises on purpose.

    Attributes
    ----------
    kind : str
        Stable name of the error, for logs and for programs.
    table : str or None
        The table concerned, as the caller named it.
    txn_id : str or None
        The transaction concerned.
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
        # Errors cross process borders (multiprocessing, Spark); keyword-only
        # attributes would be lost by the default reduction.
        return (_rebuild, (type(self), self.message, self.__dict__))


def _rebuild(
    cls: type[LakeVillaError], message: str, attributes: dict[str, object]
) -> LakeVillaError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(attributes)
    return error


class ConflictError(LakeVillaError):
    """Another commit changed what this transaction relied on: run it again."""

    kind = "conflict"


class TransactionAborted(LakeVillaError):
    """The transaction was rescued or aborted by another: resume it or run it again."""

    kind = "aborted"


class CommitOutcomeUnknown(LakeVillaError):
    """The commit may or may not have happened: ask ``lake.outcome(txn_id)``."""

    kind = "outcome_unknown"


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
    """The idempotency key or transaction has committed before: nothing is left to do."""

    kind = "already_committed"


class ForeignConflict(_WithResult):
    """Committed, but a client without LakeVilla interfered before it was published."""

    kind = "foreign_conflict"


class UnsupportedTableFeature(LakeVillaError):
    """The table requires a feature that LakeVilla does not implement."""

    kind = "unsupported_table_feature"


class UnsafeStore(LakeVillaError):
    """The store does not honour conditional writes."""

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
    """An object on the store is not what it should be; ``key`` says which."""

    kind = "corrupt_object"


class UnsupportedFormat(_OfObject):
    """An object on the store was written by a newer LakeVilla; ``key`` says which."""

    kind = "unsupported_format"


class TableNotFound(LakeVillaError):
    """There is no table of that name."""

    kind = "table_not_found"


class TableExists(LakeVillaError):
    """There is already a table of that name."""

    kind = "table_exists"


class VersionNotFound(LakeVillaError):
    """The version asked for is not there, or no longer there."""

    kind = "version_not_found"


class TransactionNotFound(LakeVillaError):
    """Nothing was saved under that transaction id."""

    kind = "transaction_not_found"


class InvalidOperation(LakeVillaError):
    """A wrong argument, predicate or schema, or a call at the wrong time."""

    kind = "invalid_operation"


class StoreError(LakeVillaError):
    """The store refused or failed a request; the message says which, without secrets.

    ``permanent``: it turned the request down and will do so again; nothing was written.
    """

    kind = "store"

    def __init__(
        self,
        message: str,
        *,
        permanent: bool = False,
        table: str | None = None,
        txn_id: str | None = None,
    ) -> None:
        super().__init__(message, table=table, txn_id=txn_id)
        self.permanent = permanent
