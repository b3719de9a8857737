"""Telling a ``Column``, and reading it by the kind of its session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lakevilla.engines.spark.columns import classic, connect
from lakevilla.engines.spark.columns.nodes import Name, Node, refused, spelled, too_deep
from lakevilla.errors import InvalidOperation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The DataFrames that a column may be taken from: of each the alias that it means here.
FrameIds = Callable[[Name], str | None]


def is_column(value: object) -> bool:
    """Whether it is a ``Column`` of Spark, classic or Connect."""
    return any(
        kind.__name__ == "Column" and kind.__module__.startswith("pyspark.sql.")
        for kind in type(value).__mro__
    )


def read_column(column: Any, session: SparkSession) -> Node:
    """The nodes of a ``Column``.

    Raises
    ------
    InvalidOperation
        It has something that no expression of the lake has, or it is of another kind of session.
    """
    if _of_connect(column) != _of_connect(session):
        raise InvalidOperation(
            "a Spark Column of a classic session and a lake on Spark Connect, or the other way "
            "round, do not go together: make it while the lake's own session is the active one"
        )
    try:
        if _of_connect(column):
            return connect.read(column, getattr(session, "client"))  # noqa: B009 (Connect alone has it)
        return classic.read(column)
    except RecursionError:
        raise too_deep() from None


def frame_ids(frames: Sequence[tuple[Any, str | None]], what: str) -> FrameIds:
    """Tells of a column that was taken from a DataFrame which of ``frames`` it is; by the alias
    that stands beside it, None for the only table.

    ``what`` are the frames that it may be taken from, for messages.
    """

    def alias_of(name: Name) -> str | None:
        for frame, alias in frames:
            kind = connect if _of_connect(frame) else classic
            if kind.frame_id(frame) == name.frame:
                return alias
        shown = spelled(name.parts)
        raise refused(
            f"column {shown} of a DataFrame",
            f"it must be of {what} itself, not of one made from it: write F.col({shown!r})",
        )

    return alias_of


def _of_connect(given: Any) -> bool:
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(given).__mro__)
