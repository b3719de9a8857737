"""Define a table again that exists or was dropped: CREATE OR REPLACE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.errors import InvalidOperation, TableNotFound
from lakevilla.sublogs.operations import Replace
from lakevilla.transaction.verbs.create_table import drop_taken_back, is_dropped_here
from lakevilla.transaction.verbs.read_write import layout_of, layout_to_replace, replace
from lakevilla.transaction.verbs.reuse import can_be_reused, reused

__all__ = ["Place", "is_there", "place_of", "replace_table"]


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a table that is defined again; the caller does that within ``block``.

    ``revives``, ``after_drop``: see ``Replace``.
    """

    block: AbstractContextManager[None]
    revives: bool = False
    after_drop: bool = False


def is_there(executor: Executor[Frame], name: str) -> bool:
    """Return whether the transaction sees a table of that name."""
    try:
        with executor.verb_scope("open", name):
            location = executor.resolve(name)
            executor.run(layout_of(executor.state, location, probing=True))
    except TableNotFound:
        return False
    return not is_dropped_here(executor.state, location)


def place_of(executor: Executor[Frame], name: str, *, replaces: bool) -> Place | None:
    """Return the place of a table that CREATE defines again; None if there is no such table.

    If the result is None, CREATE makes a new table, or raises. A table that the transaction itself
    has dropped is always defined again, and so is a view that was dropped, which left no rows
    behind; any other only if CREATE ``replaces``.
    """
    state = executor.state
    location = executor.resolve(name, also_renamed=True)
    if is_dropped_here(state, location):
        return Place(drop_taken_back(state, location), after_drop=True)
    if replaces and is_there(executor, name):
        return Place(nullcontext())
    is_free = replaces or _was_view(executor, location)
    if is_free and executor.run(can_be_reused(state, location, name)):
        return Place(reused(state, location, executor.run), revives=True)
    return None


def _was_view(executor: Executor[Frame], location: str) -> bool:
    """Return whether the known HEAD has a view at a location that was dropped."""
    held = executor.state.bound.held or executor.client.context.held
    state = None if held is None else held.head.tables.peek(location)
    return state is not None and state.dropped and state.view


def replace_table(
    executor: Executor[Frame],
    name: str,
    data_or_schema: object,
    *,
    format: str | None,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    constraints: Mapping[str, str] | None = None,
    place: Place,
) -> None:
    """Replace the definition of the table at ``place``, and its rows by the given ones or by none.

    Raises
    ------
    TableNotFound
    InvalidOperation
        The table has another format, or a new table of this kind would be refused.
    """
    schema, source = executor.schema_of(data_or_schema, name)
    location = executor.begin_write(name, "create_table")
    state = executor.state
    operation = Replace(
        location,
        (),
        None,
        schema.serialize().to_pybytes(),
        replaces_schema=True,
        partition_by=tuple(partition_by),
        properties=dict(properties),
        constraints=dict(constraints or {}),
        revives=place.revives,
        after_drop=place.after_drop,
    )
    layout = executor.run(layout_to_replace(state, operation))
    own = state.work.tables[location].snapshot.format
    if format not in (None, own):
        raise InvalidOperation(
            f"table {layout.table} is a table of {own}, and keeps its format: replace it without "
            f"USING {format} (format={format!r}), or choose another name",
            table=layout.table,
        )
    rows = None if source is None else executor.fitted(layout, source)
    executor.run_verb(replace(state, operation, layout, rows))
