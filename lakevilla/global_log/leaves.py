"""Leaves: the separate objects into which a map in HEAD is cut once it has grown large.

HEAD holds a small map whole. For a map above ``INLINE_BYTES`` it holds a list of leaves sorted by
name, and each leaf, an immutable object, holds the entries from its ``first`` name on. A
replacement of HEAD writes only the leaves that it changes.

This module does no I/O: ``repo`` fetches the leaves that ``missing`` names, and stores those that
``planned`` returns before the HEAD that names them (docs/design/0011-scale.md).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec
from blake3 import blake3

from lakevilla.errors import CorruptObject
from lakevilla.store.codec import FORMAT, decode, encode
from lakevilla.store.location import home_of

LEAVES_PREFIX = "_lakevilla/leaves"
#: A map that takes more than this in HEAD is cut into leaves, and stays so.
INLINE_BYTES = 64 * 1024
#: A leaf that takes more than this is cut in two.
LEAF_BYTES = 64 * 1024

V = TypeVar("V")


class LeafRef(msgspec.Struct, frozen=True, array_like=True):
    """One leaf in HEAD's list: it holds the names from ``first`` up to the next leaf's ``first``.

    ``made``: the number of the replacement of HEAD that the leaf was made for. Once HEAD has
    reached this number and does not name the leaf, no HEAD ever will: that replacement was refused,
    or a later one has dropped the leaf. ``epoch``: the epoch of the branch if the leaf was made for
    a branch's HEAD.
    """

    first: str
    made: int
    hash: str
    epoch: str = msgspec.field(default="", name="life")

    @property
    def key(self) -> str:
        return f"{home_of(self.epoch)}/leaves/{self.made:020}-{self.hash}.json"


class Leaf(msgspec.Struct, Generic[V], frozen=True):
    """``_lakevilla/leaves/<made>-<hash>.json``, an object whose content never changes."""

    format: int
    entries: dict[str, V]


class LeafMark(msgspec.Struct, frozen=True):
    """``_lakevilla/leaves/<replacement>-named.json``: the leaves in HEAD when gc read it."""

    format: int
    nonce: str
    replacement: int
    timestamp_ms: int
    named: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{LEAVES_PREFIX}/{self.replacement:020}-named.json"


def is_mark(key: str) -> bool:
    return key.endswith("-named.json")


def made_of(key: str) -> int:
    """Return the number of a replacement of HEAD in a leaf's key."""
    return int(key.removeprefix(f"{LEAVES_PREFIX}/")[:20])


@dataclass(frozen=True, slots=True)
class LeafPlan(Generic[V]):
    """The leaves that a map shall have in the store: all of them, and the content of new ones."""

    refs: tuple[LeafRef, ...]
    leaves: dict[str, dict[str, V]]
    bodies: dict[str, bytes]


class LeafMap(Mapping[str, V]):
    """A map of names, stored whole in HEAD or in leaves. Its content never changes.

    Only its cached part changes: leaves are fetched on use. Access to a name whose leaf was not
    fetched is a bug of the caller, and raises; it never means that the name is absent. Threads may
    share the map. This is safe because a fetched leaf was always part of the map's content, is
    added by one assignment in a dict, and is never removed from it.
    """

    __slots__ = ("_changed", "_leaves", "_refs")

    #: The type of a value, and the type by which a leaf of such values is decoded.
    value: ClassVar[Any]
    leaf: ClassVar[Any]
    #: Whether HEAD holds the map whole while it is small.
    is_inline: ClassVar[bool] = True
    #: How many times ``LEAF_BYTES`` a leaf may take.
    leaf_sizes: ClassVar[int] = 1

    def __init_subclass__(cls) -> None:
        # The decoders are built while the module is imported, by one thread (see ``codec``).
        msgspec.convert({}, dict[str, cls.value])  # type: ignore[name-defined]
        msgspec.convert([], tuple[LeafRef, ...])

    def __init__(self, entries: Mapping[str, V] | None = None) -> None:
        self._refs: tuple[LeafRef, ...] = ()
        self._leaves: dict[str, dict[str, V]] = {}
        #: Entries laid over the leaves, or all entries if there are no leaves; None: removed.
        self._changed: dict[str, V | None] = dict(entries or {})

    # -- reading ------------------------------------------------------------------

    def __getitem__(self, name: str) -> V:
        changed, refs = self._lying()
        if name in changed or not refs:
            value = changed[name]
            if value is None:
                raise KeyError(name)
            return value
        return self._leaf(_leaf_of(refs, name))[name]

    def __iter__(self) -> Iterator[str]:
        changed, refs = self._lying()
        for ref in refs:
            yield from (name for name in self._leaf(ref) if name not in changed)
        yield from (name for name, value in changed.items() if value is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def items(self) -> ItemsView[str, V]:
        return self._whole().items()

    def values(self) -> ValuesView[V]:
        return self._whole().values()

    def _whole(self) -> dict[str, V]:
        """Return all entries, whose leaves must be cached."""
        changed, refs = self._lying()
        known: dict[str, V | None] = {}
        for ref in refs:
            known.update(self._leaf(ref))
        known.update(changed)
        return {name: value for name, value in known.items() if value is not None}

    def __bool__(self) -> bool:
        # A map in leaves is not empty: a map is cut because it is large, and no leaf is empty.
        return bool(self._refs) or any(value is not None for value in self._changed.values())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LeafMap) and self._refs == other._refs:
            return bool(self._changed == other._changed)
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._refs)} leaves, {self._changed!r})"

    @property
    def refs(self) -> tuple[LeafRef, ...]:
        """The leaves that store the map; none if HEAD holds it whole."""
        return self._refs

    def _lying(self) -> tuple[dict[str, V | None], tuple[LeafRef, ...]]:
        # ``_changed`` is read first here and written last in ``settle``. So a concurrent reader may
        # lay the changed entries over leaves that have them already: that gives the same content.
        changed = self._changed
        return changed, self._refs

    def _leaf(self, ref: LeafRef) -> dict[str, V]:
        found = self._leaves.get(ref.hash)
        if found is None:
            raise AssertionError(f"{ref.key} was not fetched before it was looked at")
        return found

    # -- growing ------------------------------------------------------------------

    def updated(self, changes: Mapping[str, V | None]) -> Self:
        """Return the map with ``changes`` laid over it; None removes a name."""
        new = type(self)()
        new._refs = self._refs
        # A new map caches only the leaves that it refers to, so that the cache does not grow for
        # ever.
        new.share(self)
        new._changed = {**self._changed, **changes}
        if not new._refs:
            new._changed = {name: v for name, v in new._changed.items() if v is not None}
        return new

    # -- fetching -----------------------------------------------------------------

    def peek(self, name: str) -> V | None:
        """Return an entry if it can be read without fetching anything; else None."""
        changed, refs = self._lying()
        if name in changed or not refs:
            return changed.get(name)
        leaf = self._leaves.get(_leaf_of(refs, name).hash)
        return None if leaf is None else leaf.get(name)

    def cached(self, names: Iterable[str] | None = None) -> dict[str, V]:
        """Return the entries (of these names) that can be read without fetching anything."""
        if names is not None:
            return {name: v for name in names if (v := self.peek(name)) is not None}
        changed, refs = self._lying()
        known: dict[str, V | None] = {}
        for ref in refs:
            known.update(self._leaves.get(ref.hash, {}))
        known.update(changed)
        return {name: value for name, value in known.items() if value is not None}

    def beyond(self, common: Collection[str]) -> dict[str, V]:
        """Return the entries except those in leaves with these hashes, which another map shares."""
        changed, refs = self._lying()
        known: dict[str, V | None] = {}
        for ref in refs:
            if ref.hash not in common:
                known.update(self._leaf(ref))
        known.update(changed)
        return {name: value for name, value in known.items() if value is not None}

    def missing(self, names: Iterable[str] | None = None) -> list[LeafRef]:
        """Return the leaves to fetch before these names (if None, all names) can be read."""
        changed, refs = self._lying()
        if not refs:
            return []
        if names is not None:
            wanted = {_leaf_of(refs, name) for name in names if name not in changed}
            refs = tuple(sorted(wanted, key=lambda ref: ref.first))
        return [ref for ref in refs if ref.hash not in self._leaves]

    def missing_below(self, prefix: str) -> list[LeafRef]:
        """Return the leaves to fetch before the names that begin with ``prefix`` can be read."""
        return self.missing_between(prefix, prefix + HIGHEST)

    def missing_between(self, first: str, last: str | None) -> list[LeafRef]:
        """Return the leaves to fetch before the names from ``first`` to ``last`` can be read."""
        refs = self._lying()[1]
        if not refs:
            return []
        begin = bisect_right(refs, first, key=lambda ref: ref.first) - 1
        end = len(refs) if last is None else bisect_right(refs, last, key=lambda ref: ref.first)
        return [ref for ref in refs[max(begin, 0) : end] if ref.hash not in self._leaves]

    def ranges(self, first: str, last: str) -> list[tuple[str, str]]:
        """Return the range from ``first`` to before ``last``, cut at the beginnings of leaves."""
        starts = [ref.first for ref in self._lying()[1] if first < ref.first < last]
        return list(pairwise([first, *starts, last]))

    def within(self, first: str, last: str) -> dict[str, V]:
        """Return the entries from ``first`` to before ``last``, whose leaves must be cached."""
        changed, refs = self._lying()
        known: dict[str, V | None] = {}
        if refs:
            begin = bisect_right(refs, first, key=lambda ref: ref.first) - 1
            for ref in refs[max(begin, 0) :]:
                if ref.first >= last:
                    break
                known.update((n, v) for n, v in self._leaf(ref).items() if first <= n < last)
        known.update((name, v) for name, v in changed.items() if first <= name < last)
        return {name: value for name, value in known.items() if value is not None}

    def below(self, prefix: str) -> dict[str, V]:
        """Return the entries whose names begin with ``prefix``; their leaves must be cached."""
        return self.within(prefix, prefix + HIGHEST)

    def take(self, ref: LeafRef, body: bytes) -> None:
        """Cache a leaf that was fetched.

        Raises
        ------
        CorruptObject
            The body does not have the hash that HEAD names.
        """
        if _digest(body) != ref.hash:
            raise CorruptObject(
                f"{ref.key} does not match its name: it was damaged or replaced by hand; "
                "restore it from a copy",
                key=ref.key,
            )
        leaf: Leaf[V] = decode(ref.key, body, self.leaf)
        self._leaves[ref.hash] = leaf.entries

    def share(self, other: LeafMap[V]) -> None:
        """Cache leaves that another map has fetched: leaves with equal hashes are equal."""
        if self is other or not other._leaves:
            return
        for ref in self._refs:
            if ref.hash in other._leaves:
                self._leaves.setdefault(ref.hash, other._leaves[ref.hash])

    # -- storing ------------------------------------------------------------------

    def unread(self) -> list[LeafRef]:
        """Return the changed leaves that are not cached: ``planned`` needs them."""
        changed = {_leaf_of(self._refs, name) for name in self._changed} if self._refs else set()
        return [ref for ref in self._refs if ref in changed and ref.hash not in self._leaves]

    def _is_small(self) -> bool:
        return len(msgspec.json.encode(self._changed)) <= INLINE_BYTES

    def planned(self, made: int, epoch: str = "") -> LeafPlan[V] | None:
        """Return the leaves to store before the HEAD with the number ``made``; None if none.

        ``epoch``: the epoch of the branch if that is a branch's HEAD.
        """
        if not self._refs:
            if not self._changed or (self.is_inline and self._is_small()):
                return None
            whole = {name: value for name, value in self._changed.items() if value is not None}
            return self._laid_out([("", whole)], made, epoch)
        if not self._changed:
            return None
        changes: dict[LeafRef, dict[str, V | None]] = {}
        for name, value in self._changed.items():
            changes.setdefault(_leaf_of(self._refs, name), {})[name] = value
        refs: list[LeafRef] = []
        leaves: dict[str, dict[str, V]] = {}
        bodies: dict[str, bytes] = {}
        for ref in self._refs:
            if ref not in changes:
                refs.append(ref)
                continue
            before = self._leaf(ref)
            entries = {**before, **changes[ref]}
            kept = {name: value for name, value in entries.items() if value is not None}
            if kept == before:
                refs.append(ref)
                continue
            part = self._laid_out([(ref.first, kept)] if kept else [], made, epoch)
            refs.extend(part.refs)
            leaves.update(part.leaves)
            bodies.update(part.bodies)
        if refs and refs[0].first:
            # The first leaf has become empty: the next one takes over all names before its own.
            refs[0] = msgspec.structs.replace(refs[0], first="")
        return LeafPlan(tuple(refs), leaves, bodies)

    def _laid_out(
        self, pieces: list[tuple[str, dict[str, V]]], made: int, epoch: str
    ) -> LeafPlan[V]:
        """Plan one leaf for each piece; cut a piece in halves until each of them fits."""
        refs: list[LeafRef] = []
        leaves: dict[str, dict[str, V]] = {}
        bodies: dict[str, bytes] = {}
        pieces = list(reversed(pieces))
        while pieces:
            first, entries = pieces.pop()
            entries = dict(sorted(entries.items()))
            body = encode(Leaf(FORMAT, entries))
            if len(body) > self.leaf_sizes * LEAF_BYTES and len(entries) > 1:
                names = list(entries)
                middle = len(names) // 2
                second = _between(names[middle - 1], names[middle])
                pieces.append((second, {name: entries[name] for name in names[middle:]}))
                pieces.append((first, {name: entries[name] for name in names[:middle]}))
                continue
            ref = LeafRef(first, made, _digest(body), epoch)
            refs.append(ref)
            leaves[ref.hash] = entries
            bodies[ref.key] = body
        return LeafPlan(tuple(refs), leaves, bodies)

    def settle(self, plan: LeafPlan[V]) -> None:
        """Refer to the stored leaves of ``plan`` from now on. The map's content is unchanged."""
        self._leaves.update(plan.leaves)
        self._refs = plan.refs
        self._changed = {}

    def to_wire(self) -> object:
        """Return the form for ``encode``: the entries themselves, or the list of the leaves."""
        if not self._refs:
            return self._changed
        assert not self._changed, "leaves are stored before the HEAD that names them"
        return [
            (ref.first, ref.made, ref.hash, *([ref.epoch] if ref.epoch else []))
            for ref in self._refs
        ]

    @classmethod
    def from_wire(cls, found: object) -> Self:
        """Return the map that ``decode`` has found."""
        if not isinstance(found, list):
            if not found:
                return cls()  # many maps of bases are empty
            return cls(msgspec.convert(found, dict[str, cls.value]))  # type: ignore[name-defined]
        new = cls()
        new._refs = msgspec.convert(found, tuple[LeafRef, ...])
        firsts = [ref.first for ref in new._refs]
        if firsts[:1] != [""] or any(a >= b for a, b in pairwise(firsts)):
            raise msgspec.ValidationError("its leaves are not sorted by their first name")
        return new


#: A prefix with this code point added is above all names with the prefix: no path contains it.
HIGHEST = chr(0x10FFFF)


def _leaf_of(refs: tuple[LeafRef, ...], name: str) -> LeafRef:
    return refs[bisect_right(refs, name, key=lambda ref: ref.first) - 1]


def _between(before: str, after: str) -> str:
    """Return the shortest name after ``before`` and not after ``after``.

    HEAD lists one such name for each leaf.
    """
    length = next(
        (n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before)
    )
    return after[: length + 1]


def _digest(body: bytes) -> str:
    return blake3(body).hexdigest(length=16)
