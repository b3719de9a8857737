"""SELECT: its tables, columns and common table expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Concatenate, Literal, ParamSpec, TypeVar

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.parse import refuse_unused
from lakevilla.sql.expressions.syntax.parameter_names import (
    Token,
    Tokenizer,
    TokenType,
    duckdb,
    errors,
    exp,
    is_parameter,
    spark,
    sqlglot,
    with_parameter_names,
)
from lakevilla.sql.expressions.syntax.slips import UnreadPlace, note_place

# -------------------- common tables
#
# WITH before a statement that changes rows: its queries belong to the statement's own query.


#: Tokens that may follow the closing parenthesis of a WITH's last query before the statement
#: begins.
_WITHIN = frozenset({"AS", "USING", ",", "NOT", "MATERIALIZED"})


def behind_with(tokens: Sequence[Token]) -> int:
    """Return the place where the statement after a WITH begins; 0 if there is no WITH."""
    if not tokens or word_of(tokens[0]) != "WITH":
        return 0
    depth = 0
    for index, token in enumerate(tokens):
        closed = index and depth == 0 and opens(tokens[index - 1]) < 0
        if closed and word_of(token) not in _WITHIN:
            return index
        depth += opens(token)
    return 0


def with_common(common: str, query: str, dialect: Dialect) -> str:
    """Return a query that can name the queries of ``common``, a WITH; its own ones follow."""
    if not common:
        return query
    tokens = tokens_of(query, dialect)
    if word_of(tokens[0]) == "VALUES":
        return f"{common} SELECT * FROM ({query}) AS __lakevilla_values"
    if word_of(tokens[0]) != "WITH":
        return f"{common} {query}"
    recursive = word_of(tokens[1]) == "RECURSIVE"
    rest = slice_of(query, tokens[2 if recursive else 1 :])
    words = tokens_of(common, dialect)
    if recursive and word_of(words[1]) != "RECURSIVE":
        common = f"WITH RECURSIVE {slice_of(common, words[1:])}"
    return f"{common}, {rest}"


def named_by(common: str, dialect: Dialect) -> frozenset[str]:
    """Return the names of the queries of a WITH, in small letters."""
    if not common:
        return frozenset()
    tokens, depth, found = tokens_of(common, dialect), 0, set()
    for index, token in enumerate(tokens):
        starts = word_of(tokens[index - 1]) in ("WITH", "RECURSIVE", ",") if index else False
        if depth == 0 and starts and word_of(token) != "RECURSIVE":
            found.add(token.text.lower())
        depth += opens(token)
    return frozenset(found)


# -------------------- words
#
# Texts of tokens, and names as the text of a query has them.


def word_of(token: Token) -> str:
    """Return a token's text in capitals; "" if it is quoted, as then it is never a keyword."""
    quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
    return "" if quoted else token.text.upper()


def opens(token: Token) -> int:
    """Return 1 for an opening bracket, -1 for a closing one."""
    if token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE):
        return 1
    closing = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
    return -1 if token.token_type in closing else 0


def slice_of(text: str, tokens: Sequence[Token]) -> str:
    """Return the part of the text from the first of the tokens to the last."""
    return text[tokens[0].start : tokens[-1].end + 1]


def quoted(name: str, dialect: Dialect = "duckdb") -> str:
    """Return one part of a name, quoted for a query of the dialect."""
    mark = '"' if dialect == "duckdb" else "`"
    return mark + name.replace(mark, mark * 2) + mark


# -------------------- remembered
#
# Results for a text, kept for the next use of the same text.


Rest = ParamSpec("Rest")
Made = TypeVar("Made")

_TEXTS = 256
#: Longer texts contain rows and are rarely used again later, but one run reads them several times:
#: small results for the last ones are cached.
_LONG, _LONG_TEXTS = 20_000, 2


def remembered(
    make: Callable[Concatenate[str, Rest], Made],
) -> Callable[Concatenate[str, Rest], Made]:
    """Return ``make`` with a cache: it is called once for the same text and further arguments.

    Callers must not change its result.
    """
    return _by_length(make, lru_cache(maxsize=_LONG_TEXTS)(make))


def remembered_if_short(
    make: Callable[Concatenate[str, Rest], Made],
) -> Callable[Concatenate[str, Rest], Made]:
    """Return the same as ``remembered``, for results that take far more memory than their text."""
    return _by_length(make, make)


def _by_length(
    make: Callable[Concatenate[str, Rest], Made], of_long: Callable[Concatenate[str, Rest], Made]
) -> Callable[Concatenate[str, Rest], Made]:
    known = lru_cache(maxsize=_TEXTS)(make)

    def ask(text: str, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Made:
        found = of_long if len(text) > _LONG else known
        return found(text, *args, **kwargs)  # type: ignore[arg-type]  # all can be hashed

    return ask


# -------------------- select
#
# A user's SELECT, read to find the tables that it names and to refuse access beyond them.


#: The catalog of all tables, and the schema of those whose name is no path, in SQL's words.
CATALOG = "lake"
MAIN_SCHEMA = "main"

#: The dialect of SQL in which a query is written.
Dialect = Literal["duckdb", "spark"]


@dataclass(frozen=True, slots=True)
class Select:
    """A query, in the engine's dialect; ``references`` are the tables it names, part by part."""

    sql: str
    references: frozenset[tuple[str, ...]]

    @property
    def tables(self) -> frozenset[str]:
        """Return the tables named, by ``table_path``."""
        return frozenset(map(table_path, self.references))

    @property
    def spellings(self) -> list[tuple[str, str]]:
        """Return those paths, each with its name in the statement: ``a.b``, or as it is quoted."""
        return sorted({(table_path(parts), table_name(parts)) for parts in self.references})


#: Table functions that make rows from their arguments alone.
PURE_TABLE_FUNCTIONS = frozenset({"unnest", "range", "generate_series"})
# Functions that reach beyond the rows of a query: settings, secrets, files, other SQL.
_REACHING = re.compile(
    r"(read|scan|sniff|parquet|duckdb|pragma|pg|load|which|query|write|json_execute)_.*|.*_scan|"
    r"glob|query|getenv|getvariable|current_setting|set_config|nextval|currval|"
    r"current_database|current_schemas|version|(java_method|(try_)?reflect)"
)


def select_of(sql: str, params: Iterable[str] | None = None, dialect: Dialect = "duckdb") -> Select:
    """Return a SELECT that sees tables alone; anything else raises ``InvalidOperation``."""
    return _select_of(sql, None if params is None else frozenset(params), dialect)


@remembered
def _select_of(sql: str, params: frozenset[str] | None, dialect: Dialect) -> Select:
    root = query_of(named_parameters(sql, params) if dialect == "duckdb" else sql, dialect)
    if dialect == "spark":
        _refuse_table(sql)
    references = set()
    for node in root.walk():
        _refuse_reaching(node)
        if isinstance(node, exp.Table):
            parts = table_parts(node)
            if parts is not None:
                references.add(parts)
    return Select(sql, frozenset(references))


def query_of(text: str, dialect: Dialect) -> exp.Expr:
    """Return the tree of one query; anything else raises ``InvalidOperation``."""
    syntax = sqlglot.Dialect.get_or_raise(_parser_of(text, dialect))
    try:
        words = with_parameter_names(syntax.tokenize(text), TokenType.VAR)
        found = [
            node
            for node in syntax.parser().parse(words, text)
            if node is not None and not isinstance(node, exp.Semicolon)
        ]
    except errors.SqlglotError as error:
        raise unreadable(error, text) from None
    except RecursionError:
        raise InvalidOperation("sql is nested too deeply; split it into views") from None
    except (IndexError, KeyError, AttributeError, TypeError):
        # The parser fails in these ways where it should report that it does not know something.
        raise InvalidOperation("sql cannot be read; write it in simpler clauses") from None
    if len(found) != 1:
        raise InvalidOperation(
            f"sql holds {len(found)} statements; give exactly one, and call sql again for each"
        )
    root = found[0]
    if not isinstance(root, (exp.Query, exp.Values)):
        raise InvalidOperation(
            f"{root.key} is not a query; use SELECT, or the method of the transaction for it"
        )
    return root


#: The beginning of a text between dollars: ``$$it's$$``, ``$tag$it's$tag$``.
_DOLLARS = re.compile(r"\$(?:[A-Za-z_]\w*)?\$")


def _parser_of(text: str, dialect: Dialect) -> Any:
    """Return the parser: without a text between dollars, it must not find one in ``$a,$b``."""
    if dialect == "duckdb" and not _DOLLARS.search(text):
        return _duckdb_without_dollars()
    return dialect


@lru_cache(1)
def _duckdb_without_dollars() -> type[Any]:
    class WithoutDollars(duckdb.DuckDB):
        class Tokenizer(duckdb.DuckDB.Tokenizer):
            HEREDOC_STRINGS: ClassVar[list[str | tuple[str, str]]] = []

    return WithoutDollars


def named_parameters(sql: str, params: Iterable[str] | None = None) -> str:
    """Return ``sql`` with ``:name`` written as DuckDB's ``$name``, and ``X'61'`` as its BLOB.

    A colon is also DuckDB's separator in slices, in structs and after aliases that precede their
    values; it marks a parameter where no value can be to its left. With ``params``, only those
    names count, and each must be used.
    """
    return _named_parameters(sql, None if params is None else frozenset(params))


@remembered
def _named_parameters(sql: str, names: frozenset[str] | None) -> str:
    tokens = tokens_of(sql)
    pieces, position, used = [], 0, set()
    for before, colon, name in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        if colon.token_type is TokenType.HEX_STRING:
            pieces += [sql[position : colon.start], _blob(sql[colon.start + 2 : colon.end])]
            position = colon.end + 1
        if name is None or not is_parameter(before, colon, name):
            continue
        if names is not None and name.text not in names:
            if before is not None and before.token_type is TokenType.L_BRACKET:
                continue  # a slice without its first bound
            raise InvalidOperation(
                f"parameter :{name.text} has no value; give it in params, which has "
                f"{', '.join(sorted(names)) or 'none'}"
            )
        pieces += [sql[position : colon.start], "$"]
        position = colon.end + 1
        used.add(name.text)
    refuse_unused(names or (), used)
    return "".join([*pieces, sql[position:]])


def _blob(digits: str) -> str:
    """Return bytes in DuckDB's notation; in DuckDB, ``X'61'`` is a text."""
    if len(digits) % 2:
        raise InvalidOperation(f"X'{digits}' is not an even number of hex digits")
    written = "".join(rf"\x{digits[at : at + 2]}" for at in range(0, len(digits), 2))
    return f"'{written}'::BLOB"


def tokens_of(sql: str, dialect: Dialect = "duckdb") -> list[Token]:
    """Return the tokens of a text that is not empty; ``start`` and ``end`` are offsets in it."""
    return list(_tokens_of(sql, dialect))


@remembered_if_short
def _tokens_of(sql: str, dialect: Dialect) -> tuple[Token, ...]:
    if not sql or not sql.strip():
        raise InvalidOperation("sql is empty; give one statement as text")
    try:
        tokens = with_parameter_names(tokenizer_of(dialect)().tokenize(sql), TokenType.IDENTIFIER)
    except errors.SqlglotError as error:
        raise unreadable(error, sql) from None
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise InvalidOperation("sql is empty; give one statement as text")
    return tuple(tokens)


def tokenizer_of(dialect: Dialect) -> type[Tokenizer]:
    """Return the tokenizer of a dialect."""
    return _duckdb_tokenizer() if dialect == "duckdb" else spark.Spark.Tokenizer


@lru_cache(1)
def _duckdb_tokenizer() -> type[Tokenizer]:
    class Tokens(duckdb.DuckDB.Tokenizer):
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]
        HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("x'", "'"), ("X'", "'")]

    return Tokens


def _refuse_table(sql: str) -> None:
    """Refuse ``TABLE x`` as a query: parsed as a column, its name would not be seen."""
    tokens = tokens_of(sql, "spark")
    for before, token in zip([None, *tokens], tokens, strict=False):
        plain = token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
        if plain and token.text.upper() == "TABLE" and (before is None or before.text != "."):
            raise InvalidOperation(
                "sql: TABLE is not supported in a query: write SELECT * FROM the table, or put "
                "a column of that name in backticks"
            )


def _refuse_reaching(node: exp.Expr) -> None:
    if isinstance(node, exp.QueryTransform):
        raise InvalidOperation("TRANSFORM runs a program: use the functions of SQL instead")
    if isinstance(node, (exp.DDL, exp.DML, exp.Command, exp.Into, exp.Pragma, exp.Copy, exp.Set)):
        if isinstance(node, exp.Query):
            return
        raise InvalidOperation(f"{node.key} is not supported inside a query; use only SELECT")
    if isinstance(node, exp.Func):
        name = _function_name(node)
        if is_reaching(name):
            raise InvalidOperation(
                f"function {name} reaches beyond the lake's tables; register the data as a table "
                "or pass it in views"
            )


def is_reaching(function: str) -> bool:
    """Return whether a function reaches beyond the rows of a query."""
    return _REACHING.fullmatch(function.lower()) is not None


def table_name(parts: Sequence[str]) -> str:
    """Return the name of a statement's parts: with dots, or a path if a part itself has some."""
    parts = below_root(parts)
    is_plain = not any("." in part or "/" in part for part in parts)
    return ("." if is_plain else "/").join(parts)


def table_path(parts: Sequence[str]) -> str:
    """Return the path that a query's parts are: ``a.b`` and ``"a/b"`` are both ``a/b``."""
    return "/".join(below_root(parts))


def below_root(parts: Sequence[str]) -> Sequence[str]:
    """Return the parts without the catalog, and without the schema of names that are no paths."""
    if len(parts) == 3 and parts[0].lower() == CATALOG:
        parts = parts[1:]
    if len(parts) == 3 and parts[0].lower() == MAIN_SCHEMA:
        path = "/".join(parts)
        raise InvalidOperation(
            f"{'.'.join(parts)} is no name, as the schema {MAIN_SCHEMA} has no schemas: write "
            f'"{path}" for a table in a directory {MAIN_SCHEMA}'
        )
    return parts[1:] if len(parts) == 2 and parts[0].lower() == MAIN_SCHEMA else parts


def table_parts(table: exp.Table) -> tuple[str, ...] | None:
    """Return the parts of a table's name; None for a CTE, a table function without access, or a
    hint.
    """
    this = table.this
    if table.find_ancestor(exp.Hint):
        # a hint may name an alias or a table, and is parsed separately, without a place in the text
        return None
    if isinstance(this, exp.Identifier):
        named: list[Any] = [table.args.get("catalog"), table.args.get("db"), this]
        parts = tuple(part.name for part in named if part is not None)
        return None if len(parts) == 1 and _is_cte(table, parts[0]) else parts
    if isinstance(this, (exp.Placeholder, exp.Parameter)):
        raise InvalidOperation(
            "a parameter stands for a value, and can't name a table: write the table's name"
        )
    name = _function_name(this) if isinstance(this, exp.Func) else type(this).__name__.lower()
    if name in PURE_TABLE_FUNCTIONS or isinstance(this, (exp.GenerateSeries, exp.Unnest)):
        return None
    raise InvalidOperation(
        f"{name} is no table of the lake; register the data as a table or pass it in views"
    )


def _function_name(function: exp.Expr) -> str:
    if isinstance(function, exp.Anonymous):
        return str(function.name).lower()
    if isinstance(function, exp.Func):
        return function.sql_name().lower()
    return function.key


def _is_cte(table: exp.Table, name: str) -> bool:
    """Return whether a plain name means a CTE at its place: an earlier one, or an outer one."""
    inside: exp.Expr = table
    own: exp.CTE | None = None
    while (outer := inside.parent) is not None:
        if isinstance(outer, exp.CTE):
            own = outer
        elif isinstance(outer, exp.With):
            visible = outer.expressions
            if own is not None:
                end = next(i for i, cte in enumerate(visible) if cte is own)
                visible = visible[: end + 1 if outer.args.get("recursive") else end]
            if _named(visible, name):
                return True
            # The CTEs of this WITH that the statement around it can name were just checked.
            inside = outer.parent or outer
            own = None
            continue
        else:
            clause = outer.args.get("with_") or outer.args.get("with")
            if clause is not None and clause is not inside and _named(clause.expressions, name):
                return True
        inside = outer
    return False


def _named(ctes: Iterable[exp.Expr], name: str) -> bool:
    return any(cte.alias.lower() == name.lower() for cte in ctes)


def unreadable(error: errors.SqlglotError, sql: str) -> InvalidOperation:
    """Return the error for a text that the parser could not read."""
    details = getattr(error, "errors", None) or [{}]
    first = details[0]
    near = first.get("highlight")
    place = UnreadPlace(sql, first["line"], first["col"]) if first.get("line") else None
    advice = "correct it and try again"
    if "`" in sql:
        advice = 'quote names by "...", not by backticks'
    elif re.search(r"%\(\w+\)s", sql):
        advice = "write parameters as :name, not as %(name)s"
    elif "'" in re.sub(r"'(?:[^']|'')*'", "", sql):
        advice = "a quote is not closed; within a text it is doubled, as in 'Ben''s'"
    else:
        clause = next((one for one in _NO_CLAUSE if re.search(rf"\b{one}\b", sql, re.I)), None)
        if clause is not None:
            advice = f"{clause.upper()} is not supported: {_NO_CLAUSE[clause]}"
    unread = InvalidOperation(
        f"sql cannot be read{place or ''}{f', near {near!r}' if near else ''}; {advice}"
    )
    if place is not None:
        note_place(unread, place)
    return unread


_NO_CLAUSE = {
    "returning": "the result of the statement counts its rows",
    "on conflict": "use MERGE, or txn.upsert(...)",
}
