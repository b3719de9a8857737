"""Placeholder of the logical mode, until it lands."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from lakevilla.store.effects import Program

if TYPE_CHECKING:
    from lakevilla.transaction.core import Transaction


def defer(txn: Transaction, tables: Collection[str]) -> Program[None]:
    """Nothing is put off yet."""
    yield from ()
