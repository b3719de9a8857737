"""Keeping a ref from the clean-up of other clients (docs/design/0037-upkeep.md).

What of a table's state the table itself has removed since is copied by the store into a directory
that the ref owns, and the state is stored apart from the table's log. Files that the table still
has stay where they are: nobody deletes those.
"""

from __future__ import annotations

import msgspec

from lakevilla.branches.clones.keeping import keep_clone
from lakevilla.branches.entries import LeftAsIs, Next, find_ref, following, until_replaced
from lakevilla.branches.keep_branch import keep_branch
from lakevilla.branches.kept_tables import keep_tables
from lakevilla.errors import RefNotFound, StoreError
from lakevilla.global_log.bases import Base, load_base, seal_base, store_base
from lakevilla.global_log.head import with_refs
from lakevilla.global_log.refs import RefEntry, life_of
from lakevilla.global_log.repo import HeldHead
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.states import not_found
from lakevilla.lake.newer import refuse_in_doubt
from lakevilla.results import Report
from lakevilla.store.effects import Program

_MAX_RACES = 200


def keep(context: Context, name: str, owner: str = "") -> Program[Report]:
    """See to it that a ref can be read whatever other clients clean up from now on.

    Of a clone, that the tables which were written to need nothing of their source.

    Of what its tables remove later nothing is known here: it is to be called again.

    Raises
    ------
    RefNotFound
    InvalidOperation
        It is a branch on which idempotency keys wait to be merged.
    """
    _, first = yield from find_ref(context, name)
    yield from refuse_in_doubt(context, f"keep({name!r})")
    if first.kind == "clone":
        return (yield from keep_clone(context, name, first))
    if first.kind == "branch":
        return (yield from keep_branch(context, name, first, owner))
    entry = yield from _with_life(context, name, first)
    for _ in range(_MAX_RACES):
        base = yield from load_base(entry.base)
        found = yield from keep_tables(context, base, entry)
        if found.kept == base.kept:
            return found.report
        new = yield from _stored(
            context, name, entry, msgspec.structs.replace(base, kept=found.kept)
        )
        if new is None:
            return found.report
        entry = new  # another has kept it meanwhile: what is left is little
    raise StoreError(f"keep: tag {name!r} was changed by others {_MAX_RACES} times in a row")


def _with_life(context: Context, name: str, first: RefEntry) -> Program[RefEntry]:
    """The entry with a directory of its own: before anything is stored there, HEAD says whose.

    Were it stored first, gc might take it for what a dead client has left.
    """

    def owned(
        held: HeldHead | None, entry: RefEntry | None
    ) -> Program[LeftAsIs[RefEntry] | Next[RefEntry]]:
        held, entry = yield from _the_same(name, first, held, entry)
        if entry.lives:
            return LeftAsIs(entry)
        new = following(context, held)
        life = life_of(new.replacement, context.ids.nonce())
        entry = msgspec.structs.replace(entry, lives=(life,))
        return Next(with_refs(new, {name: entry}), entry)

    return (yield from until_replaced(context, name, owned))


def _the_same(
    name: str, first: RefEntry, held: HeldHead | None, entry: RefEntry | None
) -> Program[tuple[HeldHead, RefEntry]]:
    """The very ref that was met first, as it is now. Raises ``RefNotFound``."""
    if held is None or entry is None:
        raise (yield from not_found(None if held is None else held.head, name))
    if entry.id != first.id:
        raise RefNotFound(f"{first.kind} {name!r} was deleted, and another one made meanwhile")
    return held, entry


def _stored(context: Context, name: str, known: RefEntry, base: Base) -> Program[RefEntry | None]:
    """Have HEAD name the new base in the place of the one that it was made from.

    None once it does; the entry that is there if another has changed the base meanwhile.
    """
    tried: set[str] = set()

    def named(
        held: HeldHead | None, entry: RefEntry | None
    ) -> Program[LeftAsIs[RefEntry | None] | Next[RefEntry | None]]:
        held, entry = yield from _the_same(name, known, held, entry)
        if entry.base.hash in tried:
            return LeftAsIs(None)  # an answer was lost
        if entry.base != known.base:
            return LeftAsIs(entry)
        new = following(context, held)
        ref, body = seal_base(base, new.replacement)
        yield from store_base(ref, body)
        tried.add(ref.hash)
        entry = msgspec.structs.replace(entry, base=ref)
        return Next(with_refs(new, {name: entry}), None)

    return (yield from until_replaced(context, name, named))
