"""Transactions, their tables and HEAD as values, for programs that a test runs by hand.

There is no store and no engine: a program that yields more effects than the test answers fails.
"""

from __future__ import annotations

import json
import random
from collections.abc import Generator, Iterable, Iterator
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

import lakevilla as lv
from lakevilla.formats.base import Change, Entry
from lakevilla.formats.delta import DeltaFormat
from lakevilla.formats.files import DataFile, RemovedFile, removal
from lakevilla.formats.registry import Formats
from lakevilla.global_log.head import (
    CommitSummary,
    Head,
    TableState,
    Touch,
    application_id,
    empty_head,
    successor,
)
from lakevilla.global_log.repo import HeldHead
from lakevilla.ids import Ids
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.view import build_view
from lakevilla.results import Counts
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.store.base import Token
from lakevilla.store.effects import Effect, Parallel, Program
from lakevilla.sublogs.operations import Append, Operation, ReadRecord, Update
from lakevilla.transaction.state.parts import Done, Options, Working
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature

T = TypeVar("T")

SCHEMA = pa.schema([("id", pa.int64()), ("balance", pa.int64())])
DELTA = DeltaFormat()


class StoppedClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, seconds: float = 1_000_000.0) -> None:
        self.seconds = seconds

    def now(self) -> float:
        return self.seconds

    def elapsed(self) -> float:
        return self.seconds


class Asked(AssertionError):
    """A program has requested more than the test allows."""

    def __init__(self, effect: Effect) -> None:
        super().__init__(f"it asks for {effect}")
        self.effect = effect


def outcome(program: Program[T], *answers: Any) -> T:
    """Return the program's result; each of its effects gets the next of ``answers``, and all are
    used.
    """
    given = iter(answers)
    result = _run(program, given)
    assert next(given, None) is None, "it has asked for less than it was to"
    return result


def first_asked(program: Program[Any]) -> Effect:
    """Return the first request of the program."""
    try:
        outcome(program)
    except Asked as asked:
        return asked.effect
    raise AssertionError("it asks for nothing")


def _run(program: Program[T], given: Iterator[Any]) -> T:
    answer: Any = None
    while True:
        try:
            effect = program.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        if isinstance(effect, Parallel):
            answer = [_part(part, given) for part in effect.parts]
        else:
            answer = _part(effect, given)


def _part(part: Effect | Program[Any], given: Iterator[Any]) -> Any:
    if isinstance(part, Generator):
        return _run(part, given)
    try:
        return next(given)
    except StopIteration:
        raise Asked(part) from None


def make_context(clock: StoppedClock | None = None, **settings: Any) -> Context:
    clock = clock or StoppedClock()
    engine: Any = None
    ids = Ids(clock, random.Random(1))
    return Context("root", clock, ids, lv.Settings(**settings), Formats(DELTA), engine)


def data_file(path: str, low: int, high: int, *, data_change: bool = True) -> DataFile:
    """Return a data file with rows whose ids are from ``low`` to ``high``, by its statistics."""
    stats = {
        "numRecords": high - low + 1,
        "minValues": {"id": low, "balance": 0},
        "maxValues": {"id": high, "balance": 0},
        "nullCount": {"id": 0, "balance": 0},
    }
    return DataFile(path, 100, 7, stats=json.dumps(stats), data_change=data_change)


def make_tail(
    context: Context,
    files: Iterable[DataFile] = (),
    *,
    location: str = "t",
    table_id: str = "one",
    **properties: str,
) -> Tail:
    """Return the log of a table with one entry, which the context has read."""
    blank = DELTA.blank(location, location)
    change = DELTA.create(
        blank,
        SCHEMA,
        table_id=table_id,
        partition_by=(),
        properties=properties,
        created_ms=1,
    )
    before = Tail(location, -1, {-1: blank}, seen_at=context.clock.elapsed())
    made = Change(metadata=change.metadata, protocol=change.protocol, adds=tuple(files))
    return with_entry(context, before, made)


def with_entry(
    context: Context, tail: Tail, change: Change, *, head: Head | None = None, sequence: int = 0
) -> Tail:
    """Add an entry to the table's log: another client's, or the lake's with HEAD's ``sequence``."""
    applications = {} if head is None else {application_id(head): sequence}
    txn_ids = () if head is None else (context.ids.txn_id(),)
    entry = Entry(tail.tip + 1, change, applications, txn_ids, None, "WRITE", False, 1, {})
    snapshot: Any = tail.snapshot
    longer = tail.extended(entry, snapshot.advance(entry), context.clock.elapsed())
    return context.keep_tail(longer)


def make_head(tail: Tail, *, name: str = "t", table_id: str = "one") -> Head:
    """Return a HEAD with one table, whose log HEAD knows up to the tip."""
    empty = empty_head("lake", "root", "0", 1)
    return with_commit(
        empty, Touch(published=tail.tip), state=TableState(table_id, tail.tip), name=name
    )


def with_commit(
    head: Head,
    *touches: Touch,
    state: TableState | None = None,
    name: str = "t",
    txn: str = "other",
    kind: Any = "transaction",
) -> Head:
    """Return HEAD after a commit for each of ``touches``."""
    commits = [
        CommitSummary(head.sequence + number, 0, kind, f"{txn}-{head.sequence + number}", "", {})
        for number in range(1, len(touches) + 1)
    ]
    for commit, touch in zip(commits, touches, strict=True):
        commit.tables[name] = touch
    return successor(
        head,
        nonce=str(head.replacement + 1),
        now_ms=1,
        commits=commits,
        tables={} if state is None else {name: state},
    )


def begun(
    context: Context,
    *locations: str,
    head: Head | None = None,
    features: Feature = Feature.R,
    **options: Any,
) -> TransactionState:
    """Return a transaction that is bound to its tables (``t``) as the context knows them."""
    txn = TransactionState(context, context.ids.txn_id(), Options(features, **options))
    txn.bound.is_bound = True
    if head is not None:
        txn.through_head = True
        txn.bound.held = HeldHead(head, Token("head"))
        txn.bound.sequence = head.sequence
    for location in locations or ("t",):
        view = outcome(build_view(context, head, location, context.tails[location]))
        txn.work.tables[location] = Working(view, view.snapshot, probed=True)
    return txn


def did(
    txn: TransactionState, operation: Operation, change: Change, *, deferred: bool = False
) -> Done:
    """Note an operation with its change of its table."""
    done = Done(operation, Change() if deferred else change, Counts(), {}, deferred=deferred)
    txn.work.done.append(done)
    working = txn.work.tables[done.table]
    working.snapshot = working.snapshot.apply(done.change)
    return done


def appended(txn: TransactionState, file: DataFile, table: str = "t") -> Done:
    return did(txn, Append(table, (file,)), Change(adds=(file,)))


def updated(
    txn: TransactionState, where: str, old: DataFile, new: DataFile, table: str = "t"
) -> Done:
    """Note an update that has rewritten one file."""
    return did(txn, update(where, table), rewritten(old, new))


def update(where: str, table: str = "t") -> Update:
    return Update(table, {}, parse_predicate(where))


def rewritten(old: DataFile, *new: DataFile, data_change: bool = True) -> Change:
    """Return the change that replaces a file by others: with the same rows, unless
    ``data_change``.
    """
    gone = removal(old) if data_change else _moved(removal(old))
    return Change(adds=new, removes=(gone,))


def _moved(file: RemovedFile) -> RemovedFile:
    return msgspec.structs.replace(file, data_change=False)


def read(txn: TransactionState, where: str | None = None, table: str = "t") -> None:
    """Note that the transaction's caller has read rows."""
    predicate = None if where is None else parse_predicate(where)
    txn.work.reads[(table, predicate)] = ReadRecord(table, predicate, len(txn.work.done))
