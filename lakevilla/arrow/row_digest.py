"""A digest of rows in their order: of their values, and not of Arrow's form of them.

Chunks, slices, dictionaries, views, large types and the contents of NULL slots make no difference
(docs/design/0038-reuse.md). Floats count by their bits: two zeros differ, and so do NaNs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from blake3 import blake3


class RowDigest:
    """The digest of some rows, given batch by batch.

    Parameters
    ----------
    columns : pyarrow.Schema
        The columns by their identity for readers: a field's id (``PARQUET:field_id``) where
        it has one, else its name.
    """

    def __init__(self, columns: pa.Schema) -> None:
        self._head = "\n".join(f"{_identity(field)} {_type(field.type)}" for field in columns)
        self._columns = [_Column() for _ in columns]
        self._rows = 0

    def update(self, arrays: Iterable[pa.Array]) -> None:
        """Add rows: one array for each column, all of one length."""
        count = 0
        for column, array in zip(self._columns, arrays, strict=True):
            column.update(array)
            count = len(array)
        self._rows += count

    def hexdigest(self) -> str:
        """Return the digest of the rows so far."""
        whole = blake3(f"{self._rows}\n{self._head}\n".encode())
        for column in self._columns:
            column.add_to(whole)
        return whole.hexdigest()


class _Column:
    """The streams of one column: its NULLs, its values, and the columns below it."""

    def __init__(self) -> None:
        self._rows = 0
        self._streams: dict[str, blake3] = {}
        self._below: list[_Column] = []

    def update(self, array: pa.Array) -> None:
        if not len(array):
            return
        array = _plain(array)
        if array.null_count:
            nulls = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
            self._add("nulls", nulls.astype("<i8") + self._rows)
        self._rows += len(array)
        kind = array.type
        if pa.types.is_null(kind):
            return
        if pa.types.is_struct(kind):
            self._add_below(array.flatten())
        elif pa.types.is_map(kind) or pa.types.is_large_list(kind):
            self._add_list(array)
        elif pa.types.is_large_binary(kind):
            self._add_bytes(array)
        else:
            self._add("values", _fixed(array))

    def add_to(self, whole: blake3) -> None:
        """Add this column to a digest; without ambiguity, as each stream has one length."""
        whole.update(f"{self._rows} {len(self._streams)} {len(self._below)}\n".encode())
        for name in sorted(self._streams):
            whole.update(name.encode() + self._streams[name].digest())
        for column in self._below:
            column.add_to(whole)

    def _add(self, name: str, values: np.ndarray) -> None:
        if values.size:
            self._streams.setdefault(name, blake3()).update(
                np.ascontiguousarray(values).view(np.uint8).data
            )

    def _add_below(self, arrays: list[pa.Array]) -> None:
        self._below = self._below or [_Column() for _ in arrays]
        for column, array in zip(self._below, arrays, strict=True):
            column.update(array)

    def _add_list(self, array: pa.Array) -> None:
        if pa.types.is_map(array.type):
            # The entries of a map in their stored order, which readers by position find, as do
            # readers by key.
            starts = array.offsets
            entries = pa.StructArray.from_arrays([array.keys, array.items], names=["k", "v"])
            array = _list_like(array, starts, entries)
        self._add("lengths", _fixed(pc.list_value_length(array).cast(pa.int64())))
        self._add_below([array.flatten()])

    def _add_bytes(self, array: pa.Array) -> None:
        if array.null_count:
            array = pc.fill_null(array, pa.scalar(b"", array.type))
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, "<i8", len(array) + 1, array.offset * 8)
        self._add("lengths", np.ascontiguousarray(np.diff(ends)))
        if data is not None:
            self._add("bytes", np.frombuffer(data, np.uint8)[ends[0] : ends[-1]])


def _list_like(array: pa.Array, starts: pa.Array, entries: pa.Array) -> pa.Array:
    """Return a map as a list of its entries, NULL where the map is NULL."""
    mask = array.is_null() if array.null_count else None
    return pa.LargeListArray.from_arrays(starts.cast(pa.int64()), entries, mask=mask)


def _plain(array: pa.Array) -> pa.Array:
    """Return the array in the form that is hashed: one form for all equal arrays."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _plain(array.cast(kind.value_type))
    if pa.types.is_run_end_encoded(kind):
        return _plain(pc.run_end_decode(array))
    if _is_text(kind) or pa.types.is_fixed_size_binary(kind):
        if pa.types.is_fixed_size_binary(kind):
            array = array.cast(pa.binary())
        elif not _is_bytes(kind):
            array = array.cast(pa.large_string())
        return array.cast(pa.large_binary())
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or _is_list_view(kind):
        return array.cast(pa.large_list(kind.value_field))
    return array


def _fixed(array: pa.Array) -> np.ndarray:
    """Return the bytes of values of one width, with zeros in the slots of NULLs."""
    kind = array.type
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
        kind = array.type
    width = kind.bit_width // 8
    if array.null_count == len(array):
        return np.zeros(len(array) * width, np.uint8)
    values = np.frombuffer(array.buffers()[1], np.uint8)
    found = values[array.offset * width : (array.offset + len(array)) * width]
    if array.null_count:
        found = found.reshape(len(array), width).copy()
        found[array.is_null().to_numpy(zero_copy_only=False)] = 0
        found = found.reshape(-1)
    return found


def _is_bytes(kind: pa.DataType) -> bool:
    is_plain = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return bool(is_plain or pa.types.is_binary_view(kind))


def _is_text(kind: pa.DataType) -> bool:
    is_string = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(is_string or pa.types.is_string_view(kind) or _is_bytes(kind))


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _is_listed(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(is_list or pa.types.is_fixed_size_list(kind) or _is_list_view(kind))


def _identity(field: pa.Field) -> str:
    identifier = (field.metadata or {}).get(b"PARQUET:field_id")
    return repr(field.name) if identifier is None else f"#{int(identifier)}"


def _type(kind: pa.DataType) -> str:
    """Return a type by its meaning, with the identities of the fields within it."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _type(kind.value_type)
    if pa.types.is_struct(kind):
        inner = ", ".join(f"{_identity(f)} {_type(f.type)}" for f in _fields(kind))
        return f"struct<{inner}>"
    if pa.types.is_map(kind):
        return f"map<{_type(kind.key_type)}, {_type(kind.item_type)}>"
    if _is_listed(kind):
        return f"list<{_type(kind.value_type)}>"
    if _is_text(kind):
        return "binary" if _is_bytes(kind) else "string"
    return str(kind)


def _fields(kind: pa.DataType) -> Iterator[pa.Field]:
    return (kind.field(index) for index in range(kind.num_fields))
