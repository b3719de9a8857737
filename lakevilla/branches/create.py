"""Make a ref: store its base, and replace HEAD by one that names the ref."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lakevilla.branches.branches import find_ref, finish, replace, store_first_head, was_made
from lakevilla.branches.states import (
    at_time,
    at_version,
    below_source,
    chosen,
    now,
    parted,
    with_logs,
)
from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    RefExists,
    StoreError,
    VersionNotFound,
)
from lakevilla.global_log.bases import Base, seal_base, store_base, with_copies
from lakevilla.global_log.head import Head, successor, with_refs
from lakevilla.global_log.refs import RefEntry, RefKind, check_name, new_epoch, parsed
from lakevilla.global_log.repo import (
    load_head,
    load_refs,
    store_leaves,
    store_leaves_of,
)
from lakevilla.lake.context import Context, Event
from lakevilla.lake.frozen.branch_head import Branch, ended, has_ended, is_closed, load_branch
from lakevilla.lake.frozen.frozen import Frozen
from lakevilla.lake.frozen.states import base_of
from lakevilla.lake.newer import refuse_older
from lakevilla.lake.tables.overlaps import (
    found_there,
    refuse_outside,
    refuse_place,
    refuse_twins,
)
from lakevilla.store.effects import Program, parallel
from lakevilla.store.location import at_home

_MAX_RACES = 200

#: The state of which a ref is made, as a kind and its value: a version, a time (milliseconds), or a
#: ref's name; None for the lake now.
At = tuple[str, int | str] | None


def create_ref(
    context: Context,
    name: str,
    kind: RefKind,
    at: At,
    *,
    tables: Sequence[str] | None,
    absorb: Sequence[str] | None = None,
    protected: bool,
    metadata: Mapping[str, str],
    created_by: str,
    source: str = "",
) -> Program[RefEntry]:
    """Make a ref of a state of the lake; a clone shows the tables at and below ``source``.

    The ref's base names only files that are live in the HEAD that is replaced, or that no vacuum
    may delete (``branches.states``). So a client that deletes files has seen the ref, or has
    replaced HEAD before the ref was made.

    Raises
    ------
    RefExists
        A ref of that name exists.
    VersionNotFound
        That state is not kept any more.
    InvalidOperation
        The name can't be that of a ref.
    """
    _check_asked(name, at, absorb, source)
    described = {"created_by": created_by, "protected": protected, "metadata": dict(metadata)}
    tried: dict[str, RefEntry] = {}
    for _ in range(_MAX_RACES):
        held = yield from context.head()
        if held is None:
            if at is not None:
                raise VersionNotFound(
                    "the lake has no global version yet: its first transaction makes one, so "
                    "leave out at"
                )
            held = yield from context.make_head()
        context.refuse_foreign_root()
        head = held.head
        # Load all refs, because the base records the lake's clones.
        yield from load_refs(head)
        known = head.refs.get(name)
        if known is not None and known.id in tried:
            return known  # the ref was made, and the store's answer lost
        for entry in tried.values():
            if kind == "branch" and (yield from was_made(entry)):
                return entry  # the branch was made, and another client has deleted it since
        if known is not None and known.kind == "branch" and (yield from _is_over(known)):
            yield from finish(context, name, known)
            continue
        if known is not None:
            raise RefExists(
                f"there is a {known.kind} {name!r} already, of global version "
                f"{known.base.sequence}: choose another name, or delete_ref({name!r}) first"
            )
        if source:
            yield from _refuse_mount(head, source, name, is_first=not tried)
        if not tried:
            yield from refuse_older(context, f"{kind} {name!r}", once=True)
        new = yield from _next(context, head, at, tables, absorb, source)
        base = yield from _base(context, head, new, name, kind, at)
        base = yield from _narrowed(context, head, base, tables, source)
        if source:
            yield from refuse_twins(new, base, source, name)
        fields = {**described, **(yield from _shown(head, new, at, tables, source))}
        entry, size = yield from _stored(context, head, base, new.replacement, fields)
        tried[entry.id] = entry
        new = yield from with_copies(with_refs(new, {name: entry}), size)
        if (yield from replace(context, held, new)):
            return entry
    raise StoreError(f"HEAD was replaced by other clients {_MAX_RACES} times in a row: try again")


def _refuse_mount(head: Head, source: str, to: str, *, is_first: bool) -> Program[None]:
    """Refuse a place for a clone, by HEAD, and at the first attempt by the objects stored there."""
    yield from refuse_place(head, source, to)
    reason = (yield from found_there(to, head)) if is_first else None
    if reason is not None:
        raise InvalidOperation(f"clone: {reason}", table=to)


def _check_asked(name: str, at: At, absorb: Sequence[str] | None, source: str) -> None:
    """Refuse a request that is invalid for every lake. Raises ``InvalidOperation``."""
    if source:
        refuse_outside(name)
    check_name(name)
    if at is not None and absorb is not None:
        raise InvalidOperation(
            "`absorb` includes the commits of other clients up to now, and `at` names an older "
            "state: leave one of them out"
        )


def _narrowed(
    context: Context, head: Head, base: Base, tables: Sequence[str] | None, source: str
) -> Program[Base]:
    """Return the part of a base that the ref shows."""
    if source:
        return (yield from below_source(head, base, source))
    if tables is not None:
        return (yield from chosen(base, tables))
    if not base.tables.refs and all(one.dropped for one in base.tables.values()):
        _tell_empty(context, base.kind, base.name)
    return base


def _stored(
    context: Context, head: Head, base: Base, made: int, fields: Mapping[str, Any]
) -> Program[tuple[RefEntry, int]]:
    """Store the base of a ref, and for a branch its first HEAD.

    Return the ref's entry, which has ``fields``, and the length of the base.
    """
    entry_id = f"{made}-{context.ids.nonce()[:16]}"
    epoch = new_epoch(made, context.ids.nonce()) if base.kind == "branch" else ""
    base = msgspec.structs.replace(base, epoch=epoch)
    yield from store_leaves_of([base.tables, base.names], made)
    ref, body = seal_base(base, made)
    stores: list[Program[None]] = [store_base(ref, body)]
    if epoch:
        stores.append(store_first_head(context, head, base, ref, entry_id))
    yield from parallel(stores)
    epochs = (epoch,) if epoch else ()
    entry = RefEntry(entry_id, base.kind, ref, context.now_ms(), epochs=epochs, **fields)
    return entry, len(body)


def open_ref(context: Context, name: str) -> Program[Frozen | Branch]:
    """Return the state that a ref keeps, a branch, or an older version of a branch (``etl@57``).

    Raises
    ------
    RefNotFound
    VersionNotFound
    CorruptObject
        An object that keeps the state is damaged, or missing.
    """
    plain, version = parsed(name)
    for _ in range(_MAX_RACES):
        head, entry = yield from find_ref(context, plain)
        if entry.kind != "branch" or version is not None:
            base = yield from base_of(head, name)
            return Frozen.of(name, entry, base, head)
        held = yield from load_branch(name, entry)
        if not is_closed(held):
            return Branch(name, entry, held)
        yield from finish(context, name, entry)
        if has_ended(held):
            raise ended(name)
    raise StoreError(f"branch {name!r} was rebased {_MAX_RACES} times in a row: try again")


def _is_over(entry: RefEntry) -> Program[bool]:
    try:
        held = yield from at_home(entry.epoch, load_head())
    except CorruptObject:
        return False
    return held is not None and has_ended(held)


def _tell_empty(context: Context, kind: RefKind, name: str) -> None:
    """Report a ref without any table: its user has probably expected the lake to have some."""
    context.notify(
        Event(
            "left_out",
            None,
            f"{kind} {name!r} has no table, as the lake has none: a table joins it by "
            "`create_table`, `register` or the first transaction that writes it, and is in the "
            "branches and tags that are made from then on; `register(discover=True)` adds all "
            "tables below the root",
            {"ref": name, "tables": 0},
        )
    )


def _next(
    context: Context,
    head: Head,
    at: At,
    tables: Sequence[str] | None,
    absorb: Sequence[str] | None,
    source: str,
) -> Program[Head]:
    """Return the HEAD that is to follow, without the ref's entry yet."""
    if at is not None:
        return successor(head, nonce=context.ids.nonce(), now_ms=context.now_ms())
    new = yield from with_logs(context, head, tables, absorb, below=source or None)
    # The base names the new HEAD's leaves, so they are stored before it.
    yield from store_leaves(new)
    return new


def _shown(
    head: Head, new: Head, at: At, tables: Sequence[str] | None, source: str
) -> Program[dict[str, Any]]:
    """Return the fields of a ref's entry that say which part of its base it shows."""
    if source:
        return {"source": source, "since": new.sequence}
    return {"only": (yield from _only(head, at)) if tables is None else tuple(tables)}


def _only(head: Head, at: At) -> Program[tuple[str, ...]]:
    """Return the patterns of tables that a new ref inherits from the ref of which it is made."""
    match at:
        case ("ref", str(other)):
            plain, _ = parsed(other)
            yield from load_refs(head, [plain])
            return head.refs[plain].only
    return ()


def _base(
    context: Context, head: Head, new: Head, name: str, kind: RefKind, at: At
) -> Program[Base]:
    match at:
        case None:
            return now(new, name, kind)
        case ("version", int(version)):
            return (yield from at_version(context, head, now(head, name, kind), version))
        case ("time", int(instant)):
            return (yield from at_time(context, head, now(head, name, kind), instant))
        case ("ref", str(other)):
            other_base = yield from base_of(head, other)
            if kind == "branch" and other_base.kept:
                other_base = yield from parted(other_base)
            return msgspec.structs.replace(other_base, name=name, kind=kind)
    raise AssertionError(at)
