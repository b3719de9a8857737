"""A table as a ``LazyFrame`` of polars, which is read when it is collected.

Polars hands over the columns and the predicate of a query. What of the predicate means the
same in our language is asked of the log and of the files' statistics, so that files without
a matching row are not read; polars' own filter then sees the rows that are left.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from lakevilla.api.arguments import check_columns
from lakevilla.api.execution.executor import Executor
from lakevilla.api.reading.polars_predicates import translated
from lakevilla.engines.base import projection
from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.given import Predicate
from lakevilla.sql.expressions.tree import Call, Expr

if TYPE_CHECKING:
    import polars as pl

__all__ = ["frame_of", "lazy_frame"]

Frame = TypeVar("Frame")


def frame_of(rows: pa.Table) -> pl.DataFrame:
    """Rows of Arrow as a frame of polars.

    Raises
    ------
    InvalidOperation
        Polars is not installed.
    """
    try:
        import polars as pl
    except ModuleNotFoundError:
        raise InvalidOperation("to_polars needs polars: pip install polars") from None
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def lazy_frame(
    executor: Executor[Frame],
    table: str,
    columns: Sequence[str] | None,
    where: Predicate | None,
    params: Mapping[str, object] | None,
) -> pl.LazyFrame:
    """Rows of a table, read when they are collected, at the state that is bound to now."""
    layout = executor.look(table).snapshot.layout
    schema = projection(layout, check_columns(columns))
    given = executor.optional_predicate(where, params, table)
    if given is not None:
        bind(given, layout.schema)  # a mistake is the caller's who makes it, not of who collects
    empty = frame_of(schema.empty_table())
    # Polars may read one frame by several threads; a transaction belongs to one at a time.
    opening = threading.Lock()

    def source(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        names = schema.names if with_columns is None else with_columns
        asked = predicate.meta.root_names() if predicate is not None else []
        needed = [name for name in schema.names if name in {*names, *asked}] or schema.names[:1]
        pushed = given
        if predicate is not None and n_rows is None:  # the first rows, of which some match
            text = predicate.meta.serialize(format="json")
            pushed = _both(given, translated(text, schema))
        with opening:
            rows = executor.scan_where(table, needed, pushed)
        left = n_rows
        for batch in rows:
            frame = frame_of(pa.Table.from_batches([batch]))
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame.select(names)
            if left == 0:
                return
        yield empty.select(names)

    import polars.io.plugins

    return polars.io.plugins.register_io_source(source, schema=dict(empty.schema))


def _both(one: Expr | None, other: Expr | None) -> Expr | None:
    if one is None or other is None:
        return one if other is None else other
    return Call("and", (one, other))
