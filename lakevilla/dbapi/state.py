"""The state of a connection, which alone begins and ends its transactions.

After a conflict, the connection refuses statements until the program calls ``rollback``. Otherwise
the program's next statement would begin another transaction, and be committed without the
statements before the conflict.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lakevilla.api.lake import Lake
from lakevilla.dbapi.errors import InterfaceError, InternalError, ProgrammingError, translated
from lakevilla.errors import InvalidOperation
from lakevilla.global_log.rules import Isolation

#: Statements for which no transaction is begun.
_CONTROL = frozenset({"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SET"})


class ConnectionState:
    """A session with its current transaction; safe across threads."""

    def __init__(
        self,
        lake: Lake[Any],
        isolation: Isolation | None,
        *,
        autocommit: bool,
        fail_on_error: bool,
        limits: Mapping[str, Any],
    ) -> None:
        self.lake = lake
        self._fail_on_error = fail_on_error
        self._isolation = isolation
        self._autocommit = autocommit
        self._limits = limits
        self._session = lake.session(isolation=isolation, **limits)
        self._lock = threading.RLock()
        self._closed = False
        self._failed: str | None = None

    # -- state ------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def in_transaction(self) -> bool:
        return self._failed is not None or self._session.transaction is not None

    @property
    def autocommit(self) -> bool:
        return self._autocommit

    def set_autocommit(self, on: bool) -> None:
        with self._turn("autocommit can be set"):
            self._refuse_within("autocommit")
            self._autocommit = on

    @property
    def isolation(self) -> Isolation | None:
        return self._isolation

    def set_isolation(self, isolation: Isolation | None) -> None:
        with self._turn("isolation can be set"):
            self._refuse_within("isolation")
            session = self.lake.session(isolation=isolation, **self._limits)
            self._session.close()
            self._session, self._isolation = session, isolation

    # -- statements --------------------------------------------------------------

    def run(
        self,
        text: str,
        params: Mapping[str, object] | None,
        views: Mapping[str, object] | None = None,
        *,
        may_be_refused: bool = False,
    ) -> Any:
        """Run a text in the session, in a transaction if it needs one, and return the result.

        ``may_be_refused``: return None if the statement is refused and the transaction is still
        open.
        """
        with self._turn("a statement can be run"):
            if self._failed is not None:
                return self._leave_failure(text)
            if not self._autocommit and not self.in_transaction and self._needs_one(text):
                self._session.sql("BEGIN")
            try:
                return self._session.sql(text, params, views)
            except BaseException as error:
                running = self._session.transaction
                is_open = running is not None and running.state == "open"
                if may_be_refused and is_open and isinstance(error, InvalidOperation):
                    return None
                if running is not None and (self._fail_on_error or running.state != "open"):
                    self._failed = str(error) or type(error).__name__
                raise

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run the statements of the block as one transaction, with autocommit as well."""
        with self._turn("statements can be run"):
            if not self._autocommit or self.in_transaction:
                yield
                return
            self._session.sql("BEGIN")
            try:
                yield
            except BaseException:
                self._undo()
                raise
            self._session.sql("COMMIT")

    def commit(self) -> None:
        with self._turn("commit is possible"):
            if self._failed is not None:
                raise self._failure()
            if self._session.transaction is not None:
                self._session.sql("COMMIT")

    def rollback(self) -> None:
        with self._turn("rollback is possible"):
            self._undo()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            with translated():
                self._session.close()

    # -- rules -------------------------------------------------------------------

    @contextmanager
    def _turn(self, what: str) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise InterfaceError(f"the connection is closed: connect again before {what}")
            with translated():
                yield

    def _undo(self) -> None:
        self._failed = None
        if self._session.transaction is not None:
            self._session.sql("ROLLBACK")

    def _leave_failure(self, text: str) -> Any:
        """Run ROLLBACK, or ROLLBACK TO a savepoint of a transaction that is still open."""
        words = self._rollback_words(text)
        if words is not None and "TO" not in words[1:3]:
            return self._undo()
        running = self._session.transaction
        if words is None or running is None or running.state != "open":
            raise self._failure()
        self._session.sql(text)
        self._failed = None
        return None

    def _failure(self) -> InternalError:
        return InternalError(
            f"the transaction has failed ({self._failed}): call rollback(), and begin again"
        )

    def _refuse_within(self, what: str) -> None:
        if self.in_transaction:
            raise ProgrammingError(
                f"{what} can't be changed within a transaction: commit() or rollback() first"
            )

    def _needs_one(self, text: str) -> bool:
        statements = self._session.statements(text)
        return bool(statements) and _first_word(statements[0].text) not in _CONTROL

    def _rollback_words(self, text: str) -> list[str] | None:
        """Return the words of a text that is one ROLLBACK; None for any other."""
        statements = self._session.statements(text)
        if len(statements) != 1 or _first_word(statements[0].text) not in ("ROLLBACK", "ABORT"):
            return None
        return statements[0].text.upper().split()


def _first_word(text: str) -> str:
    return text.split(None, 1)[0].rstrip(";").upper() if text.strip() else ""
