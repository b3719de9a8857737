"""Optimize a table: rewrite many small files to few large ones, with the same rows.

An optimize never makes another transaction fail. It chooses its files in one state, and commits
once, through HEAD, with ``dataChange=false`` in all files: so reads of other transactions stay
valid, and their writes to the old files are redone on the new ones, at most once. It gives up each
group of files of which other transactions remove a file meanwhile (see ``refresh``).

With ``Feature.CT`` it chooses its files at its turn in the table's queue, so that no transaction in
the queue removes one of them. If it has ``Feature.R`` too, it is saved once its files are made:
after a crash another process commits them (docs/design/0037-upkeep.md).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.input import places_of_true
from lakevilla.engines.base import TableInput, target_file_size
from lakevilla.errors import InvalidOperation, StoreError
from lakevilla.formats.files import DataFile, data_files, deleted_share, file_refs
from lakevilla.formats.layout import Layout
from lakevilla.lake.context import Event
from lakevilla.phases import during
from lakevilla.results import CommitResult, OptimizeResult
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.render import shown_sql
from lakevilla.sql.expressions.tree import Expr, columns
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Bin, Operation, Optimize
from lakevilla.transaction.state.files import hold_written, store_files
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs.begin import take_turn
from lakevilla.transaction.verbs.bind import touch
from lakevilla.transaction.verbs.read_write import execute
from lakevilla.transaction.verbs.save import save

#: The most columns of a Z curve: over more columns it makes no predicate selective.
_MOST_COLUMNS = 32


def optimize(
    txn: TransactionState,
    location: str,
    where: Expr | None = None,
    *,
    target_file_size_bytes: int | None = None,
    z_order_by: Sequence[str] = (),
    purge_from: float = 0.0,
) -> Program[Done | None]:
    """Rewrite the files of a table that are too small, or have deleted rows.

    Parameters
    ----------
    where : Expr, optional
        A predicate on partition columns; partitions without rows for which it is true are left
        unchanged.
    target_file_size_bytes : int, optional
        By default the table's ``delta.targetFileSize``, or the setting if the table has none.
    z_order_by : sequence of str
        Columns: all files are rewritten, whatever their size, and the rows of each partition are
        sorted along a Z curve over these columns.
    purge_from : float
        The deleted share of a file's rows from which on it is rewritten, whatever its size.

    Returns
    -------
    Done or None
        None if no file is to be rewritten.

    Raises
    ------
    InvalidOperation
        ``where`` uses more than the columns of partitions, or a column has no order.
    """
    txn.check_write(location, "optimize")
    if txn.work.done:
        # ``dataChange=false`` would hide the other changes of this transaction from other clients.
        raise InvalidOperation(
            f"optimize of table {location}: transaction {txn.id} has written already: "
            "optimize in one of its own",
            table=location,
            txn_id=txn.id,
        )
    yield from take_turn(txn, [location])
    yield from touch(txn, [location], probing=True, access="write")
    yield from store_files(txn, location)
    snapshot = txn.work.tables[location].snapshot
    snapshot.check_writable()
    layout = snapshot.layout
    names = {name.lower(): name for name in layout.schema.names}
    z_order_by = [names.get(column.lower(), column) for column in z_order_by]
    _refuse_unordered(layout, z_order_by)
    predicate = None if where is None else bind(where, layout.schema)
    _refuse_rows(layout, predicate)
    target = target_file_size_bytes or target_file_size(layout, txn.context.settings)
    with during("metadata", location):
        files = yield from snapshot.files(predicate)
    chosen = _partitions(files) if z_order_by else bins_of(files, target, purge_from)
    if not chosen:
        return None
    sized = dataclasses.replace(layout, target_file_size_bytes=target)
    parts = [files.take(pa.array(numbers, pa.int64())) for numbers in chosen]
    made = yield from _moved(txn, sized, parts, z_order_by)
    bins = [Bin(tuple(file_refs(part)), new) for part, new in zip(parts, made, strict=True)]
    yield from store_files(txn, location)
    predicates = [] if predicate is None else [shown_sql(predicate)]
    parameters = {"predicate": json.dumps(predicates), "targetSize": str(target)}
    if z_order_by:
        parameters["zOrderBy"] = json.dumps(list(z_order_by))
    operation = Optimize(location, tuple(bins), snapshot.metadata, parameters, files.num_rows)
    done = yield from execute(txn, operation, "optimize")
    yield from _save(txn)
    return done


def _save(txn: TransactionState) -> Program[None]:
    """Save an optimize in a queue, whose files are made; without Feature.R it is not saved."""
    if not (txn.queues and Feature.R in txn.options.features):
        return
    try:
        yield from save(txn)
    except StoreError as error:
        # It can still commit; only a crash before that would lose its work.
        message = f"optimize {txn.id} could not be saved: {error.message}"
        txn.context.notify(Event("left_out", txn.id, message, {}))


def result_of(planned: Operation, done: Done, result: CommitResult | None) -> OptimizeResult:
    """Return the result of an optimize: ``planned`` has its plan, ``done`` what was committed."""
    assert isinstance(planned, Optimize)
    change, versions = done.change, None if result is None else result.versions
    return OptimizeResult(
        files_added=len(change.adds),
        files_removed=len(change.removes),
        bytes_added=sum(file.size for file in change.adds),
        bytes_removed=sum(file.size or 0 for file in change.removes),
        partitions=len({tuple(sorted(f.partition_values.items())) for f in change.adds}),
        files_considered=planned.considered,
        files_given_up=sum(len(one.removed) for one in planned.bins) - len(change.removes),
        version=next(iter(versions.values()), None) if versions else None,
        global_version=None if result is None else result.global_version,
    )


def bins_of(files: pa.Table, target_bytes: int, purge_from: float = 0.0) -> list[list[int]]:
    """Return groups of files, by number: each is rewritten to a file of up to ``target_bytes``.

    The files of a group are of one partition. They are grouped in the order in which they were
    added, so that rows that were added together stay together, and min and max of a file stay
    selective. A single file is rewritten only to remove its deleted rows, if their share is at
    least ``purge_from``.
    """
    small = pc.less(files["size"], target_bytes)
    purged = to_purge(files, purge_from, unknown=True)
    chosen = np.asarray(small.combine_chunks().to_numpy(zero_copy_only=False), bool)
    chosen[purged] = True
    numbers = pa.array(np.flatnonzero(chosen), pa.int64())
    some = files.take(numbers)
    rows = zip(
        numbers.to_pylist(),
        some["modification_time"].to_pylist(),
        some["path"].to_pylist(),
        some["size"].to_pylist(),
        some["partition_values"].to_pylist(),
        strict=True,
    )
    runs: dict[object, list[int]] = {}
    sizes: dict[object, int] = {}
    full: list[list[int]] = []
    for number, _, _, size, values in sorted(rows, key=lambda row: row[1:3]):
        key = _key(values)
        if key in runs and sizes[key] + size > target_bytes:
            full.append(runs.pop(key))
        runs.setdefault(key, []).append(number)
        sizes[key] = size if len(runs[key]) == 1 else sizes[key] + size
    full.extend(runs.values())
    alone = set(purged)
    return [run for run in full if len(run) > 1 or run[0] in alone]


def to_purge(files: pa.Table, purge_from: float, *, unknown: bool = False) -> list[int]:
    """Return the numbers of files of whose rows at least this share is deleted, and one at least.

    With ``unknown``, files are among them of which the share is not known.
    """
    numbers = places_of_true(pc.is_valid(files["dv_id"]))
    shares = map(deleted_share, data_files(files.take(numbers)))
    return [
        number
        for number, share in zip(numbers.to_pylist(), shares, strict=True)
        if (unknown if share is None else share >= purge_from)
    ]


def _partitions(files: pa.Table) -> list[list[int]]:
    members: dict[object, list[int]] = {}
    for number, values in enumerate(files["partition_values"].to_pylist()):
        members.setdefault(_key(values), []).append(number)
    return list(members.values())


def _key(values: list[tuple[str, str | None]] | None) -> object:
    return tuple(sorted(values or ()))


def _refuse_unordered(layout: Layout, columns: Sequence[str]) -> None:
    """Raise ``InvalidOperation`` for columns by which rows can't be ordered."""
    for index, column in enumerate(columns):
        if column not in layout.schema.names:
            problem = f"there is no column {column}: its columns are " + ", ".join(
                layout.schema.names
            )
        elif column in layout.partition_by:
            problem = f"column {column} is a partition column, the same in all rows of a file"
        elif column in columns[:index]:
            problem = f"column {column} is named twice"
        elif pa.types.is_nested(layout.schema.field(column).type):
            problem = f"column {column} of type {layout.schema.field(column).type} has no order"
        else:
            continue
        raise InvalidOperation(
            f"table {layout.table} can't be put in z order: {problem}; name other columns",
            table=layout.table,
        )
    if len(columns) > _MOST_COLUMNS:
        raise InvalidOperation(
            f"table {layout.table} can't be put in z order by {len(columns)} columns: "
            f"name at most {_MOST_COLUMNS}, better two to four",
            table=layout.table,
        )


def _refuse_rows(layout: Layout, where: Expr | None) -> None:
    if where is None:
        return
    fields = [field for field in layout.partition_fields if field.transform != "void"]
    paths = {*((column,) for column in layout.partition_by), *(field.path for field in fields)}
    others = sorted({column.path for column in columns(where)} - paths)
    if others:
        named = ", ".join(sorted(map(".".join, paths)))
        raise InvalidOperation(
            f"optimize of table {layout.table}: column {'.'.join(others[0])} is not a partition "
            "column, and files are chosen only by partition; "
            f"{f'choose by {named}' if named else 'the table has none: leave where out'}",
            table=layout.table,
        )


def _moved(
    txn: TransactionState, layout: Layout, parts: Sequence[pa.Table], z_order_by: Sequence[str]
) -> Program[list[tuple[DataFile, ...]]]:
    """Rewrite the files of each part; return the new files of each part, in order."""
    location = layout.location
    name = txn.file_namer
    inputs = [TableInput(layout, part) for part in parts]
    with during("data", location):
        made = yield from txn.context.engine.compact(inputs, z_order_by, name)
    return [
        tuple(
            msgspec.structs.replace(file, data_change=False)
            for file in hold_written(txn, location, written)
        )
        for written in made
    ]
