"""Parts of large files: which rows are those of a part, as the row groups of the file lie.

The rows of a part are told by their numbers in the file, so that deletion vectors and position
deletes hold. DuckDB leaves out the row groups that have none of them. The footers that are asked
here are those that the scan reads next.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakevilla.engines.base import FilePart
from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.failures import translated
from lakevilla.engines.duckdb.sqltext import quote_text

_ROW_GROUPS = (
    "SELECT DISTINCT row_group_id, row_group_num_rows FROM parquet_metadata({path}) "
    "ORDER BY row_group_id"
)


def rows_within(cursor: duckdb.DuckDBPyConnection, path: str, part: FilePart, table: str) -> str:
    """What is true of a row's number, ``file_row_number``, in a part of a file."""
    with translated(table):
        groups = cursor.execute(_ROW_GROUPS.format(path=quote_text(path))).fetchall()
    span = _span([rows for _, rows in groups], part)
    return "false" if span is None else f"file_row_number BETWEEN {span[0]} AND {span[1]}"


def _span(groups: Sequence[int], part: FilePart) -> tuple[int, int] | None:
    """The first and the last row of the row groups that begin in the part, if there are any.

    A group's first row decides, by its share of all rows: so each group is of one part.
    """
    whole, start = sum(groups), 0
    mine = []
    for rows in groups:
        if rows and start * part.count // whole == part.number:
            mine += [start, start + rows - 1]
        start += rows
    return (mine[0], mine[-1]) if mine else None
