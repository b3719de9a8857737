"""Values of rows that an update or merge has computed from the same rows' old values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    MergeConflict,
    VersionNotFound,
)
from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.formats.layout import Ids, Layout, path_of
from lakevilla.global_log.bases import Base, load_base, load_base_tables
from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import CommitSummary, Head, PendingRef
from lakevilla.global_log.history import Timeline
from lakevilla.global_log.repo import load_head
from lakevilla.lake.context import Context
from lakevilla.lake.table_log import entry_at, open_tail
from lakevilla.sql.expressions.assignments import operands
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program
from lakevilla.store.location import at_home
from lakevilla.sublogs.operations import InlineSource, Merge, Operation, Reached, Transplant, Update

# -------------------- computed
#
# The columns whose values were computed by commits that only one of two histories of a table has.
#
# If both sides of a merge have changed a row to the same values, that may be one change or two. It
# is one change if both histories have the commit that made it, directly or by a merge or a rebase.
# If the values don't depend on the row, nothing is lost by keeping one of two changes. If a value
# was computed from the row itself, as by ``n = n + 1``, one of two changes would be lost
# (docs/design/0056-equal-changes.md).


#: A set of columns that stands for any column.
ANY = frozenset({"*"})
#: The most commits that are read; if there are more, the computed columns count as unknown.
MOST_COMMITS = 1000
#: Names in Delta logs of operations that do not compute values from the rows that they change.
_COMPUTE_NOTHING = frozenset({"WRITE", "DELETE", "TRUNCATE", "OPTIMIZE"})


@dataclass(frozen=True, slots=True)
class Beneath:
    """The commits that make up the state on which an operation is performed.

    These are the lake's commits up to ``reached`` except ``without``, foreign entries of the
    table's log that no commit has absorbed (``foreign``, by their versions), and the operations
    that the same transaction has performed ``before``.
    """

    reached: int
    before: tuple[Operation, ...] = ()
    foreign: tuple[int, ...] = ()
    without: frozenset[int] = frozenset()


def reached_by(base: Base, location: str) -> Reached:
    """Return the versions up to which a base has a table's histories; its leaf must be cached."""
    if not base.origin:
        return {"": base.sequence}
    state = base.tables.get(location)
    pending = () if state is None else state.pending
    own = (ref.sequence for ref in pending if ref.epoch == base.origin)
    return {base.origin: max(own, default=0)}


def columns_computed_separately(
    context: Context, operation: Transplant, layout: Layout, beneath: Beneath | None
) -> Program[frozenset[str]]:
    """Return the columns computed from rows by the commits that only one of two states has.

    One state is that which the operation applies, the other that on which it is performed. ``ANY``
    if the columns are not known.
    """
    if beneath is None or not operation.until:
        return ANY
    histories = _Histories(context, operation.table, layout, beneath.without)
    until = yield from _rooted(operation.until, operation.table)
    if until is None:
        return ANY
    before = [one for one in beneath.before if one.table == operation.table]
    found = histories.of_operations(before)
    for version in beneath.foreign:
        found |= yield from histories.of_entry(version)
    spans = [*_spans(until, {"": beneath.reached}), *_spans_of(before)]
    return found | (yield from histories.columns_computed(spans))


# ------------------------------------------------------------------- stretches of histories


@dataclass(frozen=True, slots=True)
class _Span:
    """The commits of a history after ``after`` up to ``until``.

    ``times`` is -1 if the commits are undone, else 1.
    """

    epoch: str
    after: int
    until: int
    times: int


def _spans(since: Reached, until: Reached) -> Iterator[_Span]:
    for epoch in sorted({*since, *until}):
        old, new = since.get(epoch, 0), until.get(epoch, 0)
        if old != new:
            yield _Span(epoch, min(old, new), max(old, new), 1 if old < new else -1)


def _spans_of(operations: Iterable[Operation]) -> Iterator[_Span]:
    for one in operations:
        if isinstance(one, Transplant):
            yield from _spans(one.since, one.until)


def _rooted(reached: Reached, location: str) -> Program[Reached | None]:
    """Return ``reached`` with the version in the lake's history added; None if it is not known."""
    found, waiting = dict(reached), [epoch for epoch in reached if epoch]
    while waiting and "" not in found:
        epoch = waiting.pop()
        held = yield from at_home(epoch, load_head())
        if held is None or held.head.epoch is None:
            return None
        try:
            base = yield from load_base(held.head.epoch.base)
            yield from load_base_tables(base, [location])
        except (CorruptObject, VersionNotFound):
            return None
        below = reached_by(base, location)
        waiting += [one for one in below if one and one not in found]
        found = {**below, **found}
    return found if "" in found else None


# ------------------------------------------------------------------- contents


@dataclass(slots=True)
class _Histories:
    """The commits of one table in the lake's history and in those of branches."""

    context: Context
    location: str
    layout: Layout
    without: frozenset[int]
    timelines: dict[str, Timeline | None] = field(default_factory=dict)

    def columns_computed(self, spans: Iterable[_Span]) -> Program[frozenset[str]]:
        """Return the columns that commits in ``spans`` computed and no span undoes."""
        computed: dict[object, frozenset[str]] = {}
        times: Counter[object] = Counter()
        seen: set[object] = set()
        while spans := list(spans):
            commits: Counter[tuple[str, int]] = Counter()
            summaries: dict[tuple[str, int], CommitSummary] = {}
            for span in spans:
                found = yield from self._commits(span)
                if found is None:
                    computed[span.epoch, span.after, span.until] = ANY
                    times[span.epoch, span.after, span.until] += span.times
                    continue
                for commit in found:
                    key = span.epoch, commit.sequence
                    commits[key] += span.times
                    summaries[key] = commit
            spans = []
            waiting = [key for key, count in commits.items() if count]
            seen.update(waiting)
            if len(seen) > MOST_COMMITS:
                return ANY
            contents = yield from self._contents([(key[0], summaries[key]) for key in waiting])
            for key, (columns_, inner) in zip(waiting, contents, strict=True):
                computed[key] = columns_
                times[key] += commits[key]
                for one in inner:
                    count = one.times * commits[key]
                    spans += [_Span(one.epoch, one.after, one.until, 1 if count > 0 else -1)] * abs(
                        count
                    )
        return frozenset().union(*(computed[key] for key, count in times.items() if count))

    def of_operations(self, operations: Iterable[Operation]) -> frozenset[str]:
        """Return the columns that operations computed; commits that they apply do not count."""
        found: frozenset[str] = frozenset()
        for one in operations:
            if isinstance(one, Transplant):
                found |= frozenset() if one.until else ANY
            else:
                found |= frozenset(_computed(one, self.layout))
        return found

    def of_entry(self, version: int) -> Program[frozenset[str]]:
        """Return the columns that a foreign entry may have computed, by its operation's name."""
        tail = yield from open_tail(self.context.lake, self.location)
        if version > tail.tip:
            return ANY
        entry = yield from entry_at(self.context.lake, tail, version)
        if entry is None:
            return ANY
        changes = entry.change
        rewrites = any(one.data_change for one in changes.adds) and any(
            one.data_change for one in changes.removes
        )
        return ANY if rewrites and entry.operation not in _COMPUTE_NOTHING else frozenset()

    def _commits(self, span: _Span) -> Program[Sequence[CommitSummary] | None]:
        """Return the commits of a span that concern the table; None if not kept any more."""
        if span.epoch not in self.timelines:
            head = yield from self._head(span.epoch)
            self.timelines[span.epoch] = None if head is None else Timeline.of(head)
        timeline = self.timelines[span.epoch]
        if timeline is None or span.until > timeline.head.sequence:
            return None
        start = max(span.after, timeline.head.history_start if span.epoch else 0)
        try:
            commits = yield from at_home(span.epoch, timeline.after(start))
        except (CorruptObject, VersionNotFound):
            return None
        of_table = [
            one for one in commits if one.sequence <= span.until and self.location in one.tables
        ]
        replaced = {sequence for one in of_table for sequence in one.replaces}
        if not span.epoch:
            replaced |= self.without
        return [one for one in of_table if one.sequence not in replaced]

    def _head(self, epoch: str) -> Program[Head | None]:
        held = self.context.lake.held
        if epoch:
            held = yield from at_home(epoch, load_head())
        return None if held is None else held.head

    def _contents(
        self, commits: Sequence[tuple[str, CommitSummary]]
    ) -> Program[list[tuple[frozenset[str], list[_Span]]]]:
        """Return for each commit the columns that it computed itself, and the spans it applied.

        A commit applies spans by its transplants, such as those of a branch merge.
        """
        named = [
            PendingRef(one.sequence, one.txn, one.hash, 0, epoch)
            for epoch, one in commits
            if one.hash
        ]
        objects = yield from self._objects(named)
        found: list[tuple[frozenset[str], list[_Span]]] = []
        for epoch, one in commits:
            if not one.hash:
                found.append(((yield from self._of_foreign(one)), []))
                continue
            commit = objects.get((epoch, one.sequence))
            if commit is None:
                found.append((ANY, []))
                continue
            of_table = [done for done in commit.operations if done.table == self.location]
            found.append((self.of_operations(of_table), list(_spans_of(of_table))))
        return found

    def _objects(
        self, named: Sequence[PendingRef]
    ) -> Program[Mapping[tuple[str, int], CommitObject]]:
        try:
            objects = yield from self.context.lake.commit_objects(named)
        except CorruptObject:
            return {}  # gc has deleted an object meanwhile, perhaps of a branch that has ended
        return {
            (ref.epoch, ref.sequence): commit for ref, commit in zip(named, objects, strict=True)
        }

    def _of_foreign(self, commit: CommitSummary) -> Program[frozenset[str]]:
        touched = commit.tables[self.location]
        found: frozenset[str] = frozenset()
        if touched.adds and touched.removes and touched.data_change:
            first = touched.published if touched.first is None else touched.first
            for version in range(first, touched.published + 1):
                found |= yield from self.of_entry(version)
        return found


def _computed(operation: Operation, layout: Layout) -> Iterator[str]:
    """Yield the columns, by their names in the layout, that an operation computes from a row."""
    match operation:
        case Update(assignments=assignments, fields=fields):
            for name, value in assignments.items():
                if any(True for _ in operands(value)):
                    yield from _now(name, fields, layout)
        case Merge(clauses=clauses):
            for clause in clauses:
                if not clause.kind.endswith("_update"):
                    continue
                for name, value in clause.assignments.items():
                    if _is_of_own_row(operation, name, value):
                        yield from _now(name, clause.fields, layout)


def _is_of_own_row(merge: Merge, column: str, value: Expr) -> bool:
    """Return whether a merge, or its source, computes a row's value from that row's old values."""
    tables = {one.table for one in operands(value)}
    if tables - {merge.source_alias}:
        return True
    if merge.computed is None:
        return bool(tables) and not isinstance(merge.source, InlineSource)
    return bool(tables) and column in merge.computed


def _now(name: str, fields: Mapping[str, Ids], layout: Layout) -> Iterator[str]:
    """Yield the present name of the column that ``name`` meant; nothing if it was dropped."""
    ids = fields.get(name)
    path = (name,) if ids is None else path_of(layout, ids)
    if path is not None:
        yield path[0] if path[0] in layout.schema.names else path[0].partition(".")[0]


# -------------------- unfit
#
# The error for a transplant that does not fit a state, and the layout for which it was made.


def unfit(operation: Transplant, snapshot: TableSnapshot, why: str) -> LakeVillaError:
    """Return the error for a transplant that can't be performed on a state."""
    table = snapshot.layout.table
    if operation.exact:
        return InvalidOperation(f"table {table} was changed meanwhile: {why}", table=table)
    # If there are keys, rows were compared already: then the error does not offer that.
    compare = "" if operation.keys else f"keys={{{table!r}: [...]}} to compare single rows, or "
    return MergeConflict(
        f"table {table}: {why}; give {compare}on_conflict='ours' or 'theirs'",
        rows={operation.table: None},
        table=table,
    )


def layout_before(context: Context, operation: Transplant, snapshot: TableSnapshot) -> Layout:
    """Return the layout of the transplant's ``before``, at the location of ``snapshot``."""
    defined = operation.before
    format_ = context.formats.of(snapshot)
    blank = format_.blank(snapshot.location, snapshot.layout.table, catalog=snapshot.catalog)
    change = Change(metadata=defined.metadata, protocol=defined.protocol or None)
    return blank.apply(change).layout
