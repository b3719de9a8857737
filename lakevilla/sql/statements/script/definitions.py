"""Statements that make, change and remove tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.syntax.late import TokenType, exp
from lakevilla.sql.statements.reader import TokenReader
from lakevilla.sql.statements.script.types import column_type
from lakevilla.sql.statements.select import Select, named_parameters, query_of

#: What ends a column's type.
_RULES = ("NOT", "NULL", "COMMENT", "CHECK", "DEFAULT", "PRIMARY", "UNIQUE", "REFERENCES")
_MORE_RULES = ("GENERATED", "COLLATE", "CONSTRAINT", "FIRST", "AFTER")
#: What no table of a lake keeps, and what does instead.
_NO_RULE = {
    "DEFAULT": "give the value in each INSERT",
    "PRIMARY": "no table checks keys: use MERGE, or upsert(), so that a key comes once",
    "UNIQUE": "no table checks keys: use MERGE, or upsert(), so that a key comes once",
    "REFERENCES": "no table checks keys: look at the other table in the same transaction",
    "FOREIGN": "no table checks keys: look at the other table in the same transaction",
    "GENERATED": "compute the value in each INSERT",
    "COLLATE": "texts are compared byte by byte: compare lower(a)",
}
_FORMATS = ("delta", "iceberg")


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE: with columns, the rows of a query, or the columns of the table ``like``.

    ``replaces``: one that is there is defined as this one.

    ``format`` is None where the statement names none.
    """

    name: str
    columns: pa.Schema | None
    query: Select | None
    exist_ok: bool = False
    partition_by: tuple[str, ...] = ()
    format: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    constraints: Mapping[str, str] = field(default_factory=dict)
    replaces: bool = False
    like: str | None = None


@dataclass(frozen=True, slots=True)
class DropTable:
    """DROP TABLE; the data stays."""

    name: str
    missing_ok: bool


def create_or_replace(reader: TokenReader) -> CreateTable:
    """After CREATE OR."""
    reader.expect("REPLACE")
    if not reader.accept("TABLE"):
        reader.refuse(f"CREATE OR REPLACE {reader.shown()}", "a lake keeps tables alone")
    if reader.peek("IF"):
        reader.refuse("CREATE OR REPLACE TABLE IF NOT EXISTS", "leave out one of the two")
    return replace(create_table(reader), replaces=True)


def create_table(reader: TokenReader) -> CreateTable:
    """After CREATE TABLE."""
    exist_ok = reader.accept("IF", "NOT", "EXISTS")
    name = reader.table()
    columns: list[pa.Field] | None = None
    constraints: dict[str, str] = {}
    like = reader.table() if reader.accept("LIKE") else None
    if reader.accept("("):
        columns = _columns(reader, constraints)
    partition_by: tuple[str, ...] = ()
    format, properties, query = None, {}, None
    while not reader.at_end:
        if reader.accept("PARTITIONED", "BY") or reader.accept("PARTITION", "BY"):
            partition_by = _partitions(reader, columns)
        elif reader.accept("USING"):
            format = _format(reader)
        elif reader.accept("TBLPROPERTIES") or reader.accept("WITH"):
            properties = key_values(reader)
        elif reader.accept("AS") or reader.peek("SELECT") or reader.peek("FROM"):
            query = reader.query(reader.text())
            _refuse_collations(reader, query)
        else:
            _refuse_clause(reader)
    if query is not None and columns is not None:
        reader.refuse("CREATE TABLE with columns and AS", "name and cast the columns in the query")
    if like is not None and (query is not None or columns is not None or partition_by):
        reader.refuse(
            "CREATE TABLE ... LIKE with columns, partitions or AS", "they are the other table's"
        )
    if query is None and columns is None and like is None:
        reader.refuse("CREATE TABLE without columns", "list them in brackets, or give AS SELECT")
    schema = None if columns is None else pa.schema(columns)
    return CreateTable(
        name,
        schema,
        query,
        exist_ok,
        partition_by,
        format,
        properties,
        constraints,
        like=like,
    )


def _refuse_clause(reader: TokenReader) -> None:
    instead = {
        "LOCATION": "a table lies under the lake's root by its name; one that is elsewhere comes "
        "in by lake.register(name, uri)",
        "CLUSTER": "OPTIMIZE name ZORDER BY (columns) puts rows in order",
        "CLUSTERED": "OPTIMIZE name ZORDER BY (columns) puts rows in order",
        "LIKE": "it stands behind the name: CREATE TABLE name LIKE other",
        "COMMENT": "give it by COMMENT ON TABLE name IS '...'",
        "OPTIONS": "write TBLPROPERTIES ('name' = 'value')",
    }
    word = reader.shown().upper()
    reader.refuse(
        f"CREATE TABLE ... {reader.shown()}",
        instead.get(word, "use PARTITIONED BY, USING delta, TBLPROPERTIES, or AS"),
    )


def drop_table(reader: TokenReader) -> DropTable:
    """After DROP TABLE."""
    missing_ok = reader.accept("IF", "EXISTS")
    name = reader.table()
    if reader.accept_one("PURGE", "CASCADE"):
        reader.refuse(
            "DROP TABLE ... PURGE, or CASCADE",
            "DROP TABLE takes it out of the lake; lake.drop_table(name, delete_data=True) deletes "
            "its files too",
        )
    reader.accept("RESTRICT")
    return DropTable(name, missing_ok)


def key_values(reader: TokenReader) -> dict[str, str]:
    """``('name' = 'value', ...)``; names may be plain words with dots."""
    reader.expect("(")
    found: dict[str, str] = {}
    while True:
        key = _key(reader)
        reader.expect("=")
        sign = "-" if reader.accept("-") else ""
        found[key] = sign + reader.take().text
        if not reader.accept(","):
            break
    reader.expect(")")
    return found


def _key(reader: TokenReader) -> str:
    if reader.next_type is TokenType.STRING:
        return reader.string()
    parts = [reader.name()]
    while reader.accept("."):
        parts.append(reader.name())
    return ".".join(parts)


def _format(reader: TokenReader) -> str:
    given = reader.name()
    if given.lower() not in _FORMATS:
        reader.refuse(f"USING {given}", "tables are USING delta or USING iceberg")
    return given.lower()


def _partitions(reader: TokenReader, columns: list[pa.Field] | None) -> tuple[str, ...]:
    """Columns, transforms (``day(at)``), or columns with types as Hive adds them."""
    reader.expect("(")
    found = [_partition(reader, columns)]
    while reader.accept(","):
        found.append(_partition(reader, columns))
    reader.expect(")")
    return tuple(found)


def _partition(reader: TokenReader, columns: list[pa.Field] | None) -> str:
    if reader.peek("(", 1) or reader.peek(".", 1):
        return reader.text(",", ")")
    name = reader.name()
    if reader.peek(",") or reader.peek(")") or columns is None:
        return name
    type_ = column_type(reader.type_text(), name, reader.dialect)
    if any(field.name.lower() == name.lower() for field in columns):
        raise InvalidOperation(
            f"column {name!r} is described twice: PARTITIONED BY ({name}) is enough"
        )
    columns.append(pa.field(name, type_))
    return name


def _refuse_collations(reader: TokenReader, query: Select) -> None:
    """Refuse columns of a query with a collation, of which its types tell nothing."""
    if "collate" not in query.sql.lower():
        return
    for select in query_of(named_parameters(query.sql), reader.dialect).find_all(exp.Select):
        for column in select.expressions:
            if isinstance(column.unalias().unnest(), exp.Collate):
                reader.refuse(
                    f"a column with a collation ({column.sql(reader.dialect)})",
                    _NO_RULE["COLLATE"],
                )


def _columns(reader: TokenReader, constraints: dict[str, str]) -> list[pa.Field]:
    """Up to the closing parenthesis, which is taken."""
    found: list[pa.Field] = []
    while True:
        if reader.accept("CONSTRAINT"):
            name = reader.name()
            reader.expect("CHECK")
            constraints[name] = reader.bracketed()
        elif reader.accept("CHECK"):
            constraints[f"check_{len(constraints) + 1}"] = reader.bracketed()
        elif reader.peek("PRIMARY") or reader.peek("FOREIGN") or reader.peek("UNIQUE"):
            refuse_rule(reader)
        else:
            found.append(column(reader, constraints))
        if not reader.accept(","):
            break
    reader.expect(")")
    _refuse_doubles(found)
    return found


def column(reader: TokenReader, constraints: dict[str, str]) -> pa.Field:
    """``name type [NOT NULL] [COMMENT '...'] [CHECK (...)]``."""
    name = reader.name()
    type_ = column_type(reader.type_text(*_RULES, *_MORE_RULES), name, reader.dialect)
    nullable, metadata = True, {}
    while not (reader.at_end or reader.peek(",") or reader.peek(")")):
        if reader.accept("NOT", "NULL"):
            nullable = False
        elif reader.accept("NULL"):
            pass
        elif reader.accept("COMMENT"):
            metadata["comment"] = reader.string()
        elif reader.accept("CHECK"):
            constraints[f"check_{name}"] = reader.bracketed()
        else:
            refuse_rule(reader)
    return pa.field(name, type_, nullable, metadata or None)


def refuse_rule(reader: TokenReader) -> None:
    """Refuse what follows a column's type."""
    word = reader.shown().upper()
    reader.refuse(
        f"{reader.shown()} in a table's columns",
        _NO_RULE.get(word, "write name type [NOT NULL] [COMMENT '...'] [CHECK (...)]"),
    )


def _refuse_doubles(fields: list[pa.Field]) -> None:
    seen: set[str] = set()
    for one in fields:
        if one.name.lower() in seen:
            raise InvalidOperation(f"column {one.name!r} is there twice: name each column once")
        seen.add(one.name.lower())
