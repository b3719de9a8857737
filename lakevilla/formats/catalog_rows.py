"""Files and their statistics as the rows by which a lake shows them (docs/design/0035)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.formats.files import DataFile, file_key, rows_deleted_in, rows_of
from lakevilla.formats.layout import Layout
from lakevilla.store.location import is_external

Row = dict[str, Any]


def file_row(root: str, table: str, layout: Layout, file: DataFile) -> Row:
    """Return a file as a row of the catalog table of files."""
    key = file_key(layout.location, file.path)
    names = {one.key: one.name for one in layout.partition_fields}
    for field, stored in zip(layout.schema, layout.physical, strict=True):
        names.setdefault(stored.name, field.name)
    return {
        "table": table,
        "path": file.path,
        "uri": key if is_external(key) else f"{root.rstrip('/')}/{key}",
        "size_bytes": file.size,
        "rows": rows_of(file),
        "partition": {names.get(key, key): text for key, text in file.partition_values.items()},
        # Iceberg's manifests don't record this time.
        "modified": file.modification_time * 1000 or None,
        "deletes": rows_deleted_in(file),
    }


class _Statistics(msgspec.Struct, rename="camel"):
    min_values: dict[str, Any] = {}
    max_values: dict[str, Any] = {}
    null_count: dict[str, Any] = {}


_decoder = JsonDecoder(_Statistics)


def statistics_of(table: str, layout: Layout, file: DataFile) -> Iterator[Row]:
    """Yield the statistics of each column of a file, as text; nested columns are left out."""
    try:
        known = _Statistics() if file.stats is None else _decoder.decode(file.stats)
    except ValueError:
        known = _Statistics()
    for field, stored in zip(layout.schema, layout.statistics_schema, strict=True):
        if pa.types.is_nested(field.type):
            continue
        least, greatest = known.min_values.get(stored.name), known.max_values.get(stored.name)
        nulls = known.null_count.get(stored.name)
        if least is None and greatest is None and nulls is None:
            continue
        yield {
            "table": table,
            "path": file.path,
            "column": field.name,
            "min": _text(least),
            "max": _text(greatest),
            "nulls": nulls if isinstance(nulls, int) else None,
        }


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
