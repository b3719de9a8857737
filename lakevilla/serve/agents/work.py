"""The work of an agent's session: a branch of its own, and the merge that publishes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from lakevilla.api.lake import Lake
from lakevilla.errors import AuditFailed, InvalidOperation, RefNotFound, VersionNotFound
from lakevilla.global_log.refs import MAIN
from lakevilla.results import CommitResult, OperationResult, Ref
from lakevilla.serve.agents.answers import Answer, rows_of
from lakevilla.serve.agents.limits import AgentLimits
from lakevilla.serve.agents.reader import Reader
from lakevilla.serve.agents.statements import refuse_unless_it_changes_tables

Keys = Mapping[str, list[str]]


class Work:
    """The changes of one session, on a branch that the first of them makes.

    Nothing here writes to the lake itself but ``merge``, which runs the operator's checks in the
    transaction that merges.

    Parameters
    ----------
    reader : Reader
        What the session reads by.
    checks : Mapping of str to str
        The operator's checks by name; each is a SELECT of one boolean.
    session : str
        The beginning of the names of branches; a session goes on with one that is there.
    name : str, optional
        The branch's name instead, which may be there from an earlier session.

    Raises
    ------
    InvalidOperation
        The name is that of the lake itself, or of a tag or clone.
    """

    def __init__(
        self,
        reader: Reader,
        checks: Mapping[str, str],
        session: str = "agent",
        name: str | None = None,
    ) -> None:
        self._reader, self.checks = reader, dict(checks)
        self._session, self._name, self._count = session, name, 0
        self._lock = threading.Lock()
        self._branch: str | None = None
        self._resume()

    @property
    def branch(self) -> str | None:
        """The session's branch; None if nothing was changed yet, or all is merged."""
        return self._branch

    @property
    def _lake(self) -> Lake[Any]:
        return self._reader.lake

    @property
    def _limits(self) -> AgentLimits:
        return self._reader.limits

    @contextmanager
    def noticing_its_end(self) -> Iterator[None]:
        """Return a block that uses the branch; if another client has ended it, it is forgotten."""
        try:
            yield
        except RefNotFound as error:
            ended = self._branch
            if ended is None or self._is_there(ended):
                raise
            self._branch = None
            raise RefNotFound(
                f"branch {ended!r} was deleted by another client, with all that was changed on it: "
                "the next execute begins another"
            ) from error

    # -- tools -------------------------------------------------------------------

    def execute(self, sql: str) -> Answer:
        """Run statements that change tables, as one transaction on the session's branch."""
        refuse_unless_it_changes_tables(sql)
        with self._on_the_branch():
            branch = self._branch or self._begin()
            with self._lake.on(branch).session(
                max_bytes=self._limits.written_bytes, timeout_seconds=self._limits.seconds
            ) as session:
                result = session.sql(sql)
            return {"branch": branch, **_answer(result, self._limits)}

    def changes(self, table: str, keys: list[str]) -> Answer:
        """Return what the session's branch has changed and not merged: tables, or rows of one."""
        with self._on_the_branch():
            ref = self._ref()
            return self._reader.diff(self._base(ref), ref.name, table, keys)

    def merge(self, keys: Keys) -> Answer:
        """Bring the branch's changes into the lake, if they pass the operator's checks."""
        with self._on_the_branch():
            branch = self._ref().name
            if not self.checks:
                raise InvalidOperation(
                    f"branch {branch!r} was not merged: the operator gave no checks, so a person "
                    f"merges it, by `lakevilla merge {self._lake.root} {branch}`"
                )
            try:
                done = self._lake.merge(
                    branch, keys=keys or None, checks=list(self.checks.values()), delete=True
                )
            except AuditFailed as error:
                raise self._failed(branch, error) from None
            self._branch = branch if self._is_there(branch) else None
            return {
                "merged": done.merged,
                "version": done.version,
                "tables": dict(done.tables),
                "checks": list(self.checks),
            }

    def rebase(self, keys: Keys) -> Answer:
        """Bring to the branch what was committed to the lake since."""
        with self._on_the_branch():
            ref = self._lake.rebase(self._ref().name, keys=keys or None)
            return {"branch": ref.name, "version": ref.version, "base_version": ref.base_version}

    def discard(self) -> Answer:
        """End the branch, with all that was changed on it."""
        with self._on_the_branch():
            branch = self._ref().name
            self._lake.delete_ref(branch)
            self._branch = None
            return {"discarded": branch}

    # -- the branch --------------------------------------------------------------

    def _resume(self) -> None:
        """Go on with a branch that is there, of an earlier process."""
        refs = {one.name: one.kind for one in self._lake.refs()}
        name = self._name
        if name is None:
            own = f"{self._session}-"
            numbers = [one.removeprefix(own) for one in refs if one.startswith(own)]
            self._count = max((int(one) for one in numbers if one.isdecimal()), default=0)
            name = f"{own}{self._count}"
        elif name == MAIN or refs.get(name, "branch") != "branch":
            raise InvalidOperation(
                f"{name!r} is no branch: an agent works on a branch of its own, so give --branch "
                "another name"
            )
        self._branch = name if name in refs else None

    def _begin(self) -> str:
        self._count += 1
        name = self._name or f"{self._session}-{self._count}"
        self._branch = self._lake.branch(name).name
        return name

    def _ref(self) -> Ref:
        """Return the session's branch as the lake has it.

        Raises
        ------
        InvalidOperation, RefNotFound, VersionNotFound
            There is none; another client has ended it.
        """
        if self._branch is None:
            raise InvalidOperation("nothing was changed yet: execute begins a branch")
        for one in self._lake.refs("branch"):
            if one.name == self._branch:
                return one
        raise RefNotFound(f"branch {self._branch!r} was deleted by another client")

    def _base(self, ref: Ref) -> str:
        """Return the state from which on the branch's changes are not merged."""
        if ref.merged is not None:
            return f"{ref.name}@{ref.merged}"
        try:
            self._lake.on(f"{ref.name}@{ref.base_version}")
        except VersionNotFound:  # a rebased branch begins on top of this version of the lake
            return f"v{ref.base_version}"
        return f"{ref.name}@{ref.base_version}"

    def _is_there(self, name: str) -> bool:
        return any(one.name == name for one in self._lake.refs("branch"))

    @contextmanager
    def _on_the_branch(self) -> Iterator[None]:
        """Return a block in which one call alone works on the branch."""
        with self._lock, self.noticing_its_end():
            yield

    def _failed(self, branch: str, error: AuditFailed) -> AuditFailed:
        """Return the error of a merge that does not pass, with the names of the checks."""
        names = [name for name, sql in self.checks.items() if sql in error.failed]
        shown = "; ".join(f"{name}: {self.checks[name]}" for name in names)
        return AuditFailed(
            f"branch {branch!r} was not merged, and the lake is as it was. These checks are not "
            f"true of the merged tables: {shown}. Mend it by execute, and merge again",
            failed=names,
        )


def _answer(result: Any, limits: AgentLimits) -> Answer:
    match result:
        case pa.Table():
            return rows_of(result, limits)
        case OperationResult():
            counts = {
                "rows_inserted": result.rows_inserted,
                "rows_updated": result.rows_updated,
                "rows_deleted": result.rows_deleted,
            }
            return {name: count for name, count in counts.items() if count}
        case CommitResult() | None:
            return {}
    raise AssertionError(f"a session returns no {type(result).__name__}")
