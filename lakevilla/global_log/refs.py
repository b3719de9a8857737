"""Refs: names in HEAD for states of the lake that are kept (docs/design/0030-refs.md).

A ref names a *base*, an immutable object with the map of tables of that state. It is made,
moved and ended by the replacement of HEAD that decides commits, so HEAD alone tells what is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from lakevilla.errors import InvalidOperation
from lakevilla.global_log.leaves import Leaf, LeafMap
from lakevilla.store.location import home_of

BASES_PREFIX = "_lakevilla/bases"
#: The ref that every lake has: what is committed outside of any branch.
MAIN = "main"

RefKind = Literal["tag", "branch", "clone"]

#: No sequence has more.
_MOST_DIGITS = 18
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")


class BaseRef(msgspec.Struct, frozen=True):
    """The base that a ref names: what it is of, and where it lies.

    ``made``: the number of the replacement of HEAD that it was stored for. Once HEAD has come so
    far and names it nowhere, no HEAD ever will.
    """

    made: int
    hash: str
    sequence: int
    timestamp_ms: int

    @property
    def key(self) -> str:
        return f"{BASES_PREFIX}/{self.made:020}-{self.hash}.json"


class KeptTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a table's state lies that is kept apart from its log (docs/design/0037-upkeep.md).

    ``through``: the last commit that is in it; what is pending after that is laid over it. None:
    all that is pending is in it. ``table_id``: of which table it is; another may have its path on a
    branch.
    """

    life: str
    hash: str
    through: int | None = None
    table_id: str = ""

    @property
    def key(self) -> str:
        return f"{home_of(self.life)}/kept/{self.hash}.parquet"


class RefEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ref in HEAD.

    ``id`` tells it from one of the same name that was made before or after it. ``protected``:
    it is not deleted before that is lifted. ``lives``: the directories that a branch owns, the
    newest last (docs/design/0031-branches.md). ``synced``: what it was when it was last merged.
    ``only``: patterns of the tables that it has; all if there are none. ``closed_ms``: when each of
    its older lives was closed (docs/design/0034-rebase.md). ``source``: of which place in its base
    a clone is, ``since`` the global version from which on it shows (docs/design/0039-clones.md).
    ``reached``: the number of the branch's own HEAD when the lake's was last replaced by one who
    had read it. It never goes back (docs/design/0053-gone-back.md).
    """

    id: str
    kind: RefKind
    base: BaseRef
    created_ms: int
    created_by: str
    protected: bool = False
    metadata: dict[str, str] = {}
    lives: tuple[str, ...] = ()
    synced: BaseRef | None = None
    only: tuple[str, ...] = ()
    closed_ms: dict[str, int] = {}
    source: str = ""
    since: int = 0
    reached: int = 0

    @property
    def bases(self) -> tuple[BaseRef, ...]:
        """All that it names."""
        return (self.base,) if self.synced is None else (self.base, self.synced)

    @property
    def life(self) -> str:
        """The life of a branch, or what `keep` has given a tag; else ``""``."""
        return self.lives[-1] if self.lives else ""

    def having_reached(self, number: int) -> RefEntry:
        """The entry of a branch whose own HEAD was seen with that number."""
        return msgspec.structs.replace(self, reached=max(self.reached, number))

    def is_as(self, other: RefEntry | None) -> bool:
        """Whether it says the same, whatever has been seen of the branch's own HEAD."""
        if other is None:
            return False
        return msgspec.structs.replace(other, reached=self.reached) == self


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a lake lets its clients do.

    ``direct_writes``: whether main takes more than what comes from states that are there, as by a
    merge, and upkeep (docs/design/0030-refs.md).
    """

    direct_writes: Literal["allow", "refuse"] = "allow"


class RefMap(LeafMap[RefEntry]):
    """The refs in HEAD, by name."""

    __slots__ = ()
    value = RefEntry
    leaf = Leaf[RefEntry]


def is_at(location: str, place: str) -> bool:
    """Whether a location is a place, or lies below it."""
    return location == place or location.startswith(f"{place}/")


def clone_around(clones: Iterable[str], location: str) -> str | None:
    """The clone at or around a place, if there is one."""
    return next((name for name in clones if is_at(location, name)), None)


def clone_below(clones: Iterable[str], location: str) -> str | None:
    """A clone below a place, if there is one."""
    return next((name for name in sorted(clones) if name.startswith(f"{location}/")), None)


def parts_of(key: str) -> tuple[int, str] | None:
    """The number and the hash in a base's key; None if it is none."""
    found = re.fullmatch(rf"{BASES_PREFIX}/(\d{{20}})-([0-9a-f]+)\.json", key)
    return None if found is None else (int(found[1]), found[2])


def life_of(made: int, nonce: str) -> str:
    """The name of a life that is made for the replacement of HEAD of that number; used once."""
    return f"{made:020}-{nonce[:16]}"


def made_of_life(life: str) -> int | None:
    """The number in a life's name; None if it is none."""
    found = re.fullmatch(r"(\d{20})-[0-9a-f]{16}", life)
    return None if found is None else int(found[1])


def parsed(text: str) -> tuple[str, int | None]:
    """A ref's name, and the version of a branch where it is written ``etl@57``.

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
    """Refuse what can't be the name of a ref. Raises ``InvalidOperation``."""
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
