"""Tables defined anew: CREATE OR REPLACE, of a table that is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.errors import InvalidOperation
from lakevilla.sublogs.operations import Replace
from lakevilla.transaction.verbs.read_write import layout_to_replace, replace

__all__ = ["replace_table"]


def replace_table(
    executor: Executor[Frame],
    name: str,
    data_or_schema: object,
    *,
    format: str | None,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    constraints: Mapping[str, str],
    revives: bool = False,
) -> None:
    """Define a table anew, with these rows or none.

    ``revives``: the transaction has taken it up where it was dropped.

    Raises
    ------
    TableNotFound
    InvalidOperation
        It has another format; or what a new table is refused for.
    """
    schema, source = executor.schema_of(data_or_schema, name)
    location = executor.to_write(name, "create_table")
    state = executor.state
    asked = Replace(
        location,
        (),
        None,
        schema.serialize().to_pybytes(),
        replaces_schema=True,
        partition_by=tuple(partition_by),
        properties=dict(properties),
        constraints=dict(constraints),
        revives=revives,
    )
    layout = executor.run(layout_to_replace(state, asked))
    own = state.work.tables[location].snapshot.format
    if format not in (None, own):
        raise InvalidOperation(
            f"table {layout.table} is a table of {own}, and keeps its format: replace it without "
            f"USING {format}, or choose another name",
            table=layout.table,
        )
    rows = None if source is None else executor.fitted(layout, source)
    executor.done(replace(state, asked, layout, rows))
