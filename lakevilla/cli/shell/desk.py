"""What a shell works on: the lake, the ref it is at, and the session that is open there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lakevilla as lv
from lakevilla.cli.command import MAIN
from lakevilla.cli.shell.lake_names import LakeNames
from lakevilla.cli.shell.screen import Choices, Screen
from lakevilla.errors import InvalidOperation

_LONGEST_NAME = 24


class Desk:
    """The lake of a shell at one of its refs, with a session of its own.

    ``values`` are those of the ``:name`` in statements.
    """

    def __init__(
        self,
        lake: lv.Lake[Any],
        ref: str | None,
        values: Mapping[str, object] | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> None:
        self._limits = dict(limits or {})
        self._whole = lake
        self.choices = Choices()
        self.screen = Screen(self.choices)
        self.values = dict(values or {})
        self.ref = MAIN
        self._open(ref or MAIN)

    def _open(self, ref: str) -> None:
        lake = self._whole if ref == MAIN else self._whole.on(ref)
        self.lake, self.ref = lake, ref
        self.names = LakeNames(lake)
        self.session = lake.session(**self._limits)

    def go_to(self, ref: str) -> None:
        """Work at another ref.

        Raises
        ------
        InvalidOperation
            A transaction is open.
        RefNotFound
        """
        if self.session.transaction is not None:
            raise InvalidOperation(
                "a transaction is open, and belongs to the ref on which it began: COMMIT or "
                "ROLLBACK it first"
            )
        before = self.session
        self._open(ref)
        before.close()

    @property
    def prompt(self) -> str:
        """``lake@ref*=>``: with ``*`` in a transaction, ``!`` in one that can only be undone."""
        name = self.lake.root.rstrip("/").rsplit("/", 1)[-1] or "lake"
        if len(name) > _LONGEST_NAME:
            name = name[: _LONGEST_NAME - 1] + "…"
        at = "" if self.ref == MAIN else f"@{self.ref}"
        txn = self.session.transaction
        mark = "" if txn is None else "*" if txn.state == "open" else "!"
        return f"{name}{at}{mark}=> "

    def close(self) -> None:
        """Undo the transaction that is open, and say so."""
        txn = self.session.transaction
        self.session.close()
        if txn is not None:
            self.screen.aside(f"rolled back transaction {txn.id}: nothing of it is stored")
        if self.choices.target is not None:
            self.choices.target.close()
