"""Recovery: finishing what others have left. At any time, from anywhere, twice equals once."""

from __future__ import annotations

import msgspec

from lakevilla.errors import LakeVillaError, StoreError
from lakevilla.global_log.head import Head, successor
from lakevilla.global_log.repo import LakeFile, lake_key
from lakevilla.results import Finding, Report
from lakevilla.store.base import ANY
from lakevilla.store.effects import Program, Put, parallel
from lakevilla.sublogs.codec import FORMAT, encode
from lakevilla.transaction.context import Context, Event
from lakevilla.transaction.operating import replace_until_stored
from lakevilla.transaction.publish import publish_table
from lakevilla.transaction.tail import open_tail, probe, snapshot_at

__all__ = ["adopt_lake", "checkpoint", "recover"]


def recover(context: Context) -> Program[Report]:
    """Publish every decided commit that its tables' logs do not hold yet."""
    held = yield from context.head()
    if held is None:
        return Report(True)
    context.refuse_foreign_root()
    head = held.head
    locations = [location for location, state in head.tables.items() if state.pending]
    found = yield from parallel([_recover_table(context, head, location) for location in locations])
    findings = tuple(finding for some in found for finding in some)
    return Report(all(finding.severity != "error" for finding in findings), findings)


def _recover_table(context: Context, head: Head, location: str) -> Program[list[Finding]]:
    try:
        tail = yield from open_tail(context, location, missing_ok=True)
        tail = yield from probe(context, tail)
        before = tail.tip
        published = yield from publish_table(context, head, location)
    except LakeVillaError as error:
        return [Finding("error", error.kind, error.message, table=location)]
    if not published.complete:
        return [
            Finding(
                "error",
                "unpublished",
                f"table {location} has decided commits that could not be published in time: "
                "recover again",
                table=location,
            )
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
    return [
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
    """Write the checkpoint of a published version."""
    tail = yield from open_tail(context, location)
    if tail.tip < version:
        tail = yield from probe(context, tail)
    snapshot = yield from snapshot_at(context, tail, version)
    yield from context.format.checkpoint(snapshot)


def adopt_lake(context: Context) -> Program[None]:
    """Give a copied or moved lake a new identity (hazard 30).

    What is pending is published first, under the old lake's name; tables
    elsewhere still belong to the old lake and are left out.
    """
    held = yield from context.head()
    if held is None or held.head.root == context.root:
        return
    for location, state in held.head.tables.items():
        if state.pending and not _is_external(location):
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
        tables = {}
        for location, state in head.tables.items():
            if not _is_external(location):
                tail = yield from open_tail(context, location, missing_ok=True)
                tables[location] = msgspec.structs.replace(state, published=tail.tip, pending=())
        new = successor(head, nonce=context.ids.nonce(), now_ms=context.now_ms())
        return msgspec.structs.replace(
            new,
            lake_id=context.ids.uuid(),
            root=context.root,
            tables=tables,
            names={n: where for n, where in head.names.items() if not _is_external(where)},
        )

    head = yield from replace_until_stored(context, change, adopting=True)
    # The copies of the old lake's claims are now under the new lake's root.
    owner = LakeFile(FORMAT, context.ids.nonce(), head.lake_id, head.root)
    yield from parallel([Put(lake_key(location), encode(owner), ANY) for location in head.tables])


def _is_external(location: str) -> bool:
    return "://" in location or location.startswith("/")
