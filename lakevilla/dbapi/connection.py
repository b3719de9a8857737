"""Connections: transactions one after the other, in a session on a lake."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from lakevilla.api.arguments import check_flag
from lakevilla.api.connecting import connect as open_lake
from lakevilla.api.lake import Lake
from lakevilla.dbapi import errors
from lakevilla.dbapi.cursor import Cursor
from lakevilla.dbapi.errors import translated
from lakevilla.dbapi.state import ConnectionState
from lakevilla.global_log.rules import Isolation

__all__ = ["Connection", "connect"]


def connect(
    lake: str | os.PathLike[str] | Lake[Any],
    *,
    storage_options: Mapping[str, object] | None = None,
    isolation: Isolation | None = None,
    autocommit: bool = False,
    fail_on_error: bool = False,
    max_rows: int | None = None,
    max_bytes: int | None = None,
    timeout_seconds: float | None = None,
    **options: Any,
) -> Connection:
    """Connect to a lake, as PEP 249 defines.

    Parameters
    ----------
    lake : str, os.PathLike or Lake
        A root, as for ``lakevilla.connect``; or an open ``Lake``, which ``close`` leaves open.
    storage_options : Mapping, optional
        As for ``lakevilla.connect``.
    isolation : {"serializable", "snapshot", "write-serializable"}, optional
        The isolation of the connection's transactions; see ``Lake.transaction``.
    autocommit : bool
        True if each statement outside of BEGIN and COMMIT is a transaction by itself. If
        not, the first statement begins one, and ``commit`` or ``rollback`` ends it.
    fail_on_error : bool
        True if a statement that raises fails the whole transaction, as in PostgreSQL. If False,
        such a statement has no effect, and the transaction goes on. SQLAlchemy's engines set it to
        True, since tools that use them (pandas) commit after an error.
    max_rows, max_bytes, timeout_seconds : optional
        Limits of the connection's statements, as of ``Lake.session``: a statement that goes beyond
        a limit raises an ``OperationalError``.
    **options
        Options of ``lakevilla.connect``: ``settings``, ``boto3_session``, ``catalogs`` and so on.

    Raises
    ------
    ProgrammingError
        The root or an option is wrong.
    NotSupportedError
        The lake is one with ``spark=``.

    Examples
    --------
    >>> import lakevilla.dbapi
    >>> with lakevilla.dbapi.connect("warehouse") as connection:  # commits where the block ends
    ...     cursor = connection.cursor()
    ...     _ = cursor.execute("INSERT INTO stock VALUES (:sku, :qty)", {"sku": "jam", "qty": 2})
    ...     cursor.execute("SELECT sku FROM stock ORDER BY sku").fetchall()
    [('jam',), ('tea',)]
    """
    with translated():
        modes = {
            "autocommit": check_flag("autocommit", autocommit),
            "fail_on_error": check_flag("fail_on_error", fail_on_error),
        }
        limits = {"max_rows": max_rows, "max_bytes": max_bytes, "timeout_seconds": timeout_seconds}
        if not isinstance(lake, Lake):
            opened: Lake[Any] = open_lake(lake, storage_options=storage_options, **options)
            return Connection(opened, isolation, owns_lake=True, limits=limits, **modes)
        given = [
            name
            for name, value in {"storage_options": storage_options, **options}.items()
            if value is not None
        ]
        if given:
            raise errors.ProgrammingError(
                f"connect was given an open lake and {', '.join(given)}, which is for opening "
                "one: leave it out, or pass the root"
            )
        return Connection(lake, isolation, owns_lake=False, limits=limits, **modes)


class Connection:
    """A connection to a lake; made by ``lakevilla.dbapi.connect``.

    In a ``with`` block it commits at the end, or rolls back after an exception, and is closed.
    Threads may share it, and then share its transaction.

    Examples
    --------
    >>> import lakevilla.dbapi
    >>> connection = lakevilla.dbapi.connect("warehouse")
    >>> _ = connection.cursor().execute("UPDATE stock SET qty = qty - 1 WHERE sku = 'tea'")
    >>> connection.in_transaction
    True
    >>> connection.commit()
    >>> connection.close()
    """

    # PEP 249 defines the errors here, too, for code that has a connection, but not its module.
    Warning = errors.Warning
    Error = errors.Error
    InterfaceError = errors.InterfaceError
    DatabaseError = errors.DatabaseError
    DataError = errors.DataError
    OperationalError = errors.OperationalError
    IntegrityError = errors.IntegrityError
    InternalError = errors.InternalError
    ProgrammingError = errors.ProgrammingError
    NotSupportedError = errors.NotSupportedError

    def __init__(
        self,
        lake: Lake[Any],
        isolation: Isolation | None,
        *,
        autocommit: bool,
        fail_on_error: bool,
        owns_lake: bool,
        limits: Mapping[str, Any],
    ) -> None:
        self._owns_lake = owns_lake
        self._state = ConnectionState(
            lake, isolation, autocommit=autocommit, fail_on_error=fail_on_error, limits=limits
        )

    @property
    def lake(self) -> Lake[Any]:
        """The lake to which the connection is bound."""
        return self._state.lake

    @property
    def in_transaction(self) -> bool:
        """True if there is a transaction for ``commit`` or ``rollback`` to end."""
        return self._state.in_transaction

    @property
    def closed(self) -> bool:
        """True if the connection was closed."""
        return self._state.is_closed

    @property
    def autocommit(self) -> bool:
        """True if each statement is a transaction by itself; set it between transactions."""
        return self._state.autocommit

    @autocommit.setter
    def autocommit(self, on: bool) -> None:
        with translated():
            self._state.set_autocommit(check_flag("autocommit", on))

    @property
    def isolation(self) -> Isolation | None:
        """The isolation of the next transaction; set it between transactions."""
        return self._state.isolation

    @isolation.setter
    def isolation(self, isolation: Isolation | None) -> None:
        self._state.set_isolation(isolation)

    def cursor(self) -> Cursor:
        """Return a new cursor; all cursors of a connection are in its one transaction.

        Raises
        ------
        InterfaceError
            The connection is closed.
        """
        if self.closed:
            raise errors.InterfaceError("the connection is closed: connect again")
        return Cursor(self, self._state)

    def execute(self, operation: str, parameters: Mapping[str, object] | None = None) -> Cursor:
        """Run a statement by a new cursor, which is returned; sqlite3 and DuckDB have this too.

        Parameters
        ----------
        operation : str
            SQL. Values are written ``:name``.
        parameters : Mapping, optional
            The values by name.

        Raises
        ------
        ProgrammingError, NotSupportedError, DataError, IntegrityError, TransactionConflict
            As for ``Cursor.execute``.
        """
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """Commit the current transaction, if there is one. The transaction ends even if this
        raises.

        Raises
        ------
        TransactionConflict
            Nothing of the transaction was stored: run it again from its beginning.
        OperationalError
            The outcome is not known, or a client without LakeVilla has interfered: ``kind`` says
            which, and ``lake.outcome(error.txn_id)`` settles it.
        InternalError
            The transaction had failed before: ``rollback()``.
        """
        self._state.commit()

    def rollback(self) -> None:
        """Undo the current transaction, if there is one."""
        self._state.rollback()

    def close(self) -> None:
        """Roll back the open transaction, and close the connection for good."""
        self._state.close()
        if self._owns_lake:
            with translated():
                self.lake.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if not self.closed and error is None:
                self.commit()
        finally:
            self.close()

    def __repr__(self) -> str:
        doing = "closed" if self.closed else "in a transaction" if self.in_transaction else "idle"
        return f"<lakevilla.dbapi.Connection to {self.lake.root}: {doing}>"
