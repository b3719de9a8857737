"""One statement done by the verbs of a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakevilla.api.frame import Frame
from lakevilla.api.reads import Reads
from lakevilla.api.transaction import Transaction
from lakevilla.engines.sql.dml import DeleteStatement, UpdateStatement
from lakevilla.engines.sql.merging import looks_elsewhere
from lakevilla.engines.sql.script.definitions import CreateTable, DropTable
from lakevilla.engines.sql.script.parsing import OfRows, Parsed
from lakevilla.engines.sql.script.showing import Show
from lakevilla.engines.sql.script.used import used_in
from lakevilla.engines.sql.select import Dialect
from lakevilla.errors import InvalidOperation, TableExists, TableNotFound
from lakevilla.formats.base import FormatName
from lakevilla.results import OperationResult

__all__ = ["Given", "perform", "tell"]


@dataclass(frozen=True, slots=True)
class Given:
    """What the caller of ``sql`` has given beside the text."""

    params: Mapping[str, object]
    views: Mapping[str, object]
    dialect: Dialect

    def params_of(self, text: str) -> dict[str, object]:
        """Those that a statement uses."""
        used = used_in(text, self.params, self.dialect)
        return {name: value for name, value in self.params.items() if name in used}

    def views_of(self, node: OfRows) -> dict[str, object] | None:
        """Those that a statement can use."""
        statement = node.statement
        if isinstance(statement, UpdateStatement | DeleteStatement):
            takes = looks_elsewhere(statement, self.dialect)
        else:
            takes = True
        return dict(self.views) if takes and self.views else None


def tell(state: Reads[Frame], statement: Parsed, given: Given) -> Frame:
    """The rows of a statement that only reads, in a transaction or a snapshot."""
    match statement.node:
        case OfRows() as node:
            text = statement.text
            rows = state.sql(text, given.params_of(text), views=given.views_of(node))
        case Show() as node:
            rows = _show(state, node)
        case node:
            raise InvalidOperation(f"{type(node).__name__} can't be read")
    assert not isinstance(rows, OperationResult)
    return rows


def perform(
    txn: Transaction[Frame], statement: Parsed, given: Given
) -> Frame | OperationResult | None:
    """Do a statement; what it returns is None where it makes or changes tables."""
    match statement.node:
        case OfRows(reads=False) as node:
            text = statement.text
            return txn.sql(text, given.params_of(text), views=given.views_of(node))
        case CreateTable() as node:
            _create(txn, node, given)
            return None
        case DropTable(name=name, missing_ok=missing_ok):
            try:
                txn.drop_table(name)
            except TableNotFound:
                if not missing_ok:
                    raise
            return None
        case _:
            return tell(txn, statement, given)


def _create(txn: Transaction[Frame], node: CreateTable, given: Given) -> None:
    rows: object = node.columns
    if node.query is not None:
        text = node.query.sql
        rows = txn.sql(text, given.params_of(text), views=given.views or None)
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


def _show(state: Reads[Frame], node: Show) -> Frame | OperationResult:
    where, params = "", {}
    if node.like is not None:
        where, params = " WHERE name LIKE :pattern", {"pattern": node.like}
    return state.sql(f"SELECT name, format FROM lakevilla_tables{where} ORDER BY name", params)
