"""Ending a ref, and protecting one from that."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lakevilla.errors import InvalidOperation, StoreError
from lakevilla.global_log.head import successor, with_refs
from lakevilla.global_log.refs import RefEntry
from lakevilla.global_log.repo import load_refs
from lakevilla.lake.context import Context
from lakevilla.refs.create import find_ref, not_found, replace
from lakevilla.store.effects import Program

_MAX_RACES = 200


def delete_ref(context: Context, name: str) -> Program[None]:
    """Take a ref out of HEAD. What it alone has held is gc's and vacuum's from then on.

    Raises
    ------
    RefNotFound
    InvalidOperation
        It is protected.
    """
    _, first = yield from find_ref(context, name)

    def ended(entry: RefEntry) -> RefEntry | None:
        if entry.protected:
            raise InvalidOperation(
                f"{entry.kind} {name!r} is protected: protect({name!r}, on=False) lifts that"
            )
        return None

    yield from _change(context, name, first, ended)


def protect(context: Context, name: str, *, on: bool) -> Program[None]:
    """Set whether a ref may be deleted. Raises ``RefNotFound``."""
    _, first = yield from find_ref(context, name)
    yield from _change(
        context, name, first, lambda entry: msgspec.structs.replace(entry, protected=on)
    )


def all_refs(context: Context) -> Program[dict[str, RefEntry]]:
    """The refs in HEAD, by name."""
    held = yield from context.head()
    if held is None:
        return {}
    yield from load_refs(held.head)
    return dict(sorted(held.head.refs.items()))


def _change(
    context: Context,
    name: str,
    first: RefEntry,
    changed: Callable[[RefEntry], RefEntry | None],
) -> Program[None]:
    """Replace a ref's entry in HEAD, or take it out, again on each newer HEAD until it is stored.

    Only while it is the very one that was met ``first``: one that was made anew under its name is
    none of the caller's, and after a lost answer it tells that the change was made.
    """
    for attempt in range(_MAX_RACES):
        held = yield from context.head()
        context.refuse_foreign_root()
        head = None if held is None else held.head
        yield from load_refs(head, [name])
        entry = None if head is None else head.refs.get(name)
        if held is None or entry is None or entry.id != first.id:
            if attempt:
                return
            raise (yield from not_found(head, name))
        new = changed(entry)
        if new == entry:
            return
        following = successor(held.head, nonce=context.ids.nonce(), now_ms=context.now_ms())
        if (yield from replace(context, held, with_refs(following, {name: new}))):
            return
    raise StoreError(f"HEAD was replaced by others {_MAX_RACES} times in a row: try again")
