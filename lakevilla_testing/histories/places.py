"""The places of transactions in the order of all commits, for the checker of isolation."""

from __future__ import annotations

from collections.abc import Mapping

from lakevilla.transaction.state.values import Feature
from lakevilla_testing.checks.history import Txn
from lakevilla_testing.histories.attempts import Try, World
from lakevilla_testing.histories.records import versions_in_logs

#: By the name of a reader and by table, the transactions that it saw there before these had a
#: place.
Unplaced = Mapping[str, Mapping[str, frozenset[str]]]


def seen_unplaced(world: World, winners: Mapping[str, Try]) -> dict[str, dict[str, frozenset[str]]]:
    """Return by reader the commits by log entry that it saw before HEAD had absorbed them.

    Such a commit is a foreign one to transactions with Feature.I. Its place is behind all commits
    that HEAD holds before it, also behind a commit that was validated before its entry existed and
    reached HEAD after. A transaction that only reads may see the entry before that: it changes
    nothing in HEAD, so no other transaction learns of it (design, section 10). A transaction that
    writes absorbs what it has seen, so it is none of these readers.
    """
    by_entry = {txn: attempt for txn, attempt in winners.items() if not attempt.core.through_head}
    versions = versions_in_logs(world) if by_entry else {}
    found: dict[str, dict[str, frozenset[str]]] = {}
    for reader in world.attempts:
        if not _only_reads(reader) or Feature.I not in reader.core.options.features:
            continue
        for table, working in reader.core.work.tables.items():
            view = working.view
            hidden = frozenset(
                attempt.record.name
                for txn, attempt in by_entry.items()
                if (version := versions.get((table, txn))) is not None
                and (view.state is None or version in view.placement.hidden)
            )
            if hidden:
                found.setdefault(reader.record.name, {})[table] = hidden
    return found


def by_place(attempt: Try, record: Txn, unplaced: Unplaced) -> list[Txn]:
    """Return the parts of a transaction that have one place in the order of all.

    A transaction with Feature.CT and without I that only reads sees each table at the time of its
    first read: it has as many parts as tables. A transaction that writes is validated as a whole.
    One with I that only reads has one place; its reads of a table ahead of HEAD have another, and
    must be a state of that table all the same.
    """
    if not _only_reads(attempt):
        return [record]
    features = attempt.core.options.features
    if Feature.I in features:
        return [record, *(_on(record, table) for table in unplaced.get(record.name, ()))]
    if Feature.CT not in features:
        return [record]
    tables = dict.fromkeys(operation.key[0] for operation in record.operations)
    return [_on(record, table) for table in tables]


def _only_reads(attempt: Try) -> bool:
    # A transaction whose process died in the midst of a redo has done nothing, as far as its state
    # shows.
    return not attempt.core.work.done and not attempt.record.appends


def _on(record: Txn, table: str) -> Txn:
    """Return the transaction's reads of one table."""
    return Txn(
        f"{record.name} on {table}",
        record.client,
        record.invoked,
        [operation for operation in record.operations if operation.key[0] == table],
        record.completed,
        record.status,
    )
