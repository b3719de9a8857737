"""The list of files of a checkpoint, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.cast import array, mask, numbers, places, scalar, truths
from lakevilla.formats.delta.actions import RESPELT, decode_path, encode_path, raw_spelling
from lakevilla.formats.delta.checkpoint.reader import (
    BATCH_ROWS,
    Checkpoint,
    Fetched,
    Part,
    damaged,
    fetch,
)
from lakevilla.formats.delta.checkpoint.statistics import json_of_parsed
from lakevilla.formats.files import FILES_SCHEMA, FileRef, all_differ, present
from lakevilla.formats.layout import Layout
from lakevilla.formats.pruning import may_match
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program

# -------------------- file list
#
# The file list of a checkpoint, read in batches and pruned during the read.
#
# A list of a million files never is a million Python objects, nor all in memory
# at once: partition values decide first, once for each distinct value, and
# only the files that they leave are read further.


#: File lists up to this length are cached once they were read.
KEPT_FILES = 20_000

# Bytes of column chunks fetched ahead in one round: this bounds memory, and avoids
# one round trip for each small row group.
_ROUND_BYTES = 32 * 1024 * 1024


def load_files(checkpoint: Checkpoint, layout: Layout, where: Expr | None) -> Program[pa.Table]:
    """Return the checkpoint's files that may match ``where``, in bounded memory.

    Partition values and paths are read first; statistics and the rest only of
    row groups that still have candidates. A short list is read whole and cached.
    """
    if checkpoint.kept:
        return _filtered(checkpoint.kept[0], layout, where)
    if sum(part.footer.num_rows for part in checkpoint.parts) <= KEPT_FILES:
        files = _each_once((yield from _load(checkpoint, layout, None)), checkpoint)
        # Two threads may both get here; they cache equal tables.
        checkpoint.kept.append(files)
        return _filtered(files, layout, where)
    return _each_once((yield from _load(checkpoint, layout, where)), checkpoint)


def _each_once(files: pa.Table, checkpoint: Checkpoint) -> pa.Table:
    """Return ``files`` with each path once: naming a file twice adds no rows.

    Raises ``CorruptObject`` where one path has two deletion vectors: a checkpoint does not
    record which of them is the newer.
    """
    paths = files.column("path")
    if all_differ(paths):
        return files
    counts = paths.value_counts()
    twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    rows = np.flatnonzero(truths(pc.is_in(paths, value_set=twice)))
    named = files.select(["path", "dv_id"]).take(places(rows)).to_pylist()
    seen: dict[str, str | None] = {}
    keep = np.ones(files.num_rows, dtype=bool)
    for row, file in zip(rows.tolist(), named, strict=True):
        path, vector = file["path"], file["dv_id"]
        keep[row] = path not in seen
        if seen.setdefault(path, vector) != vector:
            key = checkpoint.parts[0].key
            what = f"the checkpoint {key} names the file {path} with two deletion vectors"
            raise damaged(what, key)
    return files.filter(mask(keep))


def _filtered(files: pa.Table, layout: Layout, where: Expr | None) -> pa.Table:
    if where is None or files.num_rows == 0:
        return files
    return files.filter(may_match(files, layout, where))


def _load(checkpoint: Checkpoint, layout: Layout, where: Expr | None) -> Program[pa.Table]:
    groups = _row_groups(checkpoint, "add.path")
    found: list[pa.Table] = []
    if where is None or not layout.partition_by:
        for window in _windows(groups, _FILE_COLUMNS):
            for (_, group, _), fetched in zip(window, (yield from fetch(window)), strict=True):
                found.extend(_files(fetched, group, layout, where, None))
    else:
        # A predicate may be decided by partition values alone: they are read first.
        for window in _windows(groups, ("add.partitionValues",)):
            kept = {}
            for (part, group, _), fetched in zip(window, (yield from fetch(window)), strict=True):
                keep = _partition_survivors(fetched, group, layout, where)
                if keep.any():
                    kept[part.key, group] = part, keep
            remaining = [(part, group) for (_, group), (part, _) in kept.items()]
            for late in _windows(remaining, _FILE_COLUMNS):
                if len(late) == 1 and _weight(*late[0]) > _ROUND_BYTES:
                    part, group, names = late[0]
                    rows = yield from _by_column(part, group, names, kept[part.key, group][1])
                    found.extend(_pruned(rows, part.key, layout, where))
                    continue
                for (part, group, _), fetched in zip(late, (yield from fetch(late)), strict=True):
                    keep = kept[part.key, group][1]
                    found.extend(_files(fetched, group, layout, where, keep))
    return pa.concat_tables([pa.Table.from_batches([], FILES_SCHEMA), *found])


def _by_column(
    part: Part, group: int, names: Sequence[str], keep: np.ndarray[Any, Any]
) -> Program[pa.StructArray]:
    """Return the rows of a large row group that must be kept, reading one column at a time.

    Some writers put a million files in one row group: all its columns at once
    would be far more than the result.
    """
    columns: dict[str, pa.Array] = {}
    for name in names:
        (fetched,) = yield from fetch([(part, group, [name])])
        pieces = []
        start = 0
        for batch in fetched.batches(group, [name], BATCH_ROWS):
            chosen = keep[start : start + batch.num_rows]
            start += batch.num_rows
            if chosen.any():
                pieces.append(batch.column(0).filter(mask(chosen)))
        child = name.removeprefix("add.")
        columns[child] = pa.concat_arrays([piece.field(child) for piece in pieces])
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def present_files(checkpoint: Checkpoint, refs: Sequence[FileRef]) -> Program[set[FileRef]]:
    """Return the refs in ``refs`` that the checkpoint holds; this reads only paths and vectors."""
    found: set[FileRef] = set()
    columns = ("add.path", "add.deletionVector")
    for window in _windows(_row_groups(checkpoint, "add.path"), columns):
        for (_, group, _), fetched in zip(window, (yield from fetch(window)), strict=True):
            for batch in fetched.batches(group, _available(fetched.part, columns), BATCH_ROWS):
                add = _valid(batch, "add")
                paths = decode_paths(add.field("path").cast(pa.string()))[0]
                ids = vector_columns(_optional(add, "deletionVector"), len(add))[0]
                table = pa.table({"path": paths, "dv_id": ids})
                found |= present(table, refs)
        if len(found) == len(set(refs)):
            break
    return found


def batches_of(
    checkpoint: Checkpoint, action: str
) -> Iterator[tuple[list[tuple[Part, int, Sequence[str]]], Any]]:
    """Yield windows of row groups that hold ``action``, for a program to ``fetch`` one by one."""
    for window in _windows(_row_groups(checkpoint, f"{action}.path"), (action,)):
        yield window, partial(_raw_batches, action=action)


def _raw_batches(fetched: Fetched, group: int, action: str) -> Iterator[pa.StructArray]:
    for batch in fetched.batches(group, (action,), BATCH_ROWS):
        yield _valid(batch, action)


_FILE_COLUMNS = (
    "add.path",
    "add.partitionValues",
    "add.size",
    "add.modificationTime",
    "add.stats",
    "add.tags",
    "add.deletionVector",
    "add.baseRowId",
    "add.defaultRowCommitVersion",
    "add.stats_parsed",
)


def _row_groups(checkpoint: Checkpoint, field: str) -> list[tuple[Part, int]]:
    return [
        (part, group)
        for part in checkpoint.parts
        for group in part.row_groups
        if part.holds(group, field)
    ]


def _windows(
    groups: Sequence[tuple[Part, int]], columns: Sequence[str]
) -> Iterator[list[tuple[Part, int, Sequence[str]]]]:
    """Yield row groups in runs, each of which is fetched in one round."""
    window: list[tuple[Part, int, Sequence[str]]] = []
    size = 0
    for part, group in groups:
        names = _available(part, columns)
        weight = _weight(part, group, names)
        if window and size + weight > _ROUND_BYTES:
            yield window
            window, size = [], 0
        window.append((part, group, names))
        size += weight
    if window:
        yield window


def _weight(part: Part, group: int, names: Sequence[str]) -> int:
    metadata = part.footer.row_group(group)
    return sum(metadata.column(index).total_compressed_size for index in part.columns(names))


def _available(part: Part, columns: Sequence[str]) -> list[str]:
    found = [name for name in columns if part.columns((name,))]
    if "add.stats" in found and "add.stats_parsed" in found:
        # Both have the same statistics; the library works with the text.
        found.remove("add.stats_parsed")
    return found


def _valid(batch: pa.RecordBatch, name: str) -> pa.StructArray:
    """Return the rows of a struct column that are not null."""
    column = batch.column(batch.schema.get_field_index(name))
    # A child of a null struct may hold anything: the struct's own nulls decide, and
    # the path's nulls for writers that write a null action as a struct of nulls.
    mask = pc.and_(pc.is_valid(column), pc.is_valid(column.field("path")))
    return column if mask.true_count == len(column) else column.filter(mask)


def _optional(struct: pa.StructArray, name: str) -> pa.Array | None:
    return None if struct.type.get_field_index(name) < 0 else struct.field(name)


def _partition_survivors(
    fetched: Fetched, group: int, layout: Layout, where: Expr
) -> np.ndarray[Any, Any]:
    """Return the rows of a row group that may match ``where``, by their partition values."""
    masks = []
    for batch in fetched.batches(group, ("add.partitionValues",), BATCH_ROWS):
        add = batch.column(0)
        keep = truths(add.is_valid())
        if keep.any():
            files = add if keep.all() else add.filter(mask(keep))
            values = partition_values_column(files.field("partitionValues"), len(files))
            keep[keep] = _matching_partitions(values, layout, where)
        masks.append(keep)
    return np.concatenate(masks) if masks else np.zeros(0, dtype=bool)


def _matching_partitions(values: pa.MapArray, layout: Layout, where: Expr) -> np.ndarray[Any, Any]:
    """Apply ``may_match`` to partition values, once for each distinct combination."""
    width = len(layout.partition_by)
    keys, items = values.keys, values.items
    regular = values.null_count == 0 and len(items) == len(values) * width
    if regular and width == 1:
        regular = len(keys.unique()) == 1
    elif regular:
        names = numbers(keys.dictionary_encode().indices).reshape(-1, width)
        regular = bool((names == names[0]).all())
    if not regular:
        return truths(may_match(_padded({"partition_values": values}, len(values)), layout, where))
    texts = items.dictionary_encode(null_encoding="encode")
    codes = numbers(texts.indices).reshape(-1, width).astype(np.int64)
    combined = codes[:, 0]
    for column in range(1, width):
        # Numbered again for each column, so that the numbers fit into 64 bits for any number of
        # columns.
        _, combined = np.unique(combined, return_inverse=True)
        combined = combined * len(texts.dictionary) + codes[:, column]
    _, first, which = np.unique(combined, return_index=True, return_inverse=True)
    distinct = values.take(places(first))
    verdicts = may_match(_padded({"partition_values": distinct}, len(first)), layout, where)
    result: np.ndarray[Any, Any] = truths(verdicts)[which]
    return result


def _files(
    fetched: Fetched,
    group: int,
    layout: Layout,
    where: Expr | None,
    keep: np.ndarray[Any, Any] | None,
) -> Iterator[pa.Table]:
    start = 0
    for batch in fetched.batches(group, _available(fetched.part, _FILE_COLUMNS), BATCH_ROWS):
        if keep is not None:
            chosen = keep[start : start + batch.num_rows]
            start += batch.num_rows
            if not chosen.any():
                continue
            if not chosen.all():
                batch = batch.filter(mask(chosen))
        yield from _pruned(_valid(batch, "add"), fetched.part.key, layout, where)


def _pruned(
    add: pa.StructArray, key: str, layout: Layout, where: Expr | None
) -> Iterator[pa.Table]:
    table = _files_table(add, key, layout)
    if where is not None:
        table = table.filter(may_match(table, layout, where))
    if table.num_rows:
        yield table


def _files_table(add: pa.StructArray, key: str, layout: Layout) -> pa.Table:
    try:
        return _read_files(add, layout)
    except (pa.ArrowException, ValueError, TypeError, KeyError, AttributeError) as error:
        what = f"checkpoint part {key} has add actions that cannot be read: {error}"
        raise damaged(what, key) from None


def _read_files(add: pa.StructArray, layout: Layout) -> pa.Table:
    length = len(add)
    paths, raw = decode_paths(add.field("path").cast(pa.string()))
    ids, vectors = vector_columns(_optional(add, "deletionVector"), length)
    columns: dict[str, pa.Array] = {
        "path": paths,
        "dv_id": ids,
        "partition_values": partition_values_column(_optional(add, "partitionValues"), length),
        "deletion_vector": vectors,
        "raw_path": raw,
    }
    for name, source in _PLAIN_COLUMNS.items():
        column = _optional(add, source)
        if column is not None:
            columns[name] = column.cast(FILES_SCHEMA.field(name).type)
    parsed = _optional(add, "stats_parsed")
    if parsed is not None and "stats" not in columns:
        columns["stats"] = json_of_parsed(parsed, layout.statistics_schema)
    return _padded(columns, length)


_PLAIN_COLUMNS = {
    "size": "size",
    "modification_time": "modificationTime",
    "stats": "stats",
    "base_row_id": "baseRowId",
    "default_row_commit_version": "defaultRowCommitVersion",
    "tags": "tags",
}


def _padded(columns: Mapping[str, pa.Array], length: int) -> pa.Table:
    """Return a ``FILES_SCHEMA`` table; absent columns are null, or zero if they may not be null."""
    arrays = []
    for column_field in FILES_SCHEMA:
        column = columns.get(column_field.name)
        if column is None:
            column = pa.nulls(length, column_field.type)
            if not column_field.nullable:
                column = pc.fill_null(column, scalar("0", pa.string()).cast(column_field.type))
        arrays.append(column)
    return pa.Table.from_arrays(arrays, schema=FILES_SCHEMA)


# -------------------- columns
#
# File lists as Arrow: from checkpoint batches, from structs, and set operations on both.
#
# Nothing here makes a Python object per file of a checkpoint, except for the
# rare files whose path must be decoded with care.


_VECTOR = FILES_SCHEMA.field("deletion_vector").type
_MAP = FILES_SCHEMA.field("partition_values").type
_EMPTY = scalar("", pa.string())


# Bytes that a path may contain and still have LakeVilla's spelling, except for "%".
_PLAIN = np.zeros(256, dtype=bool)
for _code in range(128):
    _PLAIN[_code] = encode_path(chr(_code)) == chr(_code)


def decode_paths(raw: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return decoded paths, and the raw paths where LakeVilla would spell them otherwise.

    Raises ``UnicodeDecodeError``.
    """
    if _is_plain(raw) and not any(pc.any(pc.starts_with(raw, start)).as_py() for start in RESPELT):
        return raw, pa.nulls(len(raw), pa.string())
    spelt: list[str] = raw.to_pylist()
    decoded = [decode_path(text) for text in spelt]
    kept = [raw_spelling(text, path) for text, path in zip(spelt, decoded, strict=True)]
    return array(decoded, pa.string()), array(kept, pa.string())


def _is_plain(raw: pa.Array) -> bool:
    if len(raw) == 0:
        return True
    data = raw.buffers()[2]
    if data is None:
        return True
    # The bytes of all strings are stored end to end: one look-up for the whole column.
    offsets = np.frombuffer(raw.buffers()[1], dtype=np.int32)
    first, last = offsets[raw.offset], offsets[raw.offset + len(raw)]
    return bool(_PLAIN[np.frombuffer(data, dtype=np.uint8)[first:last]].all())


def vector_columns(vectors: pa.Array | None, length: int) -> tuple[pa.Array, pa.Array]:
    """Return ids and contents of a checkpoint's ``deletionVector`` column."""
    if vectors is None or vectors.null_count == length:
        return pa.nulls(length, pa.string()), pa.nulls(length, _VECTOR)
    kind = pc.cast(vectors.field("storageType"), pa.string())
    path = pc.cast(vectors.field("pathOrInlineDv"), pa.string())
    offset = pc.cast(_child(vectors, "offset", pa.int32()), pa.int32())
    ids = pc.binary_join_element_wise(kind, path, "")
    at = pc.binary_join_element_wise(ids, pc.cast(offset, pa.string()), "@")
    ids = pc.if_else(pc.is_null(offset), ids, at)
    # A child of a null struct may hold anything: the struct's own nulls decide.
    present_mask = pc.is_valid(vectors)
    parts = [
        kind,
        path,
        offset,
        pc.cast(vectors.field("sizeInBytes"), pa.int32()),
        pc.cast(vectors.field("cardinality"), pa.int64()),
    ]
    structs = pa.StructArray.from_arrays(parts, fields=list(_VECTOR), mask=pc.invert(present_mask))
    return pc.if_else(present_mask, ids, scalar(None, pa.string())), structs


def partition_values_column(values: pa.Array | None, length: int) -> pa.Array:
    """Return ``partitionValues`` with empty strings made null, as the protocol says."""
    if values is None:
        return pa.array([[]] * length, _MAP)
    values = values.cast(_MAP)
    items = values.items
    if len(items) and pc.any(pc.equal(items, _EMPTY), min_count=0).as_py():
        pairs = [
            None if row is None else [(name, value or None) for name, value in row]
            for row in values.to_pylist()
        ]
        return pa.array(pairs, _MAP)
    return values


def _child(struct: pa.StructArray, name: str, kind: pa.DataType) -> pa.Array:
    if struct.type.get_field_index(name) < 0:
        return pa.nulls(len(struct), kind)
    return struct.field(name)
