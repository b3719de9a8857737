"""The names in a lake, read on request and cached until they may have changed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakevilla as lv
from lakevilla.cli.shell.completing import NamedColumn
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.sql.expressions.types import type_name

#: For a lake with more tables, only the names that begin with the typed text are requested.
_MOST = 1000


class LakeNames:
    """Names for completion, whose thread calls this object.

    If an object can't be read, no names are returned: the statement that needs it will report the
    store's error.
    """

    def __init__(self, lake: lv.Lake[Any]) -> None:
        self._lake = lake
        self._lock = threading.Lock()
        self._tables: dict[str, list[str]] = {}
        self._columns: dict[str, list[NamedColumn]] = {}
        self._refs: list[str] | None = None

    def forget(self, *, columns: bool) -> None:
        """Drop the cached names of tables, which may have changed; with ``columns``, those of
        columns, too.
        """
        with self._lock:
            self._tables.clear()
            self._refs = None
            if columns:
                self._columns.clear()

    def tables(self, prefix: str) -> Sequence[str]:
        with self._lock:
            whole = self._tables.get("")
            known = self._tables.get(prefix) if whole is None else whole
        if known is None:
            known = self._looked_up(prefix)
        fits = prefix.lower()
        own = [*known, *_catalog()]
        return [name for name in own if name.lower().startswith(fits)]

    def _looked_up(self, prefix: str) -> list[str]:
        try:
            page = self._lake.tables(limit=_MOST, details=False)
            if page.next is None:
                prefix = ""
            elif prefix:
                page = self._lake.tables(prefix, limit=_MOST, details=False)
            found = [table.name for table in page]
        except LakeVillaError:
            return []
        with self._lock:
            self._tables[prefix] = found
        return found

    def columns(self, table: str) -> Sequence[NamedColumn]:
        shown = _catalog().get(table.lower())
        if shown is not None:
            return shown
        with self._lock:
            known = self._columns.get(table)
        if known is None:
            try:
                schema = self._lake.table(table).schema
            except LakeVillaError:
                return ()
            known = [NamedColumn(field.name, type_shown(field.type)) for field in schema]
            with self._lock:
                self._columns[table] = known
        return known

    def refs(self) -> Sequence[str]:
        with self._lock:
            known = self._refs
        if known is None:
            try:
                known = ["main", *(ref.name for ref in self._lake.on("main").refs())]
            except LakeVillaError:
                return ()
            with self._lock:
                self._refs = known
        return known

    def files(self, prefix: str) -> Sequence[str]:
        given = Path(prefix).expanduser()
        directory = given if prefix.endswith("/") or not prefix else given.parent
        shown = prefix if prefix.endswith("/") else prefix[: len(prefix) - len(given.name)]
        try:
            found = sorted(directory.iterdir())
        except OSError:
            return ()
        return [f"{shown}{one.name}{'/' if one.is_dir() else ''}" for one in found]


def type_shown(kind: pa.DataType) -> str:
    """Return a type's name as in DESCRIBE and CREATE TABLE, or Arrow's name if SQL has none."""
    try:
        return type_name(kind)
    except InvalidOperation:
        return str(kind)


def _catalog() -> dict[str, list[NamedColumn]]:
    """Return the names of the lake's catalog tables."""
    from lakevilla.sql.catalog import SCHEMAS

    return {
        f"lakevilla_{kind}": [NamedColumn(field.name, type_shown(field.type)) for field in schema]
        for kind, schema in SCHEMAS.items()
    }
