"""Statements that report on tables, and that maintain them."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, get_args

from lakevilla.errors import InvalidOperation
from lakevilla.sql.statements.reader import TokenReader
from lakevilla.sql.statements.script.schemas import schema_name
from lakevilla.sql.statements.statement import is_of_rows

# -------------------- showing
#
# Statements that report on the lake and its tables.


ShowKind = Literal[
    "tables",
    "views",
    "schemas",
    "versions",
    "transactions",
    "branches",
    "tags",
    "columns",
    "settings",
]
_SHOWN = tuple(kind.upper() for kind in get_args(ShowKind))


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW; ``like`` is a pattern of LIKE for the names.

    ``table`` is the table whose versions or columns are shown, ``schema`` the schema whose tables
    or views are.
    """

    what: str
    like: str | None = None
    table: str | None = None
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE; ``what`` is columns, detail or history."""

    table: str
    what: Literal["columns", "detail", "history"]


@dataclass(frozen=True, slots=True)
class DescribeSchema:
    """DESCRIBE SCHEMA."""

    name: str


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN; ``text`` is the statement after it."""

    text: str


def show(reader: TokenReader) -> Show:
    """Read the statement after SHOW."""
    what = reader.name().upper()
    if what == "DATABASES":
        what = "SCHEMAS"
    if what not in _SHOWN:
        near = get_close_matches(what, _SHOWN, 1)
        meant = f"did you mean SHOW {near[0]}? " if near else ""
        raise InvalidOperation(
            f"SHOW {what} is not supported in sql; {meant}there are "
            f"{', '.join(f'SHOW {one}' for one in _SHOWN)}"
        )
    table = None
    if what in ("VERSIONS", "COLUMNS") and reader.accept_one("FROM", "OF", "IN", "FOR"):
        table = reader.table()
    if what == "COLUMNS" and table is None:
        reader.refuse("SHOW COLUMNS without a table", "write SHOW COLUMNS FROM name")
    schema = None
    if what in ("TABLES", "VIEWS") and reader.accept_one("FROM", "IN"):
        schema = schema_name(reader)
    like = None
    if what in ("TABLES", "VIEWS", "SCHEMAS", "BRANCHES", "TAGS") and reader.accept("LIKE"):
        like = reader.string()
    return Show(what.lower(), like, table, schema)


def describe(reader: TokenReader) -> Describe | DescribeSchema:
    """Read the statement after DESCRIBE."""
    if not _names_a_table(reader) and reader.accept_one("SCHEMA", "DATABASE") is not None:
        reader.accept("EXTENDED")
        return DescribeSchema(schema_name(reader))
    what: Literal["columns", "detail", "history"] = "columns"
    if not _names_a_table(reader):
        reader.accept("TABLE")  # Spark has it in front of EXTENDED
    if not _names_a_table(reader):
        if reader.accept("HISTORY"):
            what = "history"
        elif reader.accept("DETAIL") or reader.accept("EXTENDED") or reader.accept("FORMATTED"):
            what = "detail"
    if not _names_a_table(reader):
        reader.accept("TABLE")
    return Describe(reader.table(), what)


def _names_a_table(reader: TokenReader) -> bool:
    """Return whether the next word is the last one: a table may have any word as its name."""
    return reader.left == 1


def explain(reader: TokenReader) -> Explain:
    """Read the statement after EXPLAIN."""
    if reader.peek("ANALYZE"):
        reader.refuse("EXPLAIN ANALYZE", "EXPLAIN tells of files and of the engine's plan")
    reader.accept_one("EXTENDED", "FORMATTED", "PLAN")
    if reader.at_end:
        reader.take()  # raises: the statement is cut short
    text = reader.text()
    if not is_of_rows(text, reader.dialect):
        reader.refuse(f"EXPLAIN {text.split()[0]}", "it tells of queries and of changes to rows")
    return Explain(text)


# -------------------- upkeep
#
# Statements that keep tables in shape.


@dataclass(frozen=True, slots=True)
class OptimizeTable:
    """OPTIMIZE; ``where`` is a predicate over partition columns."""

    table: str
    where: str | None
    z_order_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VacuumTable:
    """VACUUM; ``hours`` is None for the table's own retention."""

    table: str
    hours: int | None
    dry_run: bool


def optimize(reader: TokenReader) -> OptimizeTable:
    """Read the statement after OPTIMIZE."""
    reader.accept("TABLE")
    table = reader.table()
    where = reader.text("ZORDER") if reader.accept("WHERE") else None
    columns: tuple[str, ...] = ()
    if reader.accept("ZORDER", "BY"):
        reader.expect("(")
        columns = reader.names()
    return OptimizeTable(table, where, columns)


def vacuum(reader: TokenReader) -> VacuumTable:
    """Read the statement after VACUUM."""
    if reader.at_end:
        reader.refuse("VACUUM without a table", "name one; lake.maintain() does what is due of all")
    reader.accept("TABLE")
    table = reader.table()
    hours = None
    if reader.accept("RETAIN"):
        hours = reader.number()
        reader.expect_one("HOURS", "HOUR")
    return VacuumTable(table, hours, reader.accept("DRY", "RUN"))
