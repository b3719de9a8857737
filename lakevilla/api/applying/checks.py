"""Checks of what is about to be merged: functions of the transaction, and SELECTs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from lakevilla.errors import AuditFailed, ConflictError, InvalidOperation, TransactionAborted
from lakevilla.settings import shown

#: A function of the transaction, or a SELECT of one boolean.
Check = Callable[..., object] | str


def checked(checks: object) -> tuple[Check, ...]:
    """Checks as a caller gives them. Raises ``InvalidOperation``."""
    given = (checks,) if isinstance(checks, str) or callable(checks) else checks
    if not isinstance(given, Sequence):
        raise InvalidOperation(
            "checks is a list of functions of the transaction and of SELECTs of one boolean, not "
            f"{shown(checks)}"
        )
    for check in given:
        if not (isinstance(check, str) or callable(check)):
            raise InvalidOperation(
                f"{shown(check)} is no check: give a function of the transaction, or a SELECT of "
                "one boolean"
            )
    return tuple(given)


def run_checks(branch: str, txn: Any, checks: Sequence[Check]) -> None:
    """Run them all on what a transaction shows. What they read is read by it.

    One that writes is refused: it may run several times, what it wrote would be checked by nobody,
    and no result would tell of it.

    Raises ``AuditFailed``. An error that says that others were quicker is raised as it is.
    """
    failed: list[str] = []
    reasons: list[str] = []
    written = txn.operations
    for check in checks:
        name = check if isinstance(check, str) else getattr(check, "__name__", repr(check))
        try:
            passed = _select(txn, check) if isinstance(check, str) else _call(name, txn, check)
        except (ConflictError, TransactionAborted, InvalidOperation):
            raise
        except Exception as error:
            passed, name_of = False, type(error).__name__
            reasons.append(f"{name} ({name_of}: {error})")
        else:
            if txn.state == "committed":
                raise InvalidOperation(
                    f"check {name} has committed the transaction, so the branch is merged: checks "
                    "only look, and what they return decides"
                )
            if txn.operations != written and txn.state != "aborted":
                raise InvalidOperation(
                    f"check {name} has written, and nothing was merged: checks only look; write on "
                    f"the branch, as by lake.on({branch!r}), or in a transaction after the merge"
                )
            reasons += [] if passed else [name]
            if txn.state == "aborted":
                failed.append(name)
                reasons += [f"{name} (it aborted the transaction)"] if passed else []
                break  # the others would see nothing
        failed += [] if passed else [name]
    if failed:
        raise AuditFailed(
            f"branch {branch!r} was not merged, as it does not pass {'; '.join(reasons)}: look at "
            f"it by lake.on({branch!r})",
            failed=failed,
        )


def _call(name: str, txn: Any, check: Callable[..., object]) -> bool:
    """Whether a function passes; one that asserts returns None.

    ``False`` of numpy, pandas or Arrow is another object than ``False``.
    """
    value = check(txn)
    if value is None:
        return True
    if isinstance(value, pa.BooleanScalar):
        return bool(value.as_py())
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if isinstance(value, bool) or (kind == "b" and getattr(value, "ndim", None) == 0):
        return bool(value)
    raise InvalidOperation(f"check {name} returns {shown(value)}: return True or False")


def _select(txn: Any, query: str) -> bool:
    try:
        rows = txn.sql(query)
    except InvalidOperation as error:
        error.message = f"check {query!r}: {error.message}"
        error.args = (error.message,)
        raise
    if not isinstance(rows, pa.Table):
        rows = rows.toArrow() if hasattr(rows, "toArrow") else rows
    if not isinstance(rows, pa.Table) or rows.shape != (1, 1):
        raise InvalidOperation(f"check {query!r} gives no single value: SELECT one boolean")
    value = rows.column(0)[0].as_py()
    if value is not None and not isinstance(value, bool):
        raise InvalidOperation(f"check {query!r} gives {value!r}: SELECT one boolean")
    return bool(value)
