"""Refs: names in HEAD for states of the lake that are kept (docs/design/0030-refs.md).

A ref names a *base*, an immutable object with the map of tables of that state. Refs are made, moved
and deleted by replacements of HEAD, as commits are, so HEAD alone determines which states are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from lakevilla.errors import InvalidOperation
from lakevilla.global_log.leaves import Leaf, LeafMap
from lakevilla.store.location import home_of

BASES_PREFIX = "_lakevilla/bases"
#: The name of the lake itself as a ref: its commits are on no branch.
MAIN = "main"

RefKind = Literal["tag", "branch", "clone"]

#: The most digits of a sequence.
_MOST_DIGITS = 18
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")


class BaseRef(msgspec.Struct, frozen=True):
    """The base that a ref names: its state, and its place in the store.

    ``made``: the number of the replacement of HEAD that the base was stored for. Once HEAD has
    reached this number and does not name the base, no HEAD ever will.
    """

    made: int
    hash: str
    sequence: int
    timestamp_ms: int

    @property
    def name(self) -> str:
        """The name of the base's object, and of its copy."""
        return f"{self.made:020}-{self.hash}"

    @property
    def key(self) -> str:
        return f"{BASES_PREFIX}/{self.name}.json"


class KeptTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """The place of a table's state that is kept separate from its log (docs/design/0037-upkeep.md).

    ``through``: the last commit that the kept state includes; pending commits after it are laid
    over the state. None: the state includes all pending commits. ``table_id``: the id of the
    state's table; on a branch, another table may have the same path.
    """

    epoch: str = msgspec.field(name="life")
    hash: str
    through: int | None = None
    table_id: str = ""

    @property
    def key(self) -> str:
        return f"{home_of(self.epoch)}/kept/{self.hash}.parquet"


class RefEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ref in HEAD.

    ``id`` distinguishes the ref from earlier and later refs with the same name. ``protected``: the
    ref can't be deleted before its protection is removed. ``epochs``: the directories that a branch
    owns, one for each epoch, the newest last (docs/design/0031-branches.md). ``synced``: the state
    of the branch when it was last merged. ``only``: patterns of the tables that the ref has; all
    tables if there are no patterns. ``closed_ms``: when each of the branch's older epochs was
    closed (docs/design/0034-rebase.md). ``source``: the place in its base that a clone shows;
    ``since``: the global version from which on the clone shows it (docs/design/0039-clones.md).
    ``reached``: the highest number of the branch's own HEAD that a client had read when it replaced
    the lake's HEAD. It never decreases (docs/design/0053-gone-back.md). ``kept``: what a client
    keeps as long as the ref exists, although it does not know it
    (docs/design/0087-versions-side-by-side.md).
    """

    id: str
    kind: RefKind
    base: BaseRef
    created_ms: int
    created_by: str
    protected: bool = False
    metadata: dict[str, str] = {}
    epochs: tuple[str, ...] = msgspec.field(default=(), name="lives")
    synced: BaseRef | None = None
    only: tuple[str, ...] = ()
    closed_ms: dict[str, int] = {}
    source: str = ""
    since: int = 0
    reached: int = 0
    kept: dict[str, Any] = {}

    @property
    def bases(self) -> tuple[BaseRef, ...]:
        """All bases that the ref names."""
        return (self.base,) if self.synced is None else (self.base, self.synced)

    @property
    def epoch(self) -> str:
        """The newest epoch of a branch, or the epoch that `keep` has given a tag; else ``""``."""
        return self.epochs[-1] if self.epochs else ""

    def having_reached(self, number: int) -> RefEntry:
        """Return a branch's entry that notes that its own HEAD was read with that number."""
        return msgspec.structs.replace(self, reached=max(self.reached, number))

    def is_as(self, other: RefEntry | None) -> bool:
        """Return whether both entries are equal except for ``reached``."""
        if other is None:
            return False
        return msgspec.structs.replace(other, reached=self.reached) == self


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """The operations that a lake permits to its clients.

    ``direct_writes``: if "refuse", ``main`` accepts only upkeep and the application of states that
    exist already, as by a merge (docs/design/0030-refs.md).
    """

    direct_writes: Literal["allow", "refuse"] = "allow"


class RefMap(LeafMap[RefEntry]):
    """The refs in HEAD, by name."""

    __slots__ = ()
    value = RefEntry
    leaf = Leaf[RefEntry]


class BaseCopies(LeafMap[msgspec.Raw]):
    """Copies of small bases that refs name, by the names of their objects; always in leaves.

    A copy saves the read of an object. It counts only if it has the hash in its name, and a base
    without a copy is read from its object: so nothing depends on the copies
    (docs/design/0061-growth.md).
    """

    __slots__ = ()
    value = msgspec.Raw
    leaf = Leaf[msgspec.Raw]
    is_inline = False
    leaf_sizes = 4

    @property
    def made(self) -> int:
        """The replacement of HEAD that has copied the newest bases; -1 without copies."""
        return max((ref.made for ref in self.refs), default=-1)


def is_at(location: str, place: str) -> bool:
    """Return whether a location equals a place, or is below it."""
    return location == place or location.startswith(f"{place}/")


def clone_around(clones: Iterable[str], location: str) -> str | None:
    """Return the clone at a location, or at a directory above it, if one exists."""
    return next((name for name in clones if is_at(location, name)), None)


def clone_below(clones: Iterable[str], location: str) -> str | None:
    """Return a clone below a location, if one exists."""
    return next((name for name in sorted(clones) if name.startswith(f"{location}/")), None)


def parts_of(key: str) -> tuple[int, str] | None:
    """Return the number and the hash in a base's key; None if the key is not a base's."""
    found = re.fullmatch(rf"{BASES_PREFIX}/(\d{{20}})-([0-9a-f]+)\.json", key)
    return None if found is None else (int(found[1]), found[2])


def new_epoch(made: int, nonce: str) -> str:
    """Return a unique name for an epoch that the replacement of HEAD number ``made`` creates."""
    return f"{made:020}-{nonce[:16]}"


def number_of_epoch(epoch: str) -> int | None:
    """Return the number in an epoch's name; None if the text is no such name."""
    found = re.fullmatch(r"(\d{20})-[0-9a-f]{16}", epoch)
    return None if found is None else int(found[1])


def parsed(text: str) -> tuple[str, int | None]:
    """Return a ref's name, and the version of a branch if the text has the form ``etl@57``.

    Raises ``InvalidOperation``.
    """
    name, at, number = text.rpartition("@")
    if not at:
        return text, None
    if not (number.isascii() and number.isdigit()) or len(number) > _MOST_DIGITS or "@" in name:
        raise InvalidOperation(
            f"{text!r} names no state: a version of a branch is written {name or 'etl'}@57"
        )
    if name == MAIN:
        raise InvalidOperation(
            f"{text!r}: {MAIN!r} is the lake itself: give its version as a number, {number}"
        )
    return name, int(number)


def check_name(name: object) -> str:
    """Refuse a value that can't be the name of a ref. Raises ``InvalidOperation``."""
    if type(name) is not str or _NAME.fullmatch(name) is None:
        raise InvalidOperation(
            f"{name!r} can't be the name of a ref: letters, digits and . _ - /, at most 128, the "
            "first one a letter or a digit"
        )
    if ".." in name or "//" in name or name.endswith("/"):
        raise InvalidOperation(
            f"{name!r} can't be the name of a ref: without .. and //, and no / at the end"
        )
    if name.isdigit():
        raise InvalidOperation(
            f"{name!r} can't be the name of a ref: a number is a version of the lake"
        )
    if name == MAIN:
        raise InvalidOperation(f"{MAIN!r} is the lake itself: give the ref another name")
    return name
