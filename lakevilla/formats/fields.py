"""Columns as the fields that they are: what stays theirs when names change.

A name means a column only on one schema. A tree that outlives it is *tied* to fields once,
and *located* in each layout on which it is evaluated (docs/design/0020-bound-to-fields.md).
A field is told by a path of ids: Delta's physical names, Iceberg's field ids, as statistics
know it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.formats.layout import Layout
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Column, Expr, Literal
from lakevilla.sql.expressions.walk import columns, substitute

Path = tuple[str, ...]
#: The ids of a field, and of those that it is within, the outermost first.
Ids = tuple[str, ...]

#: The ids of a column that never came to be: no field has them.
REMOVED: Ids = ("",)

_NULL = Literal("void")


def tied(expr: Expr, layout: Layout, *, table: str | None = None) -> Expr:
    """The tree with each column tied to its field; columns have their exact names.

    ``table``: the alias under which columns are the layout's, in a merge.
    A column that the layout lacks stays as it is: binding refuses it.
    """

    def tie(column: Column) -> Expr:
        if column.table != table:
            return column
        return Column(column.path, table, ids_of(layout, column.path) or ())

    return substitute(expr, tie)


def located(expr: Expr, layout: Layout, *, nulls: bool = False) -> Expr:
    """The tree in the names that its fields have in ``layout``; what is not tied goes by name.

    With ``nulls`` a field that the layout lacks is NULL.

    Raises
    ------
    InvalidOperation
        The table has no such field any more.
    """

    def locate(column: Column) -> Expr:
        if not column.ids:
            return column
        path = path_of(layout, column.ids)
        if path is not None:
            return Column(path, column.table)
        if nulls:
            return _NULL
        raise lacks(layout, column.path)

    return substitute(expr, locate)


def lacks(layout: Layout, path: Path) -> InvalidOperation:
    """What is told of a field that is gone."""
    return InvalidOperation(
        f"column {'.'.join(path)} of table {layout.table} was dropped, or created again, since it "
        "was named: run the statement again on its present columns",
        table=layout.table,
    )


def as_of(where: Expr | None, layout: Layout) -> Expr | None:
    """A predicate on a state that may not have all of its columns yet; None: all rows.

    What the state does not have was added after it, and is NULL in all of its rows.
    """
    if where is None:
        return None
    absent = any(column.ids and path_of(layout, column.ids) is None for column in columns(where))
    try:
        return bind(located(where, layout, nulls=True), layout.schema)
    except InvalidOperation:
        if absent:
            return None  # nothing is known of its type, so it may not go with a function
        raise


def renumbered(expr: Expr, moved: Mapping[Ids, Ids]) -> Expr:
    """The tree with other ids in place of those in ``moved``, all at once."""

    def renumber(column: Column) -> Expr:
        return Column(column.path, column.table, moved.get(column.ids, column.ids))

    return substitute(expr, renumber)


def ids_of(layout: Layout, path: Path) -> Ids | None:
    """The ids of the field at an exact path of names; None if there is none."""
    return _follow(path, layout.schema, layout.statistics_schema)


def path_of(layout: Layout, ids: Ids) -> Path | None:
    """The names by which the layout knows a field; None if it has none."""
    return _follow(ids, layout.statistics_schema, layout.schema)


def _follow(path: Path, names: Any, others: Any) -> Path | None:
    """The names that ``others``, of the same shape as ``names``, has along a path."""
    found: list[str] = []
    for name in path:
        if found and not pa.types.is_struct(names):
            return None
        places = names.get_all_field_indices(name)
        if not places:
            return None
        field, other = names.field(places[0]), others.field(places[0])
        found.append(other.name)
        names, others = field.type, other.type
    return tuple(found)


def fields(layout: Layout) -> Iterator[tuple[Path, Ids]]:
    """All columns and the fields within them that a name can reach, with their ids."""
    yield from _fields(layout.schema, layout.statistics_schema, (), ())


def _fields(
    names: Iterable[pa.Field], others: Iterable[pa.Field], path: Path, ids: Ids
) -> Iterator[tuple[Path, Ids]]:
    for field, other in zip(names, others, strict=True):
        here, its = (*path, field.name), (*ids, other.name)
        yield here, its
        if pa.types.is_struct(field.type):
            yield from _fields(field.type, other.type, here, its)
