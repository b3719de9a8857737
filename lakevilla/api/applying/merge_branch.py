"""Merge and rebase branches: arguments, checks, and writes with an audit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Literal, cast, get_args

import pyarrow as pa

from lakevilla.api import refs
from lakevilla.api.arguments import (
    check_choice,
    check_columns_by,
    check_flag,
    check_metadata,
    check_number,
    check_patterns,
)
from lakevilla.api.client.client import LakeClient
from lakevilla.api.client.discovering import has_table
from lakevilla.api.execution.executor import Executor
from lakevilla.api.history import milliseconds
from lakevilla.api.run import ATTEMPTS, Begin, run
from lakevilla.api.times import time_or_other
from lakevilla.branches.branches import find_ref
from lakevilla.branches.change import delete_merged, note_merged
from lakevilla.branches.rebase import Wanted, rebase_branch
from lakevilla.errors import (
    AuditFailed,
    ConflictError,
    InvalidOperation,
    RefNotFound,
    TransactionAborted,
)
from lakevilla.global_log.bases import Base
from lakevilla.global_log.refs import MAIN, parsed
from lakevilla.lake.frozen.states import StateName
from lakevilla.results import MergeResult, Ref
from lakevilla.settings import shown
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import OnConflict, OnEqual
from lakevilla.transaction.verbs.applying import merge_branch as merging
from lakevilla.transaction.verbs.applying.apply import Outcome, Settle

__all__ = [
    "Check",
    "StateLike",
    "audited",
    "merge_branch",
    "rebase",
]

# -------------------- rebase
#
# Rebasing branches.


def rebase(
    client: LakeClient,
    branch: str,
    *,
    keys: Mapping[str, str | Sequence[str]] | None,
    on_conflict: OnConflict,
    on_equal: OnEqual,
) -> Ref:
    """Rebase a branch onto the present state of the lake; see ``Lake.rebase``."""
    client = client.main("rebase")
    _check_name(branch)
    settle = settled(on_conflict, on_equal)
    wanted = Wanted(keys_by_location(client.location_of, keys), settle, client.owner)
    entry, version = client.run_safely(rebase_branch(client.context, branch, wanted))
    return refs.ref_of(branch, entry, version)


def _check_name(branch: object) -> None:
    """Refuse a value that is not the name of a branch."""
    if isinstance(branch, Ref):
        raise InvalidOperation(f"rebase takes the name of a branch: pass {branch.name!r}")
    if not isinstance(branch, str):
        raise InvalidOperation(f"rebase takes the name of a branch, not {shown(branch)}")
    if branch == MAIN:
        raise InvalidOperation(
            f"{MAIN!r} is the lake itself, which is based on nothing: rebase takes the branch "
            "that is to continue from it"
        )


# -------------------- merge
#
# Merges of branches, and writes with an audit before any other client sees them.


Keep = Literal["failed", "always", "never"]
MergeIsolation = Literal["snapshot", "serializable"]


def merge_branch(
    client: LakeClient,
    run: Callable[..., object],
    branch: str,
    *,
    tables: Sequence[str] | None,
    keys: Mapping[str, str | Sequence[str]] | None,
    on_conflict: OnConflict,
    on_equal: OnEqual,
    fast_forward_only: bool,
    isolation: MergeIsolation,
    checks: Sequence[Check],
    delete: bool,
    metadata: Mapping[str, str] | None,
) -> MergeResult:
    """Apply to the lake the changes made on a branch; see ``Lake.merge``.

    ``run``: ``Lake.run``, which calls a function in a transaction.
    """
    client = client.main("merge")
    _check_merged_name(branch)
    settle = settled(on_conflict, on_equal)
    patterns = check_patterns("tables", tables)
    _check_isolation(isolation, patterns, on_conflict)
    all_checks = checked(checks)
    delete, fast = check_flag("delete", delete), check_flag("fast_forward_only", fast_forward_only)
    entries = check_metadata(metadata)
    if delete:
        _refuse_some("delete", patterns)
    _check_branch(client, branch, delete=delete)
    last: list[_Merged] = []

    def once(txn: Any) -> None:
        executor: Executor[Any] = txn._executor
        merged_base: list[Base] = []

        def program() -> Program[dict[str, Outcome]]:
            outcomes, merged = yield from merging.merge_branch(
                executor.state,
                branch,
                tables=patterns,
                keys=keys_by_location(executor.resolve, keys),
                settle=settle,
                fast_forward_only=fast,
                serializable=isolation == "serializable",
            )
            merged_base[:] = [merged]
            return outcomes

        outcomes = executor.applied(program())
        run_checks(branch, txn, all_checks)
        last[:] = [(executor, outcomes, merged_base[0])]

    run(once, metadata=entries)
    return _after_merge(client, branch, last[0], delete=delete)


#: The executor that has merged, the outcomes by table, and the branch's merged state.
_Merged = tuple[Executor[Any], dict[str, str], Base]


def _after_merge(client: LakeClient, branch: str, last: _Merged, *, delete: bool) -> MergeResult:
    """Record the merge in HEAD if nothing was written; with ``delete``, end the branch."""
    executor, outcomes, merged = last
    noted = executor.state.work.merging
    if noted is not None and not executor.state.work.commits:
        # Every change was settled in favour of the lake, so nothing was written; still, HEAD must
        # record that the branch is merged.
        client.run(note_merged(client.context, noted))
    result = executor.result if executor.state.work.commits else None
    if delete:
        client.run(delete_merged(client.context, branch, merged))
    number = None if result is None else result.global_version
    return MergeResult(number, f"{branch}@{merged.sequence}", outcomes)


@contextmanager
def audited(
    client: LakeClient,
    merge: Callable[..., MergeResult],
    name: str | None,
    *,
    checks: Sequence[Check],
    keep: Keep,
    merge_options: Mapping[str, Any],
) -> Iterator[str]:
    """Enter a block with its own branch, which is merged at the block's end; see ``Lake.audited``.

    ``merge``: ``Lake.merge``, which merges a branch.
    """
    client = client.main("audited")
    check_choice("keep", keep, *get_args(Keep))
    all_checks = checked(checks)
    if keep != "always":
        _refuse_some("audited", merge_options.get("tables"))
    called = name if name is not None else f"audited-{client.context.ids.nonce()[:16]}"
    refs.create(client, "branch", called)
    try:
        yield called
        merge(called, checks=all_checks, delete=keep != "always", **merge_options)
    except BaseException as error:
        if keep == "never":
            with suppress(RefNotFound):  # the merge or another client has ended the branch
                refs.delete(client, called)
        elif not isinstance(error, AuditFailed):
            error.add_note(f"the writes of the block are on branch {called!r}")
        raise


def _refuse_some(what: str, tables: object) -> None:
    """Refuse to merge only some tables into a lake if the branch ends with the merge.

    The changes of the other tables would be lost.
    """
    if tables is not None:
        raise InvalidOperation(
            f"{what} ends the branch, and with tables= the changes of other tables would be lost: "
            "leave tables= out, or keep the branch"
        )


def _check_branch(client: LakeClient, name: str, *, delete: bool) -> None:
    """Refuse a branch that can't be merged, before the transaction begins."""
    if name == MAIN:
        raise InvalidOperation(
            f"{MAIN!r} is the lake itself, which is merged into no branch: merge takes the "
            "branch whose changes the lake is to get, and `rebase` brings the lake's changes "
            "to a branch"
        )
    try:
        _, entry = client.run(find_ref(client.context, name))
    except RefNotFound as error:
        if has_table(client, name):
            error.message += (
                f"; rows are merged into table {name!r} by "
                "`lake.run(lambda txn: txn.merge(table, source, on))`"
            )
            error.args = (error.message,)
        raise
    if entry.kind != "branch":
        raise InvalidOperation(
            f"{entry.kind} {name!r} can't be merged, as nothing is committed on it: "
            "`rollback` returns the lake to that state"
        )
    if delete and entry.protected:
        raise InvalidOperation(
            f"branch {name!r} is protected, so it can't be deleted: protect({name!r}, "
            "on=False) lifts that, or merge it without delete"
        )


def _check_isolation(isolation: object, tables: object, on_conflict: str) -> None:
    check_choice("isolation", isolation, *get_args(MergeIsolation))
    given = "tables" if tables is not None else "on_conflict" if on_conflict != "error" else ""
    if isolation == "serializable" and given:
        raise InvalidOperation(
            f"isolation='serializable' can't be combined with {given}: transactions on the branch "
            f"may have read changes that {given} leaves out of the merge"
        )


def _check_merged_name(branch: object) -> None:
    """Refuse a value that is not the name of a branch, such as rows or a table."""
    if isinstance(branch, Ref):
        raise InvalidOperation(f"lake.merge takes the name of a branch: pass {branch.name!r}")
    if not isinstance(branch, str):
        raise InvalidOperation(
            f"lake.merge takes the name of a branch, not {shown(branch)}: rows are merged into "
            "a table by `lake.run(lambda txn: txn.merge(table, source, on))`"
        )


# -------------------- arguments
#
# Arguments of the verbs that apply one state to another.


#: A state of the lake, in one of the forms in which a caller can name it.
StateLike = int | datetime | str


def state_name(client: LakeClient, argument: str, state: object) -> StateName:
    """Return the state that a caller names by a global version, an aware time, or a ref.

    Raises ``InvalidOperation``.
    """
    state = time_or_other(state, argument)
    match state:
        case datetime():
            stamp = milliseconds(state)
            if stamp > client.context.now_ms():
                raise InvalidOperation(
                    f"{argument} is {state.isoformat()}, which is in the future: give a time of "
                    "the past"
                )
            return "time", stamp
        case str():
            return None if state == MAIN else ("ref", state)
        case bool():
            pass
        case int():
            return "version", check_number(argument, state)
    raise InvalidOperation(
        f"{argument} is a global version, an aware datetime or the name of a ref, not "
        f"{shown(state)}"
    )


def check_commit(state: object) -> tuple[StateName, StateName]:
    """Return the states before and after a commit: of the lake, or of a branch (``etl@57``).

    Raises ``InvalidOperation``.
    """
    name, version = parsed(state) if isinstance(state, str) else ("", None)
    if not name or version is None:
        number = check_version(state)
        return ("version", number - 1), ("version", number)
    return ("ref", f"{name}@{version - 1}"), ("ref", f"{name}@{version}")


def check_version(state: object) -> int:
    """Return the global version that a commit of the lake made. Raises ``InvalidOperation``."""
    version = check_number("version", state)
    if version < 1:
        raise InvalidOperation("version must be that of a commit in lake.history(), 1 or more")
    return version


def settled(on_conflict: object, on_equal: object) -> Settle:
    """Return the rule for what both sides have changed. Raises ``InvalidOperation``."""
    check_choice("on_conflict", on_conflict, *get_args(OnConflict))
    check_choice("on_equal", on_equal, *get_args(OnEqual))
    return Settle(cast("OnConflict", on_conflict), cast("OnEqual", on_equal))


def keys_by_location(resolve: Callable[[str], str], keys: object) -> dict[str, tuple[str, ...]]:
    """Return the key columns of each table, by its location. Raises ``InvalidOperation``."""
    if keys is None:
        return {}
    if not isinstance(keys, Mapping):
        raise InvalidOperation(
            "keys is a mapping of tables to the columns that identify their rows, such as "
            f"{{'stock': ['sku']}}, not {shown(keys)}"
        )
    found = {}
    for table, columns in keys.items():
        if not isinstance(table, str):
            raise InvalidOperation(f"keys: {shown(table)} is no name of a table")
        names = check_columns_by(f"keys of {table}", columns)
        if not names or len(set(names)) < len(names):
            raise InvalidOperation(f"keys of {table}: name at least one column, and each once")
        found[resolve(table)] = tuple(names)
    return found


# -------------------- alone
#
# A transaction that only applies one state to another.


#: A function that returns the program of that transaction.
Applies = Callable[[Executor[Any]], Program[dict[str, Outcome]]]


def in_one_transaction(
    client: LakeClient, begin: Begin, merged: str, program: Applies
) -> MergeResult:
    """Run the program in a transaction of its own; rerun it after a ``ConflictError``."""
    last: list[Executor[Any]] = []

    def once(executor: Executor[Any]) -> dict[str, str]:
        last[:] = [executor]
        return executor.applied(program(executor))

    outcomes = run(client, begin, once, ATTEMPTS) or {}
    executor = last[0]
    result = executor.result if executor.state.work.commits else None
    return MergeResult(None if result is None else result.global_version, merged, outcomes)


# -------------------- checks
#
# Checks of what is about to be merged: functions of the transaction, and SELECTs.


#: A function of the transaction, or a SELECT of one boolean.
Check = Callable[..., object] | str


def checked(checks: object) -> tuple[Check, ...]:
    """Return the checks that a caller gives. Raises ``InvalidOperation``."""
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
    """Run all checks in a transaction, on what it sees; rows that they read count as its reads.

    A check that writes is refused: it may run several times, its writes would not be checked, and
    no result would report them.

    Raises ``AuditFailed``. A ``ConflictError``, ``TransactionAborted`` or ``InvalidOperation`` of a
    check is raised unchanged.
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
                    "may only read, and their results decide"
                )
            if txn.operations != written and txn.state != "aborted":
                raise InvalidOperation(
                    f"check {name} has written, and nothing was merged: checks may only read; "
                    f"write on the branch, as by lake.on({branch!r}), or in a transaction after "
                    "the merge"
                )
            reasons += [] if passed else [name]
            if txn.state == "aborted":
                failed.append(name)
                reasons += [f"{name} (it aborted the transaction)"] if passed else []
                break  # an aborted transaction shows nothing to the other checks
        failed += [] if passed else [name]
    if failed:
        raise AuditFailed(
            f"branch {branch!r} was not merged, as it does not pass {'; '.join(reasons)}: read it "
            f"by lake.on({branch!r})",
            failed=failed,
        )


def _call(name: str, txn: Any, check: Callable[..., object]) -> bool:
    """Return whether a check passes; a function that only asserts returns None, and passes.

    A false value of numpy, pandas or Arrow is not the object ``False``.
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
