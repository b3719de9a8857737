"""Statements that show and maintain."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, get_args

from lakevilla.errors import InvalidOperation
from lakevilla.sql.statements.reader import TokenReader
from lakevilla.sql.statements.statement import is_of_rows

# -------------------- showing
#
# Statements that tell of the lake and its tables.


ShowKind = Literal["tables", "versions", "transactions", "branches", "tags", "columns", "settings"]
_SHOWN = tuple(kind.upper() for kind in get_args(ShowKind))


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW; ``like`` is a pattern of LIKE for the names, ``table`` whose versions or columns."""

    what: str
    like: str | None = None
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE; ``what`` is columns, detail or history."""

    table: str
    what: Literal["columns", "detail", "history"]


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN; ``text`` is the statement behind it."""

    text: str


def show(reader: TokenReader) -> Show:
    """After SHOW."""
    what = reader.name().upper()
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
    like = None
    if what in ("TABLES", "BRANCHES", "TAGS") and reader.accept("LIKE"):
        like = reader.string()
    return Show(what.lower(), like, table)


def describe(reader: TokenReader) -> Describe:
    """After DESCRIBE."""
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
    """Whether the next word is all there is: a table may be called as any word is."""
    return reader.left == 1


def explain(reader: TokenReader) -> Explain:
    """After EXPLAIN."""
    if reader.peek("ANALYZE"):
        reader.refuse("EXPLAIN ANALYZE", "EXPLAIN tells of files and of the engine's plan")
    reader.accept_one("EXTENDED", "FORMATTED", "PLAN")
    if reader.at_end:
        reader.take()  # refuses: it is cut short
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
    """After OPTIMIZE."""
    reader.accept("TABLE")
    table = reader.table()
    where = reader.text("ZORDER") if reader.accept("WHERE") else None
    columns: tuple[str, ...] = ()
    if reader.accept("ZORDER", "BY"):
        reader.expect("(")
        columns = reader.names()
    return OptimizeTable(table, where, columns)


def vacuum(reader: TokenReader) -> VacuumTable:
    """After VACUUM."""
    if reader.at_end:
        reader.refuse("VACUUM without a table", "name one; lake.maintain() does what is due of all")
    reader.accept("TABLE")
    table = reader.table()
    hours = None
    if reader.accept("RETAIN"):
        hours = reader.number()
        reader.expect_one("HOURS", "HOUR")
    return VacuumTable(table, hours, reader.accept("DRY", "RUN"))
