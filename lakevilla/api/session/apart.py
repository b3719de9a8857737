"""Statements that take effect by themselves: branches, tags and upkeep, by verbs of the lake."""

from __future__ import annotations

from typing import NoReturn

import pyarrow as pa

from lakevilla.api.frame import Frame
from lakevilla.api.session.host import Host
from lakevilla.api.session.telling import rows_of
from lakevilla.errors import InvalidOperation, RefExists, RefNotFound
from lakevilla.sql.statements.script.parsing import Apart
from lakevilla.sql.statements.script.refs import (
    CreateRef,
    DropRef,
    Marked,
    MergeBranch,
    UseBranch,
)
from lakevilla.sql.statements.script.upkeep import OptimizeTable, VacuumTable

__all__ = ["apart"]

_MERGED = pa.schema([("table", pa.string()), ("change", pa.string())])
_FILES = pa.schema([("path", pa.string())])
_OPTIMIZED = ("files_added", "files_removed", "bytes_added", "bytes_removed", "partitions")


def apart(lake: Host[Frame], node: Apart) -> Frame | None:
    """Do it; what it did as rows."""
    match node:
        case CreateRef():
            _create(lake, node)
        case DropRef():
            _drop(lake, node)
        case MergeBranch(name=name, delete=delete):
            merged = lake.merge(name, delete=delete)
            return rows_of(lake.snapshot(), _MERGED, sorted(merged.tables.items()))
        case OptimizeTable(table=table, where=where, z_order_by=columns):
            done = lake.table(table).optimize(where, z_order_by=columns)
            schema = pa.schema([(name, pa.int64()) for name in _OPTIMIZED])
            counts = [getattr(done, name) for name in _OPTIMIZED]
            return rows_of(lake.snapshot(), schema, [counts])
        case VacuumTable(table=table, hours=hours, dry_run=dry_run):
            files = lake.table(table).vacuum(hours, dry_run)
            return rows_of(lake.snapshot(), _FILES, [(path,) for path in files])
        case UseBranch():
            raise AssertionError("the session goes there")
    return None


def _create(lake: Host[Frame], node: CreateRef) -> None:
    assert not isinstance(node.at, Marked), "the session has looked it up"
    try:
        (lake.branch if node.kind == "branch" else lake.tag)(node.name, node.at)
    except RefExists:
        if not node.exist_ok or _kind(lake, node.name) != node.kind:
            raise


def _drop(lake: Host[Frame], node: DropRef) -> None:
    try:
        kind = _kind(lake, node.name)
        if kind not in (None, node.kind):
            _refuse_kind(node, str(kind))
        lake.delete_ref(node.name)
    except RefNotFound:
        if not node.missing_ok:
            raise


def _kind(lake: Host[Frame], name: str) -> str | None:
    return next((ref.kind for ref in lake.refs() if ref.name == name), None)


def _refuse_kind(node: DropRef, kind: str) -> NoReturn:
    raise InvalidOperation(f"{node.name!r} is a {kind}, and no {node.kind}: DROP {kind.upper()} it")
