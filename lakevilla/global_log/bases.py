"""Bases: the table maps that refs keep, as immutable objects (docs/design/0030-refs.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from lakevilla.errors import CorruptObject, StoreError, VersionNotFound
from lakevilla.global_log.commits import digest_of
from lakevilla.global_log.head import CommitSummary, Head, NameMap, TableMap, TableState
from lakevilla.global_log.refs import BaseRef, KeptTable, RefEntry, RefKind, RefMap, is_at
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
    return decode(ref.key, outcome.body, Base)


def load_bases(head: Head) -> Program[list[Base]]:
    """Return the bases of all refs of a HEAD. Each has the name of the ref it was stored for.

    The bases of clones in a base are included: a ref keeps the clones' tables of its state even if
    a clone itself has been deleted since.
    """
    return list((yield from load_bases_by_ref(head)).values())


def load_bases_by_ref(head: Head) -> Program[dict[BaseRef, Base]]:
    """Return the bases as ``load_bases`` does, each by its reference."""
    yield from load_refs(head)
    entries: Iterable[RefEntry] = head.refs.values()
    found: dict[BaseRef, Base] = {}
    while wanted := [
        ref
        for ref in dict.fromkeys(base for entry in entries for base in entry.bases)
        if ref not in found
    ]:
        loaded = yield from parallel([load_base(ref) for ref in wanted])
        found.update(zip(wanted, loaded, strict=True))
        entries = [entry for base in loaded for entry in base.clones.values()]
    return found


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
