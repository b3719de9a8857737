"""Statements that make, change and drop schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakevilla.sql.statements.reader import TokenReader
from lakevilla.sql.statements.script.definitions import key_values, property_names
from lakevilla.sql.statements.select import CATALOG, table_name

#: The property that has a schema's comment.
COMMENT = "comment"


@dataclass(frozen=True, slots=True)
class CreateSchema:
    """CREATE SCHEMA; its name is the path of its tables, ``a/b`` for ``a.b``."""

    name: str
    exist_ok: bool
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DropSchema:
    """DROP SCHEMA; ``cascade``: with its tables."""

    name: str
    missing_ok: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class AlterSchema:
    """ALTER SCHEMA, and COMMENT ON SCHEMA: properties to set, and those to remove."""

    name: str
    updates: Mapping[str, str] = field(default_factory=dict)
    removals: frozenset[str] = frozenset()


def create_schema(reader: TokenReader) -> CreateSchema:
    """Read the statement after CREATE SCHEMA."""
    exist_ok = reader.accept("IF", "NOT", "EXISTS")
    name = schema_name(reader)
    properties: dict[str, str] = {}
    while not reader.at_end:
        if reader.accept("COMMENT"):
            properties[COMMENT] = reader.string()
        elif reader.accept("WITH"):
            if not reader.peek("("):
                reader.expect_one("DBPROPERTIES", "PROPERTIES")
            properties |= key_values(reader)
        else:
            reader.refuse(
                f"CREATE SCHEMA ... {reader.shown()}",
                "write CREATE SCHEMA name [COMMENT '...'] [WITH PROPERTIES ('name' = 'value')]",
            )
    return CreateSchema(name, exist_ok, properties)


def drop_schema(reader: TokenReader) -> DropSchema:
    """Read the statement after DROP SCHEMA."""
    missing_ok = reader.accept("IF", "EXISTS")
    name = schema_name(reader)
    cascade = reader.accept_one("CASCADE", "RESTRICT") == "CASCADE"
    return DropSchema(name, missing_ok, cascade)


def alter_schema(reader: TokenReader) -> AlterSchema:
    """Read the statement after ALTER SCHEMA."""
    name = schema_name(reader)
    if reader.peek("RENAME"):
        reader.refuse(
            "ALTER SCHEMA ... RENAME", "give each table its new name: ALTER TABLE ... RENAME TO"
        )
    if reader.expect_one("SET", "UNSET") == "SET":
        reader.expect_one("DBPROPERTIES", "PROPERTIES")
        return AlterSchema(name, key_values(reader))
    reader.expect_one("DBPROPERTIES", "PROPERTIES")
    return AlterSchema(name, removals=frozenset(property_names(reader)))


def comment_on_schema(reader: TokenReader) -> AlterSchema:
    """Read the statement after COMMENT ON SCHEMA."""
    name = schema_name(reader)
    reader.expect("IS")
    if reader.accept("NULL"):
        return AlterSchema(name, removals=frozenset({COMMENT}))
    return AlterSchema(name, {COMMENT: reader.string()})


def schema_name(reader: TokenReader) -> str:
    """Read the name of a schema, as the path of its tables."""
    parts = reader.dotted()
    name = table_name(parts[1:] if len(parts) > 1 and parts[0].lower() == CATALOG else parts)
    return name if "/" in name else name.replace(".", "/")
