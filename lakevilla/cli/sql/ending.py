"""The end of a statement: its effects, and its outcome after Ctrl-C."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import lakevilla as lv
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.results import CommitResult, OperationResult

#: The first word of a text, after comments.
_WORD = re.compile(r"(?:--[^\n]*\n|/\*.*?\*/|[^\w])*(\w+)", re.DOTALL)
#: First words of statements that are named by two words.
_OF_TWO = frozenset({"CREATE", "DROP", "ALTER", "MERGE", "COMMENT", "BEGIN"})
_NOTHING = "it has not committed, and nothing of it is stored"
_NOT_KNOWN = "interrupted: whether it has committed is not known"
_COUNTS = ("rows_inserted", "rows_updated", "rows_deleted")


class Interrupted(Exception):
    """Raised after the user has pressed Ctrl-C; the text says how the statement ended."""


def described(result: OperationResult | CommitResult | None, text: str, version: int | None) -> str:
    """Describe a statement without rows; ``version``: that of its own commit, if it has one."""
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
            return tag_of(text) + ("" if version is None else f"; committed{as_version(version)}")


def refuse_open(session: lv.Session[Any]) -> None:
    """Refuse a script that leaves a transaction open.

    Raises
    ------
    InvalidOperation
    """
    txn = session.transaction
    if txn is not None:
        raise InvalidOperation(
            f"the script ends within transaction {txn.id}: it was rolled back; end it with COMMIT",
            txn_id=txn.id,
        )


def as_version(number: int | None) -> str:
    """Return the text that names a commit's version; empty for a commit by a table's log entry."""
    return "" if number is None else f" as global version {number}"


def after_interrupt(
    lake: lv.Lake[Any], session: lv.Session[Any], text: str, *, goes_on: bool = True
) -> str:
    """Return the outcome of an interrupted statement, as text, by the store's objects.

    If the session does not go on, its open transaction is rolled back; the text does not say so.

    If the transaction was being committed, its outcome is queried, which ends the transaction if it
    is undecided. So the reported outcome is final.
    """
    txn, was_open = session.last_transaction, session.transaction
    if txn is None:
        return "interrupted"
    if txn is was_open and not _ends(text):
        if not goes_on:
            return "interrupted"
        return f"interrupted: {tag_of(text)} has changed nothing{_still(txn)}"
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
            session.sql("ROLLBACK")  # a transaction that has committed is not changed by this
    if isinstance(found, CommitResult):
        return f"interrupted too late: it had committed{as_version(found.global_version)}"
    if found == "aborted":
        return f"interrupted: {_NOTHING}"
    return f"{_NOT_KNOWN}{_ask(lake, txn)}"


def made_by_itself(session: lv.Session[Any]) -> int | None:
    """Return the version that a statement outside of a transaction has committed."""
    txn = session.last_transaction
    if session.transaction is not None or txn is None or txn.result is None:
        return None
    return txn.result.global_version


def _settled(lake: lv.Lake[Any], txn: lv.Transaction[Any]) -> CommitResult | str:
    found = txn.result or lake.outcome(txn.id).result
    if found is None:
        return lake.outcome(txn.id).state
    with contextlib.suppress(LakeVillaError, KeyboardInterrupt):
        # finish the interrupted commit by publishing it: clients without LakeVilla must see it
        txn.commit()
    return found


def _still(txn: lv.Transaction[Any]) -> str:
    if txn.state == "open":
        return "; the transaction is still open"
    return f"; the transaction is {txn.state}: ROLLBACK ends it"


def _ask(lake: lv.Lake[Any], txn: lv.Transaction[Any]) -> str:
    return f"; `lakevilla outcome {lake.root} {txn.id}` shows it"


def _ends(text: str) -> bool:
    return tag_of(text).split()[0] in ("COMMIT", "END")


def tag_of(text: str) -> str:
    """Return the first words of a statement, by which psql names its effect."""
    words = _WORD.findall(text)[:2]
    if not words:
        return "done"
    first = words[0].upper()
    return f"{first} {words[1].upper()}" if first in _OF_TWO and len(words) > 1 else str(first)


def _counted(name: str, count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'} {name.removeprefix('rows_')}"
