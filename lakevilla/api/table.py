"""Tables of a lake, for users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, overload

import pyarrow as pa

from lakevilla.api.applying.merge_branch import StateLike
from lakevilla.api.applying.states import restore_table
from lakevilla.api.arguments import (
    Hinted,
    check_flag,
    check_hours,
    check_size,
    check_z_order,
    verbs_elsewhere,
)
from lakevilla.api.border import with_border
from lakevilla.api.client.client import LakeClient
from lakevilla.api.client.discovering import known_size, ref_of
from lakevilla.api.client.names import refuse_link
from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.api.history import own_version, table_history, table_versions
from lakevilla.api.optimizing import check_optimize_features, optimize_table
from lakevilla.api.reading.lazy_frame import frame_of, lazy_frame
from lakevilla.api.run import begin_transaction
from lakevilla.arrow.opening import LiveRows
from lakevilla.display import HtmlFields, size_text, table_html
from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import FormatName
from lakevilla.lake.view import View
from lakevilla.maintenance.vacuum import vacuum
from lakevilla.results import KeptVersion, MergeResult, OptimizeResult, TableHistoryEntry
from lakevilla.sql.expressions.bind import Predicate
from lakevilla.transaction.state.values import Feature

if TYPE_CHECKING:
    import duckdb  # noqa: TID251 (the type of what it gives back)
    import pandas as pd
    import polars as pl

__all__ = ["Capabilities", "Table", "capabilities_of", "table_of"]


@with_border
@dataclass(frozen=True, slots=True)
class Table(LiveRows, Hinted, Generic[Frame]):
    """A table's description at one time; verbs use the table's state at the time of their call.

    Attributes
    ----------
    name : str
        The table's name in the lake.
    uri : str
        The location of the table's directory.
    format : {"delta", "iceberg"}
        The format of the table.
    version : int or None
        The log version that shows this state to readers without LakeVilla; None if there is none
        yet (a commit is not published).
    snapshot_id : int or None
        The Iceberg snapshot of this state; None for Delta, and before the first snapshot.
    schema : pyarrow.Schema
        The columns in order, those of partitions included.
    partition_by : tuple of str
        The partitioning, in the form that ``create_table`` takes; empty if there is none.
    properties : Mapping of str to str
        The table's properties.
    guarded : bool
        True if clients without LakeVilla refuse to write the table: see ``Lake.guard``.

    Examples
    --------
    >>> table = lake.table("stock")
    >>> table.format, table.version, table.schema.names
    ('delta', 0, ['sku', 'qty'])
    """

    _elsewhere: ClassVar[Mapping[str, str]] = {
        **verbs_elsewhere("a transaction writes"),
        "changes": "a snapshot has them: lake.snapshot().changes(name, since)",
        "drop": "the lake does that: lake.drop_table(name)",
        "rename": "the lake does that: lake.rename_table(name, new)",
        "scan": "the lake reads in batches: lake.scan(name); read() reads at once",
        "to_arrow": "read() gives an Arrow table",
        "to_pyarrow_table": "read() gives an Arrow table",
    }

    name: str
    uri: str
    format: FormatName
    version: int | None
    snapshot_id: int | None
    schema: pa.Schema
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]
    guarded: bool
    _limits: tuple[str, ...] = field(default=(), repr=False, compare=False)
    _client: LakeClient | None = field(default=None, repr=False, compare=False)
    _executor: type[Executor[Frame]] | None = field(default=None, repr=False, compare=False)

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order; ``schema`` has their types."""
        return list(self.schema.names)

    def __repr__(self) -> str:
        columns = len(self.schema)
        return (
            f"<lakevilla.Table {self._called}: {self.format}, version {self.version}, "
            f"{columns} column{'' if columns == 1 else 's'}, {self.uri}>"
        )

    def _repr_html_(self) -> str:
        return table_html(
            f"table {self._called}: {self._described()}",
            ("column", "type", "", ""),
            [
                (
                    field.name,
                    field.type,
                    "" if field.nullable else "not null",
                    "partition" if field.name in self.partition_by else "",
                )
                for field in self.schema
            ],
        )

    def _described(self) -> str:
        size = None
        if self._client is not None:
            size = known_size(self._client, self.uri, self.version)
        parts = [self.format, f"version {self.version}"]
        if size is not None:
            counts = {"row": size.rows, "file": size.files}
            parts += [
                f"{count} {what}{'' if count == 1 else 's'}"
                for what, count in counts.items()
                if count is not None
            ]
            parts.append(size_text(size.bytes or 0))
        parts += ["guarded"] if self.guarded else []
        return ", ".join([*parts, self.uri])

    @property
    def _called(self) -> str:
        """The table's name, and the ref at which it is read."""
        return self.name + ("" if self._client is None else ref_of(self._client))

    def read(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        *,
        limit: int | None = None,
        params: Mapping[str, object] | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        iceberg_ref: int | str | None = None,
    ) -> Frame:
        """Return the table's present or past rows; a DataFrame on a lake with ``spark=``.

        A past state is a version of the table's own log, also from before the table joined the
        lake: its rows and columns are those that readers without LakeVilla get at that version. For
        all tables of the lake at one time, use ``lake.snapshot(version=...)``, whose versions are
        the lake's.

        Parameters
        ----------
        columns : sequence of str, optional
            All columns if not given.
        where : str, optional
            A predicate; without it all rows.
        limit : int, optional
            The most rows to return, whichever are read first. In a transaction all rows of
            ``where`` count as read.
        params : Mapping, optional
            Values of ``:name`` in ``where``.
        version : int, optional
            The table's own version, as ``versions`` and ``history`` list them: Delta's number of
            the log entry; for Iceberg the number of the metadata file, counted from 0 (for snapshot
            ids see ``iceberg_ref``).
        timestamp : datetime or str, optional
            An aware time. The newest version that is not later is read, by the times that
            ``versions`` returns; so a future time means now.
        iceberg_ref : int or str, optional
            Iceberg's own name of a state: a snapshot id, a branch or a tag. A branch has the
            table's present columns, a snapshot or a tag has the columns of its time.

        Raises
        ------
        TableNotFound
        VersionNotFound
            The version does not exist, or is not kept any more: the log was cleaned up, the
            snapshot expired, or a data file vacuumed. The message says which versions are left.
        InvalidOperation
            More than one of ``version``, ``timestamp`` and ``iceberg_ref``; a time without a zone.

        Examples
        --------
        >>> lake.table("stock").read(["sku"], where="qty > :n", params={"n": 1}).to_pylist()
        [{'sku': 'tea'}]
        >>> lake.table("stock").read(version=0).to_pylist()
        [{'sku': 'tea', 'qty': 5}]
        """
        executor = self._reading_at(version, timestamp, iceberg_ref)
        return executor.read(self.name, columns, where, params, limit)

    def head(self, rows: int = 5) -> Frame:
        """Return some present rows: a look at the table.

        Parameters
        ----------
        rows : int
            The most rows to return, whichever are read first.

        Examples
        --------
        >>> lake.table("stock").head(1).to_pylist()
        [{'sku': 'tea', 'qty': 5}]
        """
        return self.read(limit=rows)

    def count(
        self, where: Predicate | None = None, *, params: Mapping[str, object] | None = None
    ) -> int:
        """Return the number of the table's present rows; it reads one column, in batches.

        Parameters
        ----------
        where : str, optional
            A predicate; without it all rows.
        params : Mapping, optional
            Values of ``:name`` in ``where``.

        Examples
        --------
        >>> lake.table("stock").count(where="qty > 1")
        1
        """
        rows = self._reading("count").scan(self.name, [_narrowest(self.schema)], where, params)
        return sum(batch.num_rows for batch in rows)

    def _reading_at(
        self,
        version: int | None,
        timestamp: datetime | str | None,
        iceberg_ref: int | str | None = None,
    ) -> Executor[Frame]:
        """Return an executor that reads the table's present state, or a state of its own log."""
        own = own_version(self.name, version, timestamp, iceberg_ref)
        executor = self._reading("read")
        if own is not None:
            executor.bind_to_own(own)
        return executor

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        *,
        params: Mapping[str, object] | None = None,
    ) -> pd.DataFrame:
        """Return the table's present rows as a DataFrame of pandas.

        This works on a lake with ``spark=`` too: the rows are read into the driver's memory, and
        must fit there.

        Parameters
        ----------
        columns : sequence of str, optional
            All columns if not given.
        where : str, optional
            A predicate; without it all rows.
        params : Mapping, optional
            Values of ``:name`` in ``where``.

        Raises
        ------
        TableNotFound
        InvalidOperation
            Also if pandas is not installed.

        Examples
        --------
        >>> lake.table("stock").to_pandas()["qty"].sum()
        np.int64(5)
        """
        if find_spec("pandas") is None:
            raise InvalidOperation("to_pandas needs pandas: pip install pandas")
        rows = self._reading("to_pandas").scan(self.name, columns, where, params)
        return rows.read_all().to_pandas()

    @overload
    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        *,
        params: Mapping[str, object] | None = None,
        lazy: Literal[False] = False,
    ) -> pl.DataFrame: ...

    @overload
    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        *,
        params: Mapping[str, object] | None = None,
        lazy: Literal[True],
    ) -> pl.LazyFrame: ...

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        *,
        params: Mapping[str, object] | None = None,
        lazy: bool = False,
    ) -> pl.DataFrame | pl.LazyFrame:
        """Return the table's present rows as a frame of polars.

        With ``lazy``, nothing is read before the frame is collected. Then only the columns that the
        query needs are read, from the files that may have rows for its filters. However often it is
        collected, it shows the state of this call, as long as the files are kept (``vacuum`` keeps
        them for the table's retention). Filters choose files where they compare columns with
        constants or columns, by operators or by polars' is_in, is_between, is_null, is_nan and
        str.starts_with, also under AND, OR and NOT. Other filters see all rows.

        This works on a lake with ``spark=`` too: the rows are read into the driver's memory, and
        must fit there.

        Parameters
        ----------
        columns : sequence of str, optional
            All columns if not given.
        where : str, optional
            A predicate; without it all rows.
        params : Mapping, optional
            Values of ``:name`` in ``where``.
        lazy : bool
            Return a ``LazyFrame``, which is read in batches.

        Raises
        ------
        TableNotFound
        InvalidOperation
            Also if polars is not installed.

        Examples
        --------
        >>> import polars as pl
        >>> lake.table("stock").to_polars(lazy=True).filter(pl.col("qty") > 1).collect().rows()
        [('tea', 5)]
        """
        executor = self._reading("to_polars")
        if check_flag("lazy", lazy):
            return lazy_frame(executor, self.name, columns, where, params)
        return frame_of(executor.scan(self.name, columns, where, params).read_all())

    def to_duckdb(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        *,
        params: Mapping[str, object] | None = None,
        connection: object = None,
    ) -> duckdb.DuckDBPyRelation:
        """Return the table's present rows as a relation of DuckDB.

        The relation is read each time that it is used: only the columns that a query needs, in
        batches. It shows the state of this call, as long as the files are kept. ``Lake.attach``
        makes views of all tables.

        This works on a lake with ``spark=`` too: the rows are read by the driver, in batches.

        Parameters
        ----------
        columns : sequence of str, optional
            All columns if not given.
        where : str, optional
            A predicate; without it all rows.
        params : Mapping, optional
            Values of ``:name`` in ``where``.
        connection : duckdb.DuckDBPyConnection, optional
            DuckDB's default connection if not given.

        Raises
        ------
        TableNotFound, InvalidOperation

        Examples
        --------
        >>> lake.table("stock").to_duckdb().filter("qty > 1").project("sku").fetchall()
        [('tea',)]
        """
        # imports modules that few callers need
        from lakevilla.api.reading.attached import relation_of

        executor = self._reading("to_duckdb")
        return relation_of(executor, self.name, columns, where, params, connection)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the present rows, in batches, for any library that takes Arrow.

        Such libraries are pandas, polars and pyarrow. For DuckDB ``to_duckdb`` is better. A verb of
        a transaction refuses a table as data, since it reads outside of the transaction: pass
        ``txn.read`` of it.
        """
        rows = self._reading("read").scan(self.name, None, None, None)
        return rows.__arrow_c_stream__(requested_schema)

    def history(self, limit: int | None = None) -> list[TableHistoryEntry]:
        """Return the entries of the table's log, newest first, as far back as the log is kept.

        Commits that are decided but not published yet are not in the log; ``lake.history()`` has
        them.

        Parameters
        ----------
        limit : int, optional
            The maximum number of entries.
        """
        return table_history(self._acting("history"), self.uri, limit)

    def versions(self, limit: int | None = None) -> list[KeptVersion]:
        """Return the versions of the table's own log that can still be read, newest first.

        Versions from before the table was in the lake are included. Commits that are decided and
        not published yet are not. A Delta table takes one LIST; data files of the versions may be
        vacuumed, which only a read shows. An Iceberg table takes one GET per version, and versions
        whose snapshots were expired are left out.

        Parameters
        ----------
        limit : int, optional
            The maximum number of versions.

        Raises
        ------
        TableNotFound

        Examples
        --------
        >>> [kept.version for kept in lake.table("stock").versions()]
        [0]
        """
        return table_versions(self._acting("versions"), self.uri, limit)

    def restore(self, to: StateLike) -> MergeResult:
        """Set the table back to an earlier state, by a new commit. No data is read or copied.

        ``lake.rollback`` does that for several tables at one global version.

        Parameters
        ----------
        to : int, datetime or str
            A version of the table's own log, as in ``versions``, also from before it joined the
            lake; an aware time; or a ref of the lake.

        Raises
        ------
        VersionNotFound
            The state is not kept any more, or a vacuum may be deleting files of it.
        RefNotFound
        ConflictError
            Other transactions wrote the table at each attempt.

        Examples
        --------
        >>> _ = lake.run(lambda txn: txn.delete("stock", where="true"))
        >>> lake.table("stock").restore(0).tables
        {'stock': 'physical'}
        >>> lake.read("stock").to_pylist()
        [{'sku': 'tea', 'qty': 5}]
        """
        return restore_table(self._acting("restore"), self.name, to)

    def optimize(
        self,
        where: Predicate | None = None,
        *,
        target_file_size_bytes: int | None = None,
        z_order_by: str | Sequence[str] = (),
        features: Feature = Feature.R | Feature.I,
    ) -> OptimizeResult:
        """Combine small files, and rewrite those with deleted rows.

        Every other transaction has priority: reads don't conflict with this one, writes are redone
        on the new files, and ``optimize`` leaves files alone that other transactions change
        meanwhile.

        Parameters
        ----------
        where : str, optional
            A predicate on partition columns; other partitions stay unchanged. For an Iceberg table,
            a predicate on the columns that its partitions are made of: files that can have no such
            row stay unchanged.
        target_file_size_bytes : int, optional
            Default: the table's ``delta.targetFileSize``, else the setting.
        z_order_by : str or sequence of str
            Rewrite all files, each partition ordered along a Z curve over these columns.
        features : Feature
            With ``Feature.CT`` it waits for its turn in the table's queue before it chooses files,
            and those behind wait for it, so they change none of its files. With ``Feature.R`` too,
            it is saved once its files are made. If the process dies then, the next such call
            commits them, after a lease; so does ``lake.resume`` with the transaction's id.

        Raises
        ------
        InvalidOperation
            ``where`` uses other columns than partition columns, a column has no order, or an
            argument is wrong.

        Examples
        --------
        >>> queued = lv.Feature.R | lv.Feature.CT | lv.Feature.I
        >>> lake.table("stock").optimize(features=queued).files_removed
        0
        """
        columns = check_z_order(self.name, z_order_by)
        target_file_size_bytes = check_size(self.name, target_file_size_bytes)
        check_optimize_features(self.name, features)
        client = self._acting("optimize")
        return optimize_table(client, self.name, where, target_file_size_bytes, columns, features)

    def vacuum(
        self,
        retention_hours: float | None = None,
        dry_run: bool = True,
        *,
        enforce_retention_duration: bool = True,
    ) -> list[str]:
        """Delete files that no state of the table within the retention needs.

        It keeps files that running and saved transactions may still commit, and files that
        versions of the lake within the retention use. It does not touch change files and other
        directories that begin with ``_``. For an Iceberg table, it first expires the snapshots
        that were replaced before the retention, except those that a branch or tag needs.

        Parameters
        ----------
        retention_hours : float, optional
            Default: the table's ``delta.deletedFileRetentionDuration``, a week if unset, or
            its ``history.expire.max-snapshot-age-ms``, five days if unset.
        dry_run : bool
            Only return the paths.
        enforce_retention_duration : bool
            Refuse less than the table's retention. If False, readers of an older state without
            a record in the store (a snapshot, a short transaction, another client) may find
            files missing.

        Returns
        -------
        list of str
            The paths, relative to the table.

        Raises
        ------
        InvalidOperation
            ``retention_hours`` is below the table's retention or not a number of hours; or the
            table's ``gc.enabled`` is not true; or another table uses its directory, too.
        UnsupportedTableFeature
            The table is in a catalog, whose clients clean it up.
        """
        check_hours(self.name, retention_hours)
        client = self._acting("vacuum").main("vacuum")
        dry_run = check_flag("dry_run", dry_run)
        enforce = check_flag("enforce_retention_duration", enforce_retention_duration)
        location = client.location_of(self.name)
        if not dry_run:
            refuse_link(client.root, self.name, location)
            client.ensure_safe_store()
        program = vacuum(
            client.context,
            location,
            retention_seconds=None if retention_hours is None else retention_hours * 3600,
            dry_run=dry_run,
            enforce_retention=enforce,
        )
        with client.measured("vacuum", self.name):
            return client.run(program)

    def _reading(self, verb: str) -> Executor[Frame]:
        """Begin a read of the lake's present state; its rows may outlive this object."""
        client = self._acting(verb)
        assert self._executor is not None  # ``table_of`` has set it
        return begin_transaction(client, self._executor, read_only=True)

    def _acting(self, verb: str) -> LakeClient:
        if self._client is None:
            raise InvalidOperation(
                f"{verb}: this description of table {self.name} belongs to no lake: call "
                "`lake.table(name)` for one that does",
                table=self.name,
            )
        return self._client


def table_of(executor: Executor[Frame], name: str, view: View) -> Table[Frame]:
    """Return the description of a table in the state of a view."""
    client = executor.client
    layout = view.snapshot.layout
    return Table(
        name=name,
        uri=client.uri_of(view.location),
        format=view.snapshot.format,
        version=view.log_version,
        snapshot_id=view.snapshot_id,
        schema=layout.schema,
        partition_by=layout.partition_by or tuple(part.spelled for part in layout.partition_fields),
        properties=dict(layout.properties),
        guarded=view.guarded,
        _limits=view.snapshot.limits,
        _client=client,
        _executor=type(executor),
    )


@dataclass(frozen=True, slots=True)
class Capabilities(HtmlFields):
    """The guarantees for a table, and what is not guaranteed.

    Attributes
    ----------
    guarded : bool
        True if clients without LakeVilla refuse to write the table: see ``Lake.guard``.
    other_writers : {"refused", "reconciled"}
        The treatment of a client without LakeVilla that writes the table.
    guarantees : tuple of str
        In words, with the changes that are refused on the table.

    Examples
    --------
    >>> lake.guard("stock")
    >>> lake.capabilities("stock").other_writers
    'refused'
    """

    guarded: bool
    other_writers: Literal["refused", "reconciled"]
    guarantees: tuple[str, ...]


def capabilities_of(table: Table) -> Capabilities:
    """Return the guarantees for this table (design, section 10)."""
    common = (
        "transactions with Feature.I are serializable and linearizable among each other",
        "readers of one table see each commit as a whole",
        *table._limits,
    )
    if table.guarded:
        return Capabilities(
            True,
            "refused",
            (*common, "no other client can commit between validation and publishing"),
        )
    return Capabilities(
        False,
        "reconciled",
        (
            *common,
            "a foreign commit has its place once a transaction absorbs it",
            "a foreign update between validation and publishing is reconciled and reported "
            "as ForeignConflict"
            + ("; `guard` closes that window" if table.format == "delta" else ""),
        ),
    )


def _narrowest(schema: pa.Schema) -> str:
    """Return the column of the fewest bytes a value; one of a variable width if all are."""

    def width(field: pa.Field) -> int:
        try:
            return int(field.type.bit_width)
        except ValueError:
            return 1 << 30

    return str(min(schema, key=width).name)
