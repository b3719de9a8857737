"""ALTER TABLE, and what else changes a table that is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakevilla.sql.expressions.syntax.late import TokenType
from lakevilla.sql.statements.reader import TokenReader
from lakevilla.sql.statements.script.definitions import column, key_values, refuse_rule
from lakevilla.sql.statements.script.types import column_type
from lakevilla.sql.statements.select import table_name

_TYPE = (("TYPE",), ("SET", "TYPE"), ("SET", "DATA", "TYPE"))
_ACTIONS = "ADD, DROP, RENAME, ALTER COLUMN, SET TBLPROPERTIES or UNSET TBLPROPERTIES"


@dataclass(frozen=True, slots=True)
class AlterTable:
    """ALTER TABLE; ``changes`` as the verb of that name takes them."""

    name: str
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RenameTable:
    """ALTER TABLE ... RENAME TO."""

    name: str
    new: str


@dataclass(frozen=True, slots=True)
class Truncate:
    """TRUNCATE TABLE: all rows go."""

    name: str


@dataclass(frozen=True, slots=True)
class CommentOn:
    """COMMENT ON TABLE, or on a ``column`` of one; ``text`` is None for IS NULL."""

    name: str
    text: str | None
    column: str | None = None


def alter_table(reader: TokenReader) -> AlterTable | RenameTable:
    """After ALTER TABLE."""
    if reader.accept("IF", "EXISTS"):
        reader.refuse("ALTER TABLE IF EXISTS", "ask SHOW TABLES LIKE first")
    name = reader.table()
    if reader.accept("RENAME", "TO"):
        return RenameTable(name, reader.table())
    changes = _Changes()
    while True:
        _action(reader, changes)
        if not reader.accept(","):
            return AlterTable(name, changes.given())


class _Changes:
    """What ALTER TABLE asks for, one action after the other."""

    def __init__(self) -> None:
        self.columns: list[pa.Field] = []
        self.others: dict[str, Any] = {}

    def name(self, change: str, one: str) -> None:
        self.others.setdefault(change, []).append(one)

    def value(self, change: str, one: str, value: object) -> None:
        self.others.setdefault(change, {})[one] = value

    def given(self) -> dict[str, Any]:
        new = {"add_columns": pa.schema(self.columns)} if self.columns else {}
        return new | self.others


def _action(reader: TokenReader, changes: _Changes) -> None:
    if reader.accept("ADD"):
        _add(reader, changes)
    elif reader.accept("DROP"):
        _drop(reader, changes)
    elif reader.accept("RENAME"):
        reader.accept("COLUMN")
        old = _path(reader)
        reader.expect("TO")
        changes.value("rename_columns", old, reader.name())
    elif reader.accept("ALTER") or reader.accept("CHANGE"):
        _alter_column(reader, changes)
    elif reader.accept("SET"):
        reader.expect_one("TBLPROPERTIES", "PROPERTIES")
        changes.others.setdefault("set_properties", {}).update(key_values(reader))
    elif reader.accept("UNSET"):
        reader.expect_one("TBLPROPERTIES", "PROPERTIES")
        for name in _property_names(reader):
            changes.name("unset_properties", name)
    else:
        reader.refuse(f"ALTER TABLE ... {reader.shown()}", f"use {_ACTIONS}")


def _add(reader: TokenReader, changes: _Changes) -> None:
    if reader.accept("CONSTRAINT"):
        name = reader.name()
        _refuse_keys(reader)
        reader.expect("CHECK")
        changes.value("add_constraints", name, reader.bracketed())
        return
    _refuse_keys(reader)
    reader.accept_one("COLUMNS", "COLUMN")
    if reader.accept("IF", "NOT", "EXISTS"):
        reader.refuse("ADD COLUMN IF NOT EXISTS", "ask DESCRIBE first")
    rules: dict[str, str] = {}
    if reader.accept("("):
        changes.columns.append(column(reader, rules))
        while reader.accept(","):
            changes.columns.append(column(reader, rules))
        reader.expect(")")
    else:
        changes.columns.append(column(reader, rules))
    for name, rule in rules.items():
        changes.value("add_constraints", name, rule)


def _refuse_keys(reader: TokenReader) -> None:
    """A table keeps no keys; PRIMARY alone may be the name of a column."""
    is_key = reader.peek("KEY", 1) and (reader.peek("PRIMARY") or reader.peek("FOREIGN"))
    if is_key or (reader.peek("UNIQUE") and reader.peek("(", 1)):
        refuse_rule(reader)


def _drop(reader: TokenReader, changes: _Changes) -> None:
    if reader.accept("CONSTRAINT"):
        changes.name("drop_constraints", reader.name())
        return
    reader.accept_one("COLUMNS", "COLUMN")
    if reader.accept("IF", "EXISTS"):
        reader.refuse("DROP COLUMN IF EXISTS", "ask DESCRIBE first")
    if reader.accept("("):
        for name in reader.names():
            changes.name("drop_columns", name)
    else:
        changes.name("drop_columns", _path(reader))


def _alter_column(reader: TokenReader, changes: _Changes) -> None:
    reader.accept("COLUMN")
    name = _path(reader)
    if reader.accept("COMMENT"):
        changes.value("set_comments", name, _text_or_null(reader))
    elif reader.accept("DROP", "NOT", "NULL"):
        changes.name("drop_not_null", name)
    elif (
        reader.accept("SET", "DATA", "TYPE")
        or reader.accept("TYPE")
        or reader.accept("SET", "TYPE")
    ):
        changes.value("change_types", name, column_type(reader.type_text(), name, reader.dialect))
    elif reader.peek("SET") and reader.peek("NOT", 1):
        reader.refuse(
            "ALTER COLUMN ... SET NOT NULL",
            f"add a rule that looks at the rows too: ADD CONSTRAINT name CHECK ({name} IS NOT "
            "NULL)",
        )
    else:
        reader.refuse(
            f"ALTER COLUMN ... {reader.shown()}",
            "use TYPE and a wider type, DROP NOT NULL or COMMENT",
        )


def _path(reader: TokenReader) -> str:
    """A column, or a field in one."""
    parts = [reader.name()]
    while reader.accept("."):
        parts.append(reader.name())
    return ".".join(parts)


def _property_names(reader: TokenReader) -> list[str]:
    reader.accept("IF", "EXISTS")
    reader.expect("(")
    found = []
    while True:
        if reader.next_type is TokenType.STRING:
            found.append(reader.string())
        else:
            found.append(_path(reader))
        if not reader.accept(","):
            break
    reader.expect(")")
    return found


def truncate(reader: TokenReader) -> Truncate:
    """After TRUNCATE."""
    reader.accept("TABLE")
    return Truncate(reader.table())


def comment_on(reader: TokenReader) -> CommentOn:
    """After COMMENT ON."""
    column = None
    if reader.expect_one("TABLE", "COLUMN") == "COLUMN":
        parts = [reader.name()]
        while reader.accept("."):
            parts.append(reader.name())
        if len(parts) == 1:
            reader.refuse(
                f"COMMENT ON COLUMN {parts[0]}", "write COMMENT ON COLUMN table.column IS '...'"
            )
        *named, column = parts
        name = table_name(named)
    else:
        name = reader.table()
    reader.expect("IS")
    return CommentOn(name, _text_or_null(reader), column)


def _text_or_null(reader: TokenReader) -> str | None:
    return None if reader.accept("NULL") else reader.string()
