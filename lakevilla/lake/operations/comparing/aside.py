"""Rows that are put aside on the store while a verb compares them, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lakevilla.engines.base import FileNamer
from lakevilla.engines.meeting import Met
from lakevilla.lake.file_names import owner_of
from lakevilla.store.effects import Program, delete, parallel

T = TypeVar("T")


class Aside:
    """The objects of one verb. They bear the transaction's id: gc deletes what a crash leaves."""

    def __init__(self, txn: str) -> None:
        self.prefix = f"_lakevilla/txns/{txn}/source-"
        self._keys: list[str] = []

    def keep(self, met: Met) -> Met:
        """Note what a meeting has put aside."""
        self._keys += met.rows.keys
        return met

    def cleared(self) -> Program[None]:
        """Delete it."""
        yield from parallel([delete(key) for key in self._keys])


def with_aside(name: FileNamer, do: Callable[[Aside], Program[T]]) -> Program[T]:
    """What ``do`` comes to. What it has put aside is deleted, whatever that is.

    Files of the transaction are called by ``name``.
    """
    owner = owner_of(name(""))
    assert owner is not None, name("")
    aside = Aside(owner[1])
    try:
        done = yield from do(aside)
    except (Exception, KeyboardInterrupt):
        yield from aside.cleared()
        raise
    yield from aside.cleared()
    return done
