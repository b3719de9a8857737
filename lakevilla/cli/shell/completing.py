"""Complete typed text: commands, names of tables and columns, and words of SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from lakevilla.cli.shell.screen import COMMANDS, Takes
from lakevilla.values import FORMATS

# -------------------- suggestions
#
# Completions at the cursor of a statement.


SuggestionKind = Literal[
    "table", "column", "alias", "keyword", "function", "ref", "command", "file"
]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A text that may replace the ``back`` characters before the cursor."""

    text: str
    back: int
    kind: SuggestionKind
    about: str = ""


def suggestions(before: str, after: str, names: Names) -> list[Suggestion]:
    """Return completions between two texts, the likeliest first; none in a string or comment."""
    tokens = _statement(tokens_of(before))
    if tokens and not tokens[-1].is_closed and tokens[-1].kind != "quoted":
        return []
    behind = _up_to_semicolon(tokens_of(after))
    path, typed, tokens = _under_cursor([t for t in tokens if t.kind != "comment"], len(before))
    around = _Around(tokens, behind, names)
    back = 0 if typed is None else len(before) - typed.start
    prefix = "" if typed is None else typed.name
    found = around.members(path) if path else around.words(prefix)
    fits = prefix.lower()
    is_quoted = typed is not None and typed.kind == "quoted"
    return [
        Suggestion(_as_typed(text, prefix, kind), back, kind, about)
        for text, kind, about in _once(found)
        if text.lower().lstrip('"').startswith(fits) and (not is_quoted or kind in _NAMES)
    ]


_NAMES = ("table", "column", "alias", "ref")
_Found = tuple[str, SuggestionKind, str]


@dataclass(frozen=True, slots=True)
class _Around:
    """The statement around the cursor, without the name under it."""

    tokens: Sequence[WrittenToken]
    behind: Sequence[WrittenToken]
    names: Names

    def members(self, path: Sequence[str]) -> Iterator[_Found]:
        """Return completions after a dot: columns of an alias or table, tables of a directory."""
        scope = self._scope()
        whole = ".".join(path)
        table = scope.get(path[0]) if len(path) == 1 else None
        if table is None:
            table = next((name for name in scope.values() if name == whole), None)
        if table is not None:
            for column in self.names.columns(_slashed(table)):
                yield quoted(column.name), "column", column.type
        if table is None or self._expects() == "table":
            directory = "/".join(path) + "/"
            for name in self.names.tables(directory):
                yield dotted(name.removeprefix(directory)), "table", ""

    def words(self, prefix: str) -> Iterator[_Found]:
        match self._expects():
            case "first":
                yield from ((word, "keyword", "") for word in FIRST_WORDS)
            case "ref":
                yield from ((quoted(name), "ref", "") for name in self.names.refs())
            case "table":
                yield from ((quoted(name), "table", "WITH") for name in self._queries())
                yield from ((dotted(name), "table", "") for name in self.names.tables(prefix))
                if self.tokens and self.tokens[-1].upper == "TABLE":
                    yield from ((word, "keyword", "") for word in ("IF EXISTS", "IF NOT EXISTS"))
            case "column":
                yield from self._columns()
                yield from ((quoted(alias), "alias", name) for alias, name in self._scope().items())
                yield from ((word, "keyword", "") for word in WORDS)
                yield from ((f"{name}(", "function", "") for name in FUNCTIONS)
            case "keyword":
                yield from ((word, "keyword", "") for word in WORDS)

    def _expects(self) -> Literal["first", "ref", "table", "column", "keyword"]:
        if not self.tokens:
            return "first"
        last = self.tokens[-1]
        if last.upper in BEFORE_REFS:
            return "ref"
        if is_before_table(self.tokens, len(self.tokens) - 1):
            return "table"
        if last.text == ",":
            return "table" if self._lists_tables() else "column"
        if last.upper in ("EXISTS", "IF") and "TABLE" in (t.upper for t in self.tokens[-4:]):
            return "table"
        if last.kind in ("string", "number", "quoted") or last.text in (")", "*"):
            return "keyword"
        if last.kind == "word" and last.upper not in CLAUSES:
            return "keyword"
        return "column"

    def _lists_tables(self) -> bool:
        """Return whether a comma at the cursor separates tables in a FROM clause."""
        depth = 0
        for index in range(len(self.tokens) - 1, -1, -1):
            token = self.tokens[index]
            depth += (token.text == ")") - (token.text == "(")
            if depth < 0:
                return False
            if depth == 0 and token.upper in CLAUSES and token.upper != "AS":
                return token.upper == "FROM"
        return False

    def _scope(self) -> dict[str, str]:
        return tables_in([*self.tokens, *self.behind])

    def _queries(self) -> list[str]:
        return queries_in([*self.tokens, *self.behind])

    def _columns(self) -> Iterator[_Found]:
        scope = self._scope()
        own: dict[str, list[NamedColumn]] = {
            alias: list(self.names.columns(_slashed(table))) for alias, table in scope.items()
        }
        for alias, columns in own.items():
            for column in columns:
                about = column.type if len(own) == 1 else f"{alias}: {column.type}"
                yield quoted(column.name), "column", about


def _statement(tokens: Sequence[WrittenToken]) -> list[WrittenToken]:
    """Return the tokens after the last semicolon."""
    ends = [index for index, token in enumerate(tokens) if token.text == ";"]
    return list(tokens[ends[-1] + 1 if ends else 0 :])


def _up_to_semicolon(tokens: Sequence[WrittenToken]) -> list[WrittenToken]:
    ends = [index for index, token in enumerate(tokens) if token.text == ";"]
    own = tokens[: ends[0] if ends else len(tokens)]
    return [token for token in own if token.kind != "comment"]


def _under_cursor(
    tokens: list[WrittenToken], cursor: int
) -> tuple[list[str], WrittenToken | None, list[WrittenToken]]:
    """Return the parts of the name under the cursor before its last dot, the last part, and the
    other tokens.
    """
    typed = None
    if tokens and tokens[-1].end == cursor and _goes_on(tokens[-1]):
        typed = tokens.pop()
    path: list[str] = []
    while len(tokens) > 1 and tokens[-1].text == "." and tokens[-2].kind in ("word", "quoted"):
        path.insert(0, tokens[-2].name)
        del tokens[-2:]
    return path, typed, tokens


def _goes_on(token: WrittenToken) -> bool:
    """Return whether a letter typed after a token would belong to it."""
    return token.kind == "word" or (token.kind == "quoted" and not token.is_closed)


def _slashed(name: str) -> str:
    return name.replace(".", "/")


def _once(found: Iterable[_Found]) -> Iterator[_Found]:
    seen = set()
    for one in found:
        if one[0] not in seen:
            seen.add(one[0])
            yield one


def _as_typed(text: str, prefix: str, kind: SuggestionKind) -> str:
    """Return a keyword in upper or lower case, like the typed text."""
    return text.lower() if kind == "keyword" and prefix and prefix.islower() else text


# -------------------- commands
#
# Completions at the cursor of a backslash command.


def command_suggestions(before: str, names: Names) -> list[Suggestion]:
    """Return completions of a line that begins with a backslash or a dot."""
    line = before.lstrip()
    name, space, argument = line.partition(" ")
    if not space:
        return [
            Suggestion(spelt, len(line), "command", one.about)
            for one in COMMANDS
            for spelt in one.names
            if spelt.startswith(line) and spelt[:1] == line[:1]
        ]
    takes: Takes = next((one.takes for one in COMMANDS if name in one.names), "nothing")
    typed = argument.lstrip()
    fits = typed.lower()
    return [
        Suggestion(text, len(typed), kind, "")
        for text, kind in _arguments(takes, typed, names)
        if text.lower().lstrip('"').startswith(fits.lstrip('"'))
    ]


def _arguments(takes: Takes, typed: str, names: Names) -> Iterator[tuple[str, SuggestionKind]]:
    match takes:
        case "table":
            prefix = typed.strip('"').replace(".", "/")
            yield from ((dotted(name), "table") for name in names.tables(prefix))
        case "ref":
            yield from ((name, "ref") for name in names.refs())
        case "file":
            yield from ((path, "file") for path in names.files(typed))
        case "switch":
            yield from (("on", "keyword"), ("off", "keyword"))
        case "format":
            yield from ((form, "keyword") for form in FORMATS)
        case "number" | "value" | "nothing":
            pass


# -------------------- names
#
# The names in a lake that completion needs.


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column that completion suggests."""

    name: str
    type: str


class Names(Protocol):
    """The interface to the names in a lake; calls may be slow, because they may read the names."""

    def tables(self, prefix: str) -> Sequence[str]:
        """Return the tables whose names, with slashes, begin with ``prefix``."""

    def columns(self, table: str) -> Sequence[NamedColumn]:
        """Return the columns of a table, by its name with slashes; none if it does not exist."""

    def refs(self) -> Sequence[str]:
        """Return the names of branches and tags."""

    def files(self, prefix: str) -> Sequence[str]:
        """Return the local paths that begin with ``prefix``; a directory ends with a slash."""


def quoted(name: str) -> str:
    """Return one part of a name, quoted if SQL requires that."""
    if _PLAIN.fullmatch(name) and name.lower() not in RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def dotted(table: str) -> str:
    """Return the name of a table in SQL, with dots."""
    return ".".join(map(quoted, table.split("/")))


# -------------------- words
#
# The words of SQL that completion suggests.


#: Words that begin a statement.
FIRST_WORDS = (
    *("SELECT", "WITH", "FROM", "INSERT INTO", "UPDATE", "DELETE FROM", "MERGE INTO"),
    *("CREATE TABLE", "DROP TABLE", "ALTER TABLE", "TRUNCATE", "COMMENT ON"),
    *("BEGIN", "BEGIN ATOMIC", "COMMIT", "ROLLBACK", "END", "SET", "RESET"),
    *("SHOW TABLES", "SHOW VERSIONS", "SHOW TRANSACTIONS", "SHOW BRANCHES", "SHOW TAGS"),
    *("DESCRIBE", "EXPLAIN", "OPTIMIZE", "VACUUM"),
    *("CREATE BRANCH", "DROP BRANCH", "MERGE BRANCH", "CREATE TAG", "DROP TAG"),
)
#: Words that may occur inside a statement.
WORDS = (
    *("SELECT", "DISTINCT", "FROM", "WHERE", "GROUP BY", "HAVING", "QUALIFY", "ORDER BY"),
    *("LIMIT", "OFFSET", "ASC", "DESC", "NULLS FIRST", "NULLS LAST", "AS", "ON", "USING"),
    *("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "SEMI JOIN", "ANTI JOIN"),
    *("UNION", "UNION ALL", "EXCEPT", "INTERSECT", "VALUES", "SET", "INTO", "WITH", "RECURSIVE"),
    *("AND", "OR", "NOT", "IN", "IS", "IS NULL", "IS NOT NULL", "NULL", "LIKE", "ILIKE"),
    *("BETWEEN", "EXISTS", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST", "TRUE", "FALSE"),
    *("OVER", "PARTITION BY", "FILTER", "INTERVAL", "DATE", "TIMESTAMP", "EXTRACT"),
    *("WHEN MATCHED THEN", "WHEN NOT MATCHED THEN", "WHEN NOT MATCHED BY SOURCE THEN"),
    *("UPDATE", "DELETE", "INSERT", "UPDATE SET", "INSERT INTO"),
    *("IF EXISTS", "IF NOT EXISTS", "PARTITIONED BY", "USING DELTA", "USING ICEBERG"),
    *("VERSION AS OF", "TIMESTAMP AS OF", "AT", "ATOMIC", "ISOLATION LEVEL", "READ ONLY"),
)
FUNCTIONS = (
    *("abs", "any_value", "arg_max", "arg_min", "avg", "ceil", "coalesce", "concat", "concat_ws"),
    *("contains", "count", "current_date", "date_diff", "date_part", "date_trunc", "dense_rank"),
    *("ends_with", "epoch", "first", "first_value", "floor", "greatest", "hash", "ifnull", "instr"),
    *("lag", "last", "last_value", "lead", "least", "left", "length", "list", "list_contains"),
    *("lower", "lpad", "ltrim", "max", "md5", "median", "min", "mode", "now", "nullif", "power"),
    *("quantile_cont", "rank", "regexp_extract", "regexp_matches", "regexp_replace", "replace"),
    *("right", "round", "row_number", "rpad", "rtrim", "split_part", "sqrt", "starts_with"),
    *("stddev", "strftime", "string_agg", "strptime", "substring", "sum", "trim", "try_cast"),
    *("unnest", "upper", "variance"),
)
#: Words before the name of a table.
BEFORE_TABLES = frozenset(
    {"FROM", "JOIN", "INTO", "UPDATE", "TABLE", "DESCRIBE", "OPTIMIZE", "VACUUM", "TRUNCATE"}
)
#: Words before the name of a branch or tag.
BEFORE_REFS = frozenset({"BRANCH", "TAG"})
#: Words that begin a clause of a statement; the items of a clause's list are of one kind.
CLAUSES = BEFORE_TABLES | {
    *("SELECT", "WHERE", "ON", "BY", "HAVING", "QUALIFY", "SET", "VALUES", "USING", "WHEN"),
    *("THEN", "ELSE", "CASE", "LIMIT", "OFFSET", "AND", "OR", "NOT", "IN", "BETWEEN", "LIKE"),
    *("DISTINCT", "RETURNING", "OF", "WITH", "AS", "EXCEPT", "EXCLUDE"),
}
#: DuckDB's reserved words, as ``duckdb_keywords()`` lists them, which are quoted in names.
RESERVED = frozenset(
    {
        *("all", "analyse", "analyze", "and", "any", "array", "as", "asc", "asymmetric", "both"),
        *("case", "cast", "check", "collate", "column", "constraint", "create", "default"),
        *("deferrable", "desc", "describe", "distinct", "do", "else", "end", "except", "false"),
        *("fetch", "for", "foreign", "from", "group", "having", "in", "initially", "intersect"),
        *("into", "lambda", "lateral", "leading", "limit", "not", "null", "offset", "on", "only"),
        *("or", "order", "pivot", "pivot_longer", "pivot_wider", "placing", "primary", "qualify"),
        *("references", "returning", "select", "show", "some", "summarize", "symmetric", "table"),
        *("then", "to", "trailing", "true", "union", "unique", "unpivot", "using", "variadic"),
        *("when", "where", "window", "with"),
    }
)


# -------------------- scope
#
# The tables that a statement names, by alias.


_BETWEEN = frozenset({"IF", "NOT", "EXISTS", "LATERAL"})
#: Words after a table that are not an alias.
_NO_ALIAS = (
    CLAUSES
    | {"LEFT", "RIGHT", "FULL", "INNER", "OUTER", "CROSS", "SEMI", "ANTI", "NATURAL", "GROUP"}
    | {"ORDER", "UNION", "INTERSECT", "AT", "VERSION", "TIMESTAMP", "ZORDER", "ADD", "DROP"}
    | {"RENAME", "ALTER", "PARTITIONED", "TABLESAMPLE", "PIVOT", "UNPIVOT", "ASOF", "POSITIONAL"}
)


def tables_in(tokens: Sequence[WrittenToken]) -> dict[str, str]:
    """Return the tables of a statement, as written, by alias or by the last part of the name."""
    found: dict[str, str] = {}
    index = 0
    while index < len(tokens):
        if not is_before_table(tokens, index):
            index += 1
            continue
        index += 1
        while index < len(tokens) and tokens[index].upper in _BETWEEN:
            index += 1
        while index < len(tokens) and _is_name(tokens[index]):
            name, index = _chain(tokens, index)
            alias, index = _alias(tokens, index)
            found[alias or name.rsplit(".", 1)[-1]] = name
            if index == len(tokens) or tokens[index].text != ",":
                break
            index += 1  # a FROM clause may list several tables
    return found


def queries_in(tokens: Sequence[WrittenToken]) -> list[str]:
    """Return the names that WITH gives to queries."""
    return [
        token.name
        for token, following, after in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if token.kind in ("word", "quoted") and following.upper == "AS" and after.text == "("
    ]


def is_before_table(tokens: Sequence[WrittenToken], index: int) -> bool:
    """Return whether a table's name may follow this token."""
    word = tokens[index].upper
    if word == "USING":  # USING of MERGE; a join's USING has columns in brackets
        return any(token.upper == "MERGE" for token in tokens[:index])
    if word == "UPDATE":  # a clause of MERGE also begins with UPDATE
        return index + 1 == len(tokens) or tokens[index + 1].upper != "SET"
    return word in BEFORE_TABLES


def _is_name(token: WrittenToken) -> bool:
    return token.kind == "quoted" or (token.kind == "word" and token.upper not in CLAUSES)


def _chain(tokens: Sequence[WrittenToken], index: int) -> tuple[str, int]:
    """Return the parts of a dotted name, and the index of the token after it."""
    parts = [tokens[index].name]
    index += 1
    while index < len(tokens) and tokens[index].text == ".":
        index += 1
        if index < len(tokens) and tokens[index].kind in ("word", "quoted"):
            parts.append(tokens[index].name)
            index += 1
    return ".".join(parts), index


def _alias(tokens: Sequence[WrittenToken], index: int) -> tuple[str | None, int]:
    if index < len(tokens) and tokens[index].upper == "AS":
        index += 1
    if index < len(tokens):
        token = tokens[index]
        if token.kind == "quoted" or (token.kind == "word" and token.upper not in _NO_ALIAS):
            return token.name, index + 1
    return None, index


# -------------------- tokens
#
# The tokens of a text that is being typed, which may end within a token.


Kind = Literal["word", "quoted", "string", "comment", "number", "mark"]

_TOKEN = re.compile(
    r"""
      (?P<comment> --[^\n]*(?P<line_end>\n|$) | /\*.*?(?:\*/|$) )
    | (?P<string>  '(?:[^']|'')*(?:'|$) | \$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|$) )
    | (?P<quoted>  "(?:[^"]|"")*(?:"|$) )
    | (?P<word>    [^\W\d]\w* )
    | (?P<number>  \d[\w.]* )
    | (?P<mark>    [^\s] )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class WrittenToken:
    """A token: ``text`` as written, at the position ``start``."""

    kind: Kind
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def upper(self) -> str:
        """The token in upper case, if it can be a keyword."""
        return self.text.upper() if self.kind in ("word", "mark") else ""

    @property
    def name(self) -> str:
        """The identifier without its quotes."""
        if self.kind != "quoted":
            return self.text
        inner = self.text[1:-1] if self.is_closed else self.text[1:]
        return inner.replace('""', '"')

    @property
    def is_closed(self) -> bool:
        """True if the token's quote or comment is closed."""
        match self.kind:
            case "quoted":
                return len(self.text) > 1 and self.text.count('"') % 2 == 0
            case "string" if self.text[0] == "'":
                return self.text.count("'") % 2 == 0
            case "string":
                tag = self.text[: self.text.index("$", 1) + 1]
                return len(self.text) >= 2 * len(tag) and self.text.endswith(tag)
            case "comment" if self.text.startswith("--"):
                return self.text.endswith("\n")
            case "comment":
                return len(self.text) > 3 and self.text.endswith("*/")
            case _:
                return True


def tokens_of(text: str) -> list[WrittenToken]:
    """Return all tokens of a text, comments included."""
    found = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        # Some groups of the pattern are only parts of others, and no kinds of tokens.
        kind = "comment" if kind == "line_end" else "string" if kind == "tag" else kind
        found.append(WrittenToken(kind, match.group(), match.start()))  # type: ignore[arg-type]
    return found
