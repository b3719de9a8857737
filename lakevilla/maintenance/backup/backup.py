"""Copy a lake, as of one global version, to a directory in its store (note 84)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from lakevilla.branches.change import delete_ref
from lakevilla.branches.create import create_ref
from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    RefNotFound,
    StoreError,
    VersionNotFound,
)
from lakevilla.formats.files import data_files
from lakevilla.global_log.bases import Base, load_base
from lakevilla.global_log.head import Head
from lakevilla.global_log.namespaces import NamespaceFile, made_namespaces
from lakevilla.global_log.refs import RefEntry
from lakevilla.global_log.repo import load_names, load_refs
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.branch_head import frozen_now, open_branch
from lakevilla.lake.frozen.states import AtBase, SeenBase
from lakevilla.lake.integrity import with_hashes
from lakevilla.lake.kept_state import kept_object
from lakevilla.maintenance.backup.copying import copy_objects
from lakevilla.maintenance.backup.files import Needed, need, needed_by
from lakevilla.maintenance.backup.manifest import (
    Manifest,
    SavedRef,
    StateRef,
    load_manifest,
    manifest_names,
    own_target,
    store_manifest,
)
from lakevilla.results import Backup
from lakevilla.store.base import ANY, ObjectInfo, Unknown
from lakevilla.store.codec import FORMAT
from lakevilla.store.content import compare_all, damaged
from lakevilla.store.effects import (
    Program,
    list_objects,
    parallel,
    put,
    some_at_once,
)
from lakevilla.store.location import is_external

#: The beginning of the names of tags that keep what a backup copies, or what a restore has copied.
PIN = "lakevilla-backup/"
#: How often a backup begins again with the newest state, as a ref has ended meanwhile.
_TRIES = 5
#: The number of states that are stored in one round.
_AT_ONCE = 64


def backup(context: Context, target: str, owner: str, *, hashes: bool = False) -> Program[Backup]:
    """Copy the lake's present state, its tags and branches; return what the backup has.

    A tag keeps the state while it is copied, so that no clean-up of this library deletes a file.
    Files that the target has, by their names and sizes, are not copied again.

    Parameters
    ----------
    target : str
        The directory, as an absolute location in the store of the lake.
    hashes : bool
        Compare the bytes of the copies with the hashes that their tables' logs have.

    Raises
    ------
    InvalidOperation
        The target has other objects, or the backups of another lake; or a table is stored outside
        of the root.
    CorruptObject
        A file of the lake is missing or was damaged: there is no backup then.
    """
    held = yield from context.head()
    if held is None:
        raise InvalidOperation(f"backup: {context.root} has no lake yet: nothing to back up")
    head = held.head
    there = yield from sizes_below(target)
    keys = sorted(there)
    yield from own_target(target, head.lake_id, head.former, context.root, context.ids, keys)
    for attempt in range(_TRIES):
        name = f"{PIN}{context.ids.nonce()[:16]}"
        entry, pinned = yield from _pinned(context, name, target, owner)
        try:
            found = yield from _copied(context, target, entry, pinned, there, hashes=hashes)
        except LakeVillaError as error:
            yield from unpin(context, name)
            # The next try has a tag of its own: what a ref has lost may be in main by now.
            if not isinstance(error, RefNotFound | VersionNotFound) or attempt == _TRIES - 1:
                raise
            there = yield from sizes_below(target)  # with what was copied
        else:
            yield from unpin(context, name)
            break
    yield from drop_pins(context, context.now_ms() - round(context.settings.max_age_seconds * 1000))
    return found


# -------------------- pins


def _pinned(context: Context, name: str, target: str, owner: str) -> Program[tuple[RefEntry, Head]]:
    """Make the tag that keeps the present state; return it, and the HEAD of the same state."""
    entry = yield from create_ref(
        context,
        name,
        "tag",
        None,
        tables=None,
        protected=False,
        metadata={"target": target},
        created_by=owner,
    )
    assert context.held is not None, "the tag is in a HEAD"
    return entry, context.held.head


def unpin(context: Context, name: str) -> Program[None]:
    """Delete a tag that has kept the files of a backup."""
    with suppress(RefNotFound):  # another client has deleted it, or the store's answer was lost
        yield from delete_ref(context, name)


def drop_pins(context: Context, before_ms: int) -> Program[None]:
    """Delete the tags that earlier calls have left, as their clients have died."""
    held = yield from context.head()
    assert held is not None, "the lake has had a HEAD"
    yield from load_refs(held.head)
    for name, entry in held.head.refs.items():
        if name.startswith(PIN) and entry.created_ms < before_ms:
            yield from unpin(context, name)


# -------------------- copy


@dataclass
class _Copying:
    """The states that one backup has, with the bodies to store and the objects to copy."""

    bodies: dict[str, bytes] = field(default_factory=dict)
    needed: dict[str, Needed] = field(default_factory=dict)


def _copied(
    context: Context,
    target: str,
    pin: RefEntry,
    head: Head,
    there: Mapping[str, int],
    *,
    hashes: bool,
) -> Program[Backup]:
    """Copy one state of the lake, and store its manifest last.

    ``there``: the objects that the target has, with their sizes.

    The refs are those of the HEAD that has got the tag. A branch that a later commit has merged
    would be in the backup without its changes, which main does not have in it either.
    """
    if head.sequence != pin.base.sequence:  # the store's answer was lost, and others went on
        raise VersionNotFound(f"backup: global version {pin.base.sequence} is over: back up again")
    yield from load_refs(head)
    yield from load_names(head)
    copying = _Copying()
    base = yield from load_base(pin.base)
    tables = yield from _tables(context, copying, AtBase(base), hashes=hashes)
    refs = yield from _refs(context, head, copying, hashes=hashes)
    before = manifest_names(list(there))
    last = None if not before else (yield from load_manifest(target, before[-1]))
    copied = yield from _copy(context, target, copying.needed, there)
    yield from _store(target, copying, there)
    if hashes:
        yield from compare_copies(target, copying.needed.values())
    namespaces = yield from made_namespaces()
    sizes = [one.size or 0 for one in copying.needed.values()]
    manifest = Manifest(
        FORMAT,
        head.lake_id,
        context.root,
        base.sequence,
        max(head.replacement, 0 if last is None else last.replacement),
        context.now_ms(),
        tables,
        names=dict(base.names.items()),
        refs=tuple(refs),
        policy=head.policy,
        namespaces=tuple(
            NamespaceFile(FORMAT, "", namespace, dict(properties))
            for namespace, properties in sorted(namespaces.items())
        ),
        former=head.former,
        files=len(sizes),
        bytes=sum(sizes),
    )
    name = yield from store_manifest(target, manifest)
    return Backup(
        target,
        name,
        base.sequence,
        len(tables),
        tuple(one.name for one in refs),
        len(sizes),
        sum(sizes),
        len(copied),
        sum(one.size or 0 for one in copied),
    )


def _tables(
    context: Context, copying: _Copying, state: AtBase, *, hashes: bool
) -> Program[dict[str, StateRef]]:
    """Return the states of all tables of a state of the lake, and note what they need."""
    locations = sorted((yield from state.tables()))
    captured = [_captured(context, copying, state, one, hashes=hashes) for one in locations]
    found = yield from some_at_once(captured)
    return {one: state for one, state in zip(locations, found, strict=True) if state is not None}


def _captured(
    context: Context, copying: _Copying, state: AtBase, location: str, *, hashes: bool
) -> Program[StateRef | None]:
    """Note what one table needs, and return its state; None if it is not there."""
    if is_external(location):
        raise InvalidOperation(
            f"backup: table {location} is stored outside of the lake's root, so a restored lake "
            f"would share its files with this one ({state.name} has it): `unregister` it, or copy "
            "it below the root",
            table=location,
        )
    view = (yield from state.views(context, [location]))[location]
    if view is None:
        return None
    snapshot = view.snapshot
    files = yield from snapshot.files()
    tagged = files
    if hashes:
        tagged = yield from with_hashes(context, location, snapshot.format, files)
    objects = list(needed_by(context.root, location, data_files(tagged)))
    outside = next((one.key for one in objects if is_external(one.key)), None)
    if outside is not None:
        raise InvalidOperation(
            f"backup: table {location} names the file {outside}, which is stored outside of the "
            f"lake's root ({state.name} has it): rewrite the table's rows, or copy it below the "
            "root",
            table=location,
        )
    need(copying.needed, objects)
    digest, body = kept_object(snapshot, files)
    found = StateRef(digest, snapshot.table_id, snapshot.format, snapshot.is_view)
    copying.bodies[found.key] = body
    return found


def _refs(
    context: Context, head: Head, copying: _Copying, *, hashes: bool
) -> Program[list[SavedRef]]:
    """Return the tags and branches of a HEAD; clones are among the tables already."""
    found = []
    for name, entry in sorted(head.refs.items()):
        if entry.kind == "clone" or name.startswith(PIN):
            continue
        since: dict[str, StateRef] = {}
        base = yield from load_base(entry.bases[-1])
        shown: Base = base
        if entry.kind == "branch":
            branch = yield from open_branch(name, entry)
            shown = yield from frozen_now(branch)
            since = yield from _tables(context, copying, SeenBase(base, context), hashes=hashes)
        tables = yield from _tables(context, copying, SeenBase(shown, context), hashes=hashes)
        found.append(
            SavedRef(
                name,
                entry.kind,
                base.sequence,
                base.timestamp_ms,
                entry.created_ms,
                entry.created_by,
                tables,
                dict(shown.names.items()),
                since=since,
                protected=entry.protected,
                metadata=entry.metadata,
                only=entry.only,
            )
        )
    return found


def _copy(
    context: Context, target: str, needed: Mapping[str, Needed], there: Mapping[str, int]
) -> Program[list[Needed]]:
    """Have the store copy the objects that the target lacks, and compare what it has then."""
    missing = [one for key, one in needed.items() if not one.fits(there.get(key))]
    gone = yield from copy_objects(
        context.root, [(one.key, f"{target}/{one.key}") for one in missing]
    )
    if gone is not None:
        table = needed[gone].table
        raise VersionNotFound(
            f"table {table}: {gone} is missing although the table names it: `verify` lists all "
            "such files, and a restore of the table to a version without them, or an older "
            "backup, is the way out",
            table=table,
        )
    if not missing:
        return []
    now = yield from sizes_below(target)
    for one in missing:
        if not one.fits(now.get(one.key)):
            raise CorruptObject(
                f"{one.key} of table {one.table} has {now.get(one.key, 0)} bytes in the backup, "
                f"and its table says {one.said}: the lake's file, or the copy, is damaged; "
                "`verify` tells which, then back up again",
                key=one.key,
                table=one.table,
            )
    return missing


def _store(target: str, copying: _Copying, there: Mapping[str, int]) -> Program[None]:
    """Store the states that the target lacks, under their hashes."""
    wanted = [(key, body) for key, body in copying.bodies.items() if there.get(key) != len(body)]
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]
        # An object of another size was cut: its name has the hash of the bytes that it gets now.
        outcomes = yield from parallel([put(f"{target}/{key}", body, ANY) for key, body in some])
        for (key, _), outcome in zip(some, outcomes, strict=True):
            if isinstance(outcome, Unknown):
                raise StoreError(f"could not store {target}/{key} ({outcome.reason}): try again")


def compare_copies(target: str, needed: Iterable[Needed]) -> Program[None]:
    """Raise ``CorruptObject`` for a file of a backup that has other bytes than were written."""
    files = [file for one in needed if (file := one.hashed(target)) is not None]
    for file, wrong in zip(files, (yield from compare_all(files)), strict=True):
        if wrong is not None:
            raise damaged(file, wrong)


def sizes_below(directory: str) -> Program[dict[str, int]]:
    """Return the objects of a directory, by their keys below it, with their sizes; one LIST."""
    start = len(directory) + 1
    listed: Sequence[ObjectInfo] = yield from list_objects(directory)
    return {info.key[start:]: info.size for info in listed}
