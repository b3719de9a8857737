"""Commits of Iceberg REST clients: compared, decided in HEAD, published, and answered.

The rules G1 to G9 are argued in docs/design/0073-given-commits.md. Nothing is kept between two
calls, so a client that asks again may ask any process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from lakevilla.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    ConflictError,
    CorruptObject,
    ForeignConflict,
    InvalidOperation,
    LakeVillaError,
    TableExists,
    TableNotFound,
    UnsupportedTableFeature,
    VersionNotFound,
)
from lakevilla.formats.base import Change, ClientUpdates
from lakevilla.formats.iceberg.commit import TXN_IDS
from lakevilla.formats.iceberg.given import consequence, names_live_files
from lakevilla.formats.iceberg.metadata.file import MAIN, Metadata
from lakevilla.formats.iceberg.metadata.requirements import check_requirements
from lakevilla.formats.iceberg.snapshot import IcebergSnapshot
from lakevilla.global_log.head import find_commit, successor
from lakevilla.global_log.repo import HeldHead, commits_since, load_tables, replace_head
from lakevilla.lake.publishing.outcome import result_of
from lakevilla.lake.publishing.publish import publish_once
from lakevilla.lake.table_log import open_tail, probe
from lakevilla.lake.view import View
from lakevilla.results import CommitResult
from lakevilla.store.base import Stored
from lakevilla.store.effects import Program, parallel, sleep
from lakevilla.sublogs.operations import Given, snapshots_removed
from lakevilla.transaction.commit.asked import Answer, Outcome, TableRequest, joined, no_table
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.commit.given_on_branch import decided_on_branch
from lakevilla.transaction.commit.making import make, not_made
from lakevilla.transaction.queue.guests import give_way_to_guests, thank_guest
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.validation.checks import kept_by_a_ref
from lakevilla.transaction.verbs.abort import abort
from lakevilla.transaction.verbs.bind import bind_to_head, bind_to_known, touch
from lakevilla.transaction.verbs.idempotency import KeyRefused, bind_refusal
from lakevilla.transaction.verbs.read_write import execute

#: How often a request is compared with newer states before its client is told to ask again later.
BEGINNINGS = 5
_PAUSE_SECONDS = 0.02
#: The outcomes of requests that are refused for good.
_FINAL = frozenset({"conflict", "exists", "invalid", "unsupported", "missing", "protected"})


def give(
    begin: Callable[[], TransactionState],
    requests: Sequence[TableRequest],
    held: HeldHead | None = None,
) -> Program[Answer]:
    """Commit what a client asks of some tables: all of it, or nothing.

    ``begin`` begins a transaction, with the request's idempotency key if it has one. ``held``: the
    lake's HEAD, if the caller has just read it.

    Raises
    ------
    StoreError
        The store failed before anything was decided.
    """
    asked = joined(requests)
    for beginning in range(BEGINNINGS):
        txn = _begun(begin)
        if beginning:
            yield from sleep(_PAUSE_SECONDS * 2**beginning * (0.5 + txn.context.ids.jitter()))
        known = None
        try:
            if not beginning and held is not None and not txn.context.epoch:
                known = yield from _noted_unlooked(txn, asked, held)
                if known is None:
                    yield from abort(txn)
                    txn = _begun(begin)
            answer = yield from (
                _compared_and_decided(txn, asked) if known is None else _decided(txn, asked, known)
            )
        except AlreadyCommitted as error:
            return key_of_others(error, asked) or (yield from _settled(txn, asked, error.result))
        except KeyRefused as error:
            return refusal_by(error)
        except (InvalidOperation, TableNotFound, UnsupportedTableFeature) as error:
            # What waits for its log may be an earlier write of this very request.
            if (yield from _has_pending(txn, asked)):
                return Answer("unknown", error.message)
            answer = refusal_by(error)
        if answer is not None:
            answer = yield from _bound_to_key(txn, answer)
        if answer is not None:
            return answer
        # None of its commits is under way any more: the next one of its key need not wait for it.
        yield from abort(txn)
        if known is None or txn.context.held is not held:
            overtaken = [one.location for one in asked if one.updates and one.makes is None]
            yield from give_way_to_guests(txn, overtaken)
    tables = ", ".join(one.location for one in asked)
    return Answer("busy", f"other clients have changed {tables} {BEGINNINGS} times in a row")


def refusal_by(error: LakeVillaError) -> Answer:
    """Return the answer to a request that an error has ended for good."""
    match error:
        case KeyRefused():
            return Answer(msgspec.convert(error.outcome, Outcome), error.told)
        case TableNotFound():
            return Answer("missing", error.message)
        case UnsupportedTableFeature():
            return Answer("unsupported", error.message)
        case _:
            return Answer("invalid", error.message)


def _bound_to_key(txn: TransactionState, answer: Answer) -> Program[Answer | None]:
    """Bind the key of a request to its refusal (G9); None if others have used the key meanwhile.

    The key of a commit that is decided is bound to that, also where the commit is void.
    """
    use = txn.claims.key
    if use is None or use.is_bound or answer.outcome not in _FINAL:
        return answer
    yield from bind_to_head(txn)
    try:
        yield from bind_refusal(txn, use, (answer.outcome, answer.message))
    except ConflictError:
        return None
    return answer


def _begun(begin: Callable[[], TransactionState]) -> TransactionState:
    txn = begin()
    txn.claims.is_guest = True
    return txn


def _noted_unlooked(
    txn: TransactionState, requests: Sequence[TableRequest], held: HeldHead
) -> Program[dict[str, Metadata] | None]:
    """Note the operations of a request that fits the states that this process knows.

    Return these states, or None if the request is to be compared with the newest ones, which takes
    a look at each log. What fits is looked at as it is stored, before HEAD is replaced (G5).
    """
    if any(one.makes is not None for one in requests) or not any(one.updates for one in requests):
        return None
    yield from bind_to_known(txn, held)
    try:
        yield from touch(txn, [one.location for one in requests], probing=False)
        views = {location: working.view for location, working in txn.work.tables.items()}
        if _refused(views, requests) is not None or txn.bound.held is not held:
            return None
        documents = {location: _document(view) for location, view in views.items()}
        is_pending = any(view.placement.overlay for view in views.values())
        if is_pending or held.head.is_protected or _there(requests, documents) is not None:
            return None
        yield from _note_operations(txn, requests, views, documents)
    except (
        ConflictError,
        CorruptObject,  # or a version that is not kept any more: a newer one may be
        InvalidOperation,
        TableNotFound,
        UnsupportedTableFeature,
        VersionNotFound,
    ):
        return None
    return documents


def key_of_others(error: AlreadyCommitted, requests: Sequence[TableRequest]) -> Answer | None:
    """Refuse a request whose key has committed changes of other tables."""
    known = None if error.result is None else error.result.versions
    if known is None or known.keys() >= {one.location for one in requests if one.updates}:
        return None
    why = "the idempotency key was used for a commit of other tables: take a new one"
    return Answer("invalid", why)


def _has_pending(txn: TransactionState, requests: Sequence[TableRequest]) -> Program[bool]:
    """Return whether HEAD has commits that are decided and that it does not know to be in a log."""
    held = yield from txn.context.head()
    if held is None:
        return False
    locations = [one.location for one in requests]
    yield from load_tables(held.head, locations)
    states = [held.head.tables.get(one) for one in locations]
    return any(state is not None and state.pending for state in states)


def _compared_and_decided(
    txn: TransactionState, requests: Sequence[TableRequest]
) -> Program[Answer | None]:
    """Run rules G1 to G8 once; None if the request must be compared with a newer state."""
    if txn.context.epoch:
        return (yield from decided_on_branch(txn, requests))
    try:
        fresh = yield from not_made(txn, requests)  # G10
        there = [one.location for one in requests if one.location not in fresh]
        yield from touch(txn, there, probing=True)
    except CommitOutcomeUnknown as error:
        return Answer("unknown", error.message)
    except TableNotFound as error:
        return no_table(error.message, adds_files=any(one.adds_files for one in requests))
    except ConflictError:
        return None
    views = {one: txn.work.tables[one].view for one in there}
    refused = _refused(views, requests)
    if refused is not None:
        return refused
    if (yield from _published_some(txn, views)):  # G1
        return None
    documents = {one: _document(view) for one, view in views.items()}
    known = _there(requests, documents)  # G2
    if known is not None:
        return (yield from _there_wholly(txn, requests, documents, known))
    for one in requests:
        document = documents.get(one.location)
        if one.adds_files and document is not None and not one.is_for(document.get("table-uuid")):
            why = f"the table that the request changes is not at {one.location} any more"
            return no_table(why, adds_files=True)
    if txn.head is not None and txn.head.is_protected:
        # Not before: a request that has taken effect is done, however the lake has changed since.
        why = "main is protected, and takes only merges and upkeep"
        return (yield from _with_live_files(views, requests)) or Answer("protected", why)
    try:
        yield from _note_operations(txn, requests, views, documents)  # G3 and G4
    except (ConflictError, TableExists) as error:
        unknown = yield from _with_live_files(views, requests)
        if unknown is not None:
            return unknown
        refused = yield from _refused_for_good(txn, views, error, makes=bool(fresh))
        if refused is not None and _was_overtaken(requests, documents):
            yield from give_way_to_guests(txn, list(documents))
        return refused
    except UnsupportedTableFeature as error:
        return Answer("unsupported", error.message)
    except InvalidOperation as error:
        return Answer("invalid", error.message)
    if not any(one.updates for one in requests):
        return Answer("done", tables=documents)
    return (yield from _decided(txn, requests, documents))


def _decided(
    txn: TransactionState, requests: Sequence[TableRequest], documents: Mapping[str, Metadata]
) -> Program[Answer | None]:
    """Decide and publish what was noted (G5 to G8); None if HEAD has moved."""
    try:
        yield from commit(txn)
    except (ConflictError, TableExists):
        return None
    except CommitOutcomeUnknown as error:
        return Answer("unknown", error.message)
    except ForeignConflict as error:
        return (yield from _settled(txn, requests, error.result))
    yield from thank_guest(txn)
    published = _published(txn, requests, documents)
    if published is not None:
        return published
    return (yield from _settled(txn, requests, txn.ending.result))


def _was_overtaken(requests: Sequence[TableRequest], documents: Mapping[str, Metadata]) -> bool:
    """Return whether a client relies on a snapshot that was the newest, and is not any more."""
    return any(
        one.get("type") == "assert-ref-snapshot-id"
        and one.get("ref") == MAIN
        and isinstance(known := one.get("snapshot-id"), int)
        and known in document.snapshots.keys() - {document.current_id}
        for request in requests
        if (document := documents.get(request.location)) is not None
        for one in request.requirements
    )


def _published(
    txn: TransactionState, requests: Sequence[TableRequest], before: Mapping[str, Metadata]
) -> Answer | None:
    """Answer a request that this very commit has published on all its tables, without a request."""
    result = txn.ending.result
    versions = {} if result is None or result.versions is None else result.versions
    documents = dict(before)
    for one in requests:
        if not one.updates:
            continue
        tail = txn.context.tails.get(one.location)
        if versions.get(one.location) is None or tail is None:
            return None
        assert isinstance(tail.snapshot, IcebergSnapshot)
        if tail.snapshot.document is None:
            return None
        documents[one.location] = tail.snapshot.document
    return Answer("done", tables=documents)


def _refused(views: Mapping[str, View], requests: Sequence[TableRequest]) -> Answer | None:
    """Refuse tables and places that take no commits of Iceberg clients."""
    for location, view in views.items():
        if view.mount is not None or (view.state is not None and view.state.dropped):
            why = f"table {location} does not exist in the lake"
            return no_table(why, adds_files=any(one.adds_files for one in requests))
        if view.base.format != "iceberg":
            return Answer("unsupported", f"table {location} is a Delta table, and read only here")
        if view.base.catalog:
            return Answer(
                "unsupported", f"table {location} is in a catalog: commit to it through that"
            )
    return None


def _document(view: View) -> Metadata:
    assert isinstance(view.base, IcebergSnapshot)
    assert view.base.document is not None, "a published version has a metadata file"
    return view.base.document


def _published_some(txn: TransactionState, views: Mapping[str, View]) -> Program[bool]:
    """Publish what is pending on the tables; return whether something was."""
    assert txn.head is not None
    head = txn.head
    waiting = [location for location, view in views.items() if view.placement.overlay]
    outcomes = yield from parallel([publish_once(txn.context, head, one) for one in waiting])
    for outcome in outcomes:
        if isinstance(outcome, LakeVillaError):
            raise outcome
    return bool(waiting)


def _there(requests: Sequence[TableRequest], documents: Mapping[str, Metadata]) -> Answer | None:
    """Return the answer to a request of which all, or some, snapshots are there already."""
    told = [one for one in requests if one.leaves_traces]
    found = [_has(documents.get(one.location), one) for one in told]
    if found and all(found):
        return Answer("done", tables=dict(documents))
    if any(found):
        names = [one.location for one, has in zip(told, found, strict=True) if has]
        return Answer("unknown", f"the request took effect on {', '.join(names)} alone")
    return None


def _has(document: Metadata | None, one: TableRequest) -> bool:
    """Return whether a table has what a request does to it; a table that it makes has all of it."""
    if document is None:
        return False
    return one.makes is not None or one.snapshots <= document.snapshots.keys()


def _there_wholly(
    txn: TransactionState,
    requests: Sequence[TableRequest],
    documents: Mapping[str, Metadata],
    answer: Answer,
) -> Program[Answer]:
    """Return the answer to a request whose snapshots are there, also if a table gets none.

    Such a table's file does not show whether it has the updates: they may be void there alone. The
    commit that made the snapshots tells, as long as HEAD names it.
    """
    if answer.outcome != "done" or all(one.leaves_traces for one in requests if one.updates):
        return answer
    made = [
        (documents[one.location].snapshot(number) or {}).get("summary") or {}
        for one in requests
        for number in one.snapshots
    ]
    ids = {str(summary.get(TXN_IDS, "")).rpartition(",")[2] for summary in made} - {""}
    head = txn.head
    found = find_commit(head.commits, next(iter(ids))) if head and len(ids) == 1 else None
    if head is None or found is None:
        return Answer("unknown", "the request's snapshots are there, and its other updates may be")
    result = yield from result_of(txn.context, head, found, found.txn)
    return (yield from _settled(txn, requests, result))


def _with_live_files(
    views: Mapping[str, View], requests: Sequence[TableRequest]
) -> Program[Answer | None]:
    """Return the answer to a request that can't be done now, if a table has files of it."""
    for one in requests:
        base = views[one.location].base if one.location in views else None
        assert base is None or isinstance(base, IcebergSnapshot)
        if base is not None and (yield from names_live_files(base, one.updates)):
            why = f"table {one.location} has files of the request: it may have taken effect"
            return Answer("unknown", why)
    return None


def _note_operations(
    txn: TransactionState,
    requests: Sequence[TableRequest],
    views: Mapping[str, View],
    documents: Mapping[str, Metadata],
) -> Program[None]:
    """Compare all requirements, and note an operation for each table.

    Raises
    ------
    ConflictError
        A requirement does not hold, or numbers of a snapshot are behind.
    TableExists
        A table that the request makes has a name that is taken.
    InvalidOperation, UnsupportedTableFeature
        The updates do not fit the table.
    """
    old = [one for one in requests if one.location in documents]
    for one in old:
        parts = {name: documents[one.location].get(name) for name in documents[one.location].parts}
        check_requirements(parts, one.requirements, one.location)
    now_ms = txn.context.now_ms()
    found: list[Given] = []
    for one in old:
        base = views[one.location].base
        assert isinstance(base, IcebergSnapshot)
        if not one.updates:
            found.append(Given(one.location, ClientUpdates(base.version), Change()))
            continue
        it = yield from consequence(base, one.updates, now_ms, one.admits)
        operation = Given(one.location, it.given, it.change, it.moves, it.objects)
        yield from _refuse_kept(txn, operation)
        found.append(operation)
    for operation in found:
        yield from execute(txn, operation, "commit")
    for one in requests:
        if one.location not in documents:
            yield from make(txn, one, now_ms)


def _refuse_kept(txn: TransactionState, operation: Given) -> Program[None]:
    """Refuse to remove snapshots that a ref of the lake needs. Raises ``InvalidOperation``."""
    removed = snapshots_removed(operation)
    if not removed or txn.head is None:
        return
    reason = yield from kept_by_a_ref(txn.context, txn.head, operation.table, removed)
    if reason is not None:
        raise InvalidOperation(f"table {operation.table}: {reason}", table=operation.table)


def _refused_for_good(
    txn: TransactionState,
    views: Mapping[str, View],
    error: ConflictError | TableExists,
    *,
    makes: bool,
) -> Program[Answer | None]:
    """Refuse a request, once no earlier write of it can land; None if HEAD has moved (G3)."""
    held = txn.bound.held
    assert held is not None
    if makes or any(view.state is None or view.placement.hidden for view in views.values()):
        context = txn.context
        new = successor(held.head, nonce=context.ids.nonce(), now_ms=context.now_ms())
        outcome = yield from replace_head(held, new)
        if not isinstance(outcome, Stored):
            return None
        context.remember(HeldHead(new, outcome.token))
    if isinstance(error, TableExists):
        return Answer("exists", f"Requirement failed: table already exists: {error.message}")
    return Answer("conflict", error.message)


def _settled(
    txn: TransactionState, requests: Sequence[TableRequest], result: CommitResult | None
) -> Program[Answer]:
    """Answer a request that HEAD has decided, by what became of it in the logs (G8)."""
    context = txn.context
    held = yield from context.head()
    assert held is not None
    locations = [one.location for one in requests]
    published = yield from parallel([publish_once(context, held.head, one) for one in locations])
    for outcome in published:
        if isinstance(outcome, LakeVillaError) or not outcome.complete:
            return Answer("unknown", "the commit is decided, and not in all logs yet")
    held = yield from context.head()
    assert held is not None
    written = {one.location for one in requests if one.updates}
    void = yield from _void(held, result, written)
    if void is None or void:
        names = ", ".join(sorted(void or written))
        why = (
            f"clients without lakevilla have changed {names} before the commit was published there"
        )
        return Answer("conflict" if void == written else "unknown", why)
    documents: dict[str, Metadata] = {}
    for location in locations:
        tail = yield from open_tail(context, location)
        tail = yield from probe(context, tail)
        assert isinstance(tail.snapshot, IcebergSnapshot)
        if tail.snapshot.document is not None:
            documents[location] = tail.snapshot.document
    return Answer("done", tables=documents)


def _void(
    held: HeldHead, result: CommitResult | None, written: set[str]
) -> Program[set[str] | None]:
    """Return the tables on which a decided commit is void; None if that is not known any more.

    A given commit is never performed again: a reconcile that replaces it has cancelled it.
    """
    if result is None or result.global_version is None:
        return None
    commits = yield from commits_since(held.head, result.global_version)
    if commits is None:
        return None
    replacing = (one for one in commits if one.kind == "reconcile")
    return {
        table
        for one in replacing
        if result.global_version in one.replaces
        for table in one.tables
        if table in written
    }
