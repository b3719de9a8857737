"""The field ids in the footers of a Delta table's files.

A reader of Iceberg takes a column by its field id if a file has ids, by its name if it has none.
Delta's readers of a table without column mapping ignore ids, and some writers leave those of the
rows' source. So a file is shown only if its ids are known to be none, or those that are shown.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from lakevilla.errors import CorruptObject, UnsupportedTableFeature
from lakevilla.forked import lock
from lakevilla.formats.files import file_key, is_elsewhere
from lakevilla.lake.context import owner_of
from lakevilla.serve.delta.schema import Shown
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get, some_at_once

#: The bytes at a file's end that are read at once.
_TAIL = 64 << 10
_MAGIC = b"PAR1"
_ID = b"PARQUET:field_id"
_RAW_ID = re.compile(r" field_id=\d+ ")
Path = tuple[str, ...]
#: Fields by path, with their ids.
Fields = frozenset[tuple[Path, int | None]]
#: A process knows the footers of so many files.
_KNOWN = 1_000_000


@dataclass(frozen=True, slots=True)
class Footer:
    """The number of a file's rows, and its fields by path, with their ids.

    ``is_partly``: Parquet's own schema has ids for some fields, and Arrow's, beside it, for others.
    """

    rows: int
    fields: Fields
    is_partly: bool = False


class Footers:
    """The footers that a process has read. A file never changes under its path."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Footer] = OrderedDict()
        self._fields: dict[Fields, Fields] = {}
        self._lock = lock()

    def of(self, location: str, files: Sequence[tuple[str, int]]) -> Program[dict[str, Footer]]:
        """Return the footers of files, given by path and size.

        Raises
        ------
        CorruptObject
            A file is missing, or is no Parquet file.
        """
        keys = {path: file_key(location, path) for path, _ in files}
        with self._lock:
            found = {path: self._known.get(key) for path, key in keys.items()}
        wanted = [(path, size) for path, size in files if found[path] is None]
        read = yield from some_at_once(_footer(keys[path], size) for path, size in wanted)
        made: dict[str, Footer] = {}
        with self._lock:
            for (path, _), footer in zip(wanted, read, strict=True):
                fields = self._fields.setdefault(footer.fields, footer.fields)  # few differ
                made[path] = self._known[keys[path]] = replace(footer, fields=fields)
            while len(self._known) > _KNOWN:
                self._known.popitem(last=False)
        return made | {path: known for path, known in found.items() if known is not None}


def is_own(path: str) -> bool:
    """Return whether LakeVilla has written a data file in the table's directory, by its name.

    Its writers give fields the ids of the table's column mapping, or none. A file elsewhere is
    read: that also refuses one that the lake may not read.
    """
    return not is_elsewhere(path) and owner_of(path) is not None


def check_ids(footers: Mapping[str, Footer], shown: Shown, table: str) -> None:
    """Refuse files of which an Iceberg reader would take one column for another.

    Raises
    ------
    UnsupportedTableFeature
        There is one.
    """
    judged: dict[tuple[Fields, bool], str] = {}
    for path, footer in footers.items():
        key = footer.fields, footer.is_partly
        if key not in judged:
            judged[key] = _fault(footer, shown)
        if judged[key]:
            raise UnsupportedTableFeature(
                f"Delta table {table} can't be shown to Iceberg clients: file {path} "
                f"{judged[key]}; rewrite it: `lakevilla optimize ROOT TABLE --z-order COLUMN`",
                table=table,
            )


def _fault(footer: Footer, shown: Shown) -> str:
    """Return why a file's ids would mislead a reader; "" if they would not."""
    if footer.is_partly:
        return "has field ids for some columns, and others in Arrow's schema"
    ids = dict(footer.fields)
    if all(number is None for number in ids.values()):
        if shown.by_id:
            return "has no field ids, by which the table's columns are found"
        return _misspelled(ids.keys(), shown.ids.keys())
    taken = set(shown.ids.values())
    for path, number in sorted(ids.items()):
        right = shown.ids.get(path)
        if number != right and (right is not None or number in taken):
            told = "none" if number is None else number
            name = ".".join(path)
            return f"has the field id {told} for column {name}, which is shown as {right}"
    return ""


def _misspelled(names: Collection[Path], shown: Collection[Path]) -> str:
    """Return which column of a file has another case than the table's: Iceberg tells them apart."""
    missing = {tuple(map(str.lower, path)): path for path in shown if path not in names}
    for path in sorted(names):
        right = missing.get(tuple(map(str.lower, path)))
        if path not in shown and right is not None:
            return f"has column {'.'.join(path)}, which is shown as {'.'.join(right)}"
    return ""


def _footer(key: str, size: int) -> Program[Footer]:
    tail = yield from _tail(key, size, _TAIL)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > len(tail) and length <= size:
        tail = yield from _tail(key, size, length)
    if tail[-4:] != _MAGIC or length > len(tail):
        raise CorruptObject(f"data file {key} is no Parquet file: restore it from a copy", key=key)
    try:
        schema = pq.read_metadata(pa.BufferReader(_MAGIC + tail[-length:]))
        arrow = schema.schema.to_arrow_schema()
    except (pa.ArrowException, OSError) as error:
        raise CorruptObject(
            f"the footer of data file {key} can't be read ({error}): restore it from a copy",
            key=key,
        ) from None
    fields = frozenset(_fields(arrow, ()))
    count = sum(number is not None for _, number in fields)
    # Arrow shows an id of either schema.
    raw = len(_RAW_ID.findall(str(schema.schema))) if count else 0
    return Footer(schema.num_rows, fields, is_partly=raw not in (0, count))


def _tail(key: str, size: int, wanted: int) -> Program[bytes]:
    found = yield from get(key, byte_range=(max(0, size - wanted), size))
    if not isinstance(found, Found):
        raise CorruptObject(f"data file {key} is missing: restore it from a copy", key=key)
    return found.body


def _fields(fields: Iterable[pa.Field], within: Path) -> Iterator[tuple[Path, int | None]]:
    """Yield the fields of a file with their ids; parts of lists and maps under Parquet's names."""
    for field in fields:
        yield from _field(field, (*within, field.name))


def _field(field: pa.Field, path: Path) -> Iterator[tuple[Path, int | None]]:
    number = (field.metadata or {}).get(_ID)
    yield path, None if number is None else int(number)
    kind = field.type
    if pa.types.is_struct(kind):
        yield from _fields(kind, path)
    elif pa.types.is_map(kind):
        yield from _field(kind.key_field, (*path, "key"))
        yield from _field(kind.item_field, (*path, "value"))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _field(kind.value_field, (*path, "element"))
