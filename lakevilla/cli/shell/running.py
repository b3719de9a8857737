"""One statement: run, told, and what became of it where somebody has pressed Ctrl-C."""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any

import lakevilla as lv
from lakevilla.cli.shell.desk import Desk
from lakevilla.errors import LakeVillaError
from lakevilla.results import CommitResult, OperationResult

#: A word behind what is commented out.
_WORD = re.compile(r"(?:--[^\n]*\n|/\*.*?\*/|[^\w])*(\w+)", re.DOTALL)
#: Statements of two words.
_OF_TWO = frozenset({"CREATE", "DROP", "ALTER", "MERGE", "COMMENT", "BEGIN"})
_NOTHING = "it has not committed, and nothing of it is stored"
_NOT_KNOWN = "interrupted: whether it has committed is not known"
_COUNTS = ("rows_inserted", "rows_updated", "rows_deleted")


class Interrupted(Exception):
    """Somebody has pressed Ctrl-C; the text says what became of the statement."""


def run_statement(desk: Desk, text: str, *, expanded: bool = False) -> None:
    """Run one statement and show what comes of it.

    Raises
    ------
    Interrupted
    LakeVillaError
        As ``Session.sql``.
    """
    began = time.perf_counter()
    session = desk.session
    try:
        result = session.sql(text)
        seconds = time.perf_counter() - began
    except KeyboardInterrupt:
        raise Interrupted(after_interrupt(desk.lake, session, text)) from None
    finally:
        desk.names.forget(columns=_defines(text))
    try:
        if result is None or isinstance(result, OperationResult | CommitResult):
            desk.screen.line(described(result, text, _by_itself(session)))
        else:
            desk.screen.rows(result, expanded=expanded)
        if desk.choices.timing:
            desk.screen.line(f"time: {_time(seconds)}")
    except KeyboardInterrupt:
        raise Interrupted("stopped: the statement is done, its answer is cut short") from None


def described(result: OperationResult | CommitResult | None, text: str, version: int | None) -> str:
    """What a statement without rows has done; ``version`` is the commit that it made by itself."""
    match result:
        case CommitResult(operations=0):
            return "committed: nothing was written"
        case CommitResult(global_version=number):
            return f"committed{as_version(number)}"
        case OperationResult():
            counts = [(name, getattr(result, name)) for name in _COUNTS]
            shown = [_counted(name, count) for name, count in counts if count]
            return (", ".join(shown) or "no row changed") + (
                "" if version is None else f"; committed{as_version(version)}"
            )
        case None:
            return _tag(text) + ("" if version is None else f"; committed{as_version(version)}")


def as_version(number: int | None) -> str:
    """A commit by its version; one by its table's own log entry has none."""
    return "" if number is None else f" as global version {number}"


def after_interrupt(lake: lv.Lake[Any], session: lv.Session[Any], text: str) -> str:
    """What became of a statement that was interrupted, as the store knows it.

    A transaction that was being committed is asked for, and by that ended where nothing was
    decided yet: what is said here is so for good.
    """
    txn, was_open = session.last_transaction, session.transaction
    if txn is None:
        return "interrupted"
    if txn is was_open and not _ends(text):
        return f"interrupted: {_tag(text)} has changed nothing{_still(txn)}"
    try:
        if not (txn.operations or txn.result):
            return f"interrupted: {_NOTHING}"
        found = _settled(lake, txn)
    except KeyboardInterrupt:
        return f"{_NOT_KNOWN}{_ask(lake, txn)}"
    except LakeVillaError as error:
        return f"{_NOT_KNOWN}: {error.message}{_ask(lake, txn)}"
    finally:
        if session.transaction is not None:
            session.sql("ROLLBACK")  # what has committed is left as it is
    if isinstance(found, CommitResult):
        return f"interrupted too late: it had committed{as_version(found.global_version)}"
    if found == "aborted":
        return f"interrupted: {_NOTHING}"
    return f"{_NOT_KNOWN}{_ask(lake, txn)}"


def _by_itself(session: lv.Session[Any]) -> int | None:
    """The version that a statement has made outside of a transaction."""
    txn = session.last_transaction
    if session.transaction is not None or txn is None or txn.result is None:
        return None
    return txn.result.global_version


def _defines(text: str) -> bool:
    """Whether a statement may have changed columns."""
    return _tag(text).split()[0] in ("CREATE", "DROP", "ALTER", "ROLLBACK", "MERGE")


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    return f"{int(seconds // 60)} min {seconds % 60:.0f} s"


def _settled(lake: lv.Lake[Any], txn: lv.Transaction[Any]) -> CommitResult | str:
    found = txn.result or lake.outcome(txn.id).result
    if found is None:
        return lake.outcome(txn.id).state
    with contextlib.suppress(LakeVillaError, KeyboardInterrupt):
        txn.commit()  # it goes on where it was interrupted: clients without LakeVilla are to see it
    return found


def _still(txn: lv.Transaction[Any]) -> str:
    if txn.state == "open":
        return "; the transaction is still open"
    return f"; the transaction is {txn.state}: ROLLBACK ends it"


def _ask(lake: lv.Lake[Any], txn: lv.Transaction[Any]) -> str:
    return f"; `lakevilla outcome {lake.root} {txn.id}` tells"


def _ends(text: str) -> bool:
    return _tag(text).split()[0] in ("COMMIT", "END")


def _tag(text: str) -> str:
    """The first words of a statement, as psql calls what it has done."""
    words = _WORD.findall(text)[:2]
    if not words:
        return "done"
    first = words[0].upper()
    return f"{first} {words[1].upper()}" if first in _OF_TWO and len(words) > 1 else str(first)


def _counted(name: str, count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'} {name.removeprefix('rows_')}"
