"""Bases: the table maps that refs keep, as immutable objects (docs/design/0030-refs.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from lakevilla.errors import CorruptObject, StoreError, UnsupportedFormat, VersionNotFound
from lakevilla.global_log.commits import digest_of
from lakevilla.global_log.head import CommitSummary, Head, NameMap, TableMap, TableState
from lakevilla.global_log.refs import (
    BaseCopies,
    BaseRef,
    KeptTable,
    RefEntry,
    RefKind,
    RefMap,
    is_at,
)
from lakevilla.global_log.repo import (
    fetch_leaves,
    load_head,
    load_refs,
    maps_of,
)
from lakevilla.ids import NO_TXN
from lakevilla.store.base import ABSENT, Found, Unknown
from lakevilla.store.codec import decode, encode
from lakevilla.store.effects import Program, get_immutable, parallel, put

#: A larger base gets no copy: a leaf would have only a few of them.
COPY_BYTES = 16 * 1024
#: So many bases without a copy are copied together, by the client that makes a ref.
COPIED_TOGETHER = 16
#: Once HEAD names so many leaves of copies, no more are added: its list of them stays below 6 KB.
MOST_LEAVES = 64


class Base(msgspec.Struct, frozen=True, omit_defaults=True):
    """``_lakevilla/bases/<made>-<hash>.json``: the tables of the lake at one global version.

    ``tables`` and ``names`` are as in HEAD: whole, or the list of HEAD's leaves. No leaf is copied.
    ``name``, ``kind`` and ``epoch`` are those of the ref that the base was stored for, so that the
    ref can be restored if HEAD is lost. ``kept`` has the tables, by location, whose states are read
    from objects of their own and no longer from their logs. ``origin`` is the epoch of the branch
    whose state the base is: then ``sequence`` is a version of that branch. ``clones`` are the
    clones in that state, by name. In the base of a clone, ``source`` is the place that the clone
    shows: the base keeps only tables there (docs/design/0039-clones.md).
    """

    format: int
    lake_id: str
    name: str
    kind: RefKind
    sequence: int
    timestamp_ms: int
    tables: TableMap
    names: NameMap
    epoch: str = msgspec.field(default="", name="life")
    kept: dict[str, KeptTable] = {}
    origin: str = ""
    clones: dict[str, RefEntry] = {}
    source: str = ""

    def has(self, location: str) -> bool:
        """Return whether the base has a table at a location, whose leaf must be cached."""
        state = self.tables.get(location) if self.covers(location) else None
        return state is not None and not state.dropped

    def covers(self, location: str) -> bool:
        """Return whether the base keeps tables at a location."""
        return not self.source or is_at(location, self.source)

    def kept_of(self, location: str) -> KeptTable | None:
        """Return where a table's state is stored; None if in its log.

        The table's id is compared, too: on a branch, another table may have the same path.
        """
        return kept_for(self.kept, location, self.tables.get(location))


def kept_for(
    kept: Mapping[str, KeptTable], location: str, state: TableState | None
) -> KeptTable | None:
    """Return the separately kept state at ``location``, if it is of the table of ``state``."""
    found = kept.get(location)
    is_it = found is not None and state is not None and found.table_id in ("", state.table_id)
    return found if is_it else None


def seal_base(base: Base, made: int) -> tuple[BaseRef, bytes]:
    """Return a base in its stored form, for the replacement of HEAD with the number ``made``.

    The leaves of the base are stored already.
    """
    body = encode(base)
    return BaseRef(made, digest_of(body), base.sequence, base.timestamp_ms), body


def store_base(ref: BaseRef, body: bytes) -> Program[None]:
    """Store a base before HEAD names it."""
    # If the object exists already, an earlier attempt has stored the same content: the name has the
    # hash of the content.
    outcome = yield from put(ref.key, body, ABSENT)
    if isinstance(outcome, Unknown):
        raise StoreError(f"could not store {ref.key} ({outcome.reason}): try again")


def load_base(ref: BaseRef) -> Program[Base]:
    """Return a base that HEAD names.

    Raises
    ------
    VersionNotFound
        No ref of the newest HEAD names the base any more.
    CorruptObject
        The base is damaged, or it is missing although HEAD names it.
    """
    return decode(ref.key, (yield from _load_body(ref)), Base)


def _load_body(ref: BaseRef) -> Program[bytes]:
    outcome = yield from get_immutable(ref.key)
    if not isinstance(outcome, Found):
        held = yield from load_head()
        head = None if held is None else held.head
        yield from load_refs(head)
        entries = [] if head is None else head.refs.values()
        if not any(ref in entry.bases for entry in entries):
            raise VersionNotFound(f"{ref.key} was removed: its ref was deleted; try again")
        raise CorruptObject(
            f"{ref.key} is missing although HEAD names it: restore it from a copy, or delete the "
            "refs that need it",
            key=ref.key,
        )
    if digest_of(outcome.body) != ref.hash:
        raise CorruptObject(
            f"{ref.key} does not match its name: it was damaged or replaced by hand; restore it "
            "from a copy, or delete the refs that need it",
            key=ref.key,
        )
    return outcome.body


def load_bases(head: Head) -> Program[list[Base]]:
    """Return the bases of all refs of a HEAD. Each has the name of the ref it was stored for.

    The bases of clones in a base are included: a ref keeps the clones' tables of its state even if
    a clone itself has been deleted since.
    """
    return list((yield from load_bases_by_ref(head)).values())


def load_bases_by_ref(head: Head) -> Program[dict[BaseRef, Base]]:
    """Return the bases as ``load_bases`` does, each by its reference."""
    both: list[Program[Any]] = [load_refs(head), load_copies(head)]
    _, copies = yield from parallel(both)
    entries: Iterable[RefEntry] = head.refs.values()
    found: dict[BaseRef, Base] = {}
    while wanted := [
        ref
        for ref in dict.fromkeys(base for entry in entries for base in entry.bases)
        if ref not in found
    ]:
        for ref in wanted:
            base = copied_base(copies, ref)
            if base is not None:
                found[ref] = base
        rest = [ref for ref in wanted if ref not in found]
        read = yield from parallel([load_base(ref) for ref in rest])
        found.update(zip(rest, read, strict=True))
        shown = [clones for ref in wanted if (clones := found[ref].clones)]
        entries = [entry for clones in shown for entry in clones.values()]
    return found


# -------------------- copies of bases
#
# Copies of small bases in leaves of HEAD, so that a client reads many bases by few requests.
#
# HEAD names the leaves, so they change with HEAD alone, and gc keeps them like other leaves. Which
# bases there are follows from the refs alone: a base without a copy is read from its object, which
# always exists. So a copy that is missing costs a request, and nothing else.


def load_copies(head: Head) -> Program[dict[str, msgspec.Raw]]:
    """Return the copies of bases that a HEAD names, by name; none if a leaf of them is lost."""
    try:
        yield from fetch_leaves(head.copies, head.copies.missing())
    except (CorruptObject, VersionNotFound):
        return {}
    return head.copies.cached()


def copied_base(copies: Mapping[str, msgspec.Raw], ref: BaseRef) -> Base | None:
    """Return a base by its copy; None if none with the hash of the base can be read."""
    copy = copies.get(ref.name)
    body = b"" if copy is None else bytes(copy)
    if copy is None or digest_of(body) != ref.hash:
        return None
    try:
        return decode(ref.key, body, Base)
    except (CorruptObject, UnsupportedFormat):
        return None  # the base's own reader raises the error


def with_copies(new: Head, size: int | None = None) -> Program[Head]:
    """Return a HEAD that is about to be stored, with copies of bases if many have none.

    Its refs must be cached. Only bases since the last copying count, so a base that is too large
    for a copy is looked at once. ``size``: the length of the newest base, if the client has just
    stored it: where that is too large, most others will be. None: the client reads all bases.
    """
    bases = dict.fromkeys(base for entry in new.refs.values() for base in entry.bases)
    recent = [base for base in bases if base.made > new.copies.made]
    is_full = len(new.copies.refs) >= MOST_LEAVES
    if size is not None and (size > COPY_BYTES or is_full):
        return new
    if len(recent) < COPIED_TOGETHER:
        return new
    known, copies = new.copies, (yield from load_copies(new))
    if not copies:  # the first ones, or a leaf of them is lost
        known, recent = BaseCopies(), list(bases)
    elif is_full:
        recent = []
    bodies = yield from parallel([_body_to_copy(base) for base in recent])
    changes: dict[str, msgspec.Raw | None] = {
        base.name: msgspec.Raw(body)
        for base, body in zip(recent, bodies, strict=True)
        if body is not None
    }
    names = {base.name for base in bases}
    over = [name for name in copies if name not in names]
    if is_full or 2 * len(over) > len(copies):  # so not each deletion of a ref rewrites a leaf
        changes.update(dict.fromkeys(over))
    if not changes:
        return new
    return msgspec.structs.replace(new, copies=known.updated(changes))


def _body_to_copy(ref: BaseRef) -> Program[bytes | None]:
    try:
        body = yield from _load_body(ref)
    except (CorruptObject, VersionNotFound):
        return None  # its own reader reports this
    return body if len(body) <= COPY_BYTES else None


def load_base_tables(base: Base, locations: Iterable[str] | None = None) -> Program[None]:
    """Fetch the leaves in which these tables of a base are stored, or all leaves."""
    yield from fetch_leaves(base.tables, base.tables.missing(locations))


def head_of(base: Base, entry: RefEntry, now: Head) -> Head:
    """Return a HEAD with the state of the base, as far as a reader needs it.

    It lists only the base's last commit, which states the time.
    """
    shown = CommitSummary(base.sequence, base.timestamp_ms, "register", entry.id, "", {})
    return msgspec.structs.replace(
        now,
        sequence=base.sequence,
        floor=NO_TXN,
        tables=base.tables,
        names=base.names,
        commits=(shown,) if base.timestamp_ms else (),
        pages=(),
        reserved=(),
        refs=RefMap(base.clones),
    )


def named_leaves(head: Head, bases: Iterable[Base]) -> set[str]:
    """Return the keys of all leaves that a HEAD and its bases need."""
    maps = [*maps_of(head), *(one for base in bases for one in (base.tables, base.names))]
    return {ref.key for found in maps for ref in found.refs}
