"""Giving the tables of a clone files of their own (docs/design/0039-clones.md).

Each in a transaction of its own, which moves rows: whoever is cut off begins anew where it was.
"""

from __future__ import annotations

from lakevilla.branches.clones.ending import tables_of
from lakevilla.branches.entries import find_ref
from lakevilla.errors import ConflictError, LakeVillaError, RefNotFound, StoreError, TableNotFound
from lakevilla.global_log.head import Head
from lakevilla.global_log.refs import RefEntry
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.mounts import mount_of, mounted_below
from lakevilla.results import Finding, Report
from lakevilla.store.effects import Program
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.features import Feature
from lakevilla.transaction.state.parts import Options
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.abort import abort
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.clones.bring_in import bring_in

#: How often a table is begun with anew, where others write it.
_TRIES = 20


def keep_clone(
    context: Context, name: str, first: RefEntry, *, all_tables: bool = False
) -> Program[Report]:
    """Copy what tables of a clone name of their source's files, so that it may end.

    Those that were written to; with ``all_tables`` also those that it only shows yet.

    Raises
    ------
    RefNotFound
    """
    findings: list[Finding] = []
    for location in (yield from _tables(context, name, first, all_tables=all_tables)):
        try:
            copied = yield from _own(context, location)
        except StoreError:
            raise
        except TableNotFound:
            continue  # it was dropped meanwhile
        except LakeVillaError as error:
            message = f"table {location} can't be kept: {error.message}"
            findings.append(Finding("warning", "ref_lost", message, table=location))
            continue
        if copied:
            message = f"table {location} has its own files: {copied} were copied"
            findings.append(Finding("note", "kept", message, table=location))
    return Report(all(one.severity == "note" for one in findings), tuple(findings))


def _tables(
    context: Context, name: str, first: RefEntry, *, all_tables: bool
) -> Program[list[str]]:
    head = yield from _head_with(context, name, first)
    states = yield from tables_of(head, name)
    found = [place for place, state in states.items() if not state.dropped]
    if all_tables:
        found += yield from mounted_below(head, name)
        if (yield from mount_of(head, name)) is not None:
            found.append(name)
    return sorted(found)


def _head_with(context: Context, name: str, first: RefEntry) -> Program[Head]:
    head, entry = yield from find_ref(context, name)
    if entry.id != first.id:
        raise RefNotFound(f"clone {name!r} was deleted, and another one made meanwhile")
    return head


def _own(context: Context, location: str) -> Program[int]:
    """Bring the files of one table in; how many."""
    for attempt in range(_TRIES):
        options = Options(Feature.R | Feature.I)
        state = TransactionState(context, context.ids.txn_id(), options, through_head=True)
        txn = begin(state)
        try:
            done = yield from bring_in(txn, location)
            if done is None:
                yield from abort(txn)
                return 0
            yield from commit(txn)
            return len(done.change.removes)
        except ConflictError:
            yield from abort(txn)
            if attempt == _TRIES - 1:
                raise
        except LakeVillaError:
            yield from abort(txn)
            raise
    raise AssertionError("the last try returns or raises")
