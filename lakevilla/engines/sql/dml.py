"""INSERT, UPDATE, DELETE and MERGE cut at their keywords, expressions left as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakevilla.engines.sql.reader import TokenReader
from lakevilla.engines.sql.select import Dialect, Select
from lakevilla.errors import InvalidOperation
from lakevilla.expressions.syntax.late import Token


@dataclass(frozen=True, slots=True)
class InsertStatement:
    """INSERT INTO ``table``; ``columns`` is None where the statement names none."""

    table: str
    columns: tuple[str, ...] | None
    source: Select


@dataclass(frozen=True, slots=True)
class _OfOneTable:
    table: str
    alias: str | None

    @property
    def called(self) -> str:
        """What the statement calls its table: without an alias by the last part of its name."""
        return self.alias or self.table.replace(".", "/").rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class UpdateStatement(_OfOneTable):
    """UPDATE; assignments and ``where`` are SQL texts, ``where`` is ``true`` if there is none.

    ``written`` is the table's name as the statement spells it, ``source`` what follows FROM.
    """

    assignments: Mapping[str, str]
    where: str
    written: str = ""
    source: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteStatement(_OfOneTable):
    """DELETE FROM; ``where`` is ``true`` if there is none. ``source`` is what follows USING."""

    where: str
    written: str = ""
    source: str | None = None


@dataclass(frozen=True, slots=True)
class WhenClause:
    """One WHEN clause; ``kind`` as in ``engines.base.MergeClause``.

    ``assignments`` is None for ``UPDATE SET *`` and ``INSERT *``: all columns by name.
    """

    kind: str
    predicate: str | None
    assignments: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class MergeStatement:
    """MERGE INTO; ``source`` is the query after USING, or a SELECT of the table named there.

    ``verb`` is what errors call it: an UPDATE may be one too.
    """

    table: str
    target_alias: str
    source: Select
    source_alias: str
    on: str
    clauses: tuple[WhenClause, ...]
    verb: str = "merge"


def parse_dml(
    sql: str, tokens: Sequence[Token], dialect: Dialect = "duckdb"
) -> InsertStatement | UpdateStatement | DeleteStatement | MergeStatement:
    """One data-changing statement; ``tokens`` are those of ``sql``, its query is of ``dialect``."""
    reader = _Reader(sql, tokens, dialect)
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


class _Reader(TokenReader):
    """Cuts the statements that change rows at their keywords."""

    def insert(self) -> InsertStatement:
        self.expect("INTO")
        table = self.table()
        columns: tuple[str, ...] | None = None
        if self.peek("(") and not self.peek("SELECT", ahead=1) and not self.peek("WITH", ahead=1):
            self.take()
            columns = self.names()
        if not any(self.peek(word) for word in ("SELECT", "WITH", "VALUES", "FROM", "(", "TABLE")):
            self.refuse(self.shown(), "give a SELECT or VALUES after the table")
        return InsertStatement(table, columns, self.query(self.text()))

    def update(self) -> UpdateStatement:
        table, written = self.written_table()
        alias = self.alias("SET")
        self.expect("SET")
        assignments = self.assignments("WHERE", "FROM", "RETURNING")
        source = self.text("WHERE", "RETURNING") if self.accept("FROM") else None
        return UpdateStatement(table, alias, assignments, self.where(), written, source)

    def delete(self) -> DeleteStatement:
        self.expect("FROM")
        table, written = self.written_table()
        alias = self.alias("WHERE", "USING", "RETURNING")
        source = self.text("WHERE", "RETURNING") if self.accept("USING") else None
        return DeleteStatement(table, alias, self.where(), written, source)

    def merge(self) -> MergeStatement:
        self.expect("INTO")
        table, own = self.table_and_alias()
        target_alias = self.alias("USING") or own
        self.expect("USING")
        if self.peek("("):
            self.take()
            source = self.query(self.text(")"))
            self.expect(")")
            source_alias = self.alias("ON")
            if source_alias is None:
                self.refuse("a MERGE source without a name", "write USING (SELECT ...) AS name")
        else:
            start = self._next
            _, own = self.table_and_alias()
            written = self._slice(start, self._next)
            source = self.query(f"SELECT * FROM {written}")
            source_alias = self.alias("ON") or own
        self.expect("ON")
        on = self.text("WHEN")
        clauses = []
        while self.accept("WHEN"):
            clauses.append(self.when(source_alias))
        if not clauses:
            self.refuse("a MERGE without WHEN", "say what to do when rows match or do not")
        return MergeStatement(table, target_alias, source, source_alias, on, tuple(clauses))

    def when(self, source_alias: str) -> WhenClause:
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
            return WhenClause("not_matched_insert", predicate, self.inserted())
        if self.accept("DELETE"):
            return WhenClause(f"{place}_delete", predicate, {})
        if not self.accept("UPDATE"):
            self.refuse(f"WHEN ... THEN {self.shown()}", "use UPDATE or DELETE here")
        self.expect("SET")
        if self.accept("*"):
            return WhenClause(f"{place}_update", predicate, None)
        return WhenClause(f"{place}_update", predicate, self.assignments("WHEN", "RETURNING"))

    def inserted(self) -> dict[str, str] | None:
        if self.accept("*"):
            return None
        self.expect("(")
        columns = self.names()
        self.expect("VALUES")
        self.expect("(")
        values = [self.text(",", ")")]
        while self.accept(","):
            values.append(self.text(",", ")"))
        self.expect(")")
        if len(columns) != len(values):
            raise InvalidOperation(
                f"INSERT names {len(columns)} columns and gives {len(values)} values; "
                "give one value for each column"
            )
        return self._unique(list(zip(columns, values, strict=True)))

    def assignments(self, *ends: str) -> dict[str, str]:
        pairs = []
        while True:
            column = self.name()
            while self.accept("."):  # SET alias.column = ...: the last part is the column
                column = self.name()
            self.expect("=")
            pairs.append((column, self.text(",", *ends)))
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
