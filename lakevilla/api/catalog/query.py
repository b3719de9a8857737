"""Execute a path: for each step, read a catalog table, narrowed by the step above."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

import pyarrow as pa

from lakevilla.api.catalog.filters import Row, checks, constants_in, key_of, passed
from lakevilla.api.catalog.names import matching, names_asked
from lakevilla.api.catalog.paths import CatalogPath, PathStep, nearest, no_step, parsed
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.api.refs import client_on
from lakevilla.api.run import begin_transaction
from lakevilla.api.times import time_or_other
from lakevilla.errors import InvalidOperation, TableNotFound
from lakevilla.formats.catalog_rows import partition_name, partition_rows
from lakevilla.settings import shown
from lakevilla.sql.catalog import SCHEMAS, CatalogKind, CatalogRead, NameRange, Term
from lakevilla.transaction.verbs.catalog.rows import catalog_rows

__all__ = ["answered", "query"]

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
#: So many files are named where their statistics are read; of more, all statistics are read.
_FEW = 100
#: The most names that an error lists.
_OFFERED = 20
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_KEYS = pa.schema([("table", pa.string()), ("version", pa.int64()), ("path", pa.string())])


class _NoMember(Exception):
    """A path names a member of a step, and the step has none of that name."""

    def __init__(self, error: InvalidOperation) -> None:
        super().__init__(error.message)
        self.error = error


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
    try:
        return _answered(executor, begin, path)
    except _NoMember as found:
        raise found.error from None


def _answered(executor: Executor[Frame], begin: Begin[Frame], path: CatalogPath) -> pa.Table:
    tables = _tables(executor, path)
    if not path.below:
        return _Found(tables, (), SCHEMAS["tables"]).as_table()
    is_exact = not any(step.is_any for step in path.names)
    asked = _Asked([row["name"] for row in tables], is_exact)
    first, *rest = path.below
    if first.text == "snapshots":
        found = _snapshots(executor, asked, first)
        if rest:
            return _in_past(executor, begin, asked, found, rest).as_table()
        return found.as_table()
    return _of_tables(executor, asked, path.below).as_table()


# ------------------------------------------------------------------ tables


def _tables(executor: Executor[Frame], path: CatalogPath) -> list[Row]:
    """Return the tables whose names the path matches, in the order of their names."""
    rows = _read(executor, "tables", names_asked(path.names))
    found = matching(rows, path.names)
    if not found:
        if any(step.is_any for step in path.names):
            _refuse_no_path(executor, rows, path)
        else:
            _refuse_unknown(executor, path)
    return found


def _refuse_no_path(executor: Executor[Frame], rows: Sequence[Row], path: CatalogPath) -> None:
    """Raise the error for a step that stands where there are tables alone, and is none of theirs.

    Where there are directories, too, the step may be a part of a name that no table has yet.
    """
    fixed = [step.text for step in takewhile(lambda one: not one.is_any, path.names)]
    prefixes = frozenset("/".join(fixed[:number]) for number in range(1, len(fixed) + 1))
    if prefixes:  # the range of names that was read may begin below these
        rows = [*rows, *_read(executor, "tables", NameRange(exact=prefixes))]
    for depth in range(len(path.names) - 1, 0, -1):
        above = path.names[:depth]
        here = matching(rows, above)
        below = matching(rows, (*above, PathStep("**", is_any=True)))
        step = path.names[depth]
        is_exact = not any(one.is_any for one in above)
        if here and not below and (is_exact or not (step.is_any or step.is_quoted)):
            raise InvalidOperation(f"table {here[0]['name']}: {no_step('', step.text)}")
        if here or below:
            return


def _refuse_unknown(executor: Executor[Frame], path: CatalogPath) -> None:
    """Raise the error for a path that names one table, which does not exist."""
    parts = [step.text for step in path.names]
    whole = "/".join(parts)
    above = frozenset("/".join(parts[:number]) for number in range(1, len(parts)))
    for row in _read(executor, "tables", NameRange(exact=above | {whole})):
        if row["name"] == whole:
            return  # the table exists, but the path's filters exclude it
        step = parts[len(row["name"].split("/"))]
        raise InvalidOperation(f"table {row['name']}: {no_step('', step)}", table=row["name"])
    raise TableNotFound(f"table {whole} does not exist: `tables()` lists them", table=whole)


# ------------------------------------------------------------------ below


@dataclass(frozen=True, slots=True)
class _Asked:
    """The tables below which a path goes on; ``is_exact``: it names each of them, without ``*``."""

    names: Sequence[str]
    is_exact: bool


def _snapshots(executor: Executor[Frame], asked: _Asked, step: PathStep) -> _Found:
    """Return the versions of the lake in which each table was changed, oldest first."""
    columns = ("version", "timestamp", "txn_id", "kind", "members", "table", "adds")
    rows = [
        row
        for row in _read(executor, "commits", _only(asked.names), columns=columns)
        if row["adds"] or row["removes"] or row["metadata_changed"]
    ]
    return _Found(_each(executor, rows, asked, step, _SNAPSHOTS), ("table",), _SNAPSHOTS)


def _in_past(
    executor: Executor[Frame],
    begin: Begin[Frame],
    asked: _Asked,
    found: _Found,
    below: Sequence[PathStep],
) -> _Found:
    """Return the rows of the steps below the snapshots, read in each of these versions.

    A member has to be there in one of them.
    """
    rows: list[Row] = []
    result: _Found | None = None
    missing: _NoMember | None = None
    for version in sorted({row["version"] for row in found.rows}):
        names = [row["table"] for row in found.rows if row["version"] == version]
        with begin(version) as snapshot:
            try:
                result = _of_tables(snapshot, _Asked(names, asked.is_exact), below)
            except _NoMember as error:
                missing = error
                continue
        rows += [{**row, "version": version} for row in result.rows]
    if result is None:
        if missing is not None:
            raise missing
        result = _of_tables(executor, _Asked([], is_exact=False), below)
    return _Found(rows, ("table", "version", *result.keys[1:]), result.own)


def _of_tables(executor: Executor[Frame], asked: _Asked, below: Sequence[PathStep]) -> _Found:
    first, *rest = below
    if first.text == "partitions":
        return _of_partitions(executor, asked, first, rest)
    if first.text == "files":
        rows = _files(executor, asked, first)
        return _of_files(executor, asked, rows, below)
    kind = _KINDS[first.text]
    own = _without(kind, "table")
    rows = _read(executor, kind, _only(asked.names))
    return _Found(_each(executor, rows, asked, first, own), ("table",), own)


def _of_partitions(
    executor: Executor[Frame], asked: _Asked, step: PathStep, below: Sequence[PathStep]
) -> _Found:
    """Return the partitions of tables, or what is below them; one list of files makes both."""
    own = _without("partitions", "table")
    files = _files(executor, asked, None)
    found = _each(executor, partition_rows(files), asked, step, own)
    if not below:
        return _Found(found, ("table",), own)
    chosen = {(row["table"], row["name"]) for row in found}
    within = [one for one in files if (one["table"], partition_name(one["partition"])) in chosen]
    return _of_files(executor, asked, within, below)


def _files(executor: Executor[Frame], asked: _Asked, step: PathStep | None) -> list[Row]:
    """Return the files of tables, oldest first, that the terms of a step admit."""
    terms = () if step is None else constants_in(step, _without("files", "table"))
    rows = _read(executor, "files", _only(asked.names), terms=terms)
    return sorted(rows, key=lambda row: (row["modified"] or _LONG_AGO, row["path"]))


def _of_files(
    executor: Executor[Frame], asked: _Asked, rows: Sequence[Row], below: Sequence[PathStep]
) -> _Found:
    """Return some files, narrowed by the first step below tables, or what is below the files."""
    first, *rest = below
    own = _without("files", "table")
    files = _Found(_each(executor, rows, asked, first, own), ("table",), own)
    return _of_columns(executor, asked, files, rest[0]) if rest else files


def _of_columns(executor: Executor[Frame], asked: _Asked, files: _Found, step: PathStep) -> _Found:
    """Return the catalog's rows on the columns of some files."""
    chosen = {(row["table"], row["path"]) for row in files.rows}
    names = list(dict.fromkeys(row["table"] for row in files.rows))
    paths = tuple({path for _, path in chosen})
    rows = [
        row
        for row in _read(executor, "statistics", _only(names), terms=_among(paths))
        if (row["table"], row["path"]) in chosen
    ]
    own = _without("statistics", "table", "path")
    if step.text == "columns":
        own = pa.schema([own.field(name).with_name(_called(name)) for name in own.names])
        rows = [{_called(name): value for name, value in row.items()} for row in rows]
    _refuse_missing(executor, rows, asked, step, own)
    passing = checks(step, own, rows)
    by_file: dict[tuple[str, str], list[Row]] = {key: [] for key in sorted(chosen)}
    for row in rows:
        by_file[row["table"], row["path"]].append(row)
    found = [row for some in by_file.values() for row in passed(some, passing)]
    return _Found(found, ("table", "path"), own)


def _among(paths: tuple[str, ...]) -> tuple[Term, ...]:
    """Return the term that excludes other files before their statistics are read."""
    return (Term("path", "in", paths),) if 0 < len(paths) <= _FEW else ()


def _called(name: str) -> str:
    """Return the name that ``column`` has in steps below files: the same as below a table."""
    return "name" if name == "column" else name


def _each(
    executor: Executor[Frame],
    rows: Iterable[Row],
    asked: _Asked,
    step: PathStep,
    own: pa.Schema,
) -> list[Row]:
    """Return the rows of each table that pass a step; a position counts rows within one table."""
    by_table: dict[str, list[Row]] = {name: [] for name in asked.names}
    for row in rows:
        if row["table"] in by_table:
            by_table[row["table"]].append(row)
    every = [row for some in by_table.values() for row in some]
    _refuse_missing(executor, every, asked, step, own)
    passing = checks(step, own, every)
    return [row for some in by_table.values() for row in passed(some, passing)]


def _refuse_missing(
    executor: Executor[Frame],
    rows: Iterable[Row],
    asked: _Asked,
    step: PathStep,
    own: pa.Schema,
) -> None:
    """Raise the error for a member that a path names and no row has, unless ``*`` is above it.

    A column of the table is there, even if nothing is known of it in the files.
    """
    if step.member is None or not asked.is_exact or not asked.names:
        return
    key = key_of(step, own)
    known = dict.fromkeys(str(row[key]) for row in rows)
    if step.member in known:
        return
    if step.text in ("columns", "statistics"):
        columns = _read(executor, "columns", _only(asked.names))
        known = dict.fromkeys(str(row["name"]) for row in columns)
        if step.member in known:
            return
    there = f": there are {', '.join(list(known)[:_OFFERED])}" if known else ""
    error = InvalidOperation(
        f"table {asked.names[0]}: {step.text} has no member {step.member!r}"
        f"{nearest(step.member, known)}{there}",
        table=asked.names[0],
    )
    raise _NoMember(error)


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
