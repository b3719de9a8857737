"""Statements that define and drop views."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakevilla.sql.statements.reader import TokenReader
from lakevilla.sql.statements.script.definitions import RenameTable, new_name
from lakevilla.sql.statements.select import Select


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE VIEW; ``columns`` are the names that the statement gives them, or none."""

    name: str
    query: Select
    columns: tuple[str, ...] = ()
    comment: str | None = None
    exist_ok: bool = False
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class DropView:
    """DROP VIEW."""

    name: str
    missing_ok: bool


def create_view(reader: TokenReader) -> CreateView:
    """Read the statement after CREATE VIEW."""
    exist_ok = reader.accept("IF", "NOT", "EXISTS")
    name = reader.table()
    columns = reader.names() if reader.accept("(") else ()
    comment = reader.string() if reader.accept("COMMENT") else None
    if not reader.accept("AS"):
        reader.refuse(
            f"CREATE VIEW ... {reader.shown()}",
            "write CREATE VIEW name [(columns)] [COMMENT '...'] AS SELECT ...",
        )
    return CreateView(name, reader.query(reader.text()), columns, comment, exist_ok)


def replace_view(reader: TokenReader) -> CreateView:
    """Read the statement after CREATE OR REPLACE VIEW."""
    if reader.peek("IF"):
        reader.refuse("CREATE OR REPLACE VIEW IF NOT EXISTS", "leave out one of the two")
    return replace(create_view(reader), replaces=True)


def drop_view(reader: TokenReader) -> DropView:
    """Read the statement after DROP VIEW."""
    missing_ok = reader.accept("IF", "EXISTS")
    name = reader.table()
    if reader.accept("CASCADE"):
        reader.refuse("DROP VIEW ... CASCADE", "views over it stay, and say that it is gone")
    reader.accept("RESTRICT")
    return DropView(name, missing_ok)


def alter_view(reader: TokenReader) -> RenameTable:
    """Read the statement after ALTER VIEW."""
    name = reader.table()
    if not reader.accept("RENAME", "TO"):
        reader.refuse(
            f"ALTER VIEW ... {reader.shown()}", "write RENAME TO, or CREATE OR REPLACE VIEW"
        )
    return RenameTable(name, new_name(name, reader.dotted()))
