"""One statement done by the verbs of a transaction."""

from __future__ import annotations

from collections.abc import Mapping

from lakevilla.api.frame import Frame
from lakevilla.api.reads import Reads
from lakevilla.api.session.given import Given
from lakevilla.api.session.telling import asked, described, shown
from lakevilla.api.transaction import Transaction
from lakevilla.engines.sql.script.alterations import (
    AlterTable,
    CommentOn,
    RenameTable,
    Truncate,
)
from lakevilla.engines.sql.script.definitions import CreateTable, DropTable
from lakevilla.engines.sql.script.parsing import OfRows, Parsed
from lakevilla.engines.sql.script.showing import Describe, Show
from lakevilla.errors import InvalidOperation, TableExists, TableNotFound
from lakevilla.formats.base import FormatName
from lakevilla.results import OperationResult

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
        case node:
            raise InvalidOperation(f"{type(node).__name__} can't be read")


def perform(
    txn: Transaction[Frame], statement: Parsed, given: Given[Frame]
) -> Frame | OperationResult | None:
    """Do a statement; what it returns is None where it makes or changes tables."""
    match statement.node:
        case OfRows(reads=False):
            text = statement.text
            return txn.sql(text, given.params_of(text), views=given.views_of(statement))
        case CreateTable() as node:
            _create(txn, node, given.views_of(statement), given)
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
        case CommentOn(name=name, text=None):
            txn.alter(name, unset_properties=["comment"])
            return None
        case CommentOn(name=name, text=text):
            txn.alter(name, set_properties={"comment": str(text)})
            return None
        case _:
            return tell(txn, statement, given)


def _create(
    txn: Transaction[Frame],
    node: CreateTable,
    views: Mapping[str, object] | None,
    given: Given[Frame],
) -> None:
    rows: object = node.columns
    if node.query is not None:
        text = node.query.sql
        rows = txn.sql(text, given.params_of(text), views=views)
    format: FormatName = "iceberg" if node.format == "iceberg" else "delta"
    try:
        txn.create_table(
            node.name,
            rows,
            format=format,
            partition_by=node.partition_by,
            properties=node.properties,
        )
    except TableExists:
        if not node.exist_ok:
            raise
        return
    if node.constraints:
        txn.alter(node.name, add_constraints=node.constraints)
