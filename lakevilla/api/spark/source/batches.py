"""Batches of a stream of changes: files from one offset up to another.

An offset is a global version up to which all changes were read; if a batch ends within a large
commit, the offset also has the number of the commit's parts that were read. A part is a file that a
commit has added or removed, or all files of a commit that has replaced files, because old and new
rows have to be compared. The order of parts never changes, so the rows between two offsets are
always the same.

A version number means nothing without its history. So an offset also names the lake, the epoch of
the branch, and the commit at which it ends: a restored backup is the same lake, but may have other
commits under the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

import msgspec

from lakevilla.api.execution.executor import Executor
from lakevilla.api.spark.source.options import Limits
from lakevilla.errors import InvalidOperation, VersionNotFound
from lakevilla.formats.base import Change
from lakevilla.formats.files import DataFile
from lakevilla.formats.layout import Layout
from lakevilla.global_log.head import CommitSummary, Head
from lakevilla.global_log.repo import commits_since
from lakevilla.lake.operations.changes import ChangeSource, TableStep, Walk, sources_of
from lakevilla.store.effects import Program
from lakevilla.transaction.verbs.read_write import steps_to_see

__all__ = [
    "Offset",
    "ChangePart",
    "Room",
    "StoredOffset",
    "before",
    "end_of_batch",
    "end_within",
    "in_history",
    "parts_of",
    "refuse_other_history",
    "spans_between",
    "together",
    "walk",
]


#: An offset as Spark stores it in the checkpoint, as JSON.
StoredOffset = dict[str, int | str]


class Offset(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of a read: all changes up to ``version``, and some parts of the next commits.

    These are the first ``parts`` parts of the commits after ``version`` up to ``within``. ``lake``
    is the lake's id, ``epoch`` the branch's epoch, ``commit`` the transaction of the last commit
    that the offset ``reaches``, or empty if that is not kept. An offset that is made from
    ``startingVersion`` has none of the three, because it refers to the present lake.
    """

    version: int
    within: int | None = None
    parts: int = 0
    lake: str = ""
    epoch: str = msgspec.field(default="", name="life")
    commit: str = ""

    @classmethod
    def of(cls, stored: Mapping[str, int | str]) -> Offset:
        """Return the offset that is stored in a checkpoint.

        Raises
        ------
        InvalidOperation
            It is none that a stream of a lake has stored.
        """
        try:
            return msgspec.convert(stored, cls)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            raise InvalidOperation(
                f"the checkpoint of the stream has an offset that no lake gives ({error}): restore "
                "the checkpoint, or begin with a new one, from a version whose rows the target "
                "does not have yet"
            ) from None

    def as_dict(self) -> StoredOffset:
        found: StoredOffset = msgspec.to_builtins(self)
        return found

    @property
    def reaches(self) -> int:
        """The last version of which a part was read."""
        return self.version if self.within is None else self.within

    def is_at(self, other: Offset) -> bool:
        """Return whether two offsets are the same position."""
        ours, its = ((one.version, one.within, one.parts) for one in (self, other))
        return ours == its


def before(head: Head | None, starting_version: int) -> Program[int]:
    """Return the version after which the changes from ``starting_version`` on begin.

    A ``reconcile`` and the foreign commit before it are one step, with the number of the
    ``reconcile``.
    """
    first = max(starting_version - 1, 0)
    following = None if head is None else (yield from commits_since(head, first))
    is_within = following is not None and following[:1] and following[0].kind == "reconcile"
    return first - 1 if is_within else first


def in_history(head: Head | None, offset: Offset) -> Program[Offset]:
    """Return an offset completed by the lake, the epoch and the commit at which it ends."""
    if head is None:
        return offset
    commit = yield from _commit_at(head, offset.reaches)
    return msgspec.structs.replace(offset, lake=head.lake_id, epoch=head.home, commit=commit)


def refuse_other_history(head: Head | None, offset: Offset, what: str) -> Program[None]:
    """Refuse an offset of another lake, of another branch of that name, or of commits that are
    gone.

    ``what`` says in the error what the query reads.

    Raises
    ------
    VersionNotFound
    """
    if head is None or not offset.lake:
        return
    reached = f"{what} were read up to global version {offset.reaches}"
    advice = "begin with a new checkpoint, from a version whose rows the target does not have yet"
    was_copied = offset.lake in head.former and offset.reaches <= head.adopted
    if offset.lake != head.lake_id and not was_copied:
        raise VersionNotFound(
            f"{reached} of lake {offset.lake}, and {head.root} is lake {head.lake_id}: {advice}"
        )
    if offset.epoch != head.home:
        history = "the lake itself" if head.epoch is None else f"branch {head.epoch.name!r}"
        raise VersionNotFound(
            f"{reached} of another branch, or of an earlier state of {history}, which was created "
            f"or rebased since: {advice}"
        )
    commit = yield from _commit_at(head, offset.reaches)
    if offset.commit and commit and commit != offset.commit:
        raise VersionNotFound(
            f"{reached}, commit {offset.commit}, and that version is commit {commit} now: lake "
            f"{head.root} was set back to an older state, and has continued from there; restore "
            f"the newer state, or {advice}"
        )


def _commit_at(head: Head, number: int) -> Program[str]:
    """Return the transaction of the commit with a number; empty if that commit is not kept."""
    commits = (yield from commits_since(head, number - 1)) if number else None
    return commits[0].txn if commits and commits[0].sequence == number else ""


@dataclass(frozen=True, slots=True)
class ChangePart:
    """A file's change, or all files of a change whose rows are compared.

    ``number`` is the number of the change in its commit.
    """

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
    """A range of the change parts of the commits after ``since``, up to ``until``.

    It begins with part ``first`` and ends before part ``after``; None: with the last one.
    """

    since: int
    until: int
    first: int = 0
    after: int | None = None


def spans_between(start: Offset, end: Offset) -> list[VersionSpan]:
    """Return the spans between two offsets, in order.

    The first span has the parts that ``start`` has not read of its commits; the next has whole
    versions; the last has the parts that ``end`` has read of its commits. Any may be missing;
    offsets within the same commits give one span.
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
    """Return a table's steps after ``since``, up to the version to which the executor is bound."""
    with executor.verb_scope("changes", table):
        location = executor.resolve(table)
        return executor.run(steps_to_see(executor.state, location, since))


def parts_of(
    executor: Executor, walked: Walk, layout: Layout, step: TableStep | None = None
) -> list[ChangePart]:
    """Return the parts of one step, or of all steps, in order."""
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
    """The size of a batch so far, and its limits."""

    limits: Limits
    files: int = 0
    bytes: int = 0

    def takes(self, part: ChangePart) -> bool:
        """Return whether a part fits into the batch, and count it; the first part always fits."""
        files, size = self.files + part.files, self.bytes + part.bytes
        if self.files and not self.limits.hold(files, size):
            return False
        self.files, self.bytes = files, size
        return True


def end_within(executor: Executor, table: str, start: Offset, room: Room) -> Offset:
    """Return the end of a batch that begins within a commit, in that commit or at its end.

    The executor must be bound to the version ``start.within``.
    """
    assert start.within is not None
    walked = walk(executor, table, start.version)
    parts = parts_of(executor, walked, walked.layout)
    for number, part in enumerate(parts[start.parts :], start.parts):
        if not room.takes(part):
            return msgspec.structs.replace(start, parts=number)
    return Offset(start.within)


def end_of_batch(executor: Executor, table: str, start: Offset, newest: int, room: Room) -> Offset:
    """Return the end of a batch that begins after a whole version.

    The caller must have bound the executor to the global version ``newest``, beyond which the
    batch does not go.
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
    """Merge neighbouring parts of one change into one, but leave parts with two sources as they
    are.
    """
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
