"""Views: tables without rows that stand for a query (docs/design/0077-views-of-sql.md).

A view is a Delta table with a property that has its text, and with a feature that binds readers. So
it is created, replaced, dropped, renamed, branched and merged as a table is, and a client that does
not know the feature refuses it by name, where it would else read a table without rows.
"""

from __future__ import annotations

import msgspec

from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.errors import CorruptObject, InvalidOperation
from lakevilla.formats.layout import Layout

#: The property that has a view's definition.
VIEW_PROPERTY = "lakevilla.view"


class ViewDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """The query that a view stands for.

    ``columns``: the names of its columns where the statement gives them; else they are those that
    the query has when it is used. ``dialect``: that of the text.
    """

    sql: str
    columns: tuple[str, ...] = ()
    dialect: str = "duckdb"


def encoded(view: ViewDefinition) -> str:
    """Return the value of the property."""
    return msgspec.json.encode(view).decode()


_views = JsonDecoder(ViewDefinition)


def view_of(layout: Layout) -> ViewDefinition | None:
    """Return what a view stands for; None for a table.

    Raises
    ------
    CorruptObject
        The definition can't be read.
    """
    if layout.view is None:
        return None
    try:
        return _views.decode(layout.view)
    except msgspec.MsgspecError as error:
        raise CorruptObject(
            f"view {layout.table} has a definition that can't be read ({error}): CREATE OR REPLACE "
            "VIEW defines it again",
            table=layout.table,
        ) from None


def refuse_view(layout: Layout, verb: str) -> None:
    """Refuse a verb of tables on a view.

    Raises
    ------
    InvalidOperation
    """
    if layout.view is not None:
        name = layout.table.replace("/", ".")
        raise InvalidOperation(
            f"{verb}: {layout.table} is a view, which has no rows of its own: query it by SQL, "
            f"lake.sql('SELECT * FROM {name}'), and change the tables that it shows",
            table=layout.table,
            reason="view",
        )
