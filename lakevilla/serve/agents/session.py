"""The session of an agent: what it reads, and its branch if it may write, as tools by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lakevilla.api.lake import Lake
from lakevilla.serve.agents.answers import Answer
from lakevilla.serve.agents.limits import AgentLimits
from lakevilla.serve.agents.reader import Reader
from lakevilla.serve.agents.work import Work


@dataclass(frozen=True, slots=True)
class Given:
    """The session as its operator wants it; it can be pickled.

    Attributes
    ----------
    lake : Lake
        The lake, on its main line.
    limits : AgentLimits
        The limits of each call.
    checks : Mapping of str to str, optional
        What a merge has to pass; None for a session that only reads.
    session : str
        The beginning of the names of the session's branches.
    branch : str, optional
        A name for its branch.
    """

    lake: Lake[Any]
    limits: AgentLimits
    checks: Mapping[str, str] | None = None
    session: str = "agent"
    branch: str | None = None

    def tools(self) -> dict[str, Callable[..., Answer]]:
        """Return the tools by name.

        Raises
        ------
        InvalidOperation
            The lake, or the branch, is none for agents.
        """
        reader = Reader(self.lake, self.limits)
        if self.checks is None:
            return _reading(reader, None)
        work = Work(reader, self.checks, self.session, self.branch)
        return _reading(reader, work) | {
            "execute": work.execute,
            "changes": work.changes,
            "merge": work.merge,
            "rebase": work.rebase,
            "discard": work.discard,
        }


def _reading(reader: Reader, work: Work | None) -> dict[str, Callable[..., Answer]]:
    """Return the tools that read: what names no state means the branch, if there is one."""

    def here(tool: Callable[..., Answer]) -> Callable[..., Answer]:
        if work is None:
            return tool

        def call(*args: Any) -> Answer:
            *others, ref = args
            with work.noticing_its_end():
                return tool(*others, ref or work.branch or "")

        return call

    return {
        "list_tables": here(reader.tables),
        "describe": here(reader.describe),
        "query": here(reader.query),
        "history": here(reader.history),
        "diff": reader.diff,
        "list_branches": reader.refs,
    }
