"""Statements that keep tables in shape."""

from __future__ import annotations

from dataclasses import dataclass

from lakevilla.sql.statements.reader import TokenReader


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
