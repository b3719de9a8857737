"""Parse expressions, statements and constraints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, ClassVar, Protocol, cast

from lakevilla.errors import InvalidOperation
from lakevilla.settings import is_unicode
from lakevilla.settings import shown as in_short
from lakevilla.sql.expressions.bind import Schemas
from lakevilla.sql.expressions.syntax.parameter_names import (
    Dialect,
    TokenType,
    errors,
    exp,
    parser,
    sqlglot,
    tokens,
    with_parameter_names,
)
from lakevilla.sql.expressions.syntax.slips import UnreadPlace, note_place, what_to_write, written
from lakevilla.sql.expressions.syntax.sql_nodes import Foreign, NotInLanguage, Reader, Spellings
from lakevilla.sql.expressions.tree import Expr, Literal, children
from lakevilla.sql.expressions.values import literal

# -------------------- parse
#
# Parsing of SQL text to an expression tree: exactly one expression, nothing with an unknown name.
#
# sqlglot's generic dialect reads the text once, with its table of functions emptied: each call is
# parsed as a name with operands. ``sql_nodes`` makes our tree of sqlglot's.


MAX_TEXT = 1 << 20
#: Trees of longer texts are not cached: a tree takes a thousand times the memory of its text.
_SHORT = 2000


@lru_cache(1)
def _dialect() -> Dialect:
    class LakeVillaSQL(sqlglot.Dialect):
        """Standard strings, identifiers in double quotes or backticks, ``X'..'`` for bytes."""

        class Tokenizer(tokens.Tokenizer):
            IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]
            HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("x'", "'"), ("X'", "'")]

        class Parser(parser.Parser):
            FUNCTIONS: ClassVar[dict[str, Any]] = {}
            FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
                name: parser.Parser.FUNCTION_PARSERS[name] for name in ("CAST", "EXTRACT")
            }
            NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
                "CASE": parser.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]
            }

            def _parse_paren(self) -> Any:
                return written(super()._parse_paren())

    return LakeVillaSQL()


def parse_predicate(
    sql: object,
    params: Mapping[str, object] | None = None,
    now: datetime | None = None,
    foreign: Foreign | None = None,
) -> Expr:
    """Return a ``where`` as a tree; ``bind`` checks later whether it is boolean.

    Parameters
    ----------
    sql : str
        One expression; ``true`` means all rows.
    params : Mapping, optional
        Values of ``:name``; each must be used.
    now : datetime, optional
        Aware; the value of ``current_timestamp``, and of ``current_date``.
    foreign : callable, optional
        Makes a tree of an expression that is an object of another library.

    Raises
    ------
    InvalidOperation
        No text, not exactly one expression, or something that the language does not have.
    """
    reader = Reader({} if params is None else params, now, foreign)
    tree = predicate_with(sql, reader)
    refuse_unused(reader.params, reader.used)
    return tree


def predicate_with(given: object, reader: Reader) -> Expr:
    """Return a required predicate, parsed by ``reader``, which other texts may share."""
    tree = reader.of_foreign(given)
    return parse_with(required(given), reader) if tree is None else tree


def required(sql: object) -> str:
    """Return the text of a required predicate."""
    if sql is None or (isinstance(sql, str) and not sql.strip()):
        raise InvalidOperation('a predicate is required: where="true" means all rows')
    if not isinstance(sql, str):
        whole = ': for all rows write "true"' if sql is True else ""
        raise InvalidOperation(
            f'a predicate is SQL, as text such as "qty > 0", not {in_short(sql)}{whole}'
        )
    return sql


def parse_expression(
    sql: str, params: Mapping[str, object] | None = None, now: datetime | None = None
) -> Expr:
    """Return one expression of any type as a tree. Arguments and errors as ``parse_predicate``."""
    reader = Reader({} if params is None else params, now)
    tree = parse_with(sql, reader)
    refuse_unused(reader.params, reader.used)
    return tree


def read_assignments(assignments: object, reader: Reader) -> dict[str, Expr]:
    """Return the expression of each column, parsed by ``reader``, which other texts may share.

    A ``str`` is SQL, any other Python value a literal.
    """
    if not isinstance(assignments, Mapping):
        raise InvalidOperation(
            f"assignments map columns to new values, and a {type(assignments).__name__} does not: "
            'pass {"column": value}'
        )
    if not assignments:
        raise InvalidOperation("no assignments: name at least one column and its new value")
    for name in assignments:
        if not isinstance(name, str) or not name:
            raise InvalidOperation(
                f"assignments have the name {in_short(name)}: name columns by text"
            )
    return {name: _assigned(name, value, reader) for name, value in assignments.items()}


def _assigned(name: str, value: object, reader: Reader) -> Expr:
    if isinstance(value, str):
        return parse_with(value, reader)
    tree = reader.of_foreign(value)
    return literal(value, f"the value for column {name}") if tree is None else tree


def refuse_unused(given: Iterable[str], used: Iterable[str]) -> None:
    """Raise if the caller gave a parameter that no text uses."""
    if unused := sorted(set(given) - set(used)):
        raise InvalidOperation(
            f"parameters not used: {', '.join(unused)}; write :{unused[0]}, without quotes, or "
            "leave them out"
        )


def parse_with(sql: str, reader: Reader) -> Expr:
    if not isinstance(sql, str):
        raise InvalidOperation(
            f"an expression is text, not {type(sql).__name__}: pass SQL, and values through params"
        )
    shown = _shown(sql)
    if not is_unicode(sql):
        raise InvalidOperation(
            f"an expression has half of a surrogate pair: take it out of {shown!r}"
        )
    if len(sql) > MAX_TEXT:
        raise InvalidOperation(
            f"an expression of {len(sql)} characters is too long (at most {MAX_TEXT}): pass long "
            f"lists through params; it begins {shown!r}"
        )
    try:
        return reader.read(_syntax(sql))
    except RecursionError:
        raise InvalidOperation(
            f"expression is nested too deeply: use fewer parentheses; it begins {shown!r}"
        ) from None
    except NotInLanguage as refused:
        raise InvalidOperation(f"{refused}; in the expression {shown!r}") from None


def _syntax(sql: str) -> exp.Expression:
    """Return a text's syntax tree; callers must not change it, since equal texts share it."""
    return (_known_syntax if len(sql) <= _SHORT else _read_syntax)(sql)


def _read_syntax(sql: str) -> exp.Expression:
    shown = _shown(sql)
    try:
        words = with_parameter_names(_dialect().tokenize(sql), TokenType.VAR)
        for token in words:
            if token.token_type.name == "SEMICOLON":
                raise InvalidOperation(
                    f"exactly one expression is allowed: remove the ';' at line {token.line}, "
                    f"column {token.col} of {shown!r}"
                )
        nodes = _dialect().parser().parse_into(exp.Condition, words, sql)
    except errors.SqlglotError as error:
        place, near = _place(error, sql), _near(error)
        unread = InvalidOperation(
            f"cannot read {shown!r}{place or ''}{f', near {near!r}' if place and near else ''}: "
            f"{what_to_write(sql, near)}"
        )
        raise (unread if place is None else note_place(unread, place)) from None
    except (ValueError, TypeError, AttributeError, IndexError, KeyError):
        # If sqlglot itself fails with such an error, the caller's input is malformed.
        raise InvalidOperation(f"cannot read {shown!r}: {what_to_write(sql, '')}") from None
    if len(nodes) != 1 or nodes[0] is None:
        raise InvalidOperation(
            f"exactly one expression is needed, got {shown!r}: {what_to_write(sql, '')}"
        )
    return cast(exp.Expression, nodes[0])


_known_syntax = lru_cache(maxsize=256)(_read_syntax)


def _shown(sql: str) -> str:
    return sql if len(sql) < 200 else sql[:197] + "..."


def _place(error: errors.SqlglotError, sql: str) -> UnreadPlace | None:
    first = _details(error)
    return UnreadPlace(sql, first["line"], first["col"]) if first.get("line") else None


def _near(error: errors.SqlglotError) -> str:
    """Return the word at which reading stopped."""
    return _details(error).get("highlight") or ""


def _details(error: errors.SqlglotError) -> dict[str, Any]:
    details: list[dict[str, Any]] = getattr(error, "errors", None) or []
    return details[0] if details else {}


# -------------------- statement
#
# Several expressions of one statement, which share their parameters.


class MeaningCheck(Protocol):
    """A check that raises if trees, or the recorded parts of their texts, mean something else in a
    SELECT.
    """

    def __call__(
        self, trees: Iterable[Expr], written: Iterable[Expr], schemas: Schemas, alias: str | None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Meaning:
    """The SQL in which texts are written, and whose meaning they must have.

    Attributes
    ----------
    spellings : mapping of str to callable
        Calls that have another meaning in it than in the language.
    check : MeaningCheck
    """

    spellings: Spellings
    check: MeaningCheck


class StatementExpressions:
    """Parser of expressions, one by one; ``finish`` refuses parameters that none of them used."""

    def __init__(
        self,
        params: Mapping[str, object] | None = None,
        now: datetime | None = None,
        foreign: Foreign | None = None,
        meaning: Meaning | None = None,
    ) -> None:
        spellings = {} if meaning is None else meaning.spellings
        self._reader = Reader(dict(params or {}), now, foreign, spellings=spellings)
        self._meaning = meaning
        self._trees: list[Expr] = []

    def predicate(self, sql: object) -> Expr:
        """Parse a required predicate."""
        tree = predicate_with(sql, self._reader)
        self._trees.append(tree)
        return tree

    def assignments(self, values: Mapping[str, object]) -> dict[str, Expr]:
        """Parse a ``str`` as SQL, and take any other Python value as a literal."""
        trees = read_assignments(values, self._reader)
        self._trees += trees.values()
        return trees

    def use(self, names: Iterable[str]) -> None:
        """Count parameters as used that another part of the statement uses."""
        self._reader.used.update(names)

    def finish(self) -> None:
        """Raise if a parameter was given and not used."""
        refuse_unused(self._reader.params, self._reader.used)

    def check(self, schemas: Schemas, alias: str | None = None) -> None:
        """Raise if the statement's SQL dialect gives a text another meaning than its parsed tree.

        Without ``meaning`` nothing is checked.
        """
        if self._meaning is not None:
            self._meaning.check(self._trees, self._reader.written, schemas, alias)


# -------------------- constraints
#
# CHECK constraints: text in a table's log, which every writer reads as its own SQL.
#
# In Spark, a backslash in a string begins an escape; in other systems it is a character: ``'\d'``
# is a digit here and the letter d there. Such a text is refused, so that no writer passes a rule
# that another writer enforces.


def parse_constraint(sql: str) -> Expr:
    """Return a constraint as a tree.

    Raises
    ------
    InvalidOperation
        As ``parse_predicate``; or a string has a backslash.
    """
    tree = parse_predicate(sql)
    pending: list[Expr] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, Literal) and node.type == "string" and "\\" in (node.value or ""):
            raise InvalidOperation(
                f"the text {node.value!r} in a constraint has a backslash, which Spark reads "
                "differently from other engines: in a pattern write [0-9] for a digit and [.] for "
                "a dot"
            )
        pending += children(node)
    return tree
