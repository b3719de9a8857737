"""Step 2 of a commit: what the transaction did, as one object of the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakevilla.global_log.commits import CommitObject, TablePart, commit_key, seal
from lakevilla.lake.row_changes import rows_fit
from lakevilla.store.codec import FORMAT
from lakevilla.store.effects import Program
from lakevilla.sublogs.describe import describe, summed
from lakevilla.sublogs.operations import Create, Drop, Transplant, is_blind, tables_read
from lakevilla.transaction.commit.squash import Squash, squashes
from lakevilla.transaction.redo.entry import entry_change
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState


@dataclass(frozen=True, slots=True)
class Sealed:
    """A commit object as it is stored: its name is made of the transaction and the digest.

    ``squashes``: on a branch, what goes in the place of older commits with it, by table.
    """

    commit: CommitObject
    digest: str
    body: bytes
    life: str = ""
    squashes: Mapping[str, Squash] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return commit_key(self.commit.txn, self.digest, self.life)


def seal_commit(txn: TransactionState) -> Program[Sealed]:
    """What the transaction did up to now; it names no parent, so a lost race rewrites nothing."""
    commit = yield from _commit_object(txn)
    digest, body = seal(commit)
    txn.ending.digests.add(digest)
    found = yield from squashes(txn, commit.tables)
    return Sealed(commit, digest, body, txn.context.life, found)


def tables_written(txn: TransactionState) -> list[str]:
    """The tables of its operations, in their order."""
    return list(dict.fromkeys(done.table for done in txn.work.done))


def _commit_object(txn: TransactionState) -> Program[CommitObject]:
    by_table: dict[str, list[Done]] = {}
    looked_at = {record.table for record in txn.work.reads.values()}
    for done in txn.work.done:
        by_table.setdefault(done.table, []).append(done)
        looked_at.update(tables_read(done.operation))
    tables = {}
    for table, mine in by_table.items():
        tables[table] = yield from _table_part(txn, table, mine, looked_at=table in looked_at)
    return CommitObject(
        FORMAT,
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
    )


def _table_part(
    txn: TransactionState, table: str, mine: list[Done], *, looked_at: bool
) -> Program[TablePart]:
    change = yield from entry_change(txn, table, mine)
    operations = [done.operation for done in mine]
    name, parameters = describe(operations)
    dropped = isinstance(mine[-1].operation, Drop)
    working = txn.work.tables[table]
    snapshot, created = working.snapshot, any(isinstance(one, Create) for one in operations)
    redefines = change.metadata is not None and not created
    hides = any(isinstance(one, Transplant) and one.hides for one in operations)
    fits = not hides and rows_fit(working.view.snapshot.layout, snapshot.layout)
    return TablePart(
        table_id=snapshot.table_id,
        change=change,
        blind=all(is_blind(operation) for operation in operations) and not looked_at,
        created=created,
        dropped=dropped,
        operation=name,
        parameters=parameters,
        metrics=summed(done.metrics for done in mine),
        contract=snapshot.contract,
        redefines=redefines and not fits,
    )
