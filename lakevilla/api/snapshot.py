"""Snapshots: all tables of a lake at one global version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Literal, Self, get_args

from lakevilla.api.arguments import Hinted, check_choice, verbs_elsewhere
from lakevilla.api.border import with_border
from lakevilla.api.client.client import LakeClient
from lakevilla.api.client.discovering import leave_out, ref_of, summary, tables_html
from lakevilla.api.execution.executor import Executor
from lakevilla.api.execution.views import names_of_views
from lakevilla.api.frame import Frame
from lakevilla.api.history import utc_datetime
from lakevilla.api.reads import Reads
from lakevilla.api.run import begin_transaction
from lakevilla.display import HtmlFields
from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    TableNotFound,
    UnsupportedFormat,
    UnsupportedTableFeature,
    VersionNotFound,
)
from lakevilla.formats.base import FormatName
from lakevilla.lake.tables.discovery import all_shown
from lakevilla.lake.view import View
from lakevilla.results import OperationResult

__all__ = ["Snapshot", "TableVersion", "Verify", "once", "take_snapshot", "views", "views_of"]

#: A comparison of data files with their hashes before their rows are returned, on or off.
Verify = Literal["off", "on"]

#: Errors that concern one table: HEAD and the objects that belong to it were read before.
_WRONG_WITH_ONE = (
    TableNotFound,
    VersionNotFound,
    UnsupportedTableFeature,
    UnsupportedFormat,
    CorruptObject,
    InvalidOperation,  # the table was moved away, or this client does not know its catalog
)


@dataclass(frozen=True, slots=True)
class TableVersion(HtmlFields):
    """A table's version in a snapshot, for readers without LakeVilla.

    Attributes
    ----------
    uri : str
        The location of the table's directory.
    format : {"delta", "iceberg"}
        The format of the table.
    version : int or None
        The version of the table's own log; None if no log version equals the state.
    snapshot_id : int or None
        The Iceberg snapshot of this state; None for Delta, and before the first snapshot.

    Examples
    --------
    >>> stock = lake.snapshot().versions["stock"]
    >>> stock.format, stock.version  # for any other reader: deltalake's DeltaTable(uri, version)
    ('delta', 0)
    """

    uri: str
    format: FormatName
    version: int | None
    snapshot_id: int | None = None


@with_border
class Snapshot(Reads[Frame], Hinted):
    """The lake at one global version; a context manager or a plain object.

    Without a version or time the snapshot shows the lake at the time of its first use, with all
    foreign commits that are in the tables' logs by then. A snapshot of a given version has only
    those foreign commits that had a place in the lake's order.

    Examples
    --------
    >>> with lake.snapshot() as now:
    ...     now.version, now.sql("SELECT sku FROM stock WHERE qty > 1").to_pylist()
    (2, [{'sku': 'tea'}])
    """

    _elsewhere = verbs_elsewhere("a snapshot only reads, and a transaction writes")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._executor.abort()

    def __repr__(self) -> str:
        client, bound = self._executor.client, self._executor.state.bound
        if not bound.is_bound:
            where = f"{client.root}{ref_of(client)}"
            return f"<lakevilla.Snapshot of {where}: bound when it is first read>"
        known = summary(self._executor.state.head)
        return f"<lakevilla.Snapshot of {client.root}{ref_of(client)}{known}>"

    def _repr_html_(self) -> str:
        client, head = self._executor.client, self._executor.state.head
        return tables_html(repr(self).strip("<>"), client, head)

    @property
    def version(self) -> int:
        """The lake's global version; 0 before its first commit."""
        state = self._executor.state_of_lake()
        return 0 if state is None else state.sequence

    @property
    def timestamp(self) -> datetime | None:
        """The time at which that version was created (aware, in UTC); None if no commit has it."""
        state = self._executor.state_of_lake()
        if state is None or not state.commits:
            return None
        return utc_datetime(state.commits[-1].timestamp_ms)

    @property
    def versions(self) -> dict[str, TableVersion]:
        """For each table, the log version that shows the same state to readers without LakeVilla.

        Tables that can't be opened or are not kept so far back are left out; reading one
        raises an error that says why.
        """
        return {
            name: TableVersion(
                self._executor.client.uri_of(view.location),
                view.snapshot.format,
                view.log_version,
                view.snapshot_id,
            )
            for name, view in views(self._executor).items()
        }

    def sql(
        self,
        query: str,
        params: Mapping[str, object] | None = None,
        *,
        views: Mapping[str, object] | None = None,
    ) -> Frame:
        """Run one SELECT over all tables at this version.

        Parameters
        ----------
        query : str
            A SELECT.
        params : Mapping, optional
            Values of ``:name`` in the SQL.
        views : Mapping, optional
            Frames by the names that the query uses for them.

        Raises
        ------
        TableNotFound, InvalidOperation, VersionNotFound
            Also for a statement that writes.
        """
        rows = super().sql(query, params, views=views)
        if isinstance(rows, OperationResult):
            raise InvalidOperation("a snapshot runs one SELECT: it writes nothing")
        return rows

    def attach(
        self, connection: object, tables: str | Sequence[str] | Mapping[str, str] | None = None
    ) -> None:
        """Make the tables at this version views of a DuckDB connection of yours.

        The table ``orders`` is the view ``orders``; ``sales/orders`` is ``sales.orders`` and
        ``"sales/orders"``. Rows are read when a query needs them: only the columns it needs, by
        LakeVilla's reader, with deletes, renamed columns and types right whatever the connection's
        settings. The views show this version for as long as the connection lives and the files are
        kept (``vacuum`` keeps them for the table's retention); attached again, they show the newer
        state. They are temporary views: other connections and cursors don't see them, and no
        database file keeps them. A view whose name begins with __lakevilla provides the rows of
        another view.

        This works on a lake with ``spark=`` too: the driver reads what a query needs.

        Parameters
        ----------
        connection : duckdb.DuckDBPyConnection
            Or the module ``duckdb``, for its default connection.
        tables : str, sequence of str, or Mapping of str to str, optional
            Some tables; or the names of views, and the table that each shows. All tables if not
            given.

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
        >>> lake.snapshot().attach(connection, {"goods": "stock"})
        >>> connection.sql("SELECT sku FROM goods WHERE qty > 1").fetchall()
        [('tea',)]
        """
        from lakevilla.api.reading.attached import attach  # imports modules that few callers need

        executor = self._executor
        names = [] if tables else [*views(executor), *names_of_views(executor)]
        attach(executor, connection, tables, names)


def take_snapshot(
    client: LakeClient,
    executor: type[Executor[Frame]],
    version: int | None,
    timestamp: datetime | str | None,
    *,
    verify: Verify,
) -> Snapshot[Frame]:
    """Return all tables at one global version, now or in the past; see ``Lake.snapshot``."""
    check_choice("verify", verify, *get_args(Verify))
    reading = begin_transaction(client, executor, read_only=True, verify=verify == "on")
    if version is not None or timestamp is not None:
        reading.bind_to(version, timestamp)
    return Snapshot(reading)


@contextmanager
def once(state: Snapshot[Frame]) -> Iterator[Snapshot[Frame]]:
    """Enter a snapshot for one query, and report its end to the listener."""
    with state._executor.client.ending(state._executor.state):
        yield state


def views(executor: Executor) -> dict[str, View]:
    """Return all tables in the state that a transaction reads, by their names in a listing.

    A table with an error of its own is left out and reported, so that it does not hide the other
    tables. But an error of the store is raised, so that callers don't take an outage for a missing
    table.
    """
    state = executor.state_of_lake(whole=True)
    return {} if state is None else views_of(executor, executor.run(all_shown(state)))


def views_of(executor: Executor, tables: Mapping[str, str]) -> dict[str, View]:
    """Return some tables, by name, given with their locations; errors are as in ``views``."""
    found = {}
    for name, view in executor.look_at_each(tables).items():
        if not isinstance(view, LakeVillaError):
            found[name] = view
            continue
        if not isinstance(view, _WRONG_WITH_ONE):
            raise view
        leave_out(
            executor.client, name, view.message, view.kind, quiet=isinstance(view, VersionNotFound)
        )
    return found
