"""Statements that define and alter tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.syntax.parameter_names import TokenType, errors, exp, sqlglot
from lakevilla.sql.expressions.typenames import type_named
from lakevilla.sql.statements.reader import TokenReader
from lakevilla.sql.statements.select import Dialect, Select, named_parameters, query_of, table_name

# -------------------- definitions
#
# Statements that create, change and drop tables.


#: Words that end a column's type.
_RULES = ("NOT", "NULL", "COMMENT", "CHECK", "DEFAULT", "PRIMARY", "UNIQUE", "REFERENCES")
_MORE_RULES = ("GENERATED", "COLLATE", "CONSTRAINT", "FIRST", "AFTER")
#: Rules that no table of a lake keeps, and alternatives to them.
_NO_RULE = {
    "DEFAULT": "give the value in each INSERT",
    "PRIMARY": "no table checks keys: use MERGE, or upsert(), so that a key occurs once",
    "UNIQUE": "no table checks keys: use MERGE, or upsert(), so that a key occurs once",
    "REFERENCES": "no table checks keys: check the other table in the same transaction",
    "FOREIGN": "no table checks keys: check the other table in the same transaction",
    "GENERATED": "compute the value in each INSERT",
    "COLLATE": "texts are compared byte by byte: compare lower(a)",
}
_FORMATS = ("delta", "iceberg")


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE: with columns, the rows of a query, or the columns of the table ``like``.

    ``replaces``: an existing table gets this definition.

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


def replace_table(reader: TokenReader) -> CreateTable:
    """Read the statement after CREATE OR REPLACE TABLE."""
    if reader.peek("IF"):
        reader.refuse("CREATE OR REPLACE TABLE IF NOT EXISTS", "leave out one of the two")
    return replace(create_table(reader), replaces=True)


def create_table(reader: TokenReader) -> CreateTable:
    """Read the statement after CREATE TABLE."""
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
        "LOCATION": (
            "a table is stored below the lake's root by its name; lake.register(name, uri) adds "
            "one that is stored elsewhere"
        ),
        "CLUSTER": "OPTIMIZE name ZORDER BY (columns) puts rows in order",
        "CLUSTERED": "OPTIMIZE name ZORDER BY (columns) puts rows in order",
        "LIKE": "write it after the name: CREATE TABLE name LIKE other",
        "COMMENT": "give it by COMMENT ON TABLE name IS '...'",
        "OPTIONS": "write TBLPROPERTIES ('name' = 'value')",
    }
    word = reader.shown().upper()
    reader.refuse(
        f"CREATE TABLE ... {reader.shown()}",
        instead.get(word, "use PARTITIONED BY, USING delta, TBLPROPERTIES, or AS"),
    )


def drop_table(reader: TokenReader) -> DropTable:
    """Read the statement after DROP TABLE."""
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
    """Read ``('name' = 'value', ...)``; names may be plain words with dots."""
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
    """Read columns, transforms (``day(at)``), or columns with types as Hive adds them."""
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
    """Refuse columns of a query with a collation, which its types do not show."""
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
    """Read columns up to the closing parenthesis, which is taken."""
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


def column(reader: TokenReader, constraints: dict[str, str], *, within: bool = False) -> pa.Field:
    """Read ``name type [NOT NULL] [COMMENT '...'] [CHECK (...)]``.

    With ``within``, the name may be the dotted path of a field within a column.
    """
    name = _path(reader) if within else reader.name()
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
    """Refuse the text that follows a column's type."""
    word = reader.shown().upper()
    reader.refuse(
        f"{reader.shown()} in a table's columns",
        _NO_RULE.get(word, "write name type [NOT NULL] [COMMENT '...'] [CHECK (...)]"),
    )


def _refuse_doubles(fields: list[pa.Field]) -> None:
    seen: set[str] = set()
    for one in fields:
        if one.name.lower() in seen:
            raise InvalidOperation(f"column {one.name!r} is named twice: name each column once")
        seen.add(one.name.lower())


# -------------------- types
#
# Types as SQL spells them: the library's own names, which are Spark's, and DuckDB's.


def column_type(text: str, column: str, dialect: Dialect) -> pa.DataType:
    """Return the Arrow type of a column. ``TIMESTAMP`` has a zone, as everywhere in the library.

    Text has any length, as in DuckDB: ``VARCHAR(20)`` is ``STRING``.

    Raises
    ------
    InvalidOperation
        Neither Spark nor DuckDB has this name for a type that a table can have.
    """
    text = _LENGTHS.sub("STRING", text)
    plain = " ".join(text.upper().split())
    if plain in _ZONES:
        text = _ZONES[plain]
    elif dialect == "duckdb":
        text = _BY_BYTES.get(plain, text)
    try:
        return type_named(text, column)
    except InvalidOperation:
        translated = None if dialect == "spark" else _of_duckdb(text)
        if translated is None:
            raise
        try:
            return type_named(translated, column)
        except InvalidOperation:
            pass
        raise


#: Types of text with a length, to which other systems cut or pad values.
_LENGTHS = re.compile(
    r"\b(?:(?:N?VAR|BP|N)?CHAR|CHARACTER(?:\s+VARYING)?|STRING|TEXT)\s*\(\s*\d+\s*\)",
    re.IGNORECASE,
)
#: Names of several words, and one that means the opposite in other systems.
_ZONES = {
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "TIMESTAMP WITHOUT TIME ZONE": "timestamp_ntz",
    "DATETIME": "timestamp_ntz",
}
#: Names whose numbers count bytes in DuckDB, and bits in other systems.
_BY_BYTES = {
    "INT1": "tinyint",
    "INT2": "smallint",
    "INT4": "int",
    "INT8": "bigint",
    "FLOAT4": "float",
    "FLOAT8": "double",
}


def _of_duckdb(text: str) -> str | None:
    """Return a type of DuckDB in Spark's words: INTEGER[], STRUCT(a INTEGER), INT8."""
    try:
        root = sqlglot.parse_one(f"CAST(NULL AS {text})", dialect="duckdb")
        if not isinstance(root, exp.Cast) or any(map(_has_no_word, root.to.find_all(exp.DataType))):
            return None
        return root.to.sql("spark")
    except (errors.SqlglotError, ValueError, RecursionError, AttributeError, TypeError):
        return None


def _has_no_word(kind: Any) -> bool:
    """Return whether Spark lacks the type, for which sqlglot would write another."""
    types, sizes = exp.DataType.Type, [int(part.name) for part in kind.find_all(exp.DataTypeParam)]
    if kind.this is types.TIMESTAMPNTZ:
        return any(size > _MICROSECONDS for size in sizes)
    if kind.this is types.TIME:
        return bool(sizes)
    return kind.this is types.BIT or bool(kind.args.get("collate"))


#: The number of digits of a second's fraction in a table.
_MICROSECONDS = 6


# -------------------- alterations
#
# ALTER TABLE, and other statements that change an existing table.


_TYPE = (("TYPE",), ("SET", "TYPE"), ("SET", "DATA", "TYPE"))
_ACTIONS = "ADD, DROP, RENAME, ALTER COLUMN, SET TBLPROPERTIES or UNSET TBLPROPERTIES"


@dataclass(frozen=True, slots=True)
class AlterTable:
    """ALTER TABLE; ``changes`` as the verb of that name accepts them."""

    name: str
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RenameTable:
    """ALTER TABLE ... RENAME TO; a ``new`` name without a directory stays in that of the old."""

    name: str
    new: str


@dataclass(frozen=True, slots=True)
class Truncate:
    """TRUNCATE TABLE: all rows are deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class CommentOn:
    """COMMENT ON TABLE, or on a ``column`` of one; ``text`` is None for IS NULL."""

    name: str
    text: str | None
    column: str | None = None


def alter_table(reader: TokenReader) -> AlterTable | RenameTable:
    """Read the statement after ALTER TABLE."""
    if reader.accept("IF", "EXISTS"):
        reader.refuse("ALTER TABLE IF EXISTS", "check by SHOW TABLES LIKE first")
    name = reader.table()
    if reader.accept("RENAME", "TO"):
        return RenameTable(name, new_name(name, reader.dotted()))
    changes = _Changes()
    while True:
        _action(reader, changes)
        if not reader.accept(","):
            return AlterTable(name, changes.given())


def new_name(old: str, parts: list[str]) -> str:
    """Return the new name of a table: of one part, in the old one's schema; in ``main``, alone."""
    new = table_name(parts)
    if len(parts) > 1 or "/" in new or "." in new or "://" in old or old.startswith("/"):
        return new
    directory, slash, _ = old.replace(".", "/").rpartition("/")
    return f"{directory}{slash}{new}"


class _Changes:
    """The changes that ALTER TABLE requests, one action after the other."""

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
        for name in property_names(reader):
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
        changes.columns.append(column(reader, rules, within=True))
        while reader.accept(","):
            changes.columns.append(column(reader, rules, within=True))
        reader.expect(")")
    else:
        changes.columns.append(column(reader, rules, within=True))
    for name, rule in rules.items():
        changes.value("add_constraints", name, rule)


def _refuse_keys(reader: TokenReader) -> None:
    """Refuse keys, which a table does not keep; PRIMARY alone may be the name of a column."""
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
    is_list = reader.accept("(")
    changes.name("drop_columns", _path(reader))
    while is_list and reader.accept(","):
        changes.name("drop_columns", _path(reader))
    if is_list:
        reader.expect(")")


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
    """Read a column, or a field in one."""
    parts = [reader.name()]
    while reader.accept("."):
        parts.append(reader.name())
    return ".".join(parts)


def property_names(reader: TokenReader) -> list[str]:
    """Read the names of properties within parentheses."""
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
    """Read the statement after TRUNCATE."""
    reader.accept("TABLE")
    return Truncate(reader.table())


def comment_on(reader: TokenReader) -> CommentOn:
    """Read the statement after COMMENT ON."""
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
