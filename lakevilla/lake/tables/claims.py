"""Claims, each table's ``lake.json``: notes of names in them, and lost claims (hazard 40)."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable

import msgspec

from lakevilla.errors import LakeVillaError, StoreError
from lakevilla.global_log.head import NOWHERE, Head, TableState
from lakevilla.global_log.repo import (
    LakeFile,
    claim_table,
    held_claim,
    lake_key,
    load_names,
    load_tables,
    release_claim,
)
from lakevilla.lake.context import Context
from lakevilla.results import Finding
from lakevilla.store.base import ANY, Found, Match, Refused, Stored, Token
from lakevilla.store.codec import FORMAT, decode, encode
from lakevilla.store.effects import Program, get, parallel, put, some_at_once
from lakevilla.store.location import is_external

#: The number of attempts to write a claim that other clients write, too.
_ATTEMPTS = 3


def note_names(context: Context, locations: Iterable[str]) -> Program[None]:
    """Write HEAD's names of tables into the tables' claims, for the case that HEAD is lost.

    These notes are hints, so no error is raised: ``recover`` writes notes that are missing. If HEAD
    is a log, no claim can be replaced, and none need be: older HEADs stay, so names are not lost.
    """
    yield from parallel([_note(context, location) for location in locations])


def _note(context: Context, location: str) -> Program[None]:
    """Note the names of one table in its claim; safe concurrently with other clients.

    The claim is read before HEAD, and replaced under ``Match``. So older names never replace newer
    ones: each client notes HEAD's names after it has replaced HEAD, and if two clients write at
    once, the store refuses one of them, which reads claim and HEAD again. A claim that was released
    is not restored.
    """
    key = lake_key(location)
    try:
        for _ in range(_ATTEMPTS):
            outcome = yield from get(key)
            held = yield from context.head()
            if not isinstance(outcome, Found) or held is None or held.head.as_log:
                return
            yield from load_names(held.head)
            owner = decode(key, outcome.body, LakeFile)
            names = _names(held.head).get(location, ())
            nowhere = held.head.names.get(location) == NOWHERE
            if not owner.names(held.head) or (owner.aliases, owner.renamed) == (names, nowhere):
                return
            noted = msgspec.structs.replace(
                owner, nonce=context.ids.nonce(), aliases=names, renamed=nowhere
            )
            if not isinstance((yield from put(key, encode(noted), Match(outcome.token))), Refused):
                return
    except LakeVillaError:
        return


def _unclaimed(location: str) -> Finding:
    message = (
        f"{lake_key(location)} is missing, so no file of table {location}, which is stored "
        "outside of the lake, is ever deleted: `register` it again, which claims it"
    )
    return Finding("error", "lake_file", message, table=location, key=lake_key(location))


def _of_another(location: str, owner: LakeFile, state: TableState) -> Finding:
    message = (
        f"{lake_key(location)} names the table {owner.table_id or 'of no id'}, and table "
        f"{location} is {state.table_id}, so no file of it is ever deleted: `register` it again"
    )
    return Finding("warning", "lake_file", message, table=location, key=lake_key(location))


def _names(head: Head) -> dict[str, tuple[str, ...]]:
    """Return the names of each location, in HEAD's order."""
    found: dict[str, list[str]] = {}
    for name, location in head.names.items():
        found.setdefault(location, []).append(name)
    return {location: tuple(names) for location, names in found.items()}


def restore_claims(
    context: Context,
    head: Head,
    among: Collection[str] | None = None,
    leave_out: Container[str | None] = (),
) -> Program[list[Finding]]:
    """Claim tables again whose claim is missing, or names the lake by a former id.

    If HEAD is a log, no claim can be replaced: one that names a former id stays, and is the lake's.

    With ``among``, only the tables in it are checked; those of ``leave_out`` are not.
    """
    yield from load_tables(head, among)
    yield from load_names(head)
    names = _names(head)
    live = [
        location
        for location, state in head.tables.cached(among).items()
        if not (state.dropped or location in leave_out)
    ]
    found = yield from some_at_once(_restore(context, head, location, names) for location in live)
    return [finding for finding in found if finding is not None]


def adopt_claims(context: Context, head: Head) -> Program[None]:
    """Write an adopted lake's id, root and names into its tables' claims, which name the old lake.

    A claim of any other lake stays, and a table that was released gets none. To do it twice changes
    nothing.

    Raises
    ------
    StoreError
        A claim could not be written.
    """
    yield from load_tables(head)
    yield from load_names(head)
    names = _names(head)
    yield from some_at_once(
        _adopt(context, head, location, names.get(location, ()))
        for location in head.tables
        if not is_external(location)
    )


def _adopt(context: Context, head: Head, location: str, aliases: tuple[str, ...]) -> Program[None]:
    key, state = lake_key(location), head.tables[location]
    held = yield from held_claim(location)
    owner = None if held is None or not held[0].lake_id else held[0]
    if owner is None and state.dropped:
        return
    if owner is not None and owner.lake_id not in head.former:
        return
    claim = LakeFile(
        FORMAT,
        context.ids.nonce(),
        head.lake_id,
        head.root,
        aliases,
        state.catalog,
        renamed=head.names.get(location) == NOWHERE,
        table_id=state.table_id,
    )
    # Without a condition: a copy of a lake may be on a store that only creates.
    outcome = yield from put(key, encode(claim), ANY)
    if not isinstance(outcome, Stored):
        raise StoreError(
            f"{key} was not stored, so another lake may claim table {location}: adopt again",
            table=location,
        )


def _is_out(context: Context, location: str) -> Program[bool]:
    held = yield from context.head()
    if held is None:
        return False
    yield from load_tables(held.head, [location])
    state = held.head.tables.get(location)
    return state is None or state.dropped


def _restore(
    context: Context, head: Head, location: str, names: dict[str, tuple[str, ...]]
) -> Program[Finding | None]:
    """Write the claim again, and release it if the table was unregistered meanwhile.

    This is safe because ``unregister`` replaces HEAD before it releases the claim. If a client sees
    no claim while its HEAD still names the table, and stores a claim too late, it finds in the
    newer HEAD that the table was unregistered. Only a claim that was made here is released: any
    other may be that of a client that is about to add the table. Outside of the root no claim is
    made: there HEAD alone does not prove that the table is the lake's, and a claim would allow its
    deletion.
    """
    aliases = names.get(location, ())
    nowhere = head.names.get(location) == NOWHERE
    try:
        held = yield from held_claim(location)
        owner = None if held is None or not held[0].lake_id else held[0]
        if owner is not None and owner.lake_id == head.lake_id:
            if (owner.aliases, owner.renamed) != (aliases, nowhere):
                yield from _note(context, location)
            if is_external(location) and owner.table_id != head.tables[location].table_id:
                return _of_another(location, owner, head.tables[location])
            return None
        if owner is None and is_external(location):
            return _unclaimed(location)
        if owner is not None and not owner.names(head):
            message = (
                f"table {location} is claimed by the lake at {owner.root} (id {owner.lake_id}) "
                "too: `unregister` it in one of them, before both write it"
            )
            return Finding("error", "lake_file", message, table=location, key=lake_key(location))
        if owner is not None and head.as_log:
            return None
        ids, state = context.ids, head.tables[location]
        catalog = state.catalog
        made: Token | None = None
        if owner is None or held is None:
            made = yield from claim_table(
                location, head, ids, state.table_id, aliases=aliases, catalog=catalog
            )
        else:
            claim = msgspec.structs.replace(owner, nonce=ids.nonce(), lake_id=head.lake_id)
            outcome = yield from put(lake_key(location), encode(claim), Match(held[1]))
            made = outcome.token if isinstance(outcome, Stored) else None
        if (yield from _is_out(context, location)):
            if made is not None:
                yield from release_claim(location, made, head, ids)
            return None
        yield from _note(context, location)
    except LakeVillaError as error:
        return Finding("error", error.kind, error.message, table=location)
    message = f"{lake_key(location)} was written again: this lake claims table {location}"
    return Finding("note", "lake_file", message, table=location, key=lake_key(location))
