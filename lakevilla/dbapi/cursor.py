"""Cursors, which run statements and fetch their rows as tuples or as Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from lakevilla.dbapi.errors import InterfaceError, ProgrammingError
from lakevilla.dbapi.many import many
from lakevilla.dbapi.state import ConnectionState
from lakevilla.dbapi.types import ColumnDescription, Rows, columns_of, one_set
from lakevilla.results import OperationResult
from lakevilla.settings import shown

__all__ = ["Cursor"]


def rows_written(operations: Sequence[OperationResult]) -> int:
    """Return the number of rows inserted, updated and deleted; -1 if there are no operations."""
    if not operations:
        return -1
    return sum(one.rows_inserted + one.rows_updated + one.rows_deleted for one in operations)


class Cursor:
    """A cursor, which runs statements in its connection's transaction and has the last one's rows.

    The rows are those at the time of the statement, whatever the transaction does afterwards.

    Attributes
    ----------
    arraysize : int
        The number of rows that ``fetchmany`` returns by default: 1, unless the caller sets it.

    Examples
    --------
    >>> import lakevilla.dbapi
    >>> with lakevilla.dbapi.connect("warehouse") as connection:
    ...     cursor = connection.cursor()
    ...     _ = cursor.execute("SELECT * FROM stock WHERE qty > :least", {"least": 1})
    ...     [column.name for column in cursor.description], cursor.fetchone()
    (['sku', 'qty'], ('tea', 5))
    """

    def __init__(self, connection: Any, state: ConnectionState) -> None:
        #: Number of rows that ``fetchmany`` returns by default.
        self.arraysize = 1
        self._connection = connection
        self._state = state
        self._closed = False
        self._rows: Rows | None = None
        self._written: list[OperationResult] = []

    # -- state --------------------------------------------------------------------

    @property
    def connection(self) -> Any:
        """The connection of the cursor."""
        return self._connection

    @property
    def description(self) -> tuple[ColumnDescription, ...] | None:
        """The columns of the last statement's rows; None if it has none."""
        return None if self._rows is None else columns_of(self._rows.schema)

    @property
    def rowcount(self) -> int:
        """The number of rows that a query has returned, or a write inserted, updated and deleted.

        -1 if that is not known. Reading the count of a write makes it part of the transaction: if
        another client's commit would change it, the commit conflicts.
        """
        if self._rows is not None:
            return self._rows.count
        return rows_written(self._written)

    @property
    def operations(self) -> tuple[OperationResult, ...]:
        """The writes of the last statement; getting them reads no count."""
        return tuple(self._written)

    # -- statements --------------------------------------------------------------

    def execute(
        self, operation: str, parameters: Mapping[str, object] | Sequence[object] | None = None
    ) -> Self:
        """Run one or several statements; the cursor then has the rows of the last one.

        Parameters
        ----------
        operation : str
            SQL. Values are written ``:name``.
        parameters : Mapping, optional
            The values by name.

        Raises
        ------
        ProgrammingError, NotSupportedError
            The statement or its parameters are wrong.
        DataError, IntegrityError
            Rows don't fit the table. The transaction is as it was before.
        TransactionConflict
            The transaction has failed: ``rollback()``, and run it again.
        """
        self._begin(operation)
        self._keep(self._state.run(operation, one_set(operation, parameters)))
        return self

    def executemany(
        self, operation: str, seq_of_parameters: Iterable[Mapping[str, object]]
    ) -> Self:
        """Run a statement for each set of parameters, in one transaction; rows are not kept.

        An INSERT with one row of VALUES is run once for all sets, and writes few files. So is an
        UPDATE or DELETE by a key (``WHERE id = :id``), an UPDATE only if no two sets have the same
        key. Any other statement is run once for each set.

        Parameters
        ----------
        operation : str
            SQL. Values are written ``:name``.
        seq_of_parameters : iterable of Mapping, or Arrow data
            Mappings with the same names; or an Arrow table whose columns have these names.

        Raises
        ------
        ProgrammingError, DataError, IntegrityError, NotSupportedError, TransactionConflict
            As for ``execute``. Outside of a transaction, an error means that nothing was written.
        """
        self._begin(operation)
        with self._state.together():
            for text, params, views, instead in many(operation, seq_of_parameters):
                done = self._state.run(text, params, views, may_be_refused=bool(instead))
                if done is None and instead:
                    runs = (self._state.run(operation, one) for one in instead)
                    self._written += [one for one in runs if isinstance(one, OperationResult)]
                elif isinstance(done, OperationResult):
                    self._written.append(done)
                elif done is not None:
                    raise ProgrammingError(
                        "executemany runs statements that write: use execute for a query"
                    )
        return self

    def setinputsizes(self, sizes: object) -> None:
        """Do nothing: PEP 249 requires it.

        Parameters
        ----------
        sizes : object
            Ignored.
        """

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing: PEP 249 requires it.

        Parameters
        ----------
        size, column : int
            Ignored.
        """

    # -- rows --------------------------------------------------------------------

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row; None after the last."""
        found = self._fetching().take(1)
        return found[0] if found else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next rows; an empty list after the last.

        Parameters
        ----------
        size : int, optional
            The most rows to return. If not given, ``arraysize``.
        """
        return self._fetching().take(self.arraysize if size is None else max(size, 0))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all remaining rows."""
        return self._fetching().take(None)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self

    def __next__(self) -> tuple[Any, ...]:
        found = self.fetchone()
        if found is None:
            raise StopIteration
        return found

    def fetch_arrow_table(self) -> pa.Table:
        """Return all remaining rows as an Arrow table."""
        return self._fetching().rest()

    def fetch_record_batch(self, rows_per_batch: int = 65_536) -> pa.RecordBatchReader:
        """Return all remaining rows as a reader of Arrow batches.

        Parameters
        ----------
        rows_per_batch : int
            The most rows of a batch.
        """
        if type(rows_per_batch) is not int or rows_per_batch < 1:
            raise ProgrammingError(
                f"rows_per_batch is a number of 1 or more, not {shown(rows_per_batch)}"
            )
        return self._fetching().rest().to_reader(max_chunksize=rows_per_batch)

    def fetch_df(self) -> Any:
        """Return all remaining rows as a pandas DataFrame."""
        return self._fetching().rest().to_pandas()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return all remaining rows for any Arrow consumer: ``pyarrow.table(cursor)``."""
        return self._fetching().rest().__arrow_c_stream__(requested_schema)

    # -- closing ------------------------------------------------------------------

    def close(self) -> None:
        """Release the rows; the cursor can't be used afterwards."""
        self._closed = True
        self._rows, self._written = None, []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._state.is_closed:
            raise InterfaceError("the connection of this cursor is closed: connect again")
        if self._closed:
            raise InterfaceError("the cursor is closed: take another one from the connection")

    def _begin(self, operation: object) -> None:
        self._check_open()
        if not isinstance(operation, str):
            raise ProgrammingError(f"a statement is text, not {shown(operation)}")
        if not operation.strip():
            raise ProgrammingError("the statement is empty: give one as text")
        self._rows, self._written = None, []

    def _keep(self, found: Any) -> None:
        if isinstance(found, OperationResult):
            self._written = [found]
        elif isinstance(found, pa.Table):
            self._rows = Rows(found)

    def _fetching(self) -> Rows:
        self._check_open()
        if self._rows is None:
            raise ProgrammingError("there are no rows to fetch: run a query by execute() before")
        return self._rows
