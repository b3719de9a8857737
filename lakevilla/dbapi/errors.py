"""PEP 249's errors, each made from one of LakeVilla's, with the same attributes for handlers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from lakevilla import errors
from lakevilla.api.execution.sources import without_frames

__all__ = [
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "TransactionConflict",
    "Warning",
]


class Warning(Exception):
    """PEP 249's warning, never raised. Warnings to users are ``LakeVillaWarning``."""


class Error(Exception):
    """Base of all errors of a connection.

    Attributes
    ----------
    message : str
        The text of the error.
    kind : str
        The ``kind`` of LakeVilla's error that is this error's cause; ``error`` without a cause.
    table : str or None
        The table in question.
    txn_id : str or None
        The id of the transaction in question.
    retryable : bool
        True if nothing of the transaction was stored, so that it can be run again from its
        beginning.

    Examples
    --------
    >>> import lakevilla.dbapi
    >>> connection = lakevilla.dbapi.connect("warehouse")
    >>> try:
    ...     connection.cursor().execute("SELECT * FROM stok")
    ... except lakevilla.dbapi.Error as error:
    ...     type(error).__name__, error.kind, error.retryable
    ('ProgrammingError', 'table_not_found', False)
    """

    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str = "",
        *,
        kind: str = "error",
        table: str | None = None,
        txn_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.table = table
        self.txn_id = txn_id


class InterfaceError(Error):
    """The connection or cursor was used in a wrong way, such as after it was closed."""


class DatabaseError(Error):
    """An error of the lake."""


class DataError(DatabaseError):
    """A value can't be computed, or does not fit its type."""


class OperationalError(DatabaseError):
    """A failure of the store, or an effect of other clients: not the program's mistake."""


class TransactionConflict(OperationalError):
    """Another commit changed what the transaction relied on: run it again from its beginning."""

    retryable = True


class IntegrityError(DatabaseError):
    """A row violates a constraint of its table, such as NOT NULL or CHECK."""


class InternalError(DatabaseError):
    """The transaction has failed, or an object of the lake is damaged."""


class ProgrammingError(DatabaseError):
    """A wrong statement or parameter, or a name that does not exist or exists already."""


class NotSupportedError(DatabaseError):
    """LakeVilla, the table or the store lacks the requested feature."""


_BY_REASON: dict[str, type[Error]] = {
    "constraint": IntegrityError,
    "value": DataError,
    "unsupported": NotSupportedError,
    "limit": OperationalError,
}
#: PEP 249's error for each of LakeVilla's; all others become an ``OperationalError``.
_BY_TYPE: dict[type[errors.LakeVillaError], type[Error]] = {
    errors.AlreadyCommitted: OperationalError,
    errors.AuditFailed: IntegrityError,
    errors.CommitOutcomeUnknown: OperationalError,
    errors.ConflictError: TransactionConflict,
    errors.CorruptObject: InternalError,
    errors.ForeignConflict: OperationalError,
    errors.InvalidOperation: ProgrammingError,
    errors.MergeConflict: OperationalError,
    errors.RefExists: ProgrammingError,
    errors.RefNotFound: ProgrammingError,
    errors.StoreError: OperationalError,
    errors.TableExists: ProgrammingError,
    errors.TableNotFound: ProgrammingError,
    errors.TransactionAborted: TransactionConflict,
    errors.TransactionNotFound: ProgrammingError,
    errors.UnsafeStore: NotSupportedError,
    errors.UnsupportedFormat: NotSupportedError,
    errors.UnsupportedTableFeature: NotSupportedError,
    errors.VersionNotFound: ProgrammingError,
}


def error_of(error: errors.LakeVillaError) -> Error:
    """Return PEP 249's error for an error of LakeVilla."""
    reason: Any = getattr(error, "reason", None)
    kind = _BY_REASON.get(reason) or _BY_TYPE.get(type(error), OperationalError)
    # no statement of a connection takes frames, so drop the hint on them
    message = without_frames(error)
    return kind(message, kind=error.kind, table=error.table, txn_id=error.txn_id)


@contextmanager
def translated() -> Iterator[None]:
    """Convert LakeVilla's errors raised in the block to PEP 249's."""
    try:
        yield
    except errors.LakeVillaError as error:
        raise error_of(error) from error
