"""Commits as lines: their age, what they did to which tables, and the graph of branches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakevilla.display import shown_text
from lakevilla.results import HistoryEntry, LoggedOperation, Ref

#: The most tables that a line names, and the most groups of operations; it counts the others.
_MOST_TABLES = 3
_MOST_GROUPS = 3
#: The units of ages, with the age from which the next one is used.
_UNITS = ((60, 1, "s"), (3600, 60, "m"), (86400, 3600, "h"), (100 * 86400, 86400, "d"))
#: The name of an entry in a table's log that has several operations.
_SEVERAL = "TRANSACTION"


def commit_lines(entries: Sequence[HistoryEntry], now: datetime) -> list[str]:
    """Return one line for each commit."""
    return _aligned([(str(entry.version), entry, "") for entry in entries], now)


def age(instant: datetime, now: datetime) -> str:
    """Return how long ago something was: ``2m ago``; after a hundred days, its date."""
    seconds = (now - instant) // timedelta(seconds=1)
    if seconds < 1:
        return "now"
    for end, unit, letter in _UNITS:
        if seconds < end:
            return f"{seconds // unit}{letter} ago"
    return f"{instant:%Y-%m-%d}"


def _aligned(rows: Sequence[tuple[str, HistoryEntry, str]], now: datetime) -> list[str]:
    """Return lines of a name, a commit and remarks on it, with names and ages below each other."""
    ages = [age(entry.timestamp, now) for _, entry, _ in rows]
    name_width = max((len(name) for name, _, _ in rows), default=0)
    age_width = max(map(len, ages), default=0)
    return [
        "  ".join(
            part
            for part in (
                f"{name:>{name_width}}",
                f"{ago:>{age_width}}",
                *(shown_text(part) for part in _parts(entry)),
                remark,
            )
            if part
        )
        for (name, entry, remark), ago in zip(rows, ages, strict=True)
    ]


def _parts(entry: HistoryEntry) -> Iterator[str]:
    """Yield the parts of a commit's line: its work, rows, transactions, and metadata."""
    yield _work(entry)
    added, removed = _rows(entry.operations)
    counts = ((f"+{added}", added), (f"-{removed}", removed))
    yield " ".join(text for text, count in counts if count)
    if entry.members:
        yield f"{len(entry.members)} transactions"
    yield " ".join(f"{key}={value}" for key, value in entry.metadata.items())


def _work(entry: HistoryEntry) -> str:
    """Return a commit's operations with their tables: ``UPDATE stock, WRITE 300 tables``."""
    kind = "" if entry.kind == "transaction" else f"{entry.kind} "
    grouped: dict[str, list[str]] = {}
    for done in entry.operations:
        grouped.setdefault(_called(done), []).append(done.table)
    described = {table for tables in grouped.values() for table in tables}
    if rest := [table for table in entry.tables if table not in described]:
        grouped.setdefault("", []).extend(rest)
    groups = [f"{name} {_listed(tables)}".strip() for name, tables in grouped.items()]
    if (more := len(groups) - _MOST_GROUPS) > 0:
        groups = [*groups[:_MOST_GROUPS], f"{more} more"]
    return kind + ", ".join(groups)


def _called(done: LoggedOperation) -> str:
    """Return an operation's name; of several on one table, their names."""
    if branch := done.parameters.get("branch"):
        return f"{done.operation} {branch} into"
    if done.operation != _SEVERAL:
        return done.operation
    try:
        parts = [str(one["operation"]) for one in json.loads(done.parameters["operations"])]
    except (KeyError, TypeError, ValueError, RecursionError):
        return done.operation
    return "+".join(dict.fromkeys(parts))


def _listed(tables: Sequence[str]) -> str:
    return ", ".join(tables) if len(tables) <= _MOST_TABLES else f"{len(tables)} tables"


def _rows(operations: Sequence[LoggedOperation]) -> tuple[int, int]:
    """Return the rows that a commit added and removed; an updated row is one of each."""
    updated, inserted, deleted = (
        sum(_count(done.metrics, f"num_{what}_rows") for done in operations)
        for what in ("updated", "inserted", "deleted")
    )
    return inserted + updated, deleted + updated


def _count(metrics: Mapping[str, str], name: str) -> int:
    text = str(metrics.get(name, ""))
    return int(text) if text.isascii() and text.isdigit() else 0


# -------------------- graph
#
# The lake's commits and those of its branches, each branch in a column of its own, from the lake's
# commit at which it begins to its newest one.


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch, and its own commits, newest first."""

    ref: Ref
    commits: Sequence[HistoryEntry]


@dataclass(frozen=True, slots=True)
class _Node:
    """A commit of the graph; ``column`` 0 is the lake's."""

    column: int
    entry: HistoryEntry


def graph_lines(
    entries: Sequence[HistoryEntry],
    branches: Sequence[Branch],
    refs: Sequence[Ref],
    now: datetime,
    *,
    limit: int | None = None,
) -> list[str]:
    """Return a line for each commit of the lake and of its branches, newest first.

    Lines between them show where a branch begins, and where it was merged.
    """
    nodes = list(_ordered(entries, branches))[:limit]
    texts = _aligned([_row(node, branches, refs) for node in nodes], now)
    lines: list[str] = []
    open_columns: set[int] = {0}
    for node, text in zip(nodes, texts, strict=True):
        if node.column == 0:
            for column in _beginning(node.entry, branches) & open_columns:
                lines.append(_joint(column, open_columns, "╯"))
                open_columns.discard(column)
        open_columns.add(node.column)
        lines.append(f"{_bars(open_columns, len(branches), node.column)}  {text}")
        if (merged := _merged(node, branches)) is not None:
            mark = "┤" if merged in open_columns else "╮"
            open_columns.add(merged)
            lines.append(_joint(merged, open_columns, mark))
    return lines


def _ordered(entries: Sequence[HistoryEntry], branches: Sequence[Branch]) -> Iterator[_Node]:
    """Yield commits by their time, newest first, but each one after all that follow from it."""
    left = [list(reversed(entries)), *(list(reversed(one.commits)) for one in branches)]
    shown = {entry.version for entry in entries}
    done: set[int] = set()
    while any(left):
        free = [
            _Node(column, commits[-1])
            for column, commits in enumerate(left)
            if commits
            and (
                not any(left[one] for one in _beginning(commits[-1], branches))
                if column == 0
                else _merges(entries, branches[column - 1], commits[-1]) & shown <= done
            )
        ]
        node = max(free, key=lambda one: (one.entry.timestamp, -one.column))
        left[node.column].pop()
        if node.column == 0:
            done.add(node.entry.version)
        yield node


def _beginning(entry: HistoryEntry, branches: Sequence[Branch]) -> set[int]:
    """Return the columns of the branches that begin at a commit of the lake."""
    return {
        column
        for column, branch in enumerate(branches, 1)
        if branch.ref.base_version == entry.version
    }


def _merges(entries: Sequence[HistoryEntry], branch: Branch, commit: HistoryEntry) -> set[int]:
    """Return the lake's versions that have merged a branch's commit."""
    return {
        entry.version
        for entry in entries
        if (merged := _merged_state(entry)) is not None
        and merged[0] == branch.ref.name
        and merged[1] >= commit.version
    }


def _merged_state(entry: HistoryEntry) -> tuple[str, int] | None:
    name, at, version = (entry.merged or "").rpartition("@")
    return (name, int(version)) if at and version.isdigit() else None


def _merged(node: _Node, branches: Sequence[Branch]) -> int | None:
    """Return the column of the branch that a commit of the lake has merged."""
    state = None if node.column else _merged_state(node.entry)
    names = [branch.ref.name for branch in branches]
    return None if state is None or state[0] not in names else names.index(state[0]) + 1


def _row(
    node: _Node, branches: Sequence[Branch], refs: Sequence[Ref]
) -> tuple[str, HistoryEntry, str]:
    """Return a commit's name, the commit, and the refs at it."""
    if node.column:
        return f"{branches[node.column - 1].ref.name}@{node.entry.version}", node.entry, ""
    at = [
        f"{ref.kind} {ref.name}"
        for ref in refs
        if (ref.kind == "tag" and ref.version == node.entry.version)
        or (ref.kind == "branch" and ref.version == ref.base_version == node.entry.version)
    ]
    return str(node.entry.version), node.entry, f"({', '.join(at)})" if at else ""


def _bars(open_columns: set[int], last: int, here: int) -> str:
    marks = ("*" if column == here else "│" for column in range(last + 1))
    return " ".join(
        mark if column in open_columns else " " for column, mark in enumerate(marks)
    ).ljust(2 * last + 1)


def _joint(column: int, open_columns: set[int], end: str) -> str:
    """Return the line that joins a column to the lake's."""
    between = ("┼" if one in open_columns else "─" for one in range(1, column))
    beyond = "".join(
        " │" if one in open_columns else "  " for one in range(column + 1, max(open_columns) + 1)
    )
    return "─".join(["├", *between, end]) + beyond
