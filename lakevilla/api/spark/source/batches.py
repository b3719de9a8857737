"""Batches of a stream of changes: files from one offset up to another.

An offset is a global version up to which all was read; within a large commit it also has the number
of the commit's parts that were read. A part is a file that was added or removed, or all of a commit
that replaced files, as rows of both have to be compared. Parts have an order that never changes, so
two offsets are for ever the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from lakevilla.api.execution.executor import Executor
from lakevilla.api.spark.source.options import Limits
from lakevilla.formats.base import Change
from lakevilla.formats.files import DataFile
from lakevilla.formats.layout import Layout
from lakevilla.global_log.head import CommitSummary
from lakevilla.lake.operations.changes import ChangeSource, TableStep, Walk, sources_of
from lakevilla.transaction.verbs.read_write import steps_to_see

__all__ = [
    "Offset",
    "ChangePart",
    "Room",
    "end_of_batch",
    "end_within",
    "parts_of",
    "spans_between",
    "together",
    "walk",
]


@dataclass(frozen=True, slots=True)
class Offset:
    """The end of a read: all up to ``version``, and some parts of the next commits.

    These are the first ``parts`` parts of the commits that lead to ``within``.
    """

    version: int
    within: int | None = None
    parts: int = 0

    @classmethod
    def of(cls, stored: Mapping[str, int]) -> Offset:
        """Return the offset that a checkpoint has."""
        return cls(stored["version"], stored.get("within"), stored.get("parts", 0))

    def as_dict(self) -> dict[str, int]:
        if self.within is None:
            return {"version": self.version}
        return {"version": self.version, "within": self.within, "parts": self.parts}

    @property
    def reaches(self) -> int:
        """The version of which something was read last."""
        return self.version if self.within is None else self.within


@dataclass(frozen=True, slots=True)
class ChangePart:
    """One source of rows, or two whose rows are compared; ``number`` is its change's number."""

    commit: CommitSummary
    number: int
    sources: tuple[ChangeSource, ...]

    @property
    def files(self) -> int:
        return sum(len(source.files) for source in self.sources)

    @property
    def bytes(self) -> int:
        return sum(file.size for source in self.sources for file in source.files)


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Some of the parts from one version to another."""

    since: int
    until: int
    first: int = 0
    after: int | None = None


def spans_between(start: Offset, end: Offset) -> list[VersionSpan]:
    """Return the spans between two offsets, in their order.

    They are the rest of what was begun before ``start``, whole versions, and the end up to ``end``.
    """
    spans = []
    since = start.version
    if start.within is not None:
        if (start.version, start.within) == (end.version, end.within):
            return [VersionSpan(start.version, start.within, start.parts, end.parts)]
        spans.append(VersionSpan(start.version, start.within, start.parts))
        since = start.within
    if since < end.version:
        spans.append(VersionSpan(since, end.version))
    if end.within is not None:
        spans.append(VersionSpan(end.version, end.within, 0, end.parts))
    return spans


def walk(executor: Executor, table: str, since: int) -> Walk:
    """Return the steps of a table after ``since``, up to the executor's version."""
    with executor.verb_scope("changes", table):
        location = executor.resolve(table)
        return executor.run(steps_to_see(executor.state, location, since))


def parts_of(
    executor: Executor, walked: Walk, layout: Layout, step: TableStep | None = None
) -> list[ChangePart]:
    """Return the parts of one step, or of all, in their order."""
    found = []
    for one in walked.steps if step is None else (step,):
        with executor.verb_scope("changes", layout.table):
            changes = executor.run(walked.changes_of(one))
        for number, change in enumerate(changes):
            found += [ChangePart(one.commit, number, some) for some in _by_source(layout, change)]
    return found


def _by_source(layout: Layout, change: Change) -> Iterator[tuple[ChangeSource, ...]]:
    sources = sources_of(layout, change)
    if len(sources) > 1:
        yield sources
        return
    for source in sources:
        for file in sorted(source.files, key=_place):
            yield (replace(source, files=(file,)),)


def _place(file: DataFile) -> tuple[str, str]:
    path, other = file.ref
    return path, other or ""


@dataclass(slots=True)
class Room:
    """The content of a batch so far, within its limits."""

    limits: Limits
    files: int = 0
    bytes: int = 0

    def takes(self, part: ChangePart) -> bool:
        """Return whether a part belongs to the batch; the first one does."""
        files, size = self.files + part.files, self.bytes + part.bytes
        if self.files and not self.limits.hold(files, size):
            return False
        self.files, self.bytes = files, size
        return True


def end_within(executor: Executor, table: str, start: Offset, room: Room) -> Offset:
    """Return the end of the batch within the rest of what ``start`` has begun.

    The executor is bound to ``within``.
    """
    assert start.within is not None
    walked = walk(executor, table, start.version)
    parts = parts_of(executor, walked, walked.layout)
    for number, part in enumerate(parts[start.parts :], start.parts):
        if not room.takes(part):
            return replace(start, parts=number)
    return Offset(start.within)


def end_of_batch(executor: Executor, table: str, start: Offset, newest: int, room: Room) -> Offset:
    """Return the end of a batch that goes on at the end of a version.

    The executor is bound to ``newest``.
    """
    walked = walk(executor, table, start.version)
    at = start.version
    for step in walked.steps:
        for number, part in enumerate(parts_of(executor, walked, walked.layout, step)):
            if not room.takes(part):
                return Offset(at, step.commit.sequence, number) if number else Offset(at)
        at = step.commit.sequence
    return Offset(newest)


def together(parts: list[ChangePart]) -> list[ChangePart]:
    """Return the same parts, with the files of one source as one part."""
    found = []
    for (_, _, pair), some in groupby(parts, key=_same):
        group = list(some)
        if pair:
            found += group
            continue
        files = tuple(file for part in group for file in part.sources[0].files)
        found.append(replace(group[0], sources=(replace(group[0].sources[0], files=files),)))
    return found


def _same(part: ChangePart) -> tuple[int, int, bool]:
    return part.commit.sequence, part.number, len(part.sources) > 1
