"""Parse a script, statement by statement."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from lakevilla.errors import InvalidOperation
from lakevilla.sql.statements.reader import TokenReader
from lakevilla.sql.statements.script.control import (
    Begin,
    Commit,
    Release,
    Rollback,
    RollbackTo,
    Savepoint,
    SetOption,
    begin,
    commit,
    release,
    reset_option,
    rollback,
    savepoint,
    set_option,
    start,
)
from lakevilla.sql.statements.script.cutting import ScriptStatement, script_tokens
from lakevilla.sql.statements.script.definitions import (
    AlterTable,
    CommentOn,
    CreateTable,
    DropTable,
    RenameTable,
    Truncate,
    alter_table,
    comment_on,
    create_table,
    drop_table,
    replace_table,
    truncate,
)
from lakevilla.sql.statements.script.refs import (
    CreateRef,
    DropRef,
    Mention,
    MergeBranch,
    UseBranch,
    create_branch,
    create_tag,
    drop_branch,
    drop_tag,
    merge_branch,
    refuse_changed,
    use_branch,
    without_pasts,
)
from lakevilla.sql.statements.script.schemas import (
    AlterSchema,
    CreateSchema,
    DropSchema,
    alter_schema,
    comment_on_schema,
    create_schema,
    drop_schema,
)
from lakevilla.sql.statements.script.showing import (
    Describe,
    DescribeSchema,
    Explain,
    OptimizeTable,
    Show,
    VacuumTable,
    describe,
    explain,
    optimize,
    show,
    vacuum,
)
from lakevilla.sql.statements.script.views import (
    CreateView,
    DropView,
    alter_view,
    create_view,
    drop_view,
    replace_view,
)
from lakevilla.sql.statements.select import Dialect, Select, remembered
from lakevilla.sql.statements.statement import Statement, is_of_rows, parse_statement

# -------------------- parsing
#
# The request of one statement of a session.


@dataclass(frozen=True, slots=True)
class OfRows:
    """A statement over rows: its text, for the transaction's own ``sql``."""

    text: str
    statement: Statement

    @property
    def reads(self) -> bool:
        return isinstance(self.statement, Select)


@dataclass(frozen=True, slots=True)
class Block:
    """BEGIN ATOMIC ... END."""

    inner: tuple[Parsed, ...]


Control = Begin | Commit | Rollback
#: Statements of a transaction in addition to those over rows.
Definition = (
    CreateTable
    | DropTable
    | AlterTable
    | RenameTable
    | Truncate
    | CommentOn
    | CreateView
    | DropView
)
#: Statements about schemas, which take effect once their transaction has committed.
OfSchemas = CreateSchema | AlterSchema | DropSchema
#: Statements about a part of a transaction.
OfSavepoints = Savepoint | RollbackTo | Release
#: Statements that only report.
Telling = Show | Describe | DescribeSchema | Explain
#: Statements that take effect by themselves, in no transaction of a session.
Separate = CreateRef | DropRef | MergeBranch | UseBranch | OptimizeTable | VacuumTable
Node = (
    Control
    | OfSavepoints
    | SetOption
    | OfRows
    | Definition
    | OfSchemas
    | Telling
    | Separate
    | Block
)


@dataclass(frozen=True, slots=True)
class Parsed:
    """The request of one statement, and its place: ``number`` counts from 1.

    ``text`` names a view for each of ``pasts``; ``source`` is the original text.
    """

    node: Node
    text: str
    number: int
    source: ScriptStatement
    pasts: tuple[Mention, ...] = ()


def _create_or_replace(reader: TokenReader) -> CreateTable | CreateView:
    """Read the statement after CREATE OR."""
    reader.expect("REPLACE")
    return (replace_table if reader.expect_one("TABLE", "VIEW") == "TABLE" else replace_view)(
        reader
    )


def _comment_on(reader: TokenReader) -> CommentOn | AlterSchema:
    """Read the statement after COMMENT ON."""
    if reader.accept_one("SCHEMA", "DATABASE") is not None:
        return comment_on_schema(reader)
    return comment_on(reader)


_FIRST: Mapping[str, Callable[[TokenReader], Node]] = {
    "BEGIN": begin,
    "START": start,
    "COMMIT": commit,
    "END": commit,
    "ROLLBACK": rollback,
    "ABORT": rollback,
    "SAVEPOINT": savepoint,
    "RELEASE": release,
    "SET": set_option,
    "RESET": reset_option,
    "SHOW": show,
    "DESCRIBE": describe,
    "DESC": describe,
    "EXPLAIN": explain,
    "TRUNCATE": truncate,
    "OPTIMIZE": optimize,
    "VACUUM": vacuum,
    "USE": use_branch,
    "CREATE TABLE": create_table,
    "CREATE OR": _create_or_replace,
    "CREATE VIEW": create_view,
    "ALTER VIEW": alter_view,
    "CREATE BRANCH": create_branch,
    "CREATE TAG": create_tag,
    "DROP TABLE": drop_table,
    "DROP VIEW": drop_view,
    "DROP BRANCH": drop_branch,
    "DROP TAG": drop_tag,
    "MERGE BRANCH": merge_branch,
    "ALTER TABLE": alter_table,
    "CREATE SCHEMA": create_schema,
    "CREATE DATABASE": create_schema,
    "DROP SCHEMA": drop_schema,
    "DROP DATABASE": drop_schema,
    "ALTER SCHEMA": alter_schema,
    "ALTER DATABASE": alter_schema,
    "COMMENT ON": _comment_on,
}
#: Words of other systems for statements that have another name here.
_ELSEWHERE = {
    "CREATE TEMP": "pass rows in views={name: rows}, or use WITH",
    "CREATE TEMPORARY": "pass rows in views={name: rows}, or use WITH",
    "CREATE MATERIALIZED": "CREATE TABLE ... AS keeps rows, CREATE VIEW the query",
    "CREATE INDEX": "files are found by their statistics: OPTIMIZE name ZORDER BY (columns)",
    "COPY": "`lakevilla create ROOT TABLE --from FILE` makes a table of a file, "
    "`lakevilla sql ROOT 'SELECT ...' --format csv` writes one, txn.append takes frames",
    "SUMMARIZE": "SELECT * FROM (SUMMARIZE name)",
    "UNDROP": "`lakevilla register ROOT TABLE` brings a dropped table back",
    "ATTACH": "tables that lie elsewhere join the lake by `lakevilla register ROOT NAME URI`",
    "UPSERT": "MERGE INTO name USING ...",
    "REPLACE": "MERGE INTO name USING ...",
    "RESTORE": "use lake.table(name).restore(version)",
    "ANALYZE": "statistics are made with each file",
    "CALL": "use the methods of the lake",
    "PRAGMA": "SET isolation = 'snapshot', and the like, are settings here",
}


def parsed(statement: ScriptStatement, number: int, dialect: Dialect) -> Parsed:
    """Return the request of one statement of a text.

    Raises
    ------
    InvalidOperation
        The session does not know the statement; the error names the nearest known one.
    """
    if statement.inner or _begins_block(statement.text):
        inner = tuple(
            parsed(one, index, dialect) for index, one in enumerate(statement.inner, number)
        )
        return Parsed(Block(inner), statement.text, number, statement)
    text = statement.text
    pasts: tuple[Mention, ...] = ()
    if not _OF_REFS.match(text):
        text, pasts = without_pasts(text, dialect)
    node = _node(text, dialect)
    changed = getattr(node.statement, "table", "") if isinstance(node, OfRows) else ""
    if pasts and isinstance(node, CreateView):
        raise InvalidOperation(
            f"view {node.name} can't name a state of its tables: it shows that of the query which "
            "uses it, as in SELECT * FROM view AT (VERSION => 3)"
        )
    if pasts:
        takes_pasts = isinstance(node, OfRows | CreateTable | Explain)
        refuse_changed(changed if takes_pasts else pasts[0].view)
    return Parsed(node, text, number, statement, pasts)


_OF_REFS = re.compile(r"\s*(CREATE|DROP|MERGE)\s+(BRANCH|TAG)\b", re.IGNORECASE)
_MERGES_BRANCH = re.compile(r"\s*MERGE\s+BRANCH\b", re.IGNORECASE)


def _begins_block(text: str) -> bool:
    return text.upper().split()[:2] == ["BEGIN", "ATOMIC"]


@remembered
def _node(text: str, dialect: Dialect) -> Node:
    if is_of_rows(text, dialect) and not _MERGES_BRANCH.match(text):
        return OfRows(text, parse_statement(text, None, dialect))
    reader = TokenReader(text, script_tokens(text, dialect), dialect)
    first = reader.take().text.upper()
    read = _FIRST.get(first)
    if read is None and not reader.at_end:
        both = f"{first} {reader.shown().upper()}"
        read = _FIRST.get(both)
        if read is not None:
            reader.take()
        elif both in _ELSEWHERE:
            raise InvalidOperation(
                f"{both} is not supported in sql; {_ELSEWHERE[both]}", reason="unsupported"
            )
    if read is None:
        kinds = [one.split()[1] for one in _FIRST if one.startswith(f"{first} ")]
        if kinds:
            reader.refuse(f"{first} {reader.shown()}", f"{first} continues with {', '.join(kinds)}")
        raise _unknown(first)
    node = read(reader)
    reader.expect_end()
    return node


def _unknown(first: str) -> InvalidOperation:
    if first in _ELSEWHERE:
        return InvalidOperation(
            f"{first} is not supported in sql; {_ELSEWHERE[first]}", reason="unsupported"
        )
    words = sorted({one.split()[0] for one in _FIRST} | _ROWS)
    near = get_close_matches(first, words, 1)
    meant = f"did you mean {near[0]}? " if near else ""
    return InvalidOperation(
        f"{first} is not supported in sql; {meant}a statement begins with {', '.join(words)}"
    )


_ROWS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "INSERT", "UPDATE", "DELETE", "MERGE"})


# -------------------- named
#
# The tables that a statement of a session names, in addition to those of its queries.


def named_tables(statement: Parsed) -> Iterator[str]:
    """Yield the tables that a statement makes, changes or describes, and past ones that it reads.

    The names in a statement over rows are found where it is run.
    """
    for past in statement.pasts:
        yield past.table
    match statement.node:
        case Block(inner=inner):
            for one in inner:
                yield from named_tables(one)
        case CreateTable(name=name, like=like):
            yield from (name,) if like is None else (name, like)
        case CreateView(name=name) | DropView(name=name):
            yield name
        case DropTable(name=name) | AlterTable(name=name) | RenameTable(name=name):
            yield name
        case Truncate(name=name) | CommentOn(name=name):
            yield name
        case Describe(table=table) | OptimizeTable(table=table) | VacuumTable(table=table):
            yield table
        case Show(table=str(table)):
            yield table
