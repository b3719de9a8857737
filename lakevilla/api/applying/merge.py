"""Merging branches, and writing with an audit before anybody sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Generic, Literal, Self, get_args

from lakevilla.api.applying.arguments import keys_by_location, settled
from lakevilla.api.applying.checks import Check, checked, run_checks
from lakevilla.api.applying.rebase import Rebases
from lakevilla.api.arguments import check_choice, check_flag, check_metadata, check_patterns
from lakevilla.api.client.client import LakeClient
from lakevilla.api.client.glance import has_table
from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.branches.change import delete_merged, note_merged
from lakevilla.branches.entries import find_ref
from lakevilla.errors import AuditFailed, InvalidOperation, RefNotFound
from lakevilla.global_log.bases import Base
from lakevilla.global_log.refs import MAIN
from lakevilla.results import MergeResult, Ref
from lakevilla.settings import shown
from lakevilla.store.effects import Program
from lakevilla.transaction.verbs.applying.apply import Outcome
from lakevilla.transaction.verbs.applying.merge_branch import merge_branch

__all__ = ["Merges"]

Keep = Literal["failed", "always", "never"]
MergeIsolation = Literal["snapshot", "serializable"]


class Merges(Rebases[Frame], Generic[Frame]):
    """What a lake does with what was done on its branches."""

    _client: LakeClient
    run: Callable[..., Any]
    branch: Callable[..., Ref]
    delete_ref: Callable[[str], None]
    on: Callable[[str], Self]

    def merge(
        self,
        branch: str,
        *,
        tables: Sequence[str] | None = None,
        keys: Mapping[str, str | Sequence[str]] | None = None,
        on_conflict: Literal["error", "ours", "theirs"] = "error",
        on_equal: Literal["conflict", "keep"] = "conflict",
        fast_forward_only: bool = False,
        isolation: Literal["snapshot", "serializable"] = "snapshot",
        checks: Sequence[Check] = (),
        delete: bool = False,
        metadata: Mapping[str, str] | None = None,
    ) -> MergeResult:
        """Do to the lake what was done on a branch since it was made, or last merged.

        One commit over all tables. Files that were written on the branch become the lake's: none is
        copied, and no row is read, where the lake still has the files that the branch has replaced.
        Else rows are compared. What was committed on the lake meanwhile stays.

        Parameters
        ----------
        branch : str
        tables : sequence of str, optional
            Names or paths, in which ``*`` and ``?`` stand for anything; the others stay to be
            merged. All tables if not given.
        keys : Mapping, optional
            For a table the columns that tell its rows apart. Then only rows that both sides have
            changed are in conflict.
        on_conflict : {"error", "ours", "theirs"}
            ``"ours"`` leaves a table in conflict as it is on the lake, ``"theirs"`` makes it what
            it is on the branch. Of a table in ``keys`` only the rows in conflict.
        on_equal : {"conflict", "keep"}
            A row that both sides have changed to the same, by a value computed of the row itself
            (``qty - 1``), may stand for two changes: ``"conflict"`` raises, ``"keep"`` takes it for
            one.
        fast_forward_only : bool
            Refuse tables that were changed on the lake since.
        isolation : {"snapshot", "serializable"}
            ``"snapshot"`` compares what was written. ``"serializable"`` also what transactions on
            the branch have read: if others have changed it on the lake since the branch was made,
            the merge is refused. Not together with ``tables`` and ``on_conflict``, which leave out
            what these transactions may have seen.
        checks : sequence of callable or str, optional
            What must hold of the merged tables: functions of the transaction (False, or an
            exception, fails), and SELECTs of one boolean. Whoever changes meanwhile what they have
            read makes them run again.
        delete : bool
            End the branch then, unless more was committed on it meanwhile.
        metadata : Mapping of str to str, optional
            What is to be told of it in the history.

        Raises
        ------
        MergeConflict
            Both sides have changed the same, or, with ``isolation="serializable"``, the lake has
            changed what was read on the branch. Nothing was merged.
        AuditFailed
            A check failed. Nothing was merged.
        RefNotFound
        ConflictError
            Others wrote the tables each time that it was tried.
        InvalidOperation
            It is a tag, a pattern fits no table, or ``keys`` names a column that its table lacks.

        Examples
        --------
        >>> _ = lake.branch("night")
        >>> _ = lake.on("night").run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 2}]))
        >>> done = lake.merge("night", delete=True)
        >>> done.merged, done.tables
        ('night@3', {'stock': 'physical'})
        >>> lake.sql("SELECT sku FROM stock ORDER BY sku").to_pylist()
        [{'sku': 'jam'}, {'sku': 'tea'}]
        """
        client = self._client.main("merge")
        _check_name(branch)
        settle = settled(on_conflict, on_equal)
        patterns = check_patterns("tables", tables)
        _check_isolation(isolation, patterns, on_conflict)
        asked = checked(checks)
        delete, fast = (
            check_flag("delete", delete),
            check_flag("fast_forward_only", fast_forward_only),
        )
        entries = check_metadata(metadata)
        self._check_branch(branch, delete=delete)
        last: list[tuple[Executor[Any], dict[str, str], Base]] = []

        def once(txn: Any) -> None:
            executor: Executor[Any] = txn._executor
            was: list[Base] = []

            def program() -> Program[dict[str, Outcome]]:
                outcomes, merged = yield from merge_branch(
                    executor.state,
                    branch,
                    tables=patterns,
                    keys=keys_by_location(executor.resolve, keys),
                    settle=settle,
                    fast_forward_only=fast,
                    serializable=isolation == "serializable",
                )
                was[:] = [merged]
                return outcomes

            outcomes = executor.applied(program())
            run_checks(branch, txn, asked)
            last[:] = [(executor, outcomes, was[0])]

        self.run(once, metadata=entries)
        executor, outcomes, merged = last[0]
        merging = executor.state.work.merging
        if merging is not None and not executor.state.work.done:
            # All of it was decided to be left as the lake has it: that is merged too.
            client.run(note_merged(client.context, merging))
        result = executor.result if executor.state.work.done else None
        if delete:
            client.run(delete_merged(client.context, branch, merged))
        number = None if result is None else result.global_version
        return MergeResult(number, f"{branch}@{merged.sequence}", outcomes)

    @contextmanager
    def audited(
        self,
        name: str | None = None,
        *,
        checks: Sequence[Check],
        keep: Literal["failed", "always", "never"] = "failed",
        **merge_options: Any,
    ) -> Iterator[Self]:
        """A block that writes on a branch of its own, merged at its end if all checks hold.

        Until then nobody else sees what it writes. A batch that fails stays on its branch, to be
        looked at.

        Parameters
        ----------
        name : str, optional
            The branch to make; one with a name of its own if not given.
        checks : sequence of callable or str
            As for ``merge``: they see the tables as they would be on the lake.
        keep : {"failed", "always", "never"}
            Whether the branch stays.
        **merge_options
            As for ``merge``: ``tables``, ``keys``, ``on_conflict``, ``on_equal``, ``isolation``,
            ``metadata``.

        Raises
        ------
        AuditFailed
            The lake is as it was.
        MergeConflict, ConflictError
            It could not be merged; the branch stays as if a check had failed.

        Examples
        --------
        >>> with lake.audited("batch", checks=["SELECT min(qty) >= 0 FROM stock"]) as batch:
        ...     _ = batch.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 2}]))
        >>> lake.sql("SELECT sku FROM stock ORDER BY sku").to_pylist()
        [{'sku': 'jam'}, {'sku': 'tea'}]
        """
        client = self._client.main("audited")
        check_choice("keep", keep, *get_args(Keep))
        asked = checked(checks)
        called = name if name is not None else f"audited-{client.context.ids.nonce()[:16]}"
        self.branch(called)
        try:
            yield self.on(called)
            self.merge(called, checks=asked, delete=keep != "always", **merge_options)
        except BaseException as error:
            if keep == "never":
                self._end(called)
            elif not isinstance(error, AuditFailed):
                error.add_note(f"what was written is on branch {called!r}")
            raise

    def _end(self, name: str) -> None:
        with suppress(RefNotFound):  # it was merged and has ended, or others have ended it
            self.delete_ref(name)

    def _check_branch(self, name: str, *, delete: bool) -> None:
        """Refuse what can't be merged, before anything is begun."""
        client = self._client
        if name == MAIN:
            raise InvalidOperation(
                f"{MAIN!r} is the lake itself, which is merged into no branch: merge takes the "
                "branch that the lake is to have, and `rebase` is for one that is behind"
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
                f"{entry.kind} {name!r} can't be merged, as nothing is committed on it: `rollback` "
                "makes the lake what it was there"
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
            f"isolation='serializable' goes with no {given}: what is left out may be what "
            "transactions on the branch have read"
        )


def _check_name(branch: object) -> None:
    """Refuse what is no branch's name, such as rows or a table."""
    if isinstance(branch, Ref):
        raise InvalidOperation(f"lake.merge takes the name of a branch: pass {branch.name!r}")
    if not isinstance(branch, str):
        raise InvalidOperation(
            f"lake.merge takes the name of a branch, not {shown(branch)}: rows are merged into "
            "a table by `lake.run(lambda txn: txn.merge(table, source, on))`"
        )
