"""``executemany``: many sets of parameters in one transaction."""

from __future__ import annotations

import builtins
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa

from lakevilla.dbapi.errors import ProgrammingError
from lakevilla.dbapi.types import Values, check_same, one_set
from lakevilla.errors import InvalidOperation
from lakevilla.lake.operations.inserted import PARAMETERS
from lakevilla.settings import shown
from lakevilla.sql.expressions.assignments import path_in
from lakevilla.sql.expressions.syntax.parameter_names import Token, TokenType
from lakevilla.sql.statements.conditions import conjuncts
from lakevilla.sql.statements.dml import DeleteStatement, InsertStatement, UpdateStatement
from lakevilla.sql.statements.merging import reads_other_rows
from lakevilla.sql.statements.select import quoted, tokens_of
from lakevilla.sql.statements.statement import parse_statement

# -------------------- many
#
# Replace one statement with many sets of parameters by few statements with the same effect.
#
# ``INSERT ... VALUES (:a, :b)`` becomes ``INSERT ... SELECT`` from a table of the parameters; an
# UPDATE or DELETE by a key becomes a join with that table ("many changes" below). Each value has
# the type that it would have in a single run, so sets of parameters with values of different types
# go to different tables.


#: The most sets of parameters that one statement takes.
_PART_ROWS = 65_536
_NAME = re.compile(r"[A-Za-z_]\w*")


class Run(NamedTuple):
    """A statement to run, its parameters, and the tables of parameters that it reads."""

    text: str
    params: Values | None
    views: Mapping[str, pa.Table] | None
    #: The sets of parameters to run one after the other if this run is refused.
    instead: Sequence[Values] = ()


def many(operation: str, given: object) -> Iterator[Run]:
    """Yield statements that together have the effect of ``operation`` with each set of parameters.

    Raises
    ------
    ProgrammingError
        A set of parameters is no mapping, or has other names than the first.
    """
    change = bulk_change(operation)
    if change is not None:
        yield from _changes(operation, change, given)
        return
    bulk = bulk_insert(operation)
    if (tables := _arrow(given)) is not None:
        for table in tables:
            if bulk is not None and bulk.takes(table.column_names):
                yield bulk.run(table)
            else:
                yield from (Run(operation, row, None) for row in _mappings(operation, table))
        return
    for part in _parts(_mappings(operation, given)):
        if bulk is None or not bulk.takes(part[0]):
            yield from (Run(operation, row, None) for row in part)
            continue
        for group in alike(part):
            try:
                table = as_table(group)
            except (pa.ArrowException, OverflowError, ValueError):
                # Arrow has no type for these values, but the engine may have one.
                yield from (Run(operation, row, None) for row in group)
            else:
                yield bulk.run(table)


def _changes(operation: str, change: BulkChange, given: object) -> Iterator[Run]:
    """Yield one joined UPDATE or DELETE if that has the same effect, else one for each set."""
    tables = _arrow(given)
    sets = (
        _mappings(operation, given)
        if tables is None
        else (row for table in tables for row in _mappings(operation, table))
    )
    for part in _parts(sets):
        groups = alike(part)
        try:
            views = [as_table(group) for group in groups] if change.takes(part) else None
            if any(pa.types.is_null(view.schema.field(change.key).type) for view in views or ()):
                views = None  # all keys are NULL, which no row equals
        except (pa.ArrowException, OverflowError, ValueError):
            views = None
        if views is None:
            yield from (Run(operation, row, None) for row in part)
            continue
        for group, view in zip(groups, views, strict=True):
            yield Run(*_joined(change, view), group)


def _joined(change: BulkChange, rows: pa.Table) -> tuple[str, None, dict[str, pa.Table]]:
    columns, kept = {}, []
    for index, (name, kind) in enumerate(zip(rows.column_names, rows.schema.types, strict=True)):
        typed = not pa.types.is_null(kind)
        columns[name] = f"{PARAMETERS}.__p{index}" if typed else "NULL"
        kept += [index] if typed else []
    view = rows.rename_columns([f"__p{index}" for index in range(rows.num_columns)])
    return change.text(PARAMETERS, columns), None, {PARAMETERS: view.select(kept)}


# ------------------------------------------------------------------ statements


@dataclass(frozen=True, slots=True)
class BulkInsert:
    """An INSERT with one row of VALUES, split at its parameters.

    ``pieces`` are the texts between the parameters of the row, ``names`` the parameters.
    """

    head: str
    pieces: tuple[str, ...]
    names: tuple[str, ...]

    def takes(self, names: Iterable[str]) -> bool:
        """Return whether these are all of the parameters; if not, a single run raises the error."""
        return set(self.names) == set(names)

    def run(self, rows: pa.Table) -> Run:
        """Return an INSERT ... SELECT from rows whose columns are named like the parameters."""
        known = {
            name: "NULL" if pa.types.is_null(kind) else f"{PARAMETERS}.__p{index}"
            for index, (name, kind) in enumerate(
                zip(rows.column_names, rows.schema.types, strict=True)
            )
        }
        values = [self.pieces[0]]
        for name, piece in zip(self.names, self.pieces[1:], strict=True):
            values += [known[name], piece]
        # Parameters may have names that differ only by case, columns may not: rename the columns.
        view = rows.rename_columns([f"__p{index}" for index in range(rows.num_columns)])
        typed = [
            index for index, kind in enumerate(view.schema.types) if not pa.types.is_null(kind)
        ]
        if typed:
            view = view.select(typed)
        else:
            view = pa.table({"__p": pa.array([True] * rows.num_rows)})
        return Run(
            f"{self.head} SELECT {''.join(values)} FROM {PARAMETERS}", None, {PARAMETERS: view}
        )


def bulk_insert(operation: str) -> BulkInsert | None:
    """Parse an INSERT with one row of VALUES, a parameter and no query; else return None."""
    try:
        statement = parse_statement(operation)
    except InvalidOperation:
        return None  # running the statement raises the error
    if not isinstance(statement, InsertStatement) or statement.replaced is not None:
        return None
    source = statement.source.sql
    row = _only_row(source)
    if row is None:
        return None
    pieces, names, position = [], [], row[0].end + 1
    for colon, name in itertools.pairwise(row):
        if (
            colon.token_type is TokenType.COLON
            and name.start == colon.end + 1
            and _NAME.fullmatch(name.text)
        ):
            pieces.append(source[position : colon.start])
            names.append(name.text)
            position = name.end + 1
    pieces.append(source[position : row[-1].start])
    if not names:
        return None
    head = operation[: operation.rindex(source)].rstrip()
    return BulkInsert(head, tuple(pieces), tuple(names))


def _only_row(source: str) -> Sequence[Token] | None:
    """Return the tokens of ``(...)`` in ``VALUES (...)``; None for anything else."""
    tokens = tokens_of(source)
    if len(tokens) < 4 or tokens[0].text.upper() != "VALUES":
        return None
    depth = 0
    for index, token in enumerate(tokens[1:], 1):
        if token.token_type in (TokenType.L_BRACKET, TokenType.L_BRACE):
            return None  # with braces or brackets, a colon may not begin a parameter
        if token.token_type in (TokenType.SELECT, TokenType.FROM, TokenType.WITH):
            return None
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0:
            return tokens[1:] if index == len(tokens) - 1 else None
    return None


# ------------------------------------------------------------------ parameters


def _mappings(operation: str, given: object) -> Iterator[Values]:
    if isinstance(given, pa.Table):
        given = (row for batch in given.to_batches(1024) for row in batch.to_pylist())
    if isinstance(given, Mapping | str | bytes) or not isinstance(given, Iterable):
        raise ProgrammingError(
            f"executemany takes several sets of parameters, not {shown(given)[:80]}: pass a list "
            "of mappings, or an Arrow table"
        )
    names: frozenset[str] | None = None
    for number, one in enumerate(given, 1):
        values = one_set(operation, one) or {}
        names = frozenset(values) if names is None else names
        check_same(names, values, number)
        yield values


def _arrow(given: object) -> Iterator[pa.Table] | None:
    """Return Arrow data as tables of limited size; None for other data."""
    if isinstance(given, pa.Table):
        return (given.slice(at, _PART_ROWS) for at in range(0, given.num_rows, _PART_ROWS))
    if isinstance(given, pa.RecordBatch):
        return iter([pa.Table.from_batches([given])])
    if hasattr(given, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(given)
        return (pa.Table.from_batches([batch]) for batch in reader if batch.num_rows)
    return None


def _parts(sets: Iterator[Values]) -> Iterator[list[Values]]:
    while part := list(itertools.islice(sets, _PART_ROWS)):
        yield part


def alike(sets: Iterable[Values]) -> list[list[Values]]:
    """Group the sets so that, within a group, each name's values are missing or of one type."""
    groups: list[tuple[dict[str, object], list[Values]]] = []
    for one in sets:
        kinds = {name: _kind(value) for name, value in one.items() if value is not None}
        for known, group in groups:
            if all(known.get(name, kind) == kind for name, kind in kinds.items()):
                known.update(kinds)
                group.append(one)
                break
        else:
            groups.append((kinds, [one]))
    return [group for _, group in groups]


def _kind(value: object) -> object:
    """Return a key that is equal for values which one column can hold."""
    if isinstance(value, datetime):
        return datetime, value.tzinfo is not None
    if isinstance(value, time) and value.tzinfo is not None:
        return time, True  # no column has this type, so a single run raises the error
    if isinstance(value, list):
        kinds = {_kind(item) for item in value} - {type(None)}
        return list, frozenset(kinds)
    if isinstance(value, dict):
        return dict, tuple((key, _kind(item)) for key, item in value.items())
    return type(value)


_TYPES: dict[object, Callable[[], pa.DataType]] = {
    bool: pa.bool_,
    int: pa.int64,
    float: pa.float64,
    str: pa.string,
    bytes: pa.binary,
    date: pa.date32,
    time: lambda: pa.time64("us"),
    (datetime, False): lambda: pa.timestamp("us"),
    (datetime, True): lambda: pa.timestamp("us", "UTC"),
}


def as_table(sets: Sequence[Values]) -> pa.Table:
    """Return a group of sets as a table with a column for each name.

    Raises
    ------
    ArrowException, OverflowError, ValueError
        Arrow has no type for a value, or the value is out of the type's range; the engine may
        accept it.
    """
    columns = {}
    for name in sets[0]:
        values = [one[name] for one in sets]
        kind = next((_kind(value) for value in values if value is not None), None)
        if kind is None:
            columns[name] = pa.nulls(len(values))
            continue
        if kind is Decimal:
            columns[name] = pa.array(values)  # a decimal with as many digits as the values need
            continue
        columns[name] = pa.array(values, _type_of(kind, name))
    return pa.table(columns)


def _type_of(kind: object, name: str) -> pa.DataType:
    match kind:
        case type() if kind is type(None):
            return pa.null()
        case (builtins.list, frozenset() as inner) if len(inner) < 2:
            return pa.list_(_type_of(next(iter(inner), type(None)), name))
        case (builtins.dict, tuple() as fields) if fields and all(
            isinstance(key, str) and key for key, _ in fields
        ):
            return pa.struct([(key, _type_of(inner, name)) for key, inner in fields])
        case _ if kind in _TYPES:
            return _TYPES[kind]()
    raise ValueError(f"parameter {name} has no Arrow type: its values are of {kind}")


# -------------------- many changes
#
# Replace many UPDATEs or DELETEs by a key by one that joins a table of their parameters.
#
# That has the same effect if no two of them match the same row, or if the order does not matter.
# For an UPDATE, the keys must differ, and it must not set the columns of its condition.


_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
#: Beyond this, two different integers may be equal as doubles.
_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class BulkChange:
    """An UPDATE or DELETE whose WHERE compares a column with the parameter ``key``."""

    statement: UpdateStatement | DeleteStatement
    key: str
    names: frozenset[str]

    def takes(self, sets: Sequence[Values]) -> bool:
        """Return whether one run with all sets has the same effect as a run for each."""
        if len(sets) < 2 or sets[0].keys() != self.names:
            return False
        if isinstance(self.statement, DeleteStatement):
            return True
        keys = [one.get(self.key) for one in sets]
        kinds = {type(key) for key in keys}
        if len(kinds) != 1 or not kinds <= {int, str, bytes, date, datetime}:
            return False
        if any(isinstance(key, int) and abs(key) >= _EXACT for key in keys):
            return False
        return len(set(keys)) == len(keys)

    def text(self, view: str, columns: dict[str, str]) -> str:
        """Return the statement joined with ``view``, whose ``columns`` replace the parameters.

        It is a MERGE, whose condition is checked against the columns' types like the statement's
        own.
        """
        one = self.statement
        table = f"{one.written} AS {quoted(one.called)}"
        where = _replaced(one.where, columns)
        if isinstance(one, DeleteStatement):
            rows = f"(SELECT DISTINCT * FROM {view}) AS {view}"
            return f"MERGE INTO {table} USING {rows} ON {where} WHEN MATCHED THEN DELETE"
        texts = [
            f"{'.'.join(map(quoted, _path(target)))} = {_replaced(text, columns)}"
            for target, text in one.assignments.items()
        ]
        changes = f"UPDATE SET {', '.join(texts)}"
        return f"MERGE INTO {table} USING {view} ON {where} WHEN MATCHED THEN {changes}"


def bulk_change(operation: str) -> BulkChange | None:
    """Parse an UPDATE or DELETE by a key that reads no other rows; else return None."""
    try:
        one = parse_statement(operation)
    except InvalidOperation:
        return None  # running the statement raises the error
    if not isinstance(one, UpdateStatement | DeleteStatement):
        return None
    if one.common or reads_other_rows(one, "duckdb"):
        return None
    texts = [one.where, *(one.assignments.values() if isinstance(one, UpdateStatement) else ())]
    if any(_has_braces(tokens_of(text)) for text in texts):
        return None
    if isinstance(one, UpdateStatement):
        words = {token.text.lower() for token in tokens_of(one.where)}
        if words & {name.lower() for target in one.assignments for name in _set(target, one)}:
            return None
    found = (_key(tokens_of(term)) for term in conjuncts(one.where, "duckdb") or ())
    key = next((name for name in found if name is not None), None)
    if key is None:
        return None
    names = {name.text for text in texts for name in _marked(tokens_of(text))}
    return BulkChange(one, key, frozenset(names))


def _path(target: str) -> tuple[str, ...]:
    return path_in(target) or (target,)


def _set(target: str, statement: UpdateStatement) -> tuple[str, ...]:
    """Return the assigned column, and the names in the assigned expression."""
    path = _path(target)
    is_qualified = len(path) > 1 and path[0].lower() == statement.called.lower()
    return path[1:] if is_qualified else path


def _has_braces(tokens: Sequence[Token]) -> bool:
    """Return whether there are brackets or braces, in which a colon may not begin a parameter."""
    return any(t.token_type in (TokenType.L_BRACKET, TokenType.L_BRACE) for t in tokens)


def _key(tokens: Sequence[Token]) -> str | None:
    """Return the parameter of ``column = :name`` or ``:name = column``."""
    kinds = [token.token_type for token in tokens]
    if TokenType.EQ not in kinds:
        return None
    index = kinds.index(TokenType.EQ)
    left, right = tokens[:index], tokens[index + 1 :]
    if left and left[0].token_type is TokenType.COLON:
        left, right = right, left
    is_column = len(left) in (1, 3) and all(one.token_type in _NAMES for one in left[::2])
    is_column = is_column and all(one.text == "." for one in left[1::2])
    is_mark = len(right) == 2 and right[0].token_type is TokenType.COLON
    return right[1].text if is_column and is_mark else None


def _marked(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the names of the parameters in the tokens."""
    for colon, name in pairwise(tokens):
        if colon.token_type is TokenType.COLON and name.start == colon.end + 1:
            yield name


def _replaced(text: str, columns: dict[str, str]) -> str:
    pieces: list[str] = []
    position = 0
    for name in _marked(tokens_of(text)):
        pieces += [text[position : name.start - 1], columns[name.text]]
        position = name.end + 1
    return "".join([*pieces, text[position:]])
