"""The reads of transactions and snapshots: rows of a table, its changes, and SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic

import pyarrow as pa

from lakevilla.api.arguments import check_text, check_views, parameters
from lakevilla.api.execution.executor import Executor
from lakevilla.api.execution.inserting import constants_in_a_view
from lakevilla.api.execution.sql import run_statement
from lakevilla.api.frame import Frame
from lakevilla.api.pasts import Pasts, without_marked
from lakevilla.errors import InvalidOperation
from lakevilla.results import OperationResult
from lakevilla.sql.expressions.bind import Predicate
from lakevilla.sql.expressions.syntax.slips import place_within
from lakevilla.sql.statements.reader import with_nested
from lakevilla.sql.statements.script.refs import without_pasts
from lakevilla.sql.statements.statement import Statement

__all__ = ["Reads"]


class Reads(Generic[Frame]):
    """The methods that read a state of a lake."""

    def __init__(self, executor: Executor[Frame]) -> None:
        self._executor = executor

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        *,
        limit: int | None = None,
        params: Mapping[str, object] | None = None,
    ) -> Frame:
        """Return rows of a table, a transaction's own changes included.

        At the commit of a transaction, the rows that it has read are validated.

        On a lake with ``spark=`` the result is a DataFrame, which Spark evaluates when you use
        it, always in the state of this call. The rows count as read now, with this ``where``:
        LakeVilla does not know what a later ``filter`` leaves out. A DataFrame with the
        transaction's own changes is valid until the transaction ends; others are valid as long
        as the files are kept.

        Parameters
        ----------
        table : str
            Its path below the root, a registered name, or its name in a catalog.
        columns : sequence of str, optional
            All columns if not given.
        where : str, optional
            A predicate; the narrower it is, the fewer conflicts there are.
        limit : int, optional
            The most rows to return, whichever are read first. In a transaction all rows of
            ``where`` count as read.
        params : Mapping, optional
            Values of ``:name`` in ``where``.

        Raises
        ------
        TableNotFound, InvalidOperation, ConflictError
        VersionNotFound
            In a snapshot of the past: the table or one of its files is not kept so far back.
        """
        return self._executor.read(table, columns, where, params, limit)

    def scan(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        *,
        params: Mapping[str, object] | None = None,
    ) -> pa.RecordBatchReader:
        """Stream the rows that ``read`` returns, in bounded memory, until the transaction ends.

        Parameters
        ----------
        table : str
            Its path below the root, a registered name, or its name in a catalog.
        columns : sequence of str, optional
            All columns if not given.
        where : str, optional
            A predicate; without it all rows.
        params : Mapping, optional
            Values of ``:name`` in the SQL.

        Raises
        ------
        TableNotFound, InvalidOperation, ConflictError
        """
        return self._executor.scan(table, columns, where, params)

    def changes(
        self,
        table: str,
        since: int,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        params: Mapping[str, object] | None = None,
    ) -> Frame:
        """Return rows that changed after global version ``since``, up to the state that is read
        here.

        Added columns: ``_change_type`` (``insert``, ``delete``,
        ``update_preimage``, ``update_postimage``), ``_commit_version`` (global) and
        ``_commit_timestamp``. Without Delta's change data feed a changed row is a ``delete``
        and an ``insert``. The transaction's own changes are not included, nor are changes of
        other clients that have no place in the lake's order yet. Later commits never conflict
        with this read.

        Parameters
        ----------
        table : str
            Its path below the root, a registered name, or its name in a catalog.
        since : int
            A global version; changes up to it are not included.
        columns : sequence of str, optional
            All columns if not given.
        where : str, optional
            A predicate; without it all rows.
        params : Mapping, optional
            Values of ``:name`` in the SQL.

        Raises
        ------
        TableNotFound, InvalidOperation
        VersionNotFound
            The history since then, or a file of it, is not kept any more.
        """
        return self._executor.changes(table, since, columns, where, params)

    def sql(
        self,
        query: str,
        params: Mapping[str, object] | None = None,
        *,
        views: Mapping[str, object] | None = None,
    ) -> Frame | OperationResult:
        """Run one SELECT (in DuckDB's dialect; in Spark's with ``spark=``).

        A transaction that may write also runs INSERT, UPDATE, DELETE or MERGE.

        A statement sees the lake's tables (``sales.orders`` is the table ``sales/orders``), the
        frames in ``views``, and the tables in which the lake shows its catalog (docs/catalog.md).
        It sees nothing else: no files, no network, no Python variables. A SELECT counts as a read
        of all rows of its tables.

        Parameters
        ----------
        query : str
            One statement.
        params : Mapping, optional
            Values of ``:name`` in the SQL.
        views : Mapping, optional
            Frames by the names that the statement uses for them.

        Returns
        -------
        Frame or OperationResult

        Raises
        ------
        TableNotFound, InvalidOperation, ConflictError
        """
        return self._sql(query, params, views)

    def _sql(
        self,
        query: str,
        params: Mapping[str, object] | None,
        views: Mapping[str, object] | None,
        statement: Statement | None = None,
    ) -> Frame | OperationResult:
        """Run a query; ``statement`` is the query as parsed before, or None."""
        executor = self._executor
        with executor.kept(), executor.client.measured("sql", None, executor.state.id):
            with self._executor.verb_scope():
                self._executor.state.check_open("sql")
                query = check_text("query", query)
            query, given = constants_in_a_view(
                executor.client, query, check_views(views), executor.dialect
            )
            values = parameters(params, nested=True)
            text, pasts = without_pasts(query, executor.dialect)
            if pasts:
                known = Pasts(executor.client, type(executor), values)
                given = {**given, **known.views(pasts, executor)}
                values = without_marked(text, pasts, values, executor.dialect)
            text, values = with_nested(text, values, executor.dialect)
            try:
                return run_statement(
                    executor, text, values, given, statement if text == query else None
                )
            except InvalidOperation as error:
                place_within(error, query)
                raise
