"""Overwrites that keep files, the rows of replaced partitions, and the result of compaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.engines.base import FileNamer, TableInput, Written
from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.formats.file_statistics import partition_value
from lakevilla.formats.files import DataFile, RemovedFile, data_files, files_from_structs, removal
from lakevilla.formats.layout import Layout, PartitionField
from lakevilla.lake.context import Context
from lakevilla.lake.row_changes import only
from lakevilla.settings import shown
from lakevilla.sql.expressions.bind import type_of
from lakevilla.sql.expressions.tree import Call, Column, Expr, Literal
from lakevilla.sql.expressions.values import literal_of
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Optimize, Refresh

# -------------------- refresh
#
# An overwrite that keeps files whose rows stay the same (docs/design/0038-reuse.md): the columns by
# which it orders its rows, and its result on a state.


def refresh_key(schema: pa.Schema, reuse_by: object, table: str) -> tuple[str, ...]:
    """Return the columns of ``reuse_by``, by which rows are ordered, as the table spells them.

    Raises
    ------
    InvalidOperation
        ``reuse_by`` names no column, one that the table lacks, or one of a type without an order.
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
            f"table {table}: reuse_by names no column: name those that identify a row",
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
                f"table {table}: column {name} ({kind}) can't be in reuse_by, which takes plain "
                "columns that hold no floating-point numbers: name other columns",
                table=table,
            )
    return names


def reusable(files: pa.Table) -> list[DataFile]:
    """Return the live files that a refresh may keep: those without deleted rows."""
    return data_files(files.filter(pc.is_null(files["dv_id"])))


def refreshed(
    context: Context, operation: Refresh, snapshot: TableSnapshot, name: FileNamer
) -> Program[tuple[Change, tuple[Written, ...], tuple[DataFile, ...]]]:
    """Return the change of a refresh on a state, the files made for it, and the files it removes.

    If the state lacks a file that the refresh keeps, or has it with other deletes, then another
    transaction has changed the file: its rows are copied into a new file.
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


# -------------------- replaced partitions
#
# The rows that an overwrite with partitions='dynamic' replaces: those of its files' partitions.


_NONE = Literal("boolean", "false")


def check_replaceable(layout: Layout) -> None:
    """Refuse a table whose partitions are not plain values of columns.

    Raises
    ------
    InvalidOperation
    """
    table = layout.table
    fields = _fields(layout)
    if not fields:
        raise InvalidOperation(
            f"table {table} has no partitions that partitions='dynamic' could replace: leave it "
            "out to replace all rows, or say which ones by where=...",
            table=table,
        )
    for field in fields:
        type_ = type_of(Column(field.path), layout.schema)
        if field.transform != "identity" or type_ == "binary":
            raise InvalidOperation(
                f"table {table} is partitioned by {field.spelled} ({type_}), and "
                "partitions='dynamic' needs plain partition columns that are not binary: say "
                "which rows are replaced by where=...",
                table=table,
            )


def rows_replaced(layout: Layout, files: Iterable[DataFile]) -> Expr:
    """Return a predicate for the rows of every partition that has one of the files.

    Raises
    ------
    InvalidOperation
        A partition has a value that cannot be written in a predicate.
    """
    fields = _fields(layout)
    keys = {tuple(file.partition_values.get(field.key) for field in fields) for file in files}
    terms = [Column(field.path) for field in fields]
    types = [type_of(term, layout.schema) for term in terms]
    # Delta has "" for NULL.
    is_null = (None, "") if layout.partition_by else (None,)
    by_all_but_last: dict[tuple[Expr, ...], list[Expr]] = {}
    for key in sorted(keys, key=lambda key: [(text is not None, text or "") for text in key]):
        values = [
            Literal(type_) if text in is_null else _value(text, type_)
            for text, type_ in zip(key, types, strict=True)
        ]
        by_all_but_last.setdefault(tuple(values[:-1]), []).append(values[-1])
    found: list[Expr] = []
    for first, last in by_all_but_last.items():
        tests = [_equals(term, value) for term, value in zip(terms, first, strict=False)]
        found.append(_balanced("and", [*tests, _is_among(terms[-1], last)]))
    return _balanced("or", found) if found else _NONE


def _fields(layout: Layout) -> tuple[PartitionField, ...]:
    """Return the partition columns of either format, without Iceberg's ``void`` fields."""
    if not layout.partition_by:
        return tuple(field for field in layout.partition_fields if field.transform != "void")
    indices = [layout.schema.get_field_index(name) for name in layout.partition_by]
    keys = [layout.physical.field(index).name for index in indices]
    return tuple(
        PartitionField(key, name, (name,), "identity")
        for key, name in zip(keys, layout.partition_by, strict=True)
    )


def _value(text: str | None, type_: str) -> Literal:
    if type_ in ("float", "double") and text is not None:
        return literal_of(type_, float(text))
    if type_ == "string":
        return Literal(type_, text)
    return literal_of(type_, partition_value(text, type_))


def _equals(term: Expr, value: Expr) -> Expr:
    if isinstance(value, Literal) and value.value is None:
        return Call("is_null", (term,))
    return Call("=", (term, value))


def _is_among(term: Expr, values: Sequence[Expr]) -> Expr:
    given = [value for value in values if not (isinstance(value, Literal) and value.value is None)]
    found: list[Expr] = [Call("is_null", (term,))] if len(given) < len(values) else []
    if len(given) == 1:
        found.append(_equals(term, given[0]))
    elif given:
        found.append(Call("in", (term, *given)))
    return _balanced("or", found)


def _balanced(name: str, parts: Sequence[Expr]) -> Expr:
    """Return one expression of all parts, as a balanced tree of binary calls."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return Call(name, (_balanced(name, parts[:middle]), _balanced(name, parts[middle:])))


# -------------------- compaction
#
# The result of an optimize on a state of its table: only the bins that fit the state. A bin pairs
# some files with the new files that have the same rows.
#
# The new files are made once, by ``transaction.verbs.optimize``; this module decides which of them
# replace the files from which they were made.


def moved(operation: Optimize, snapshot: TableSnapshot) -> Program[Change]:
    """Return the change of those bins whose old files the table still has.

    The change is empty if the table's contract has changed, that is, what it requires of data
    files. Other changes of the table do not matter: a bin's new files have the rows of its old
    files, and a file with the same path and deletion vector never changes.
    """
    if not snapshot.keeps_contract(operation.made_for):
        return Change()
    files = yield from only(snapshot, None, [ref for one in operation.bins for ref in one.removed])
    there = {file.ref: file for file in data_files(files)}
    kept = [one for one in operation.bins if all(ref in there for ref in one.removed)]
    return Change(
        adds=tuple(file for one in kept for file in one.files),
        removes=tuple(removal(there[r], data_change=False) for one in kept for r in one.removed),
    )


def still_moved(operation: Optimize, change: Change) -> Optimize:
    """Return the operation without the bins that ``change`` does not include."""
    removed = {file.ref for file in change.removes}
    bins = tuple(one for one in operation.bins if removed.issuperset(one.removed))
    return msgspec.structs.replace(operation, bins=bins)


def moving_metrics(operation: Optimize, change: Change) -> dict[str, str]:
    """Return ``operationMetrics`` under deltalake's names."""
    partitions = {tuple(sorted(file.partition_values.items())) for file in change.adds}
    counts = {
        "numFilesAdded": len(change.adds),
        "numFilesRemoved": len(change.removes),
        "partitionsOptimized": len(partitions),
        "totalConsideredFiles": operation.considered,
        "totalFilesSkipped": operation.considered - len(change.removes),
    }
    return {
        **{name: str(value) for name, value in counts.items()},
        "filesAdded": _sizes(change.adds),
        "filesRemoved": _sizes(change.removes),
    }


def _sizes(files: Sequence[DataFile | RemovedFile]) -> str:
    sizes = [file.size or 0 for file in files] or [0]
    metrics = {
        "avg": sum(sizes) / len(sizes),
        "max": max(sizes),
        "min": min(sizes),
        "totalFiles": len(files),
        "totalSize": sum(sizes),
    }
    return json.dumps(metrics, separators=(",", ":"))
