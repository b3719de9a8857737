"""Execute a path: for each step, read a catalog table, narrowed by the step above."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from lakevilla.api.catalog.names import (
    BELOW,
    CatalogPath,
    PathStep,
    constants_in,
    filtered,
    matching,
    names_asked,
    parsed,
)
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.api.refs import client_on
from lakevilla.api.run import begin_transaction
from lakevilla.api.times import time_or_other
from lakevilla.errors import InvalidOperation, TableNotFound
from lakevilla.settings import shown
from lakevilla.sql.catalog import SCHEMAS, CatalogKind, CatalogRead, NameRange
from lakevilla.transaction.verbs.catalog.rows import catalog_rows

__all__ = ["answered", "query"]

Row = dict[str, Any]
#: A function that begins a transaction, bound to an older version of the same lake.
Begin = Callable[[int], Executor[Frame]]

_SNAPSHOTS = pa.schema(
    [SCHEMAS["commits"].field(x) for x in ("version", "timestamp", "txn_id", "kind", "members")]
)
#: The catalog table that each step reads.
_KINDS: dict[str, CatalogKind] = {
    "columns": "columns",
    "statistics": "statistics",
    "commits": "commits",
}
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_KEYS = pa.schema([("table", pa.string()), ("version", pa.int64()), ("path", pa.string())])


@dataclass(frozen=True, slots=True)
class _Found:
    """The rows of a step, with the keys that name the rows of the steps above."""

    rows: list[Row]
    keys: tuple[str, ...]
    own: pa.Schema

    def as_table(self) -> pa.Table:
        names = [name for name in self.keys if name not in self.own.names]
        schema = pa.schema([*(_KEYS.field(name) for name in names), *self.own])
        return pa.Table.from_pylist(self.rows, schema)


def query(
    client: LakeClient,
    executor: type[Executor[Frame]],
    path: str,
    at: int | datetime | str | None,
) -> pa.Table:
    """Return the rows that a path over the catalog selects; see ``Lake.query``."""
    steps = parsed(path)
    state = time_or_other(at, "at")
    if isinstance(state, str):
        client, state = client_on(client, state), None
    if isinstance(state, bool) or not (state is None or isinstance(state, int | datetime)):
        raise InvalidOperation(
            f"at is a global version, an aware datetime or the name of a ref, not {shown(at)}"
        )

    def begin(version: int | datetime | None) -> Executor[Frame]:
        reading = begin_transaction(client, executor, read_only=True)
        if isinstance(version, datetime):
            reading.bind_to(None, version)
        elif version is not None:
            reading.bind_to(version, None)
        return reading

    with begin(state) as reading:
        return answered(reading, begin, steps)


def answered(executor: Executor[Frame], begin: Begin[Frame], path: CatalogPath) -> pa.Table:
    """Return the rows of a path's last step; the first columns are the keys of the steps above.

    Raises
    ------
    InvalidOperation
        A step or a column does not exist.
    TableNotFound
        The path names one table, and the lake has no table of that name.
    """
    tables = _tables(executor, path)
    if not path.below:
        return _Found(tables, (), SCHEMAS["tables"]).as_table()
    names = [row["name"] for row in tables]
    first, *rest = path.below
    if first.text == "snapshots":
        found = _snapshots(executor, names, first)
        if rest:
            return _in_past(executor, begin, found, rest).as_table()
        return found.as_table()
    return _of_tables(executor, names, path.below).as_table()


# ------------------------------------------------------------------ tables


def _tables(executor: Executor[Frame], path: CatalogPath) -> list[Row]:
    """Return the tables whose names the path matches, in the order of their names."""
    names = names_asked(path.names)
    rows = _read(executor, "tables", names)
    found = matching(rows, path.names)
    if not found and not any(step.is_any for step in path.names):
        _refuse_unknown(executor, path)
    return found


def _refuse_unknown(executor: Executor[Frame], path: CatalogPath) -> None:
    """Raise the error for a path that names one table, which does not exist."""
    parts = [step.text for step in path.names]
    whole = "/".join(parts)
    above = frozenset("/".join(parts[:number]) for number in range(1, len(parts)))
    for row in _read(executor, "tables", NameRange(exact=above | {whole})):
        if row["name"] == whole:
            return  # the table exists, but the path's filters exclude it
        step = parts[len(row["name"].split("/"))]
        raise InvalidOperation(
            f"table {row['name']} has no step {step!r}: there are {', '.join(BELOW[''])}",
            table=row["name"],
        )
    raise TableNotFound(f"table {whole} does not exist: `tables()` lists them", table=whole)


# ------------------------------------------------------------------ below


def _snapshots(executor: Executor[Frame], names: Sequence[str], step: PathStep) -> _Found:
    """Return the versions of the lake in which each table was changed, oldest first."""
    requested = frozenset(names)
    columns = ("version", "timestamp", "txn_id", "kind", "members", "table", "adds")
    rows = [
        row
        for row in _read(executor, "commits", NameRange(exact=requested), columns=columns)
        if row["adds"] or row["removes"] or row["metadata_changed"]
    ]
    return _Found(_each(rows, names, step, _SNAPSHOTS), ("table",), _SNAPSHOTS)


def _in_past(
    executor: Executor[Frame], begin: Begin[Frame], found: _Found, below: Sequence[PathStep]
) -> _Found:
    """Return the rows of the steps below the snapshots, read in each of these versions."""
    rows: list[Row] = []
    result: _Found | None = None
    for version in sorted({row["version"] for row in found.rows}):
        names = [row["table"] for row in found.rows if row["version"] == version]
        with begin(version) as snapshot:
            result = _of_tables(snapshot, names, below)
        rows += [{**row, "version": version} for row in result.rows]
    if result is None:
        result = _of_tables(executor, [], below)
    return _Found(rows, ("table", "version", *result.keys[1:]), result.own)


def _of_tables(
    executor: Executor[Frame], names: Sequence[str], below: Sequence[PathStep]
) -> _Found:
    first, *rest = below
    if first.text == "files":
        own = _without("files", "table")
        rows = _read(executor, "files", _only(names), terms=constants_in(first, own))
        rows.sort(key=lambda row: (row["modified"] or _LONG_AGO, row["path"]))
        found = _Found(_each(rows, names, first, own), ("table",), own)
        return _of_files(executor, found, rest[0]) if rest else found
    kind = _KINDS[first.text]
    own = _without(kind, "table")
    rows = _read(executor, kind, _only(names))
    return _Found(_each(rows, names, first, own), ("table",), own)


def _of_files(executor: Executor[Frame], files: _Found, step: PathStep) -> _Found:
    """Return the catalog's rows on the columns of some files."""
    chosen = {(row["table"], row["path"]) for row in files.rows}
    names = list(dict.fromkeys(row["table"] for row in files.rows))
    rows = [
        row
        for row in _read(executor, "statistics", _only(names))
        if (row["table"], row["path"]) in chosen
    ]
    own = _without("statistics", "table", "path")
    if step.text == "columns":
        own = pa.schema([own.field(name).with_name(_called(name)) for name in own.names])
        rows = [{_called(name): value for name, value in row.items()} for row in rows]
    found: list[Row] = []
    for table, path in sorted(chosen):
        some = [row for row in rows if (row["table"], row["path"]) == (table, path)]
        found += filtered(some, step, own)
    return _Found(found, ("table", "path"), own)


def _called(name: str) -> str:
    """Return the name that ``column`` has in steps below files: the same as below a table."""
    return "name" if name == "column" else name


def _each(rows: Iterable[Row], names: Sequence[str], step: PathStep, own: pa.Schema) -> list[Row]:
    """Return the rows of each table that pass a step; a position counts rows within one table."""
    by_table: dict[str, list[Row]] = {name: [] for name in names}
    for row in rows:
        if row["table"] in by_table:
            by_table[row["table"]].append(row)
    every = [row for some in by_table.values() for row in some]
    return [row for some in by_table.values() for row in filtered(some, step, own, every)]


def _without(kind: CatalogKind, *left_out: str) -> pa.Schema:
    return pa.schema([field for field in SCHEMAS[kind] if field.name not in left_out])


def _only(names: Sequence[str]) -> NameRange:
    return NameRange(exact=frozenset(names))


def _read(
    executor: Executor[Frame],
    kind: CatalogKind,
    names: NameRange,
    *,
    terms: Any = (),
    columns: tuple[str, ...] | None = None,
) -> list[Row]:
    read = CatalogRead(kind, names, tuple(terms), columns)
    with executor.verb_scope():
        found = executor.run(catalog_rows(executor.state, read))
    rows: list[Row] = found.to_pylist(maps_as_pydicts="strict")
    return [row for row in rows if kind == "tables" or row["table"] in names]
