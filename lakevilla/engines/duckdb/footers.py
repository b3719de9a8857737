"""What data files call their columns, as their footers tell, where nothing else does.

Two kinds of tables need it: those with files that have no field ids, and those with columns
within columns that were renamed, which DuckDB finds by name alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from lakevilla.engines.duckdb.sqltext import quote_text
from lakevilla.formats.base import Layout
from lakevilla.formats.iceberg.name_mapping import names_of

__all__ = ["Called", "called_in", "field_id"]

#: A footer lists a tree node by node: name, number of children, field id.
_Node = tuple[str, int, int | None]


@dataclass(frozen=True, slots=True)
class Called:
    """What a file calls the table's columns.

    ``names``: of a file without field ids, None for a column that it lacks. ``kinds``: the
    columns' types, with the file's names for what is within them.
    """

    names: tuple[str | None, ...] | None = None
    kinds: tuple[pa.DataType, ...] | None = None


def called_in(
    cursor: duckdb.DuckDBPyConnection, layout: Layout, paths: Iterable[str]
) -> dict[str, Called]:
    """The files, by path, whose columns are called otherwise than the table says.

    It costs their footers, in those tables alone that may have such files.
    """
    mapping = names_of(layout.properties, layout.table) if layout.by_field_id else None
    if mapping is None and not layout.renamed_within:
        return {}
    listed = ", ".join(map(quote_text, paths))
    query = f"SELECT file_name, name, num_children, field_id FROM parquet_schema([{listed}])"
    footers: dict[str, list[_Node]] = {}
    for path, *node in cursor.execute(query).fetchall():
        footers.setdefault(path, []).append((node[0], node[1] or 0, node[2]))
    found = {}
    for path, nodes in footers.items():
        names = {number: name for name, _, number in nodes if number is not None}
        if names and layout.renamed_within:
            kinds = [_as_called(field.type, names) for field in layout.physical]
            found[path] = Called(kinds=tuple(kinds))
        elif not names and mapping is not None:
            there = _top_level(nodes)
            wanted = [mapping.get(field_id(field), ()) for field in layout.physical]
            own = (next((name for name in known if name in there), None) for known in wanted)
            found[path] = Called(names=tuple(own))
    return found


def field_id(physical: pa.Field) -> int:
    """The id by which a file knows a column."""
    return int((physical.metadata or {})[b"PARQUET:field_id"])


def _as_called(kind: pa.DataType, names: dict[int, str]) -> pa.DataType:
    """The type, with every field of a struct under the name that the file has for its id."""
    if pa.types.is_struct(kind):
        # A name that no file has, for a field that this one lacks: it reads as NULL.
        fields = [
            pa.field(
                names.get(field_id(field), f"__lakevilla_absent{number}"),
                _as_called(field.type, names),
            )
            for number, field in enumerate(kind)
        ]
        return pa.struct(fields)
    if pa.types.is_map(kind):
        return pa.map_(_as_called(kind.key_type, names), _as_called(kind.item_type, names))
    if pa.types.is_list(kind):
        return pa.list_(_as_called(kind.value_type, names))
    return kind


def _top_level(nodes: Sequence[_Node]) -> set[str]:
    found, place = set(), 1
    while place < len(nodes):
        found.add(nodes[place][0])
        waiting = 1
        while waiting and place < len(nodes):
            waiting += nodes[place][1] - 1
            place += 1
    return found
