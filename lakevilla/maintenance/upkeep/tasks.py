"""The tasks of upkeep, each as work on the whole lake or on one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.branches.keep import keep
from lakevilla.engines.base import target_file_size
from lakevilla.errors import (
    CommitOutcomeUnknown,
    ConflictError,
    InvalidOperation,
    LakeVillaError,
    RefNotFound,
    StoreError,
    TableNotFound,
    TransactionAborted,
    UnsupportedTableFeature,
)
from lakevilla.formats.base import TableSnapshot, UpkeepRules, upkeep_of
from lakevilla.global_log.repo import load_refs
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.kept import kept_of
from lakevilla.lake.table_log import in_passing, open_tail, probe, refresh
from lakevilla.lake.view import build_view
from lakevilla.maintenance.gc.gc import gc
from lakevilla.maintenance.recovery import checkpoint, recover
from lakevilla.maintenance.upkeep.left_optimizes import commit_left
from lakevilla.maintenance.vacuum import vacuum
from lakevilla.results import Finding, OptimizeResult, Report
from lakevilla.store.effects import Program
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.parts import Options
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs.abort import give_up
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.optimize import optimize, result_of, to_purge

DAY_SECONDS = 24 * 3600.0
#: The deleted share of a file's rows from which on upkeep rewrites it: below, its readers lose
#: less time than the rewrite takes, and whoever marks rows meanwhile is redone.
_PURGE_FROM = 0.2
#: The age at which ``lake.keep`` is done for a tag or branch: no other client's clean-up deletes
#: its files earlier, and most refs have ended by then.
KEPT_AFTER_SECONDS = 3 * DAY_SECONDS
#: Errors after which a table stays unchanged, and which need no action by a user.
_LEFT_ALONE = (InvalidOperation, UnsupportedTableFeature)
_NEXT_TIME = (ConflictError, TransactionAborted, CommitOutcomeUnknown)


@dataclass(slots=True)
class Piece:
    """The result of a piece of work: counts of what was done, and findings."""

    ok: bool = True
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: Piece) -> None:
        self.ok = self.ok and other.ok
        self.counts += other.counts
        self.findings += other.findings


@dataclass(frozen=True, slots=True)
class UpkeepTask:
    """A task: ``lake`` does all its work at once, or ``table`` does the work on one table.

    ``lake`` is given the tables to check, or None for all; only a task ``by_table`` heeds that.

    The task is due again after ``every_seconds``, or, if HEAD has not advanced since, after
    ``idle_seconds``.
    """

    lake: Callable[[Context, str, Collection[str] | None], Program[Piece]] | None = None
    table: Callable[[Context, str, str], Program[Piece]] | None = None
    every_seconds: float = 0.0
    idle_seconds: float = 7 * DAY_SECONDS
    #: True if each run checks all tables, and not only those that were written since.
    looks_at_all: bool = False
    #: True if ``lake`` checks only the tables that it is given.
    by_table: bool = False
    #: True if the task commits, or changes what HEAD names: then HEAD must be in no doubt.
    goes_on: bool = False


def table_work(
    context: Context, work: Callable[[Context, str, str], Program[Piece]], location: str, owner: str
) -> Program[Piece]:
    """Do a task's work on one table; an error of the table does not stop the work on others.

    Raises
    ------
    StoreError
        The store is not reachable, which concerns all tables.
    """
    try:
        return (yield from in_passing(context, location, work(context, location, owner)))
    except StoreError:
        raise
    except TableNotFound:
        return Piece()  # the table was dropped meanwhile; if it is lost, ``recover`` reports that
    except (*_LEFT_ALONE, *_NEXT_TIME) as error:
        when = "was skipped" if isinstance(error, _LEFT_ALONE) else "is left for the next run"
        message = f"table {location} {when}: {error.message}"
        return Piece(findings=[Finding("note", error.kind, message, table=location)])
    except LakeVillaError as error:
        key = getattr(error, "key", None)
        return Piece(
            False, findings=[Finding("error", error.kind, error.message, location, key=key)]
        )


def _recover(context: Context, owner: str, among: Collection[str] | None) -> Program[Piece]:
    # What is missing may come back: only a user gives it up.
    report = yield from recover(context, owner, among, is_checked=True, gives_up=False)
    return _of_report(report, "finished")


def _keep(context: Context, owner: str, among: Collection[str] | None) -> Program[Piece]:
    """Do the work of ``lake.keep`` for each ref that is older than three days."""
    held = yield from context.head()
    head = None if held is None else held.head
    yield from load_refs(head)
    oldest_ms = context.now_ms() - KEPT_AFTER_SECONDS * 1000
    piece = Piece()
    for name, entry in sorted(head.refs.items()) if head is not None else ():
        if entry.kind == "clone" or entry.created_ms > oldest_ms:
            continue
        try:
            report = yield from keep(context, name, owner)
        except RefNotFound:
            continue  # the ref was deleted, or created again
        except StoreError:
            raise
        except LakeVillaError as error:
            message = f"{entry.kind} {name!r} is left for the next run: {error.message}"
            is_note = isinstance(error, _LEFT_ALONE)
            found = Finding("note" if is_note else "warning", error.kind, message)
            piece.add(Piece(is_note, findings=[found]))
            continue
        piece.add(_of_report(report, "tables kept separately"))
    return piece


def _gc(context: Context, owner: str, among: Collection[str] | None) -> Program[Piece]:
    report = yield from gc(context)
    return _of_report(report, "deleted")


def _of_report(report: Report, word: str) -> Piece:
    """Return a report's counts and warnings, without its notes, which may be very many."""
    done = sum(one.severity == "note" for one in report.findings)
    worse = [one for one in report.findings if one.severity != "note"]
    return Piece(report.ok, Counter({word: done}), worse)


def _checkpoint(context: Context, location: str, owner: str) -> Program[Piece]:
    """Write a checkpoint if the newest one is too old, as after the death of a client."""
    tail = yield from open_tail(context, location)
    tail = yield from probe(context, tail)
    table_format = context.formats.of(tail.snapshot)
    if not table_format.checkpoint_overdue(tail.snapshot):
        return Piece()
    # This process's cached state may lack a newer checkpoint of another client: read it again.
    context.tails.pop(location, None)
    tail = yield from open_tail(context, location)
    if not table_format.checkpoint_overdue(tail.snapshot):
        return Piece()
    yield from checkpoint(context, location, tail.tip)
    return Piece(counts=Counter({"checkpoints written": 1}))


def _optimize(context: Context, location: str, owner: str) -> Program[Piece]:
    """Do the work of ``Table.optimize`` if the table's upkeep rules require it."""
    held = yield from context.head()
    if held is None:
        return Piece()
    tail = yield from refresh(context, location)
    view = yield from build_view(context, held.head, location, tail)
    snapshot = view.snapshot
    rules = upkeep_of(snapshot.layout.properties)
    if rules.small_files is None or not (yield from _worth_it(context, snapshot, rules)):
        return Piece()
    features = Feature.R | Feature.I
    piece = Piece()
    if rules.queued and not context.only_creates:
        features |= Feature.CT
        for made in (yield from commit_left(context, location, owner)):
            piece.add(_compacted(made))
    options = Options(features, owner=owner)
    txn_id = context.new_txn_id(above=held.head.floor)
    txn = begin(TransactionState(context, txn_id, options, through_head=True))
    try:
        done = yield from optimize(txn, location, purge_from=_PURGE_FROM)
        if done is None:
            return piece
        planned = done.operation
        result = yield from commit(txn)
    finally:
        yield from give_up(txn)  # has no effect on a committed transaction
    piece.add(_compacted(result_of(planned, done, result)))
    return piece


def _compacted(made: OptimizeResult) -> Piece:
    done_to = {"files compacted": made.files_removed, "written instead": made.files_added}
    return Piece(counts=Counter(done_to))


def _worth_it(context: Context, snapshot: TableSnapshot, rules: UpkeepRules) -> Program[bool]:
    files = yield from snapshot.files()
    least = target_file_size(snapshot.layout, context.settings) // 2
    small = files.filter(pc.less(files["size"], least))
    return bool(to_purge(files, _PURGE_FROM)) or is_due(small, rules, context.now_ms())


def is_due(small: pa.Table, rules: UpkeepRules, now_ms: int) -> bool:
    """Return whether a partition has enough small files, or at least two with one old enough."""
    if rules.small_files is None or small.num_rows < 2:
        return False
    by_partition: dict[object, list[int]] = {}
    values = small["partition_values"].to_pylist()
    for value, made_ms in zip(values, small["modification_time"].to_pylist(), strict=True):
        by_partition.setdefault(tuple(sorted(value or ())), []).append(made_ms)
    old_ms = None if rules.days is None else now_ms - rules.days * DAY_SECONDS * 1000
    return any(
        len(times) >= rules.small_files
        or (old_ms is not None and len(times) > 1 and min(times) <= old_ms)
        for times in by_partition.values()
    )


def _vacuum(context: Context, location: str, owner: str) -> Program[Piece]:
    """Do the work of ``Table.vacuum`` with the table's own retention.

    A dry run comes first: if it finds no file to delete, the vacuum, which would replace HEAD, is
    left out.
    """
    tail = yield from open_tail(context, location)
    if not upkeep_of(tail.snapshot.layout.properties).vacuum:
        return Piece()
    try:
        if not (yield from vacuum(context, location)):
            return Piece()
        paths = yield from vacuum(context, location, dry_run=False)
    except InvalidOperation as error:
        held = context.held
        kept = yield from kept_of(context, None if held is None else held.head, location)
        if not kept.lost:
            raise
        # The table is not cleaned until a user has decided; the doctor reports the same.
        message = f"table {location} was skipped: {error.message}"
        return Piece(False, findings=[Finding("warning", "ref_lost", message, table=location)])
    return Piece(counts=Counter({"files deleted": len(paths)}))


#: The tasks in the order in which they are done: each leaves less work to the next ones.
TASKS: dict[str, UpkeepTask] = {
    "recover": UpkeepTask(lake=_recover, by_table=True),
    "keep": UpkeepTask(
        lake=_keep, every_seconds=DAY_SECONDS, idle_seconds=DAY_SECONDS, goes_on=True
    ),
    "checkpoint": UpkeepTask(table=_checkpoint),
    "optimize": UpkeepTask(table=_optimize, idle_seconds=DAY_SECONDS, goes_on=True),
    "vacuum": UpkeepTask(table=_vacuum, every_seconds=DAY_SECONDS, looks_at_all=True),
    "gc": UpkeepTask(lake=_gc, every_seconds=DAY_SECONDS),
}
