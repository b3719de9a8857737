"""INSERT, UPDATE, DELETE and MERGE cut at their keywords, expressions left as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.assignments import spelled
from lakevilla.sql.expressions.syntax.parameter_names import Token
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sql.statements.reader import TokenReader
from lakevilla.sql.statements.select import (
    Dialect,
    Select,
    behind_with,
    named_by,
    quoted,
    with_common,
)


@dataclass(frozen=True, slots=True)
class Replaced:
    """The rows that an INSERT OVERWRITE replaces.

    These are all rows, the rows for which ``where`` is true, or, with ``by_partition``, the rows of
    the partitions that contain the new ones.
    """

    where: str | None = None
    by_partition: bool = False


@dataclass(frozen=True, slots=True)
class InsertStatement:
    """INSERT INTO ``table``; ``columns`` is None where the statement names none.

    ``by_name``: the columns are those of the query, by its own names for them. ``partition`` are
    columns that follow those of the query, or get the same value in all rows.
    """

    table: str
    columns: tuple[str, ...] | None
    source: Select
    by_name: bool = False
    partition: Mapping[str, str | None] = field(default_factory=dict)
    replaced: Replaced | None = None


@dataclass(frozen=True, slots=True)
class _OfOneTable:
    table: str
    alias: str | None

    @property
    def called(self) -> str:
        """Return the table's name in the statement: without an alias, the last part of its name."""
        return self.alias or self.table.replace(".", "/").rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class UpdateStatement(_OfOneTable):
    """UPDATE; assignments and ``where`` are SQL texts, ``where`` is ``true`` if there is none.

    ``written`` is the table's name as the statement spells it, ``source`` is the text after FROM,
    ``common`` the WITH in front.
    """

    assignments: Mapping[str, str]
    where: str
    written: str = ""
    source: str | None = None
    common: str = ""


@dataclass(frozen=True, slots=True)
class DeleteStatement(_OfOneTable):
    """DELETE FROM; ``where`` is ``true`` if there is none. ``source`` is the text after USING."""

    where: str
    written: str = ""
    source: str | None = None
    common: str = ""


@dataclass(frozen=True, slots=True)
class WhenClause:
    """One WHEN clause; ``kind`` as in ``engines.base.MergeClause``.

    ``assignments`` is None for ``UPDATE SET *`` and ``INSERT *``: all columns by name. ``values``
    are those of an INSERT that names no columns: one for each of the table's columns, in its order.
    """

    kind: str
    predicate: str | None
    assignments: Mapping[str, str] | None
    values: tuple[str, ...] = ()

    def in_order_of(self, columns: Sequence[str], table: str) -> WhenClause:
        """Return the clause with its values assigned to the table's columns.

        Raises
        ------
        InvalidOperation
            There are more or fewer values than columns.
        """
        if not self.values:
            return self
        if len(self.values) != len(columns):
            raise InvalidOperation(
                f"INSERT gives {len(self.values)} values, and table {table} has {len(columns)} "
                f"columns, {', '.join(columns)}: give one value for each, or name the columns"
            )
        named = [spelled((column,)) for column in columns]
        assignments = dict(zip(named, self.values, strict=True))
        return WhenClause(self.kind, self.predicate, assignments)


@dataclass(frozen=True, slots=True)
class MergeStatement:
    """MERGE INTO; ``source`` is the query after USING, or a SELECT of the table named there.

    ``verb`` is the statement's name in errors: an UPDATE may be run as a merge. ``within`` is true
    of each table row that the query reads, or that a clause may change. ``computed`` are columns
    that the query computes from the row that is set; None if they are not known.
    """

    table: str
    target_alias: str
    source: Select
    source_alias: str
    on: str
    clauses: tuple[WhenClause, ...]
    verb: str = "merge"
    within: Expr | None = None
    computed: tuple[str, ...] | None = None


def refuse_one_name(target: str, source: str) -> None:
    """Refuse two tables of one name: the parser would read each column as one of the source.

    Raises
    ------
    InvalidOperation
    """
    if target.lower() == source.lower():
        raise InvalidOperation(
            f"the table that is changed and its source are both called {source}: give one of them "
            f"another name, as in {source} AS other"
        )


def _target(parts: Sequence[str], table: str, called: str | None) -> str:
    """Return the target of SET, as a text: the column, or the path of a field within one.

    Of a table's name, only its last part or its alias remains: only the columns can decide whether
    this name is the table or a column.
    """
    path = table.replace(".", "/").lower().split("/")
    for count in range(len(parts) - 1, 0, -1):
        named = "/".join(parts[:count]).lower().split("/")
        if called is None and len(named) > 1 and named == path[-len(named) :]:
            return spelled([path[-1], *parts[count:]])
    return spelled(parts)


def parse_dml(
    sql: str, tokens: Sequence[Token], dialect: Dialect = "duckdb"
) -> InsertStatement | UpdateStatement | DeleteStatement | MergeStatement:
    """Parse one data-changing statement from the tokens of ``sql``; its query is of ``dialect``."""
    reader = _Reader(sql, tokens, dialect)
    reader.take_common()
    word = reader.take().text.upper()
    statement: InsertStatement | UpdateStatement | DeleteStatement | MergeStatement
    match word:
        case "INSERT":
            statement = reader.insert()
        case "UPDATE":
            statement = reader.update()
        case "DELETE":
            statement = reader.delete()
        case _:
            statement = reader.merge()
    reader.expect_end()
    return statement


#: Words with which a query begins, in addition to a parenthesis.
_QUERIES = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")
#: Words that show that TABLE in front of them is the name of a table.
_AFTER_A_NAME = (*_QUERIES, "(", ".", "BY", "PARTITION", "REPLACE")


class _Reader(TokenReader):
    """Reader that cuts the statements that change rows at their keywords."""

    #: The WITH in front.
    common = ""

    def take_common(self) -> None:
        self.skip(behind_with(self._tokens))
        if self.place:
            self.common = self._slice(0, self.place)
            self.query("SELECT 1")  # refuses what no query may do, whether it is named or not

    def query(self, text: str) -> Select:
        return super().query(with_common(self.common, text, self.dialect))

    def insert(self) -> InsertStatement:
        overwrites = self.expect_one("INTO", "OVERWRITE") == "OVERWRITE"
        if overwrites and (self.peek("DIRECTORY") or self.peek("LOCAL")):
            self.refuse("INSERT OVERWRITE DIRECTORY", "lake.export(...) writes files elsewhere")
        if self.peek("TABLE") and not any(self.peek(word, ahead=1) for word in _AFTER_A_NAME):
            self.take()
        table = self.table()
        partition = self.partition() if self.accept("PARTITION") else {}
        columns: tuple[str, ...] | None = None
        by_name = self.accept("BY") and self.expect_one("NAME", "POSITION") == "NAME"
        if self.peek("(") and not self.peek("SELECT", ahead=1) and not self.peek("WITH", ahead=1):
            self.take()
            columns = self.names()
        if by_name and columns is not None:
            self.refuse("INSERT ... BY NAME with a list of columns", "the query names them")
        replaced = self.replaced(partition, overwrites=overwrites)
        if not any(self.peek(word) for word in (*_QUERIES, "(")):
            self.refuse(self.shown(), "give a SELECT or VALUES after the table")
        source = self.query(self.text())
        return InsertStatement(table, columns, source, by_name, partition, replaced)

    def partition(self) -> dict[str, str | None]:
        """Read ``(day = DATE '2024-02-29')``, or ``(day)``; values as text."""
        self.expect("(")
        found: dict[str, str | None] = {}
        while True:
            name = self.name()
            found[name] = self.text(",", ")") if self.accept("=") else None
            if not self.accept(","):
                break
        self.expect(")")
        if self.peek("IF"):
            self.refuse("PARTITION ... IF NOT EXISTS", "check for its rows in the same transaction")
        if len({value is None for value in found.values()}) > 1:
            self.refuse(
                "PARTITION with values for some of its columns",
                "give each column a value, or none of them",
            )
        return found

    def replaced(self, partition: Mapping[str, str | None], *, overwrites: bool) -> Replaced | None:
        if self.accept("REPLACE"):
            if overwrites or partition or not self.accept("WHERE"):
                self.refuse(
                    f"INSERT ... REPLACE {self.shown()}", "write INSERT INTO t REPLACE WHERE a = 1"
                )
            return Replaced(self.text(*_QUERIES))
        if not overwrites:
            return None
        terms = [
            f"{quoted(name)} <=> ({value})"
            for name, value in partition.items()
            if value is not None
        ]
        return Replaced(" AND ".join(terms) or None, bool(partition) and not terms)

    def update(self) -> UpdateStatement:
        table, written = self.written_table()
        alias = self.alias("SET")
        self.expect("SET")
        assignments = self.assignments(table, alias, "WHERE", "FROM", "RETURNING")
        source = self.text("WHERE", "RETURNING") if self.accept("FROM") else None
        where = self.where()
        return UpdateStatement(
            table, alias, assignments, where, written, source, self._common_beside(written)
        )

    def delete(self) -> DeleteStatement:
        self.expect("FROM")
        table, written = self.written_table()
        alias = self.alias("WHERE", "USING", "RETURNING")
        source = self.text("WHERE", "RETURNING") if self.accept("USING") else None
        where = self.where()
        return DeleteStatement(table, alias, where, written, source, self._common_beside(written))

    def _common_beside(self, written: str) -> str:
        """Return the WITH of a statement; its queries must not have the changed table's name."""
        if written.strip('"`').lower() in named_by(self.common, self.dialect):
            raise InvalidOperation(
                f"WITH gives a query the name of the table that is changed, {written}: call the "
                "query otherwise"
            )
        return self.common

    def merge(self) -> MergeStatement:
        self.expect("INTO")
        table, own = self.table_and_alias()
        target_alias = self.alias("USING") or own
        self.expect("USING")
        if self.peek("("):
            self.take()
            query = self.text(")")
            self.expect(")")
            source_alias = self.alias("ON")
            if source_alias is None:
                self.refuse("a MERGE source without a name", "write USING (SELECT ...) AS name")
            source = self.query(self.with_names(query, f"({query})"))
        else:
            start = self._next
            _, own = self.table_and_alias()
            written = self._slice(start, self._next)
            source_alias = self.alias("ON") or own
            source = self.query(self.with_names(f"SELECT * FROM {written}", written))
        refuse_one_name(target_alias, source_alias)
        self.expect("ON")
        on = self.text("WHEN")
        clauses = []
        while self.accept("WHEN"):
            clauses.append(self.when(table, target_alias))
        if not clauses:
            self.refuse("a MERGE without WHEN", "say what to do when rows match or do not")
        return MergeStatement(table, target_alias, source, source_alias, on, tuple(clauses))

    def with_names(self, query: str, rows: str) -> str:
        """Return a query of ``rows`` with the names of columns that follow its name, if any do."""
        if not self.accept("("):
            return query
        names = self.text(")")
        self.expect(")")
        return f"SELECT * FROM {rows} AS source({names})"

    def when(self, table: str, called: str) -> WhenClause:
        negated = self.accept("NOT")
        self.expect("MATCHED")
        by_source = False
        if negated and self.accept("BY") and not self.accept("TARGET"):
            self.expect("SOURCE")
            by_source = True
        predicate = self.text("THEN") if self.accept("AND") else None
        self.expect("THEN")
        place = ("not_matched_by_source" if by_source else "not_matched") if negated else "matched"
        if place == "not_matched":
            self.expect("INSERT")
            return self.inserted(predicate)
        if self.accept("DELETE"):
            return WhenClause(f"{place}_delete", predicate, {})
        if not self.accept("UPDATE"):
            self.refuse(f"WHEN ... THEN {self.shown()}", "use UPDATE or DELETE here")
        self.expect("SET")
        if self.accept("*"):
            return WhenClause(f"{place}_update", predicate, None)
        assignments = self.assignments(table, called, "WHEN", "RETURNING")
        return WhenClause(f"{place}_update", predicate, assignments)

    def inserted(self, predicate: str | None) -> WhenClause:
        if self.accept("*"):
            return WhenClause("not_matched_insert", predicate, None)
        columns: tuple[str, ...] | None = None
        if self.expect_one("(", "VALUES") == "(":
            columns = self.names()
            self.expect("VALUES")
        self.expect("(")
        values = [self.text(",", ")")]
        while self.accept(","):
            values.append(self.text(",", ")"))
        self.expect(")")
        if columns is None:
            return WhenClause("not_matched_insert", predicate, {}, tuple(values))
        if len(columns) != len(values):
            raise InvalidOperation(
                f"INSERT names {len(columns)} columns and gives {len(values)} values; "
                "give one value for each column"
            )
        named = [spelled((column,)) for column in columns]
        assignments = self._unique(list(zip(named, values, strict=True)))
        return WhenClause("not_matched_insert", predicate, assignments)

    def assignments(self, table: str, called: str | None, *ends: str) -> dict[str, str]:
        """Read the text after SET, by column or path; the table's name may qualify columns."""
        pairs = []
        while True:
            target = _target(self.dotted(), table, called)
            self.expect("=")
            pairs.append((target, self.text(",", *ends)))
            if not self.accept(","):
                return self._unique(pairs)

    def where(self) -> str:
        if not self.accept("WHERE"):
            return "true"
        return self.text("RETURNING")

    def _unique(self, pairs: list[tuple[str, str]]) -> dict[str, str]:
        seen: set[str] = set()
        for column, _ in pairs:
            if column.lower() in seen:
                raise InvalidOperation(f"column {column} is assigned twice; assign it once")
            seen.add(column.lower())
        return dict(pairs)


# -------------------- constants
#
# A long INSERT of constants: its rows are cut off by one pattern, without a token for each value.

_SPACE = r"[ \t\r\n]*"
_CONSTANT = (
    r"(?:NULL|TRUE|FALSE|[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:E[+-]?[0-9]+)?"
    r"|(?:(?:DATE|TIMESTAMP|TIME)[ \t\r\n]+)?'(?:[^']|'')*')"
)
_NAME = r"(?:[A-Za-z_][A-Za-z0-9_]*|\"[^\"]+\")"
_NAMES = rf"\({_SPACE}{_NAME}(?:{_SPACE},{_SPACE}{_NAME})*{_SPACE}\)"
_TO_A_TABLE = re.compile(
    rf"{_SPACE}INSERT[ \t\r\n]+INTO[ \t\r\n]+{_NAME}(?:\.{_NAME})*{_SPACE}"
    rf"(?:{_NAMES}{_SPACE})?(?=VALUES)",
    re.IGNORECASE,
)
_VALUES = re.compile(rf"VALUES{_SPACE}", re.IGNORECASE)
_ROW = re.compile(
    rf"\({_SPACE}{_CONSTANT}(?:{_SPACE},{_SPACE}{_CONSTANT})*{_SPACE}\){_SPACE}(?P<more>,?){_SPACE}",
    re.IGNORECASE,
)
#: A shorter text is read as any other.
_LONG = 4000


def constants_of(text: str, view: str) -> tuple[str, str] | None:
    """Cut an INSERT into one that takes its rows from ``view``, and the VALUES of these rows.

    Return None for all texts but those of one long INSERT whose rows are literals alone: numbers,
    texts, dates and times, TRUE, FALSE and NULL, in DuckDB's dialect.
    """
    if len(text) < _LONG:
        return None
    head = _TO_A_TABLE.match(text)
    if head is None or not is_of_constants(text, head.end()):
        return None
    return f"{head.group()} SELECT * FROM {view}", text[head.end() :]


def is_of_constants(text: str, start: int = 0) -> bool:
    """Return whether a text is VALUES of literals alone, from ``start`` to its end."""
    found = _VALUES.match(text, start)
    while found is not None:
        row = _ROW.match(text, found.end())
        if row is None:
            return False
        if not row["more"]:
            return text[row.end() :].strip(" \t\r\n;") == ""
        found = row
    return False
