"""States of a lake: past versions, tags, and the check of their files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Generic, Literal, get_args

import pyarrow as pa

from lakevilla.api.applying.merge import StateLike, state_name
from lakevilla.api.arguments import check_choice, check_patterns
from lakevilla.api.client.catalogs import catalog_names, named_report
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.api.session.session import checked_limits, limits_of
from lakevilla.api.snapshot import Snapshot, once
from lakevilla.engines.deletes import read_deletes
from lakevilla.engines.statistics import limited
from lakevilla.errors import InvalidOperation
from lakevilla.maintenance.verify.verify import verify
from lakevilla.results import Report
from lakevilla.settings import shown
from lakevilla.sql.expressions.bind import Predicate
from lakevilla.store.cached import fresh

__all__ = [
    "States",
    "Verify",
    "Verifying",
]

# -------------------- lake states
#
# Reads of a lake: its tables at one global version, now or in the past.


#: The comparison of data files with their hashes before they are read.
Verify = Literal["off", "on"]


class States(Generic[Frame]):
    """The reads of a lake's tables."""

    _begin: Callable[..., Executor[Frame]]

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        *,
        params: Mapping[str, object] | None = None,
        version: int | None = None,
        timestamp: datetime | None = None,
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
            return state.read(table, columns, where, params=params)

    def scan(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        *,
        params: Mapping[str, object] | None = None,
        version: int | None = None,
        timestamp: datetime | None = None,
        verify: Verify = "off",
    ) -> pa.RecordBatchReader:
        """Return rows as ``read``, streamed in bounded memory; all show the state of this call.

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

    def sql(
        self,
        query: str,
        params: Mapping[str, object] | None = None,
        *,
        views: Mapping[str, object] | None = None,
        version: int | None = None,
        timestamp: datetime | None = None,
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
        with once(self.snapshot(version, timestamp)) as state:
            limits = checked_limits(state._executor.dialect, given)
            with limited(limits_of(limits)):
                return state.sql(query, params, views=views)

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

    def snapshot(
        self,
        version: int | None = None,
        timestamp: datetime | None = None,
        *,
        verify: Verify = "off",
    ) -> Snapshot[Frame]:
        """Return all tables at one global version, now or in the past. Nothing is written.

        Parameters
        ----------
        version : int, optional
            A global version from ``history``.
        timestamp : datetime, optional
            Aware. Gives the newest global version that is not later; a time in the future means
            now.
        verify : {"off", "on"}
            With ``"on"`` each data file whose hash is known is fetched whole and compared with
            it before a row of it is returned; a file that is not what was written raises
            ``CorruptObject``. Files that other clients have written are read as always: see
            ``docs/integrity.md``.

        Raises
        ------
        VersionNotFound
            The version does not exist or is not kept any more. If only one table is not kept so
            far back, reading that table raises it.
        InvalidOperation
            Both were given, or the time has no zone.
        """
        check_choice("verify", verify, *get_args(Verify))
        executor = self._begin({"read_only": True, "verify": verify == "on"})
        if version is not None or timestamp is not None:
            executor.bind_to(version, timestamp)
        return Snapshot(executor)


# -------------------- verifying
#
# Verification of all that a lake holds: that it exists, and is what was written.


class Verifying:
    """The check of a lake's own integrity."""

    _client: LakeClient

    def verify(
        self,
        tables: Sequence[str] | None = None,
        *,
        at: StateLike | None = None,
        sample: float = 1.0,
    ) -> Report:
        """Compare the lake's objects and data files with what is known of them. Changes nothing.

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
            again each day. The size of each file is requested in any case.

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
        client = self._client
        client.main("verify")
        patterns = check_patterns("tables", tables)
        share = _share(sample)
        state = None if at is None else state_name(client, "at", at)
        with client.measured("verify"):
            looking = verify(client.context, patterns, state, share, read_deletes)
            report = client.run(fresh(looking))
        return named_report(report, catalog_names(client.context))


def _share(sample: object) -> float:
    is_number = isinstance(sample, int | float) and not isinstance(sample, bool)
    if not is_number or not 0 < sample <= 1:  # type: ignore[operator]
        raise InvalidOperation(
            f"sample must be a share of the files, above 0 and at most 1, not {shown(sample)}"
        )
    return float(sample)  # type: ignore[arg-type]
