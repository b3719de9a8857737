"""Make a lake again from a backup, at an empty root or over what is left of it (note 84).

Each step may be done twice, so a restore that was interrupted is called again, and goes on. A note
in the root says which backup is restored there, until all of it is done.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import msgspec

from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    StoreError,
)
from lakevilla.global_log.head import NOWHERE, Head, successor, with_policy
from lakevilla.global_log.head_log import HEADS_PREFIX
from lakevilla.global_log.namespaces import namespace_key
from lakevilla.global_log.repo import load_head, load_names, load_tables
from lakevilla.lake.context import Context
from lakevilla.lake.tables.claims import restore_claims
from lakevilla.lake.tables.registration import replace_until_stored
from lakevilla.maintenance.backup.backup import PIN, compare_copies, drop_pins, sizes_below
from lakevilla.maintenance.backup.copying import copy_objects
from lakevilla.maintenance.backup.files import Needed
from lakevilla.maintenance.backup.manifest import (
    OWN,
    Manifest,
    load_manifest,
    manifest_names,
)
from lakevilla.maintenance.backup.restored_refs import pin_main, restore_refs
from lakevilla.maintenance.backup.restored_states import RestoredStates
from lakevilla.maintenance.backup.restored_tables import restore_tables, settle_tables
from lakevilla.maintenance.rebuild_head import Beyond, rebuild_head
from lakevilla.results import Finding, Report
from lakevilla.store.base import ABSENT, Condition, Found, Match, Refused, Stored, Unknown
from lakevilla.store.codec import FORMAT, decode, encode
from lakevilla.store.effects import Program, get, list_objects, parallel, put

#: The note of the backup that is restored at a root.
RESTORING_KEY = "_lakevilla/restoring.json"
#: Objects that the check of a store leaves at a root, and the lock of a local directory.
_HARMLESS = ("_lakevilla/probe/", ".lakevilla-lock")


class Restoring(msgspec.Struct, frozen=True):
    """``_lakevilla/restoring.json``: a restore that has begun, and whether it is done.

    ``is_empty``: the root had no object when the restore began. ``lake_id``: the id of the lake
    there, ``""`` if it had no HEAD that could be read.
    """

    REMEDY: ClassVar[str] = "delete it if nothing is being restored"

    format: int
    nonce: str
    backup: str
    name: str
    is_empty: bool
    lake_id: str = ""
    done: bool = False


def restore(
    context: Context,
    source: str,
    name: str | None,
    *,
    owner: str,
    in_place: bool = False,
    hashes: bool = False,
) -> Program[Report]:
    """Make the lake of a backup at the root of ``context``.

    Parameters
    ----------
    source : str
        The directory of the backups, as an absolute location in the store of the root.
    name : str, optional
        The backup's name; the newest one if not given.
    in_place : bool
        Whether the root may have a lake, which is set back to the backup by new versions.
    hashes : bool
        Compare the bytes of the backup's files with their hashes first.

    Raises
    ------
    InvalidOperation
        The root is not empty, or has another lake than that of the backup; another restore has
        begun there; or there is no backup; or HEAD is, or would be, a log there.
    CorruptObject
        An object of the backup is missing or was damaged.
    """
    yield from _refuse_head_log(context)
    there = yield from sizes_below(source)
    manifest, name = yield from _chosen(source, name, there)
    states = RestoredStates(context, source, manifest)
    yield from states.load()
    _check_whole(source, states.needed.values(), there)
    if hashes:
        yield from compare_copies(source, states.needed.values())
    begun = yield from _begun(context, source, name, manifest, in_place=in_place)
    if begun.done:
        return Report(True, (_done(context, manifest, name),))
    findings = [_done(context, manifest, name), *(yield from _fenced(context, manifest, begun))]
    findings += yield from settle_tables(context, states, begun.nonce)
    states.place()
    yield from _copy(states, source)
    pin = f"{PIN}restore-{name.rpartition('-')[2][:16]}"
    yield from pin_main(context, states, pin)
    findings += yield from restore_tables(context, states, owner)
    yield from _note_names(context, states)
    yield from _store_namespaces(context, manifest)
    findings += yield from restore_refs(context, states)
    # No client of the lake before the fence goes on, so none needs the tag of a backup of its own.
    yield from drop_pins(context, context.now_ms() + 1)
    yield from _note_done(context, begun)
    return Report(all(one.severity == "note" for one in findings), tuple(findings))


def _done(context: Context, manifest: Manifest, name: str) -> Finding:
    message = (
        f"backup {name} of {manifest.root} (global version {manifest.sequence}) was restored at "
        f"{context.root}, as a lake with a new id: check it, then `lakevilla recover ROOT "
        "--confirm-head`; until then gc and vacuum delete nothing, and keys used before are unknown"
    )
    return Finding("note", "restored", message)


def refuse_half_restored() -> Program[None]:
    """Refuse to confirm a HEAD while a restore is not done. Raises ``InvalidOperation``."""
    begun, _ = yield from _noted()
    if begun is not None and not begun.done:
        raise InvalidOperation(
            f"backup {begun.name} of {begun.backup} is not restored yet: restore it again, which "
            "goes on, and confirm HEAD then"
        )


# -------------------- begin


def _refuse_head_log(context: Context) -> Program[None]:
    """Refuse a root that can have no fence: where HEAD is a log, no HEAD is replaced (note 9).

    A log without its first object counts, too: a rebuild would only put that back.
    """
    head = yield from _head_there()
    is_log = (head is not None and head.as_log) or (yield from list_objects(f"{HEADS_PREFIX}/"))
    if not is_log and (yield from context.replaces()):
        return
    what = f"HEAD is a log ({HEADS_PREFIX})" if is_log else "the store does not replace objects"
    raise InvalidOperation(
        f"restore: {what} at {context.root}, so the clients of an earlier lake there could not be "
        "refused: restore at another root, in a store with conditional replacements"
    )


def _chosen(source: str, name: str | None, there: Iterable[str]) -> Program[tuple[Manifest, str]]:
    names = manifest_names(list(there))
    if not names:
        raise InvalidOperation(
            f"restore: {source} has no backup: a backup that was interrupted has no manifest in "
            f"{OWN}/manifests, so `backup` the lake again, or choose another directory"
        )
    if name is not None and name not in names:
        raise InvalidOperation(
            f"restore: {source} has no backup {name!r}; it has {', '.join(names[-20:])}"
        )
    chosen = names[-1] if name is None else name
    return (yield from load_manifest(source, chosen)), chosen


def _check_whole(source: str, needed: Iterable[Needed], there: dict[str, int]) -> None:
    """Refuse a backup of which a file is missing or was cut, before anything is written."""
    for one in needed:
        if not one.fits(there.get(one.key)):
            what = "is missing"
            if one.key in there:
                what = f"has {there[one.key]} bytes, and its table says {one.said}"
            raise CorruptObject(
                f"{source}/{one.key} of table {one.table} {what}: {Manifest.REMEDY}",
                key=one.key,
                table=one.table,
            )


def _noted() -> Program[tuple[Restoring | None, Condition]]:
    """Return the note of a restore, and the condition under which another one takes its place."""
    found = yield from get(RESTORING_KEY)
    if not isinstance(found, Found):
        return None, ABSENT
    return decode(RESTORING_KEY, found.body, Restoring), Match(found.token)


def _begun(
    context: Context, source: str, name: str, manifest: Manifest, *, in_place: bool
) -> Program[Restoring]:
    """Note that the restore begins, or find that it had begun before."""
    known, condition = yield from _noted()
    if known is not None and not known.done:
        if (known.backup, known.name) != (source, name):
            raise InvalidOperation(
                f"restore: backup {known.name} of {known.backup} is being restored at "
                f"{context.root}: restore that one again first, which goes on"
            )
        if known.is_empty or in_place:
            return known
    head = yield from _head_there()
    is_it = known is not None and (known.backup, known.name) == (source, name)
    if known is not None and is_it and not in_place and head is not None and head.unconfirmed:
        return known  # it was restored by an earlier call
    listed = yield from list_objects("")
    others = [one.key for one in listed if not one.key.startswith((*_HARMLESS, RESTORING_KEY))]
    if others and not in_place:
        raise InvalidOperation(
            f"restore: {context.root} is not empty: it has {others[0]}; restore at another root, "
            "or, to set this lake back by new versions, in place"
        )
    _refuse_stranger(context, manifest, head)
    lake_id = "" if head is None else head.lake_id
    begun = Restoring(FORMAT, context.ids.nonce(), source, name, not others, lake_id)
    outcome = yield from put(RESTORING_KEY, encode(begun), condition)
    if isinstance(outcome, Refused):
        raise InvalidOperation(
            f"restore: another client has begun to restore a backup at {context.root} at the same "
            "time: restore again once it is done"
        )
    if not isinstance(outcome, Stored):
        raise StoreError(f"could not store {RESTORING_KEY}: restore again")
    return begun


def _refuse_stranger(context: Context, manifest: Manifest, head: Head | None) -> None:
    """Refuse to set a lake back to the backup of one that it never was."""
    if head is None or {head.lake_id, *head.former} & {manifest.lake_id, *manifest.former}:
        return
    raise InvalidOperation(
        f"restore: {context.root} has another lake (id {head.lake_id}) than that of the backup (id "
        f"{manifest.lake_id}, at {manifest.root}): its tables would be replaced by those of the "
        "backup; restore at another root. If it was begun on what is left of the lake of the "
        "backup, delete its _lakevilla/HEAD.json first"
    )


def _head_there() -> Program[Head | None]:
    try:
        held = yield from load_head()
    except CorruptObject:
        return None  # the rebuild replaces it
    return None if held is None else held.head


def _fenced(context: Context, manifest: Manifest, begun: Restoring) -> Program[list[Finding]]:
    """Give the root a HEAD with another lake id, so that no client of the old one goes on."""
    head = yield from _head_there()
    if head is not None and head.unconfirmed and head.lake_id != begun.lake_id:
        return []  # an earlier call has done it
    lakes = frozenset((manifest.lake_id, *manifest.former))
    beyond = Beyond(lakes, manifest.sequence, manifest.replacement)
    context.held = None
    report = yield from rebuild_head(context, force=True, beyond=beyond)
    return [
        one
        for one in report.findings
        if one.kind != "head_rebuilt" and f"tag '{PIN}" not in one.message
    ]


# -------------------- copy


def _copy(states: RestoredStates, source: str) -> Program[None]:
    """Have the store copy the files that the root lacks; one of a wrong size was damaged.

    A root that lacked some is listed once more: no table may name a copy that was cut.
    """
    wanted = yield from _unlike(states)
    missing = yield from copy_objects(
        states.context.root, [(f"{source}/{one.key}", key) for key, one in wanted]
    )
    if missing is not None:
        raise CorruptObject(f"{missing} was removed meanwhile: {Manifest.REMEDY}", key=missing)
    for key, one in (yield from _unlike(states)) if wanted else ():
        raise CorruptObject(
            f"the copy of {source}/{one.key} is missing, or its size is not that which table "
            f"{one.table} says ({one.said}): restore again, which copies it again",
            key=key,
            table=one.table,
        )


def _unlike(states: RestoredStates) -> Program[list[tuple[str, Needed]]]:
    """Return the files that the root lacks or has with another size, by their keys there."""
    listed = yield from list_objects("")
    there = {info.key: info.size for info in listed}
    return [
        (key, one) for key, one in sorted(states.copies.items()) if not one.fits(there.get(key))
    ]


# -------------------- end


def _note_done(context: Context, begun: Restoring) -> Program[None]:
    """Note that a restore is done, unless the note is another one's by now."""
    known, condition = yield from _noted()
    if known != begun:
        return  # another client has restored the same backup at the same time
    done = msgspec.structs.replace(begun, nonce=context.ids.nonce(), done=True)
    if isinstance((yield from put(RESTORING_KEY, encode(done), condition)), Unknown):
        raise StoreError(f"could not store {RESTORING_KEY}: restore again")


def _note_names(context: Context, states: RestoredStates) -> Program[None]:
    """Give the tables that HEAD had lacked their names, and main its protection."""
    manifest = states.manifest

    def change(head: Head) -> Program[Head | None]:
        yield from load_names(head)
        yield from load_tables(head)
        names: dict[str, str | None] = {}
        for location in sorted(states.joined):
            names |= _free_names(manifest, head, location)
        if not names and head.policy == manifest.policy:
            return None
        new = successor(head, nonce=context.ids.nonce(), now_ms=context.now_ms(), names=names)
        return new if new.policy == manifest.policy else with_policy(new, manifest.policy)

    head = yield from replace_until_stored(context, change)
    yield from restore_claims(context, head)


def _free_names(manifest: Manifest, head: Head, location: str) -> dict[str, str]:
    """Return the names that a table had; none if one of them means another table by now."""
    aliases = {name: place for name, place in manifest.names.items() if place == location}
    if location in head.names.values() or any(
        name in head.names or ((state := head.tables.get(name)) is not None and not state.dropped)
        for name in aliases
    ):
        return {}
    is_nowhere = aliases and manifest.names.get(location) == NOWHERE
    return {**aliases, location: NOWHERE} if is_nowhere else aliases


def _store_namespaces(context: Context, manifest: Manifest) -> Program[None]:
    named = [msgspec.structs.replace(one, nonce=context.ids.nonce()) for one in manifest.namespaces]
    yield from parallel([put(namespace_key(one.namespace), encode(one), ABSENT) for one in named])
