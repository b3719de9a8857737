"""Which tables a statement of a session names, beside those of its queries."""

from __future__ import annotations

from collections.abc import Iterator

from lakevilla.sql.statements.script.alterations import AlterTable, CommentOn, RenameTable, Truncate
from lakevilla.sql.statements.script.definitions import CreateTable, DropTable
from lakevilla.sql.statements.script.parsing import Block, Parsed
from lakevilla.sql.statements.script.showing import Describe, Show
from lakevilla.sql.statements.script.upkeep import OptimizeTable, VacuumTable


def named_tables(statement: Parsed) -> Iterator[str]:
    """The tables that a statement makes, changes or tells of, and those that it reads as they were.

    What a statement over rows names is told where it is run.
    """
    for past in statement.pasts:
        yield past.table
    match statement.node:
        case Block(inner=inner):
            for one in inner:
                yield from named_tables(one)
        case CreateTable(name=name, like=like):
            yield from (name,) if like is None else (name, like)
        case DropTable(name=name) | AlterTable(name=name) | RenameTable(name=name):
            yield name
        case Truncate(name=name) | CommentOn(name=name):
            yield name
        case Describe(table=table) | OptimizeTable(table=table) | VacuumTable(table=table):
            yield table
        case Show(table=str(table)):
            yield table
