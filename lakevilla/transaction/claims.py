"""Claims that were lost: other clients' clean-up deletes ``lake.json`` too (hazard 40)."""

from __future__ import annotations

from lakevilla.errors import LakeVillaError
from lakevilla.global_log.head import Head
from lakevilla.global_log.repo import LakeFile, claim_of, claim_table, lake_key, load_tables
from lakevilla.results import Finding
from lakevilla.store.base import ANY
from lakevilla.store.effects import Program, delete, parallel, put
from lakevilla.sublogs.codec import FORMAT, encode
from lakevilla.transaction.context import Context

__all__ = ["restore_claims"]


def restore_claims(context: Context, head: Head) -> Program[list[Finding]]:
    """Claim the lake's tables again whose claim is missing, or names the lake by an id it had."""
    yield from load_tables(head)
    live = [where for where, state in head.tables.items() if not state.dropped]
    told = yield from parallel([_restore(context, head, location) for location in live])
    return [finding for finding in told if finding is not None]


def _restore(context: Context, head: Head, location: str) -> Program[Finding | None]:
    """Put the claim back, and take it away again if the table was let go meanwhile.

    Safe because ``unregister`` moves HEAD before it deletes the claim: whoever saw the claim
    gone and HEAD still naming the table, and stores it late, finds that out in the newer HEAD.
    """
    try:
        owner = yield from claim_of(location)
        if owner is not None and owner.lake_id == head.lake_id:
            return None
        if owner is not None and not owner.names(head):
            told = (
                f"table {location} is claimed by the lake at {owner.root} (id {owner.lake_id}) "
                "too: `unregister` it in one of them, before both write it"
            )
            return Finding("error", "lake_file", told, table=location, key=lake_key(location))
        catalog = head.tables[location].catalog
        if owner is None:
            yield from claim_table(location, head, context.ids, catalog=catalog)
        else:
            ours = LakeFile(
                FORMAT, context.ids.nonce(), head.lake_id, head.root, owner.aliases, owner.catalog
            )
            yield from put(lake_key(location), encode(ours), ANY)
        held = yield from context.head()
        if held is not None:
            yield from load_tables(held.head, [location])
            state = held.head.tables.get(location)
            if state is None or state.dropped:
                yield from delete(lake_key(location))
                return None
    except LakeVillaError as error:
        return Finding("error", error.kind, error.message, table=location)
    told = f"{lake_key(location)} was written anew: this lake rules table {location}"
    return Finding("note", "lake_file", told, table=location, key=lake_key(location))
