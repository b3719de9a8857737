"""Divide a text of SQL into transactions, and give statements their parameters and views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Generic, Protocol, Self, TypeVar

from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.api.pasts import Pasts
from lakevilla.api.snapshot import Snapshot
from lakevilla.api.table import Table
from lakevilla.api.transaction import Transaction
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.results import MergeResult, Outcome, Ref, TransactionInfo
from lakevilla.settings import is_unicode, shown
from lakevilla.sql.expressions.syntax.slips import place_behind, place_within
from lakevilla.sql.statements.dml import DeleteStatement, UpdateStatement
from lakevilla.sql.statements.merging import reads_other_rows
from lakevilla.sql.statements.script.control import Begin, Commit, Rollback, SetOption, used_in
from lakevilla.sql.statements.script.cutting import ScriptStatement
from lakevilla.sql.statements.script.parsing import (
    Block,
    Node,
    OfRows,
    OfSavepoints,
    Parsed,
    Separate,
    Telling,
)
from lakevilla.sql.statements.script.refs import Marked, State
from lakevilla.sql.statements.select import Dialect

__all__ = [
    "One",
    "Whole",
    "planned",
    "refuse_in_transaction",
    "place_error",
    "placing",
    "Given",
    "script_text",
    "Host",
]

# -------------------- planning
#
# Divide a text into transactions.


_KINDS = ("BRANCH", "TAG")
_NESTED = "a transaction is open, and can't hold another: COMMIT or ROLLBACK it first"


@dataclass(frozen=True, slots=True)
class One:
    """A single statement, in the open transaction or in its own."""

    statement: Parsed


@dataclass(frozen=True, slots=True)
class Whole:
    """Statements that are one transaction, from its beginning to its end.

    They can be run again after a conflict, because the caller has not seen their results. ``begin``
    is None if the text has no BEGIN; then the result is that of the last statement.
    """

    begin: Begin | None
    statements: tuple[Parsed, ...]

    @property
    def reads(self) -> bool:
        """True if the statements write nothing, so that a snapshot is enough for them."""
        return self.begin is None and all(only_reads(one) for one in self.statements)


def only_reads(statement: Parsed) -> bool:
    """Return whether a statement changes nothing."""
    node = statement.node
    return isinstance(node, Telling) or (isinstance(node, OfRows) and node.reads)


def planned(statements: Sequence[Parsed], *, is_open: bool) -> list[One | Whole]:
    """Divide the statements of a text into parts, in their order.

    Raises
    ------
    InvalidOperation
        A statement is not allowed at its place.
    """
    if not is_open and not any(_is_control(one) for one in statements):
        return list(_alone(statements))
    return list(_scripted(statements, is_open))


def _is_control(statement: Parsed) -> bool:
    return isinstance(statement.node, Begin | Commit | Rollback | Block)


def _alone(statements: Sequence[Parsed]) -> Iterator[One | Whole]:
    """Yield the parts of a text without BEGIN or COMMIT: each leading SET, then all other
    statements.
    """
    first = 0
    while first < len(statements) and isinstance(statements[first].node, SetOption):
        yield One(statements[first])
        first += 1
    rest = tuple(statements[first:])
    if len(rest) == 1:
        _refuse_savepoint(rest[0].node)
        yield One(rest[0])
    elif rest:
        _refuse_outside(rest)
        yield Whole(None, rest)


def _scripted(statements: Sequence[Parsed], is_open: bool) -> Iterator[One | Whole]:
    index = 0
    while index < len(statements):
        one = statements[index]
        node = one.node
        with placing(one.number, one.source, is_script=len(statements) > 1):
            _refuse_at(node, is_open)
        if isinstance(node, Block):
            _refuse_outside(node.inner)
            yield Whole(Begin(), node.inner)
        elif isinstance(node, Begin):
            end = _end(statements, index)
            if end is not None and isinstance(statements[end].node, Commit):
                inner = tuple(statements[index + 1 : end])
                _refuse_outside(inner)
                yield Whole(node, inner)
                index = end
            else:
                is_open = True
                yield One(one)
        else:
            if isinstance(node, Commit | Rollback):
                is_open = False
            elif not is_open:
                _refuse_savepoint(node)
            yield One(one)
        index += 1


def _refuse_at(node: Node, is_open: bool) -> None:
    """Refuse COMMIT and ROLLBACK outside a transaction, and BEGIN inside one."""
    if is_open and isinstance(node, Begin | Block):
        raise InvalidOperation(_NESTED)
    if not is_open and isinstance(node, Commit | Rollback):
        word = "COMMIT" if isinstance(node, Commit) else "ROLLBACK"
        raise InvalidOperation(f"no transaction is open: {word} follows a BEGIN")


def _refuse_savepoint(node: Node) -> None:
    """Refuse a statement about a part of a transaction where none is open."""
    if isinstance(node, OfSavepoints):
        raise InvalidOperation(
            f"no transaction is open: savepoint {node.name} can only be one within a transaction, "
            "which BEGIN begins"
        )


def _end(statements: Sequence[Parsed], begin: int) -> int | None:
    """Return the index of the statement that ends a transaction; None if the text has none."""
    for index in range(begin + 1, len(statements)):
        if isinstance(statements[index].node, Commit | Rollback | Begin | Block):
            return index
    return None


def _refuse_outside(statements: Sequence[Parsed]) -> None:
    """Refuse statements that can't be part of a transaction."""
    for one in statements:
        with placing(one.number, one.source, is_script=True):
            refuse_in_transaction(one)


def refuse_in_transaction(statement: Parsed) -> None:
    """Refuse a statement that can't be part of a transaction, because it takes effect by itself.

    Raises
    ------
    InvalidOperation
    """
    node = statement.node
    if isinstance(node, SetOption):
        raise InvalidOperation(
            f"a transaction keeps the {node.name} that it began with: SET it before, or give it "
            "to BEGIN"
        )
    if isinstance(node, Separate):
        raise InvalidOperation(
            f"{_words(statement.text)} takes effect by itself, and can't be part of a transaction: "
            "run it alone"
        )
    if isinstance(node, Begin | Block):
        raise InvalidOperation(_NESTED)


def _words(text: str) -> str:
    first, *rest = text.split()[:2]
    return " ".join([first, *(word for word in rest if word.upper() in _KINDS)]).upper()


# -------------------- placing
#
# Place errors: in a text of many statements, an error names the statement that raised it.


@contextmanager
def placing(number: int, source: ScriptStatement, *, is_script: bool) -> Iterator[None]:
    """Name the statement, by number and line, in errors raised inside; a single one is not named.

    A syntax error is reported by its line and column in the whole text.
    """
    try:
        yield
    except LakeVillaError as error:
        if not error.message.startswith("statement "):
            place_within(error, source.text)
            place_behind(error, source.line, source.column)
            if is_script:
                place_error(error, number, source.line)
        raise
    except Exception as error:
        if is_script:
            error.add_note(f"in statement {number} (line {source.line})")
        raise


def place_error(error: LakeVillaError, number: int, line: int) -> None:
    """Add, to an error's message, the number and line of the statement that raised it."""
    error.message = f"statement {number} (line {line}): {error.message}"
    error.args = (error.message, *error.args[1:])


# -------------------- given
#
# A statement's inputs besides its text: parameters, views, and past tables.


def script_text(value: object) -> str:
    """Return a text of statements without a byte order mark, which some editors put before it.

    Raises
    ------
    InvalidOperation
    """
    if not isinstance(value, str):
        raise InvalidOperation(f"a text of statements must be text, not {shown(value)}")
    if not is_unicode(value):
        raise InvalidOperation("the text has half of a surrogate pair: take it out")
    return str.__str__(value).removeprefix("\ufeff")


@dataclass(frozen=True)
class Given(Generic[Frame]):
    """The arguments of a call of ``sql``, and the lake on which its statements are run."""

    lake: Host[Frame]
    params: Mapping[str, object]
    views: Mapping[str, object]
    dialect: Dialect
    settings: Mapping[str, object]

    @cached_property
    def _pasts(self) -> Pasts[Frame]:
        return Pasts(self.lake._client, self.lake._executor, self.params)

    def params_of(self, text: str) -> dict[str, object]:
        """Return the parameters that a statement uses."""
        used = used_in(text, self.params, self.dialect)
        return {name: value for name, value in self.params.items() if name in used}

    def views_of(self, statement: Parsed, now: Executor[Frame]) -> dict[str, object] | None:
        """Return the views that a statement may use, its past tables among them.

        ``now`` reads the statement's own state.
        """
        node, found = statement.node, dict(self.views)
        if isinstance(node, OfRows) and isinstance(
            node.statement, UpdateStatement | DeleteStatement
        ):
            found = found if reads_other_rows(node.statement, self.dialect) else {}
        found.update(self._pasts.views(statement.pasts, now))
        return found or None

    def state(self, at: State | Marked) -> State:
        """Return the state that a statement names, directly or by a parameter."""
        return self._pasts.state(at)


# -------------------- host
#
# The interface by which a session uses its lake.


T = TypeVar("T")


class Host(Protocol[Frame]):
    """The part of a lake that a session uses."""

    _client: LakeClient
    _executor: type[Executor[Frame]]

    def transaction(self, **options: Any) -> Transaction[Frame]: ...
    def snapshot(
        self, version: int | None = None, timestamp: datetime | str | None = None
    ) -> Snapshot[Frame]: ...
    def run(
        self, fn: Callable[[Transaction[Frame]], T], *args: Any, attempts: int = ..., **options: Any
    ) -> T | None: ...
    def outcome(self, txn_id: str | None = None) -> Outcome: ...
    def transactions(self) -> list[TransactionInfo]: ...
    def table(self, name: str) -> Table[Frame]: ...
    def on(self, name: str) -> Self: ...
    def refs(self) -> list[Ref]: ...
    def branch(self, name: str, at: int | datetime | str | None = None) -> Ref: ...
    def tag(self, name: str, at: int | datetime | str | None = None) -> Ref: ...
    def delete_ref(self, name: str) -> None: ...
    def merge(self, branch: str, *, delete: bool = False) -> MergeResult: ...
