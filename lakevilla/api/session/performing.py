"""One statement done by the verbs of a transaction."""

from __future__ import annotations

from lakevilla.api.frame import Frame
from lakevilla.api.reads import Reads
from lakevilla.api.session.creating import create_table
from lakevilla.api.session.explaining import explained
from lakevilla.api.session.given import Given
from lakevilla.api.session.telling import asked, described, shown
from lakevilla.api.transaction import Transaction
from lakevilla.errors import InvalidOperation, TableNotFound
from lakevilla.results import OperationResult
from lakevilla.sql.statements.script.alterations import (
    AlterTable,
    CommentOn,
    RenameTable,
    Truncate,
)
from lakevilla.sql.statements.script.definitions import CreateTable, DropTable
from lakevilla.sql.statements.script.parsing import OfRows, Parsed
from lakevilla.sql.statements.script.showing import Describe, Explain, Show

__all__ = ["perform", "tell"]


def tell(state: Reads[Frame], statement: Parsed, given: Given[Frame]) -> Frame:
    """The rows of a statement that only reads, in a transaction or a snapshot."""
    match statement.node:
        case OfRows():
            text = statement.text
            return asked(state, text, given.params_of(text), given.views_of(statement))
        case Show() as node:
            return shown(state, node, given.lake, given.settings)
        case Describe() as node:
            return described(state, node, given.lake)
        case Explain() as node:
            return explained(state, node, statement, given)
        case node:
            raise InvalidOperation(f"{type(node).__name__} can't be read")


def perform(
    txn: Transaction[Frame], statement: Parsed, given: Given[Frame]
) -> Frame | OperationResult | None:
    """Do a statement; what it returns is None where it makes or changes tables."""
    match statement.node:
        case OfRows(reads=False, statement=known):
            text = statement.text
            return txn._sql(text, given.params_of(text), given.views_of(statement), known)
        case CreateTable() as node:
            text = "" if node.query is None else node.query.sql
            create_table(txn, node, given.params_of(text), given.views_of(statement))
            return None
        case DropTable(name=name, missing_ok=missing_ok):
            try:
                txn.drop_table(name)
            except TableNotFound:
                if not missing_ok:
                    raise
            return None
        case AlterTable(name=name, changes=changes):
            txn.alter(name, **changes)
            return None
        case RenameTable(name=name, new=new):
            txn.rename_table(name, new)
            return None
        case Truncate(name=name):
            return txn.delete(name, "true")
        case CommentOn(name=name, text=text, column=str(column)):
            txn.alter(name, set_comments={column: text})
            return None
        case CommentOn(name=name, text=None):
            txn.alter(name, unset_properties=["comment"])
            return None
        case CommentOn(name=name, text=text):
            txn.alter(name, set_properties={"comment": str(text)})
            return None
        case _:
            return tell(txn, statement, given)
