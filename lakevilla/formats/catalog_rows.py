"""Files and their statistics as the rows by which a lake shows them (docs/design/0035)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.formats.files import DataFile, file_key, rows_deleted_in, rows_of
from lakevilla.formats.layout import Layout
from lakevilla.sql.catalog import Constant, Term
from lakevilla.sql.expressions.types import type_name
from lakevilla.store.location import is_external

Row = dict[str, Any]
#: Columns of the catalog whose values are a file list's own, by their names there.
_STORED = {"path": "path", "size_bytes": "size"}
#: Characters that would end a part of a partition's name.
_IN_NAMES = re.compile("[%/=]")


def admitted(files: pa.Table, terms: Iterable[Term]) -> pa.Table:
    """Return the files that terms on paths and sizes admit, without a Python object for each."""
    for term in terms:
        stored = _STORED.get(term.column)
        if stored is None:
            continue
        column, one = files.column(stored), term.values[0]
        if not all(_fits(value, column.type) for value in term.values):
            continue
        match term.operator:
            case "=" | "in":
                kept = pc.is_in(column, pa.array(term.values, column.type))
            case "prefix":
                kept = pc.starts_with(column, str(one))
            case "<":
                kept = pc.less(column, one)
            case "<=":
                kept = pc.less_equal(column, one)
            case ">":
                kept = pc.greater(column, one)
            case ">=":
                kept = pc.greater_equal(column, one)
        files = files.filter(kept)
    return files


def _fits(value: Constant, type_: pa.DataType) -> bool:
    """Return whether Arrow compares a constant with a column as the query does."""
    if pa.types.is_string(type_):
        return isinstance(value, str)
    return type(value) is int and abs(value) < 2**63


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


def partition_rows(files: Iterable[Row]) -> list[Row]:
    """Return the partitions of files, given as rows of the catalog table of files, by name.

    The name is that of a directory in Hive's style; a table without partitions has one, without a
    name. A sum is None if one of its parts is.
    """
    found: dict[tuple[str, str], Row] = {}
    for file in files:
        name = partition_name(file["partition"])
        known = found.get((file["table"], name))
        if known is None:
            known = {"table": file["table"], "name": name, "partition": file["partition"]}
            known |= {"files": 0, "rows": 0, "bytes": 0}
            found[(file["table"], name)] = known
        known["files"] += 1
        known["bytes"] += file["size_bytes"]
        rows = file["rows"]
        known["rows"] = None if rows is None or known["rows"] is None else known["rows"] + rows
    return [found[key] for key in sorted(found)]


def partition_name(values: Mapping[str, str | None]) -> str:
    """Return the name of a partition: its values as Hive names directories."""
    return "/".join(f"{_escaped(key)}={_escaped(text)}" for key, text in values.items())


def _escaped(text: str | None) -> str:
    return "__HIVE_DEFAULT_PARTITION__" if text is None else _IN_NAMES.sub(_as_hex, text)


def _as_hex(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"


class _Statistics(msgspec.Struct, rename="camel"):
    min_values: dict[str, Any] = {}
    max_values: dict[str, Any] = {}
    null_count: dict[str, Any] = {}


#: Numbers with a fraction stay text: as a float, a bound of a decimal is not the one in the log.
_decoder = JsonDecoder(_Statistics, float_hook=str)


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
            "type": type_name(field.type),
            "min": _text(least),
            "max": _text(greatest),
            "nulls": nulls if isinstance(nulls, int) else None,
        }


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
