"""Make the commit object, and store all objects that a commit names, before HEAD names it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from lakevilla.errors import ConflictError, StoreError, TableNotFound
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.files import file_key
from lakevilla.formats.registry import refuse_two_tables
from lakevilla.global_log.commits import (
    CommitObject,
    MemberPart,
    TablePart,
    commit_key,
    format_of,
    seal,
)
from lakevilla.global_log.head import Head, TableState
from lakevilla.global_log.repo import claim_table, load_tables
from lakevilla.lake.applicability import lost_for_good, paths_written
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.row_changes import rows_fit
from lakevilla.lake.table_log import look_above
from lakevilla.phases import during
from lakevilla.store.base import ABSENT, NEW, Stored
from lakevilla.store.effects import Program, Put, parallel
from lakevilla.store.location import is_external
from lakevilla.sublogs.describe import describe, summed
from lakevilla.sublogs.operations import Create, Drop, Given, Transplant, is_blind, tables_read
from lakevilla.transaction.commit.squash import Squash, squashes
from lakevilla.transaction.commit.together.group import commits_of
from lakevilla.transaction.commit.together.replacing import may_go_along
from lakevilla.transaction.redo.replay import entry_change
from lakevilla.transaction.state.files import held_and_needed, without_file
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.idempotency import bind_key

# -------------------- upload
#
# Step 3 of a commit: store files, commit object and claims, and check for foreign commits, in one
# round.


#: For so many seconds after it was read, a HEAD counts as new enough to rely on.
_FRESH_SECONDS = 0.15


def upload(txn: TransactionState, sealed: Sealed) -> Program[None]:
    """Store all objects that the commit names, and read all that may prevent it, in one round.

    Raises
    ------
    StoreError
        An object could not be stored.
    """
    context = txn.context
    assert txn.bound.held is not None, "a transaction that writes through HEAD is bound to one"
    head = txn.bound.held.head
    yield from load_tables(head, txn.work.tables)
    changes = {table: part.change for table, part in sealed.commit.tables.items()}
    files = held_and_needed(txn, changes)
    named = [*files, sealed.key]
    stores: list[Any] = [Put(file, txn.work.bodies[file], NEW) for file in files]
    stores.append(Put(sealed.key, sealed.body, ABSENT))
    named += [squash.put.key for squash in sealed.squashes.values()]
    stores += [squash.put for squash in sealed.squashes.values()]
    unguarded = [place for place, working in txn.work.tables.items() if not working.view.guarded]
    looks = [look_above(context, location) for location in unguarded]
    if unguarded and _may_be_proposed(txn):
        # Reading HEAD and then the logs takes no longer than storing a file, and the HEAD to which
        # the transaction is bound is old by now.
        looks = [_look_at_all(context, unguarded, most=1)]
    # Note the keys before the puts are sent: an interruption may leave some of the objects stored,
    # and an abort must find them.
    txn.work.stored.extend(named)
    outcomes = yield from parallel([*stores, *looks, *_claims(txn, head)])
    for name, outcome in zip(named, outcomes, strict=False):
        if not isinstance(outcome, Stored):
            raise StoreError(
                f"could not store {name}: nothing was committed, run the transaction again",
                txn_id=txn.id,
            )
    for file in files:
        txn.work.held_bytes -= len(txn.work.bodies.pop(file))
    outdated = [
        place for place, newer in zip(unguarded, outcomes[len(named) :], strict=False) if newer
    ]
    if outdated:
        # The race is lost: a newer HEAD shows which of the new entries are the lake's own.
        yield from _look_at_all(context, outdated)


def _may_be_proposed(txn: TransactionState) -> bool:
    """Return whether other clients may include the commit in HEAD, so that it needs a new HEAD."""
    context = txn.context
    is_old = context.clock.elapsed() - txn.bound.began_at > _FRESH_SECONDS
    return is_old and commits_of(context).is_crowded(context) and may_go_along(txn)


def _look_at_all(context: Context, tables: Sequence[str], **options: int) -> Program[bool]:
    """Read HEAD, and then check the logs for entries that HEAD does not know."""
    yield from context.head()
    yield from parallel(
        [look_above(context, one, head_is_newest=True, **options) for one in tables]
    )
    return False


def _check_log(txn: TransactionState, tail: Tail, state: TableState | None) -> Program[None]:
    """Refuse to commit to a log that other clients have deleted, or created again, meanwhile."""
    try:
        yield from txn.context.formats.of(tail.snapshot).check_whole(tail.snapshot)
    except TableNotFound as error:
        txn.context.tails.pop(tail.location, None)
        of_lake = state is not None and not state.dropped
        again = "`unregister` it, then `register` the new one" if of_lake else "run it again"
        raise txn.fail(
            ConflictError(
                f"table {tail.location} was removed, or created again, by another client after "
                f"transaction {txn.id} had seen its log: {again}",
                table=tail.location,
                txn_id=txn.id,
            )
        ) from error


def _claims(txn: TransactionState, head: Head) -> list[Program[Any]]:
    """Return the writes of keys and claims, and the checks that logs and locations are valid.

    They refuse a deleted log, a table of another lake, and two tables in one directory.
    """
    context = txn.context
    parts: list[Program[Any]] = []
    merging = txn.work.merging
    for use in (txn.claims.key, *(() if merging is None else merging.keys)):
        if use is not None:
            parts.append(bind_key(txn, use))
    if context.epoch:
        return parts  # a branch writes no claims: the merge into the lake does
    for location in tables_written(txn):
        tail = context.tails.get(location)
        if tail is not None and not txn.options.read_only:
            parts.append(_check_log(txn, tail, head.tables.get(location)))
    for location, working in () if txn.options.read_only else txn.work.tables.items():
        state, snapshot = head.tables.get(location), working.snapshot
        # A dropped table may have been unregistered, and its claim deleted.
        enters = state is None or state.dropped
        if enters or _is_another_elsewhere(location, state, snapshot):
            table_id, catalog = snapshot.table_id, snapshot.catalog
            parts.append(claim_table(location, head, context.ids, table_id, catalog=catalog))
        if enters and (state is None or txn.revives(location)):
            parts.append(refuse_two_tables(snapshot))
    return parts


def _is_another_elsewhere(location: str, state: TableState | None, snapshot: TableSnapshot) -> bool:
    """Return whether a table outside of the root was created again: its claim has the old id."""
    return is_external(location) and state is not None and state.table_id != snapshot.table_id


# -------------------- commit object
#
# Step 2 of a commit: make the object with all changes of the transaction.


@dataclass(frozen=True, slots=True)
class Sealed:
    """A commit object as it is stored; its key has the transaction's id and the digest.

    ``squashes``: on a branch, by table, the objects that replace older commits in the same HEAD.
    """

    commit: CommitObject
    digest: str
    body: bytes
    epoch: str = ""
    squashes: Mapping[str, Squash] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return commit_key(self.commit.txn, self.digest, self.epoch)


def seal_commit(txn: TransactionState) -> Program[Sealed]:
    """Make the commit object. It names no predecessor, so it stays valid after a lost race."""
    commit = yield from _commit_object(txn)
    digest, body = seal(commit)
    txn.ending.digests.add(digest)
    found = yield from squashes(txn, commit.tables)
    return Sealed(commit, digest, body, txn.context.epoch, found)


def tables_written(txn: TransactionState) -> list[str]:
    """Return the tables that the operations change, in the order of the operations."""
    return list(dict.fromkeys(done.table for done in txn.work.done))


def _commit_object(txn: TransactionState) -> Program[CommitObject]:
    by_table: dict[str, list[Done]] = {}
    looked_at = {record.table for record in txn.work.reads.values()}
    for done in txn.work.done:
        by_table.setdefault(done.table, []).append(done)
        looked_at.update(tables_read(done.operation))
    tables = {}
    for table, of_table in by_table.items():
        tables[table] = yield from _table_part(txn, table, of_table, looked_at=table in looked_at)
    return CommitObject(
        format_of(
            tables.values(),
            () if txn.combined is None else txn.combined.members,
            (done.operation for done in txn.work.done),
        ),
        txn.context.ids.nonce(),
        txn.id,
        tables,
        operations=tuple(done.operation for done in txn.work.done),
        reads=tuple(txn.work.reads.values()),
        metadata=txn.options.metadata,
        applications=txn.options.applications,
        started_ms=txn.bound.started_ms,
        merged="" if txn.work.merging is None else txn.work.merging.version,
        catalog=tuple(txn.work.catalog),
        after=0 if txn.bound.held is None else txn.bound.held.head.sequence,
        members=tuple(_members_of(txn)),
    )


def _members_of(txn: TransactionState) -> Iterator[MemberPart]:
    start = 0
    for member in () if txn.combined is None else txn.combined.members:
        done = txn.work.done[start : start + member.operations]
        start += member.operations
        yield MemberPart(member.txn, tuple(astuple(one.counts) for one in done))


def _table_part(
    txn: TransactionState, table: str, of_table: list[Done], *, looked_at: bool
) -> Program[TablePart]:
    change = yield from entry_change(txn, table, of_table)
    operations = [done.operation for done in of_table]
    name, parameters = describe(operations)
    dropped = isinstance(of_table[-1].operation, Drop)
    working = txn.work.tables[table]
    snapshot, created = working.snapshot, any(isinstance(one, Create) for one in operations)
    redefines = change.metadata is not None and not created
    hides = any(isinstance(one, Transplant) and one.hides for one in operations)
    fits = not hides and rows_fit(working.view.snapshot.layout, snapshot.layout)
    given = next((one for one in operations if isinstance(one, Given) and one.given.updates), None)
    return TablePart(
        table_id=snapshot.table_id,
        change=change,
        blind=all(is_blind(operation) for operation in operations) and not looked_at,
        created=created,
        dropped=dropped,
        operation=name,
        parameters=parameters,
        metrics=summed(done.metrics for done in of_table),
        contract=snapshot.contract,
        redefines=redefines and not fits,
        given="" if given is None else "files" if given.moves else "version",
        objects=() if given is None else given.objects,
    )


# -------------------- staged
#
# Check before the commit that the new files of an old transaction still exist.
#
# VACUUM and orphan removal by clients without LakeVilla know nothing of transactions: they delete
# an old file that no log entry names (hazard 6, note 19).


def check_files(txn: TransactionState) -> Program[None]:
    """Check before the commit point of an old transaction that the files that it names exist.

    For a young transaction no request is sent, since no clean-up deletes files that are younger
    than ``checked_tip_seconds``. A transaction also counts as old if this machine's clock was set
    by more than that since it began: then a clean-up may have seen its files as old.

    Raises
    ------
    TransactionAborted
        A file was deleted. Nothing of the transaction is or will be visible.
    """
    context = txn.context
    age = context.clock.elapsed() - txn.bound.began_at
    if txn.bound.started_ms:
        age = max(age, abs(context.now_ms() - txn.bound.started_ms) / 1000)
    if age < context.settings.checked_tip_seconds:
        return
    keys = []
    for done in txn.work.done:
        paths = paths_written(done.table, done.change)
        keys += [file_key(done.table, path) for path in paths]
    never_stored = txn.work.bodies.keys() | txn.work.promised.keys()
    keys = [key for key in dict.fromkeys(keys) if key not in never_stored]
    with during("validate"):
        lost = yield from lost_for_good(keys)
    if lost:
        raise txn.fail(without_file(txn, lost[0]))
