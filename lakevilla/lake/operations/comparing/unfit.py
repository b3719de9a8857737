"""What is said of a change that does not fit a state, and what the change was made of."""

from __future__ import annotations

from lakevilla.errors import InvalidOperation, LakeVillaError, MergeConflict
from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.formats.layout import Layout
from lakevilla.lake.context import Context
from lakevilla.sublogs.operations import Transplant


def unfit(operation: Transplant, snapshot: TableSnapshot, why: str) -> LakeVillaError:
    """The error for what can't be done to a state."""
    table = snapshot.layout.table
    if operation.exact:
        return InvalidOperation(f"table {table} was changed meanwhile: {why}", table=table)
    # With keys rows were compared already: more of them settle nothing.
    compare = "" if operation.keys else f"keys={{{table!r}: [...]}} to compare single rows, or "
    return MergeConflict(
        f"table {table}: {why}; give {compare}on_conflict='ours' or 'theirs'",
        rows={operation.table: None},
        table=table,
    )


def layout_before(context: Context, operation: Transplant, snapshot: TableSnapshot) -> Layout:
    """The layout of the state that the change is of, as a table in the place of ``snapshot``."""
    defined = operation.before
    format_ = context.formats.of(snapshot)
    blank = format_.blank(snapshot.location, snapshot.layout.table, catalog=snapshot.catalog)
    change = Change(metadata=defined.metadata, protocol=defined.protocol or None)
    return blank.apply(change).layout
