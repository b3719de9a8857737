"""UPDATE and DELETE that read other rows, as merges: so they are redone as merges are.

The engine's own SQL decides which rows of the table are meant, and their new values: a query over
the table returns the values of the columns that the statement names, each combination once. The
statement's meaning depends on nothing else of a row. So the rows with those values are the rows
that are meant, whatever NULLs, NOT IN, EXISTS and correlated subqueries result in
(docs/design/0040).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from lakevilla.sql.expressions.syntax.parameter_names import Token, TokenType, exp
from lakevilla.sql.expressions.tree import Expr, all_of, columns
from lakevilla.sql.statements.conditions import conjuncts
from lakevilla.sql.statements.dml import (
    DeleteStatement,
    MergeStatement,
    UpdateStatement,
    WhenClause,
    refuse_one_name,
)
from lakevilla.sql.statements.select import (
    Dialect,
    Select,
    named_parameters,
    opens,
    query_of,
    quoted,
    select_of,
    slice_of,
    table_parts,
    table_path,
    tokens_of,
    with_common,
    word_of,
)

_SOURCE = "__lakevilla_source"
_KEY, _VALUE, _IN = "__lakevilla_key", "__lakevilla_value", "__lakevilla_in"
_QUERY = frozenset({"SELECT", "WITH", "FROM", "VALUES"})


def reads_other_rows(statement: UpdateStatement | DeleteStatement, dialect: Dialect) -> bool:
    """Return whether a statement reads other rows than the one that it changes."""
    if statement.source is not None:
        return True
    return any(has_query(text, dialect) for text in _texts(statement))


def merges_of(
    statement: UpdateStatement | DeleteStatement,
    schema: pa.Schema,
    dialect: Dialect,
    differs: Callable[[str], bool] = lambda text: False,
    compiled: Callable[[str], Expr | None] = lambda text: None,
    *,
    by_engine: bool = False,
) -> Iterator[MergeStatement]:
    """Yield merges with the statement's effect, the cheapest first; if one can't be bound, the next
    is used.

    Parameters
    ----------
    statement : UpdateStatement or DeleteStatement
        One that ``reads_other_rows``, or whose condition the engine must compute.
    schema : pyarrow.Schema
        Of the table.
    dialect : {"duckdb", "spark"}
    differs : Callable
        Whether an assignment, as an expression, has another meaning than in a SELECT.
    compiled : Callable
        A term of the condition as an expression; None where it has another meaning.
    by_engine : bool
        Whether the condition has another meaning in a SELECT than as an expression.

    Raises
    ------
    InvalidOperation
        The parser can't read it.
    """
    if statement.source is not None:
        if isinstance(statement, UpdateStatement) and not _any_query(statement, dialect):
            named = _single(statement.source, dialect)
            if named is not None:
                refuse_one_name(statement.called, named)
                yield _joined(statement, named, dialect)
    elif not by_engine and (listed := _in_list(statement, dialect)) is not None:
        yield listed
    yield _by_values(statement, schema, dialect, differs, compiled)


# ------------------------------------------------------------------ one source, by a join


def _joined(statement: UpdateStatement, named: str, dialect: Dialect) -> MergeStatement:
    """Return UPDATE ... FROM one table or query as a merge: two source rows for one row are an
    error.
    """
    source = _query(statement, f"SELECT * FROM {statement.source}", dialect)
    clause = WhenClause("matched_update", None, statement.assignments)
    return MergeStatement(
        statement.table, statement.called, source, named, statement.where, (clause,), "update"
    )


def _single(source: str, dialect: Dialect) -> str | None:
    """Return the name of the only table or query of a FROM; None if there are several."""
    root = query_of(_parsed_as(f"SELECT * FROM {source}", dialect), dialect)
    if not isinstance(root, exp.Select) or root.args.get("joins") or root.args.get("laterals"):
        return None
    start = root.args.get("from_") or root.args.get("from")
    node = None if start is None else start.this
    if not isinstance(node, exp.Table | exp.Subquery) or node.args.get("joins"):
        return None
    named = node.args.get("alias")
    if named is not None and named.args.get("columns"):
        return None
    return str(node.alias_or_name).rsplit("/", 1)[-1] or None


# ------------------------------------------------------------------ x IN (SELECT ...)


def _in_list(
    statement: UpdateStatement | DeleteStatement, dialect: Dialect
) -> MergeStatement | None:
    """Return ``... AND x IN (SELECT ...) AND ...`` as a join with values, not with the table."""
    if isinstance(statement, UpdateStatement) and any(
        has_query(text, dialect) for text in statement.assignments.values()
    ):
        return None
    parts = conjuncts(statement.where, dialect)
    if parts is None:
        return None
    asking = [part for part in parts if has_query(part, dialect)]
    if len(asking) != 1:
        return None
    found = _sides(asking[0], dialect)
    if found is None:
        return None
    value, query = found
    listed = f"SELECT DISTINCT {_IN} FROM ({query}) AS {_SOURCE}({_IN}) WHERE {_IN} IS NOT NULL"
    source = _query(statement, listed, dialect)
    rest = [f"({part})" for part in parts if part is not asking[0]]
    on = " AND ".join([f"({value}) = {_SOURCE}.{_IN}", *rest])
    clauses = (_clause(statement),)
    return MergeStatement(
        statement.table, statement.called, source, _SOURCE, on, clauses, merge_verb(statement)
    )


def _sides(text: str, dialect: Dialect) -> tuple[str, str] | None:
    """Return the value and the query of ``value IN (query)``; None for anything else."""
    tokens = tokens_of(text, dialect)
    depth = 0
    for index, token in enumerate(tokens):
        depth += opens(token)
        if depth or word_of(token) != "IN":
            continue
        value, query = tokens[:index], tokens[index + 1 :]
        words = {word_of(one) for one in value}
        is_plain = value and not words & {"NOT", "SELECT", ","}
        closes = len(query) > 2 and _closing(query) == len(query) - 1
        if not is_plain or not closes or word_of(query[1]) not in _QUERY:
            return None
        return slice_of(text, value), slice_of(text, query[1:-1])
    return None


def _closing(tokens: Sequence[Token]) -> int:
    """Return where the parenthesis closes with which they begin; -1 if they begin with none."""
    depth = 0
    for index, token in enumerate(tokens):
        depth += opens(token)
        if depth == 0:
            return index if index else -1
    return -1


# ------------------------------------------------------------------ any condition, by values


def _by_values(
    statement: UpdateStatement | DeleteStatement,
    schema: pa.Schema,
    dialect: Dialect,
    differs: Callable[[str], bool],
    compiled: Callable[[str], Expr | None],
) -> MergeStatement:
    alias = statement.called
    computed_in_source: dict[str, str] = {}
    kept: dict[str, str] = {}
    if isinstance(statement, UpdateStatement):
        for column, text in statement.assignments.items():
            computed = _computed(statement, text, dialect) or differs(text)
            place = computed_in_source if computed else kept
            place[column] = text
    values = {column: f"{_VALUE}_{n}" for n, column in enumerate(computed_in_source)}
    tables = f"{statement.written} AS {quoted(alias, dialect)}"
    if statement.source is not None:
        tables += f", {statement.source}"
    texts = [f"({text}) AS {values[column]}" for column, text in computed_in_source.items()]
    query = f"FROM {tables} WHERE {statement.where}"
    known, rest = _terms(statement, dialect, compiled)
    # Terms that name a list are checked on the table's rows: lists would be long keys.
    of_lists = [text for text, tree in known if _names_list(tree, schema)]
    asking = [f"({text})" for text in (*rest, *(t for t, _ in known if t not in of_lists))]
    naming = (
        f"SELECT {', '.join(['1', *texts])} FROM {tables} WHERE {' AND '.join(asking) or 'true'}"
    )
    root = query_of(_parsed_as(naming, dialect), dialect)
    named = _named_columns(root, alias, schema)
    keys = [key for name in named for key in _keys(schema.field(name), (name,))]
    own = quoted(alias, dialect)
    columns = [f"{key.of(own, dialect)} AS {_KEY}_{n}" for n, key in enumerate(keys)]
    columns += texts or ["1 AS __lakevilla_any"]
    source = _query(statement, f"SELECT DISTINCT {', '.join(columns)} {query}", dialect)
    on = [
        f"{key.of(quoted(alias))} {'<=>' if key.nullable else '='} {_SOURCE}.{_KEY}_{n}"
        for n, key in enumerate(keys)
    ]
    on += [f"({text})" for text in of_lists]
    assignments = {column: f"{_SOURCE}.{value}" for column, value in values.items()}
    clause = _clause(statement, {**kept, **assignments})
    condition = " AND ".join(on) or "true"
    within = None
    if known and _reads_once(source.sql, statement, dialect):
        within = all_of([tree for _, tree in known])
    verb = merge_verb(statement)
    of_own_row = tuple(
        column
        for column, text in computed_in_source.items()
        if _names_own(text, alias, schema, dialect)
    )
    return MergeStatement(
        statement.table, alias, source, _SOURCE, condition, (clause,), verb, within, of_own_row
    )


def _terms(
    statement: UpdateStatement | DeleteStatement,
    dialect: Dialect,
    compiled: Callable[[str], Expr | None],
) -> tuple[list[tuple[str, Expr]], list[str]]:
    """Return the AND terms of a condition that are expressions, and the AND terms for
    the engine.
    """
    known, rest = [], []
    for text in conjuncts(statement.where, dialect) or [statement.where]:
        tree = None if has_query(text, dialect) else compiled(text)
        if tree is None:
            rest.append(text)
        else:
            known.append((text, tree))
    return known, rest


def _names_list(tree: Expr, schema: pa.Schema) -> bool:
    """Return whether the term names a list or a map, also within a struct."""
    return any(_has_list(schema.field(column.path[0]).type) for column in columns(tree))


def _has_list(type_: pa.DataType) -> bool:
    if pa.types.is_struct(type_):
        return any(_has_list(field.type) for field in type_)
    return bool(pa.types.is_nested(type_))


def _reads_once(sql: str, statement: UpdateStatement | DeleteStatement, dialect: Dialect) -> bool:
    """Return whether a query names the changed table in exactly one place."""
    root = query_of(_parsed_as(sql, dialect), dialect)
    found = [parts for node in root.find_all(exp.Table) if (parts := table_parts(node))]
    path = statement.table.replace(".", "/").lower()
    return sum(table_path(parts).lower() == path for parts in found) == 1


@dataclass(frozen=True, slots=True)
class _Key:
    """A value that distinguishes rows: a column, a field in one, or whether a struct is NULL."""

    path: tuple[str, ...]
    nullable: bool
    is_null: bool = False

    def of(self, alias: str, dialect: Dialect = "duckdb") -> str:
        name = ".".join([alias, *(quoted(part, dialect) for part in self.path)])
        return f"({name} IS NULL)" if self.is_null else name


def _keys(field: pa.Field, path: tuple[str, ...]) -> Iterator[_Key]:
    """Yield the fields of a struct as keys: structs can't be joined by an order."""
    if not pa.types.is_struct(field.type):
        # The field of a struct is NULL where the struct is NULL.
        yield _Key(path, field.nullable or len(path) > 1)
        return
    yield _Key(path, nullable=False, is_null=True)
    for inner in field.type:
        yield from _keys(inner, (*path, inner.name))


def _computed(statement: UpdateStatement, text: str, dialect: Dialect) -> bool:
    """Return whether the engine's SQL computes an assignment, because it may read other rows."""
    return statement.source is not None or has_query(text, dialect)


def _names_own(text: str, alias: str, schema: pa.Schema, dialect: Dialect) -> bool:
    """Return whether an assigned value may be computed from columns of the row that it changes."""
    root = query_of(_parsed_as(f"SELECT ({text})", dialect), dialect)
    return bool(_named_columns(root, alias, schema))


def _named_columns(root: exp.Expr, alias: str, schema: pa.Schema) -> list[str]:
    """Return the columns that a query may mean, in their order; extra columns do no harm."""
    words: set[str] = set()
    for node in root.walk():
        if isinstance(node, exp.Columns):
            return list(schema.names)
        if isinstance(node, exp.Star):
            parent = node.parent
            if isinstance(parent, exp.Column) and parent.table.lower() == alias.lower():
                return list(schema.names)
        if isinstance(node, exp.Column):
            parts = [part.name.lower() for part in node.parts]
            if parts == [alias.lower()]:
                return list(schema.names)  # a row as a value
            # The name is qualified by another table, or is the field of a struct, whose column is
            # in front.
            words.update(parts if alias.lower() in parts else parts[:1])
    return [name for name in schema.names if name.lower() in words]


# ------------------------------------------------------------------ texts and tokens


def _query(statement: UpdateStatement | DeleteStatement, text: str, dialect: Dialect) -> Select:
    """Return a query of the statement's, which can name the queries of its WITH."""
    return select_of(with_common(statement.common, text, dialect), None, dialect)


def _clause(
    statement: UpdateStatement | DeleteStatement, assignments: dict[str, str] | None = None
) -> WhenClause:
    if isinstance(statement, DeleteStatement):
        return WhenClause("matched_delete", None, {})
    return WhenClause(
        "matched_update", None, statement.assignments if assignments is None else assignments
    )


def merge_verb(statement: UpdateStatement | DeleteStatement) -> str:
    """Return the name in errors for those merges."""
    return "delete" if isinstance(statement, DeleteStatement) else "update"


def _texts(statement: UpdateStatement | DeleteStatement) -> list[str]:
    values = statement.assignments.values() if isinstance(statement, UpdateStatement) else ()
    return [statement.where, *values]


def _any_query(statement: UpdateStatement | DeleteStatement, dialect: Dialect) -> bool:
    return any(has_query(text, dialect) for text in _texts(statement))


def has_query(text: str, dialect: Dialect) -> bool:
    tokens = tokens_of(text, dialect)
    return any(
        before.token_type is TokenType.L_PAREN and word_of(token) in _QUERY
        for before, token in pairwise(tokens)
    )


def _parsed_as(text: str, dialect: Dialect) -> str:
    return named_parameters(text, None) if dialect == "duckdb" else text
