"""Finish the commits of clients that are gone, and report on tables."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from dataclasses import replace

import msgspec

from lakevilla.branches.change import finish_ended
from lakevilla.errors import CorruptObject, LakeVillaError, StoreError
from lakevilla.formats.files import file_key
from lakevilla.formats.iceberg.metadata.file import name_in_catalog
from lakevilla.formats.sizes import Size, size_from
from lakevilla.global_log.commits import CommitObject, commit_key
from lakevilla.global_log.head import (
    HEAD_KEY,
    CommitSummary,
    Head,
    NameMap,
    TableMap,
    TableState,
    application_id,
    successor,
)
from lakevilla.global_log.history import went_back
from lakevilla.global_log.repo import (
    commits_since,
    fetch_sound,
    load_names,
    load_tables,
)
from lakevilla.lake.applicability import is_lost
from lakevilla.lake.context import Context, Event, Tail
from lakevilla.lake.newer import refuse_older_head
from lakevilla.lake.publishing import outcome
from lakevilla.lake.publishing.outcome import publish_or_cancel, void_lost
from lakevilla.lake.publishing.publish import publish_table
from lakevilla.lake.table_log import (
    forget_if_gone,
    open_tail,
    probe,
    rebase,
    refresh,
    snapshot_at,
)
from lakevilla.lake.tables.claims import adopt_claims, restore_claims
from lakevilla.lake.tables.registration import replace_until_stored
from lakevilla.lake.view import build_view, is_another, place, replaced
from lakevilla.maintenance.stale_places import Swept, give_up_places
from lakevilla.results import Finding, Report
from lakevilla.store.effects import (
    Program,
    delete,
    list_objects,
    parallel,
    some_at_once,
)
from lakevilla.store.location import is_external
from lakevilla.sublogs.operations import Operation, given_files
from lakevilla.sublogs.record import TXNS_PREFIX, created_by, record_key

# -------------------- recovery
#
# Finish the work that other clients have left. Recovery may run at any time, on any machine, and
# repeatedly: a second run changes nothing.


def recover(
    context: Context,
    owner: str = "",
    among: Collection[str] | None = None,
    *,
    is_checked: bool = False,
    gives_up: bool = True,
) -> Program[Report]:
    """Publish all decided commits that are not in their tables' logs yet, and free the queues.

    Version hints that don't name the newest versions are written again, and so are missing claims
    of tables (``lake.json``). A commit that can't be published any more, because another client has
    deleted its files or changed its table, is cancelled and reported as an error, since it had been
    acknowledged.

    The places of dead clients are given up. For this, recovery waits at most for a lease, and only
    if there are places whose owners may be dead. The places of ``owner`` stay.

    A damaged or missing leaf of HEAD is reported as an error, and the tables in the other leaves
    are recovered.

    With ``among``, recovery fetches and checks only these tables, which must include those with
    pending commits, and the tables that the record of a transaction names. ``is_checked``: the
    caller has just refused an older HEAD. ``gives_up``: cancel commits whose objects are missing;
    if not, they are reported, and may be restored.

    The report is ``ok`` if no work is left: no table is unreadable, and no rebuilt HEAD waits for a
    user's confirmation.
    """
    held = yield from context.head()
    if held is None:
        return Report(True)
    context.refuse_foreign_root()
    if not is_checked:
        # An older HEAD must not be published from: commits that a newer HEAD has replaced would be
        # decided again.
        yield from refuse_older_head(context, "recover", waits=False)
    findings = [_lost_leaf(error) for error in (yield from fetch_sound(held.head, among))]
    findings += yield from _publish(context, held.head, gives_up=gives_up)
    swept = Swept()
    if _are_known(held.head, among):
        swept = yield from give_up_places(context, held.head, owner, among)
        findings += swept.findings
    if swept.stale:
        # A replacement of HEAD by a client that is dead now may have been stored since HEAD was
        # read.
        before, held = held, (yield from context.head())
        if held is not None:
            among = yield from _with_later(before.head, held.head, among)
            yield from fetch_sound(held.head, among)
            findings += yield from _publish(context, held.head, only=swept.stale, gives_up=gives_up)
    ok = True
    held = yield from context.head()
    if held is not None:
        yield from fetch_sound(held.head, among)
        damaged = {finding.table for finding in findings if finding.severity == "error"}
        findings += yield from _unreadable(context, held.head, damaged, among)
        damaged |= {finding.table for finding in findings if finding.severity == "error"}
        findings += yield from announce_tables(context, held.head, damaged, among)
        if _are_known(held.head, among):
            findings += yield from restore_claims(context, held.head, among, leave_out=damaged)
        findings += yield from finish_ended(context, held.head)
        if held.head.unconfirmed:
            findings.append(unconfirmed(held.head))
            ok = False
    ok = ok and all(finding.severity != "error" for finding in findings)
    return Report(ok, tuple(findings))


def _are_known(head: Head, among: Collection[str] | None) -> bool:
    """Return whether ``fetch_sound`` has cached these tables, or all, and the names of a HEAD."""
    return not (head.tables.missing(among) or head.names.missing())


def _with_later(
    before: Head, head: Head, among: Collection[str] | None
) -> Program[Collection[str] | None]:
    """Add the tables of the commits since ``before``; return None if not all are kept."""
    if among is None:
        return None
    later = yield from commits_since(head, before.sequence)
    return None if later is None else {*among, *(place for one in later for place in one.tables)}


def _lost_leaf(error: CorruptObject) -> Finding:
    message = f"{error.message} (the tables, names or refs in it can't be recovered)"
    return Finding("error", error.kind, message, key=error.key)


def unconfirmed(head: Head) -> Finding:
    """Return the finding that HEAD was rebuilt, and is not confirmed by a user yet."""
    return Finding(
        "warning",
        "head_rebuilt",
        f"{HEAD_KEY} was rebuilt as global version {head.rebuilt}; gc and vacuum delete nothing "
        "until `lakevilla recover ROOT --confirm-head` confirms that the report of the rebuild "
        "was read",
        key=HEAD_KEY,
    )


def abort(context: Context, txn_id: str) -> Program[None]:
    """Fence a transaction, then delete its record and the other objects that it has saved.

    Without the record, the transaction's places don't count any more, whether its owner runs, hangs
    or is dead. A running owner finds out when it writes its record or commits.

    Raises
    ------
    InvalidOperation
        As for ``outcome.abort``; then nothing is deleted.
    """
    yield from outcome.abort(context, txn_id)
    yield from delete(record_key(txn_id))
    # This is safe because the transaction is fenced: no commit can name the objects that it has
    # saved.
    saved = yield from list_objects(f"{TXNS_PREFIX}/{txn_id}")
    # A note of a table that the transaction was creating stays until gc finds no file of it in that
    # place.
    yield from parallel([delete(info.key) for info in saved if created_by(info.key) is None])


def _publish(
    context: Context, head: Head, only: Container[str] | None = None, *, gives_up: bool
) -> Program[list[Finding]]:
    """Publish pending commits of cached tables; ``only``: with commits of these transactions."""
    locations = [
        location
        for location, state in head.tables.cached().items()
        if any(only is None or ref.txn in only for ref in state.pending)
    ]
    found = yield from parallel(
        [_recover_table(context, head, location, gives_up) for location in locations]
    )
    return [finding for some in found for finding in some]


def _unreadable(
    context: Context,
    head: Head,
    reported: Container[str | None],
    among: Collection[str] | None,
) -> Program[list[Finding]]:
    """Return findings on tables that no client can read, whether they have pending commits or not.

    The tables of HEAD must be cached, except those in damaged leaves.
    """
    locations = [
        location
        for location, state in head.tables.cached(among).items()
        if not (state.dropped or location in reported)
    ]
    found = yield from some_at_once(opened(context, head, location) for location in locations)
    return [one for one in found if isinstance(one, Finding)]


def _recover_table(
    context: Context, head: Head, location: str, gives_up: bool
) -> Program[list[Finding]]:
    beyond = out_of_reach(context, head, location)
    if beyond is not None:
        # Commits may wait to be published there, so the work of recovery is not done.
        return [replace(beyond, severity="error")]
    try:
        tail = yield from open_tail(context, location, missing_ok=True)
        tail = yield from probe(context, tail)
        before = tail.tip
        newest = (yield from void_lost(context, head, location)) if gives_up else head
        published = yield from publish_or_cancel(context, newest, location)
        while not published.complete and published.created:
            # Dead clients may have left many commits, each of which needs a log entry: repeat as
            # long as entries are created.
            published = yield from publish_or_cancel(context, published.head, location)
        since = yield from commits_since(published.head, head.sequence)
        voids = yield from voids_in(context, since or (), location)
    except LakeVillaError as error:
        return [unreadable(location, error)]
    if not published.complete:
        return [
            *voids,
            Finding(
                "error",
                "unpublished",
                f"table {location} has decided commits that could not be published in time: "
                "recover again",
                table=location,
            ),
        ]
    entries = [
        published.tail.entries[version]
        for version in range(before + 1, published.tail.tip + 1)
        if version in published.tail.entries
    ]
    ours = [entry for entry in entries if entry.txn_ids]
    for entry in ours:
        message = f"published version {entry.version} of {location} for another client"
        context.notify(Event("helping", entry.txn_ids[0], message, {"table": location}))
    return voids + [
        Finding(
            "note",
            "published",
            f"version {entry.version} of table {location} was published for transaction "
            f"{', '.join(entry.txn_ids)}",
            table=location,
            txn_id=entry.txn_ids[-1],
        )
        for entry in ours
    ]


def checkpoint(context: Context, location: str, version: int) -> Program[None]:
    """Write the checkpoint of a published version, if the log is that of the table in HEAD.

    A client may have committed to an older table of that name, from a stale cache. A checkpoint of
    that table would hide the rows of the new table from every reader.

    If the process does not hold that version any more, commits have outrun its checkpoints: it
    writes that of a newer version that it holds, and need not read the log to catch up.
    """
    held = yield from context.head()
    head = None if held is None else held.head
    yield from load_tables(head, [location])
    state = None if head is None else head.tables.get(location)
    tail = yield from open_tail(context, location)
    if tail.tip < version:
        tail = yield from probe(context, tail)
    if tail.tip < version:
        return  # the table's log was deleted meanwhile
    if state is not None and (state.dropped or (yield from is_another(context, state, tail))):
        return
    if version not in tail.snapshots:
        version = _newest_due(context, tail, version)
    snapshot = yield from snapshot_at(context, tail, version)
    lighter = yield from context.formats.of(snapshot).checkpoint(snapshot)
    if lighter is not None:
        rebase(context, lighter)


def _newest_due(context: Context, tail: Tail, version: int) -> int:
    """Return the newest known version after ``version`` that should have a checkpoint, if any."""
    due = context.formats.of(tail.snapshot).checkpoint_due
    newer = (one for one in tail.snapshots if one > version and due(one, tail.snapshots[one]))
    return max(newer, default=version)


def _size_of(context: Context, head: Head, state: TableState, tail: Tail) -> Program[Size | None]:
    """Return the size of a table in its log's present state, foreign commits included; or None."""
    placement = yield from place(context, head, tail.location, tail)
    if not (placement.hidden or placement.overlay) and placement.logged == tail.tip:
        return state.size
    size = size_from(tail.snapshot.known_size())
    return None if size.is_unknown else size


def adopt_lake(context: Context) -> Program[None]:
    """Give a copied or moved lake a new identity (hazard 30).

    Pending commits are published first, under the old lake's id. Tables outside of the root still
    belong to the old lake and are left out.
    """
    held = yield from context.head()
    if held is None:
        return
    if held.head.root == context.root:
        if held.head.adopted:  # perhaps by a client that died before it had written the claims
            yield from adopt_claims(context, held.head)
        return
    yield from load_tables(held.head)
    for location, state in held.head.tables.items():
        if state.pending and not is_external(location):
            published = yield from publish_table(context, held.head, location)
            if not published.complete:
                raise StoreError(
                    f"table {location} has decided commits that could not be published in time, "
                    "and the new lake would not know of them: adopt again",
                    table=location,
                )

    def change(head: Head) -> Program[Head | None]:
        if head.root == context.root:
            return None
        yield from load_tables(head)
        yield from load_names(head)
        tables = {}
        for location, state in head.tables.items():
            if not is_external(location) and state.dropped:
                tables[location] = msgspec.structs.replace(state, pending=())
            elif not is_external(location):
                tail = yield from open_tail(context, location, missing_ok=True)
                size = yield from _size_of(context, head, state, tail)
                tables[location] = msgspec.structs.replace(
                    state, published=tail.tip, pending=(), size=size
                )
        new = successor(head, nonce=context.ids.nonce(), now_ms=context.now_ms())
        return msgspec.structs.replace(
            new,
            lake_id=context.ids.uuid(),
            root=context.root,
            adopted=head.sequence,
            # Bases name the old id, and they are all that is left of the refs if HEAD is lost.
            former=tuple(dict.fromkeys((*head.former, head.lake_id))),
            tables=TableMap(tables),
            names=NameMap({n: w for n, w in head.names.items() if not is_external(w)}),
        )

    head = yield from replace_until_stored(context, change, adopting=True)
    yield from adopt_claims(context, head)


# -------------------- cancelled commits
#
# Reports of losses by cancelled commits, which were acknowledged and can't be recovered.


#: The most files that a message names; the commit object names all of them.
_NAMED = 5


def voids_in(
    context: Context, commits: Sequence[CommitSummary], location: str
) -> Program[list[Finding]]:
    """Return findings on what reconcile commits have cancelled on a table."""
    findings: list[Finding] = []
    for summary in commits:
        if summary.kind == "reconcile" and location in summary.tables:
            commit = yield from context.commit_object(summary.txn, summary.hash)
            findings += yield from voids_of(context, commit, location)
    return findings


def _commits_of(context: Context, commit: CommitObject) -> Program[dict[str, tuple[str, str]]]:
    """Return, by transaction, the commit (txn and hash) that a reconcile commit has replaced.

    A member of a combined commit can be cancelled alone, and is found in that commit's object.
    """
    found = {txn: (txn, digest) for _, txn, digest in commit.replaces}
    if all(txn in found for txn, _ in commit.voided):
        return found
    for name in list(found.values()):
        try:
            replaced = yield from context.commit_object(*name)
        except LakeVillaError:
            continue
        found.update(dict.fromkeys((member.txn for member in replaced.members), name))
    return found


def voids_of(context: Context, commit: CommitObject, location: str) -> Program[list[Finding]]:
    """Return findings on what a reconcile commit has cancelled: transactions, operations, and
    files.
    """
    findings = []
    within = yield from _commits_of(context, commit)
    for txn, reason in commit.voided:
        name = within.get(txn, (txn, ""))
        key = commit_key(*name)
        lost = (
            "its operations can't be read any more: the names of its files contain its id, until "
            f"gc deletes them (its object is {key})"
        )
        owners = [txn]
        try:
            commit = yield from context.commit_object(*name)
        except LakeVillaError:
            pass  # the commit object is lost or damaged, so no operation can be named
        else:
            by_member = dict(commit.by_member())
            operations = by_member.get(txn, commit.operations)
            mine = [operation for operation in operations if operation.table == location]
            lost = f"its {_described(mine, location)} is lost; all that is known of it is in {key}"
            before = {earlier for earlier, _ in commit.voided}
            replaced = [t for _, t, _ in commit.replaces if t not in before]
            owners = replaced or ([txn] if txn in by_member else list(by_member))
        findings += [
            Finding(
                "error",
                "voided",
                f"transaction {owner} was acknowledged and is cancelled on table {location}: "
                f"{reason}; {lost}",
                table=location,
                txn_id=owner,
                key=key,
            )
            for owner in owners
        ]
    return findings


def _described(operations: Sequence[Operation], location: str) -> str:
    name = ", ".join(type(operation).__name__.lower() for operation in operations)
    keys = [file_key(location, file.path) for one in operations for file in given_files(one)]
    if not keys:
        return name
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return f"{name}, with the rows of {', '.join(keys[:_NAMED])}{more} (until gc deletes them)"


# -------------------- version hints
#
# Version hints, by which readers without LakeVilla find an Iceberg table's newest version.
#
# A client writes the hint after the new version, which is valid without the hint. If the client
# dies between the two, or its write is late, the hint names an older version. LakeVilla does not
# depend on hints, but readers that trust a hint see an old state until the next commit.


#: The number of attempts to write a hint while other clients commit, or the store refuses.
_ATTEMPTS = 3


def announce_tables(
    context: Context,
    head: Head,
    leave_out: Collection[str | None],
    among: Collection[str] | None = None,
) -> Program[list[Finding]]:
    """Write the version hints of the lake's tables again that don't name the newest versions.

    The tables of HEAD must be cached, except those in damaged leaves.
    """
    locations = [
        location
        for location, state in head.tables.cached(among).items()
        # Delta tables and tables in catalogs have no hint, so they are not even opened.
        if state.format == "iceberg"
        and not (state.catalog or state.dropped or location in leave_out)
    ]
    found = yield from some_at_once(_announce(context, head, location) for location in locations)
    return [finding for some in found for finding in some]


def report_behind(context: Context, tail: Tail) -> Program[list[Finding]]:
    """Return a finding if a table's hint does not name the newest version, that of ``tail``."""
    if tail.tip < 0 or (yield from context.formats.of(tail.snapshot).is_announced(tail.snapshot)):
        return []
    return [
        Finding(
            "warning",
            "unannounced",
            f"the hint of table {tail.location} does not name version {tail.tip}, the newest, and "
            "some clients without LakeVilla rely on it: `lakevilla recover` writes it",
            table=tail.location,
        )
    ]


def _announce(context: Context, head: Head, location: str) -> Program[list[Finding]]:
    """Write a table's hint until it names the version that is the newest after the write.

    This is safe with concurrent writers because the log is read again after each write. If no newer
    version exists then, the next client that commits will write the hint itself, later than this
    write. If a newer version exists, this write may have set the hint back, and the loop corrects
    it.
    """
    try:
        tail = yield from open_tail(context, location, missing_ok=True)
        tail = yield from probe(context, tail)
        if (yield from is_lost(context, head, location, tail)):
            return []
        for _ in range(_ATTEMPTS):
            behind = yield from report_behind(context, tail)
            if not behind:
                return []
            yield from context.formats.of(tail.snapshot).announce(tail.snapshot)
            tail = yield from probe(context, tail)
        return (yield from report_behind(context, tail))
    except LakeVillaError as error:
        # Only a warning: no commit waits for the hint, and the doctor reports errors of the table.
        return [Finding("warning", error.kind, error.message, table=location)]


# -------------------- doctor tables
#
# Reports of doctor and recovery on whether a table can be opened and its files listed.


def opened(context: Context, head: Head, location: str) -> Program[Tail | Finding]:
    """Return a table's log up to its newest version, or a finding on why no client can open it.

    This also checks the objects that a reader needs in addition to the log: manifests, and parts of
    checkpoints.
    """
    beyond = out_of_reach(context, head, location)
    if beyond is not None:
        return beyond
    try:
        # A client that is open for long knows a log that may be gone by now.
        yield from forget_if_gone(context, location)
        tail = yield from refresh(context, location)
        if (yield from is_lost(context, head, location, tail)):
            gone = replaced(location, head.tables[location], tail)
            return Finding("error", "table_lost", gone.message, table=location)
        if (yield from _is_set_back(context, head, tail)):
            evidence = f"the log of table {location} holds a later commit of this lake"
            return unreadable(location, went_back(head, evidence))
        yield from (yield from build_view(context, head, location, tail)).snapshot.check_files()
    except LakeVillaError as error:
        return unreadable(location, error)
    return tail


def out_of_reach(context: Context, head: Head, location: str) -> Finding | None:
    """Return the finding that a table's catalog was not given to this client, which says nothing
    about the table.
    """
    state = head.tables.peek(location)
    if state is None or not state.catalog:
        return None
    name = name_in_catalog(state.catalog)
    catalog = name.partition(".")[0]
    if catalog in context.connected:
        return None
    message = f"table {name} was not looked at: only its catalog {catalog!r} knows where its log is"
    return Finding(
        "warning",
        "catalog_not_given",
        f"{message}: connect with catalogs={{{catalog!r}: ...}}",
        table=location,
    )


def unreadable(table: str, error: LakeVillaError) -> Finding:
    """Return the finding that readers can't open a table, with the reason."""
    key = getattr(error, "key", None)
    return Finding("error", error.kind, error.message, table, error.txn_id, key)


def _is_set_back(context: Context, head: Head, tail: Tail) -> Program[bool]:
    """Return whether the log has a commit of this lake that is newer than the present HEAD."""
    known = None if tail.tip < 0 else tail.snapshot.application_version(application_id(head))
    if known is None or known <= head.sequence:
        return False
    held = yield from context.head()
    # A commit that was decided and published after ``head`` was read is in a newer HEAD.
    return held is not None and held.head.replacement == head.replacement
