"""Fill, read and change tables in tests."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakevilla as lv

Row = Mapping[str, Any]


def accounts(count: int, balance: int = 100) -> list[dict[str, Any]]:
    """Return ``count`` rows of ``id`` and ``balance``."""
    return [{"id": number, "balance": balance} for number in range(count)]


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows sorted by all of their columns that can be sorted."""
    return sorted(rows.to_pylist(), key=lambda row: [repr(value) for value in row.values()])


def bag(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Return the rows as a multiset."""
    return Counter(tuple(row.values()) for row in table.to_pylist())


def values(rows: pa.Table, column: str = "id") -> list[Any]:
    return sorted(rows[column].to_pylist())


def kinds(events: Iterable[lv.Event]) -> list[str]:
    return [event.kind for event in events]


def contents(root: str | Path) -> dict[str, bytes]:
    """Return every object of a lake in a directory, by key: a verb that raises may change none."""
    found = [
        os.path.join(directory, name)
        for directory, _, names in os.walk(root)
        for name in names
        if not name.startswith(".lakevilla-")
    ]
    return {
        os.path.relpath(path, root): Path(path).read_bytes()
        for path in sorted(found, key=lambda path: path.split("/"))
        if os.path.isfile(path)
    }


def add(txn: lv.Transaction, row: int, amount: int) -> None:
    """Add to a balance, by an update that can be redone."""
    txn.update("bank", {"balance": f"balance + {amount}"}, where=f"id = {row}")
