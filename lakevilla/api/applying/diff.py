"""The differences between two states of a lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic

import pyarrow as pa

from lakevilla.api.arguments import check_columns_by, check_number
from lakevilla.api.border import with_border
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.display import table_html
from lakevilla.errors import InvalidOperation
from lakevilla.formats.files import size_of
from lakevilla.global_log.head import shown_names
from lakevilla.lake.operations.difference import TableDifference, with_rows

__all__ = ["Diff"]

_TABLES = pa.schema(
    [
        pa.field("table", pa.string(), nullable=False),
        pa.field("change", pa.string(), nullable=False),
        pa.field("files_added", pa.int64(), nullable=False),
        pa.field("files_removed", pa.int64(), nullable=False),
        pa.field("rows_added", pa.int64()),
        pa.field("rows_removed", pa.int64()),
        pa.field("file_rows_added", pa.int64()),
        pa.field("file_rows_removed", pa.int64()),
        pa.field("schema_changed", pa.bool_(), nullable=False),
    ]
)


@with_border
class Diff(Generic[Frame]):
    """The changes between two states; ``lake.diff`` returns one.

    Attributes
    ----------
    tables : pyarrow.Table
        One row for each table that differs: ``table``, ``change`` (``created``, ``joined`` with a
        log of its own, ``dropped``, ``changed``), ``files_added``, ``files_removed``,
        ``rows_added`` and ``rows_removed`` (rows that changed, an updated one being one of each;
        null where that can't be told without reading them), ``file_rows_added`` and
        ``file_rows_removed`` (rows of these files, changed or not, by the files' own counts; null
        without such counts), and ``schema_changed`` (columns, constraints or properties).
        It can be told if files only came or only went, or if one UPDATE, DELETE or MERGE lies
        between the states.

    Examples
    --------
    >>> _ = lake.run(lambda txn: txn.update("stock", {"qty": 4}, where="sku = 'tea'"))
    >>> found = lake.diff(2)
    >>> found
    <lakevilla.Diff: 1 table>
    >>> [row["qty"] for row in found.rows("stock", keys="sku").to_pylist()]
    [5, 4]
    """

    def __init__(
        self,
        client: LakeClient,
        found: Sequence[TableDifference],
        executor: type[Executor[Frame]],
    ) -> None:
        self._client, self._executor = client, executor
        held = client.context.held
        names: Mapping[str, str] = {} if held is None else shown_names(held.head)
        self._found = {names.get(one.location, one.location): one for one in found}

    @property
    def tables(self) -> pa.Table:
        rows = []
        for name, one in self._found.items():
            added, removed = size_of(one.found.adds), size_of(one.found.removes)
            rows.append(
                {
                    "table": name,
                    "change": one.change,
                    "files_added": added.files,
                    "files_removed": removed.files,
                    "rows_added": one.rows[0],
                    "rows_removed": one.rows[1],
                    "file_rows_added": added.rows,
                    "file_rows_removed": removed.rows,
                    "schema_changed": one.change == "changed" and one.found.after is not None,
                }
            )
        return pa.Table.from_pylist(rows, _TABLES)

    def rows(
        self,
        table: str,
        keys: str | Sequence[str] | None = None,
        *,
        limit: int | None = None,
    ) -> Frame:
        """Return the rows that differ, with the later state's columns and ``_change_type``.

        ``_change_type`` is ``insert`` or ``delete``. With ``keys``, a row that both states have
        under one key, with different values, is returned as ``update_preimage`` and
        ``update_postimage``, and rows are ordered by their keys. On a lake of Spark the result is a
        DataFrame in no order, whose rows are read and compared by tasks when it is used.

        Parameters
        ----------
        table : str
            As in ``tables``.
        keys : str or sequence of str, optional
            Columns that identify the table's rows.
        limit : int, optional
            The maximum number of rows. Of a table that has only got files, or only lost some, no
            more files are read than have them.

        Raises
        ------
        InvalidOperation
            The table does not differ, or has no such column.
        VersionNotFound
            A file of one of the states is deleted.
        """
        one = self._found.get(table)
        if one is None:
            differing = ", ".join(self._found) or "none"
            raise InvalidOperation(
                f"table {table} is the same in both states, or in neither: those that differ are "
                f"{differing}",
                table=table,
            )
        names = None if keys is None else check_columns_by("keys", keys)
        most = None if limit is None else check_number("limit", limit)
        if most is not None and names is None:
            one = with_rows(one, most)
        return self._executor.differing(self._client, one, names, most)

    def __repr__(self) -> str:
        count = len(self._found)
        return f"<lakevilla.Diff: {count} table{'' if count == 1 else 's'}>"

    def _repr_html_(self) -> str:
        rows = [tuple(row.values()) for row in self.tables.to_pylist()]
        return table_html(repr(self).strip("<>"), tuple(_TABLES.names), rows)
