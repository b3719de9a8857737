"""The objects of a backup: its manifest, the states of tables that this names, and their owner.

A backup is a directory. Its data files have the keys that they have below the lake's root. The rest
is in ``_lakevilla_backup/``: one immutable object for each state of a table, named by its hash, and
a manifest for each run, which is stored last: without a manifest there is no backup.
"""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from lakevilla.errors import CorruptObject, InvalidOperation, StoreError
from lakevilla.formats.base import FormatName
from lakevilla.global_log.commits import digest_of
from lakevilla.global_log.namespaces import NamespaceFile
from lakevilla.global_log.refs import Policy, RefKind
from lakevilla.ids import Ids
from lakevilla.store.base import ABSENT, Found, Stored, Unknown
from lakevilla.store.codec import FORMAT, decode, encode
from lakevilla.store.effects import Program, get, put

#: The directory of a backup's own objects.
OWN = "_lakevilla_backup"
_MANIFEST = re.compile(rf"{OWN}/manifests/(\d{{20}}-\d{{15}}-([0-9a-f]{{32}}))\.json")


class StateRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A state of a table: its object's hash, and what HEAD has to say of the table."""

    hash: str
    table_id: str
    format: FormatName = "delta"
    view: bool = False

    @property
    def key(self) -> str:
        return f"{OWN}/states/{self.hash}.parquet"


class SavedRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tag or a branch: its tables, and for a branch those of the state that it is compared with.

    ``since`` is that of a branch when it was made or last merged. ``sequence`` and ``timestamp_ms``
    are those of ``since`` for a branch, and of its only state for a tag.
    """

    name: str
    kind: RefKind
    sequence: int
    timestamp_ms: int
    created_ms: int
    created_by: str
    tables: dict[str, StateRef]
    names: dict[str, str]
    since: dict[str, StateRef] = {}
    protected: bool = False
    metadata: dict[str, str] = {}
    only: tuple[str, ...] = ()


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One backup: the states of all tables of the lake at one global version, and its refs.

    ``sequence`` and ``replacement`` are those of HEAD. ``former`` are the ids that the lake had
    before. ``files`` and ``bytes`` count the data files that the states name.
    """

    REMEDY: ClassVar[str] = "restore another backup of the directory, or copy this one again"

    format: int
    lake_id: str
    root: str
    sequence: int
    replacement: int
    created_ms: int
    tables: dict[str, StateRef]
    names: dict[str, str] = {}
    refs: tuple[SavedRef, ...] = ()
    policy: Policy = Policy()
    namespaces: tuple[NamespaceFile, ...] = ()
    former: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0

    def states(self) -> dict[tuple[str, str], StateRef]:
        """Return all states that the backup has, by location and hash."""
        maps = [self.tables, *(one for ref in self.refs for one in (ref.tables, ref.since))]
        return {(place, state.hash): state for one in maps for place, state in one.items()}


class Owner(msgspec.Struct, frozen=True):
    """The lake whose backups a directory has; stored before anything else."""

    REMEDY: ClassVar[str] = "choose another directory for the backup"

    format: int
    nonce: str
    lake_id: str
    root: str


def manifest_names(keys: list[str]) -> list[str]:
    """Return the names of the manifests among the keys of a backup, the oldest first."""
    found = (_MANIFEST.fullmatch(key) for key in keys)
    return sorted(match[1] for match in found if match is not None)


def store_manifest(target: str, manifest: Manifest) -> Program[str]:
    """Store a manifest, after everything that it names; return its name."""
    body = encode(manifest)
    name = f"{manifest.sequence:020}-{manifest.created_ms:015}-{digest_of(body)}"
    key = f"{target}/{OWN}/manifests/{name}.json"
    outcome = yield from put(key, body, ABSENT)
    if isinstance(outcome, Unknown):
        raise StoreError(f"could not store {key} ({outcome.reason}): back up again")
    return name


def load_manifest(target: str, name: str) -> Program[Manifest]:
    """Return a manifest by its name. Raises ``CorruptObject``."""
    key = f"{target}/{OWN}/manifests/{name}.json"
    found = yield from get(key)
    if not isinstance(found, Found) or digest_of(found.body) != name.rpartition("-")[2]:
        what = "is missing" if not isinstance(found, Found) else "was damaged"
        raise CorruptObject(f"{key} {what}: {Manifest.REMEDY}", key=key)
    return decode(key, found.body, Manifest)


def own_target(
    target: str, lake_id: str, former: tuple[str, ...], root: str, ids: Ids, keys: list[str]
) -> Program[None]:
    """Take an empty directory for the backups of a lake; refuse one that has anything else.

    Raises
    ------
    InvalidOperation
        The directory has other objects, or the backups of another lake.
    """
    key = f"{target}/{OWN}/lake.json"
    if f"{OWN}/lake.json" not in keys:
        if keys:
            raise InvalidOperation(
                f"backup: {target} is not empty, and no backup of a lake: it has {keys[0]}; choose "
                "a directory of its own"
            )
        owner = Owner(FORMAT, ids.nonce(), lake_id, root)
        outcome = yield from put(key, encode(owner), ABSENT)
        if isinstance(outcome, Stored):
            return
    found = yield from get(key)
    if not isinstance(found, Found):
        raise StoreError(f"could not store {key}: back up again")
    owner = decode(key, found.body, Owner)
    # A lake restored beside has the former id, too, and the lake that has the directory goes on.
    if owner.lake_id != lake_id and (owner.lake_id not in former or owner.root != root):
        raise InvalidOperation(
            f"backup: {target} has the backups of another lake, that at {owner.root} (id "
            f"{owner.lake_id}): choose another directory"
        )
