"""An overwrite that leaves files where they are: which columns it goes by, and doing it to a state.

See docs/design/0038-reuse.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.engines.base import FileNamer, TableInput, Written
from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.formats.files import DataFile, data_files, files_from_structs, removal
from lakevilla.lake.context import Context
from lakevilla.settings import shown
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Refresh


def refresh_key(schema: pa.Schema, reuse_by: object, table: str) -> tuple[str, ...]:
    """The columns that rows are ordered by, as the table spells them.

    Raises
    ------
    InvalidOperation
        There are none, the table lacks one, or one has no one order of its values.
    """
    is_sequence = isinstance(reuse_by, Sequence) and not isinstance(reuse_by, str)
    wanted = list(reuse_by) if isinstance(reuse_by, Sequence) else []
    if not is_sequence or not all(isinstance(name, str) for name in wanted):
        raise InvalidOperation(
            f"table {table}: reuse_by takes names of columns, reuse_by=('sku',), "
            f"not {shown(reuse_by)}",
            table=table,
        )
    if not wanted:
        raise InvalidOperation(
            f"table {table}: reuse_by names no column: name those that tell one row from another",
            table=table,
        )
    spelled = {name.lower(): name for name in schema.names}
    for name in wanted:
        if name.lower() not in spelled:
            raise InvalidOperation(
                f"table {table} has no column {name} to reuse files by; its columns are "
                f"{', '.join(schema.names)}",
                table=table,
            )
    names = tuple(dict.fromkeys(spelled[name.lower()] for name in wanted))
    for name in names:
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
            raise InvalidOperation(
                f"table {table}: column {name} ({kind}) can't be in reuse_by, which orders rows by "
                "plain columns and not by numbers of floating point: name other columns",
                table=table,
            )
    return names


def reusable(files: pa.Table) -> list[DataFile]:
    """Of a table's live files those that may stay: no row of theirs is deleted."""
    return data_files(files.filter(pc.is_null(files["dv_id"])))


def refreshed(
    context: Context, operation: Refresh, snapshot: TableSnapshot, name: FileNamer
) -> Program[tuple[Change, tuple[Written, ...], tuple[DataFile, ...]]]:
    """The change of a refresh on a state, the files made for it, and those that it removes.

    A file to keep that is not there, or with other deletes, was touched by others: its rows are
    written anew from it.
    """
    live = data_files((yield from snapshot.files()))
    kept = {file.ref: file for file in operation.kept}
    there = {file.ref for file in live}
    removed = tuple(file for file in live if file.ref not in kept)
    touched = [file for ref, file in kept.items() if ref not in there]
    parts = [TableInput(snapshot.layout, files_from_structs([file])) for file in touched]
    made = yield from context.engine.compact(parts, (), name)
    written = tuple(chain.from_iterable(made))
    change = Change(
        adds=(*operation.files, *(item.file for item in written)),
        removes=tuple(removal(file) for file in removed),
    )
    return change, written, removed
